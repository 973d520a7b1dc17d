//! The host as a device: a batch has arrived as soon as it is written.

use super::{Backend, Capacity, DeviceError, Event, HostBatch, Transfer};
use crate::batch::memory::{HostMemory, PageMemory};

/// The host, as the end of one of several lanes.
#[derive(Debug)]
pub(super) struct Host {
    number: usize,
}

impl Host {
    pub(super) fn new(number: usize) -> Self {
        Host { number }
    }
}

impl Backend for Host {
    fn name(&self) -> String {
        format!("host:{}", self.number)
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        match PageMemory::new(bytes) {
            Ok(memory) => Ok(Box::new(memory)),
            Err(error) => {
                Err(DeviceError::OutOfMemory { device: self.name(), bytes, message: error.to_string() })
            }
        }
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(InPlace))
    }
}

/// The transfer to the host: a batch stays where it was written, and its consumer reads it there. Once the
/// consumer drops it, it is no longer used.
#[derive(Debug)]
pub(super) struct InPlace;

/// An event that has already happened.
#[derive(Debug)]
struct Now;

impl Event for Now {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for InPlace {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        &Now
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        &Now
    }
}
