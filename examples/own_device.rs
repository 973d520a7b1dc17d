//! A caller-implemented device: batches are "sent" to a thread that checks them, as a network card or a
//! simulator would take them. It shows what a device provides: memory, transfers, and two events.
//!
//! `cargo run --release --example own_device`

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use parking_lot::{Condvar, Mutex};
use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::source::FnSource;
use percolator::{Device, DeviceError, Feed, RawBytes};

/// The device: a thread that takes arrays.
#[derive(Debug)]
struct Wire {
    jobs: Sender<Job>,
}

/// The bytes to send, and the event to signal afterwards.
type Job = (Vec<u8>, Arc<Done>);

/// An event that a thread signals.
#[derive(Debug, Default)]
struct Done(Mutex<bool>, Condvar);

impl Done {
    fn set(&self, is_done: bool) {
        *self.0.lock() = is_done;
        self.1.notify_all();
    }
}

impl Event for Done {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(*self.0.lock())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let mut is_done = self.0.lock();
        while !*is_done {
            self.1.wait(&mut is_done);
        }
        Ok(())
    }
}

impl Wire {
    fn start() -> Self {
        let (jobs, queue) = channel::<Job>();
        std::thread::spawn(move || {
            for (bytes, done) in queue {
                let sum: u64 = bytes.iter().copied().map(u64::from).sum();
                // Nobody may read it, and the event must happen even so.
                let _ = writeln!(io::stdout(), "  wire: {} bytes, which add up to {sum}", bytes.len());
                done.set(true);
            }
        });
        Wire { jobs }
    }
}

impl Backend for Wire {
    fn name(&self) -> String {
        "wire:0".to_owned()
    }

    /// The memory that batches are written to, which the device must read fast. A card would give page-locked
    /// memory.
    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        match PageMemory::new(bytes) {
            Ok(memory) => Ok(Box::new(memory)),
            Err(error) => {
                let (device, message) = (self.name(), error.to_string());
                Err(DeviceError::OutOfMemory { device, bytes, message })
            }
        }
    }

    /// One transfer for each batch of a lane's ring.
    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        let arrived = Arc::new(Done::default());
        arrived.set(true);
        Ok(Box::new(Crossing { jobs: self.jobs.clone(), arrived }))
    }
}

#[derive(Debug)]
struct Crossing {
    jobs: Sender<Job>,
    arrived: Arc<Done>,
}

impl Transfer for Crossing {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        self.arrived.set(false);
        // The memory is not written again before `last_use`, so a card could read it in place. A thread
        // cannot borrow it for that long, so this one takes a copy.
        let bytes = batch.array("data").map(|array| array.bytes.to_vec()).unwrap_or_default();
        self.jobs.send((bytes, self.arrived.clone())).map_err(|_| DeviceError::Call {
            device: "wire:0".to_owned(),
            call: "send",
            message: "its thread has ended".to_owned(),
        })
    }

    fn arrival(&self) -> &dyn Event {
        &*self.arrived
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Nobody uses a batch once it has been sent and its consumer has dropped it.
    fn last_use(&self) -> &dyn Event {
        &*self.arrived
    }
}

fn main() -> anyhow::Result<()> {
    let source = FnSource::new("made", 20, |position, value| {
        value.resize(1000, u8::try_from(position).unwrap_or(u8::MAX));
        Ok(())
    });
    let feed = Feed::builder()
        .source(source)
        .decoder(RawBytes::fixed())
        .devices([Device::from_backend(Arc::new(Wire::start()))])
        .batch_size(8)
        .epochs(1)
        .build()?;
    for batch in feed {
        let batch = batch?;
        batch.wait()?;
        println!("{batch:?} has arrived");
    }
    Ok(())
}
