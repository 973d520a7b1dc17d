//! The host as a device: a batch has arrived as soon as it is written.

use super::{Backend, Capacity, DeviceError, Event, HostBatch, Transfer};
use crate::batch::memory::{HostMemory, PageMemory};

/// The host, as one of several lanes' ends.
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
        Ok(Box::new(Standing))
    }
}

/// A batch for the host stays where it was written, and its consumer reads it there: when the consumer has
/// let go, nobody is left to wait for.
#[derive(Debug)]
pub(super) struct Standing;

/// It has happened already.
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

impl Transfer for Standing {
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
