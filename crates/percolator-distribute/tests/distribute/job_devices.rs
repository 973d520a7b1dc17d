//! The batches of a job go through the device of their lane, and so do those that stand in for missing ones.
//! Options say how deep its ring is, and whether batches stay on the host.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::order::{InputContext, OrderError};
use percolator::{Batch, Device, DeviceError, Epochs};
use percolator_distribute::{InputOptions, InputWorker, InputWorkers, distribute, distribute_from_fn};

use crate::common::process::must_end;
use crate::jobs::{feed, images};

/// A device that counts the calls it gets.
#[derive(Debug, Default)]
struct Counting {
    memories: AtomicUsize,
}

impl Backend for Counting {
    fn name(&self) -> String {
        "counting".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        assert!(bytes > 0);
        self.memories.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(Way))
    }
}

#[derive(Debug)]
struct Way;

impl Event for Way {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for Way {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        self
    }
}

#[test]
fn batches_that_stand_in_go_through_the_lanes_device_and_round_again() {
    must_end("a long tail", || {
        let [short, long]: [Arc<Counting>; 2] = Default::default();
        let device = |backend: &Arc<Counting>| Device::from_backend(backend.clone());
        let workers = InputWorkers::new([
            InputWorker::here("short", [device(&short)]),
            InputWorker::here("long", [device(&long)]),
        ]);
        let described = |context: InputContext| {
            let records = [1, 30][context.input_pipeline_id];
            Ok::<_, OrderError>(feed(images("tail", records)).batch_size(1).epochs(Epochs::OnePass))
        };
        let options = InputOptions::new().per_replica_buffer_size(0).prefetch(1);
        let mut job = distribute_from_fn(&workers.unwrap(), options, described).unwrap();
        let mut held = None;
        for (number, step) in job.by_ref().enumerate() {
            let step = step.unwrap();
            let is_way = |batch: &Batch| (batch.transfer() as &dyn std::any::Any).is::<Way>();
            assert!(step.batches.iter().all(is_way), "step {number}");
            // One of them is held to the end.
            if number == 1 {
                held = step.batches.into_iter().next();
            }
        }
        assert!(held.unwrap().is_empty());
        assert_eq!(long.memories.load(Ordering::SeqCst), 2);
        assert_eq!(
            short.memories.load(Ordering::SeqCst),
            2 + 2,
            "a ring, and one beside the one that is held"
        );
    });
}

#[test]
fn options_say_how_deep_a_ring_is_and_whether_batches_stay_on_the_host() {
    must_end("options", || {
        let backend = Arc::new(Counting::default());
        let workers = || {
            let devices = [0, 1].map(|_| Device::from_backend(backend.clone()));
            InputWorkers::alone(devices).unwrap()
        };
        let looks = |options| {
            let dataset = feed(images("options", 4)).epochs(1);
            let job = distribute(dataset, 2, &workers(), options).unwrap();
            let (name, feed) = job.feeds().next().unwrap();
            assert_eq!(name, "worker 0");
            (feed.sizing().prefetch, feed.stats().lanes[1].device.clone())
        };
        assert_eq!(looks(InputOptions::new()).0, looks(InputOptions::default()).0);
        assert_eq!(looks(InputOptions::new().per_replica_buffer_size(1)), (3, "counting".to_owned()));
        assert_eq!(looks(InputOptions::new().prefetch(6).per_replica_buffer_size(2)).0, 6);
        let before = backend.memories.load(Ordering::SeqCst);
        assert_eq!(looks(InputOptions::new().fetch_to_device(false)).1, "host:1");
        assert_eq!(backend.memories.load(Ordering::SeqCst), before);
    });
}
