//! A device that fails, panics or has no room ends its lane with its own error, and no other lane.

#![expect(unsafe_code, reason = "what a framework does with a tensor is C")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use percolator::{Device, DeviceError, Epochs, FeedError};

use crate::bench::{Bench, Broken, feed, feed_of, lane_of, next};
use crate::common;
use crate::common::process::{must_end, settles};
use crate::common::source::MemorySource;
use crate::lanes::drain;

/// Fifty images, of which one cannot be read.
fn with_a_bad_record(bad: usize) -> MemorySource {
    let image = |index: usize| match index == bad {
        true => (common::key(index), vec![0xff]),
        false => common::image(index, 1, 8, 8),
    };
    MemorySource::new("bad", (0..50).map(image))
}

/// The number of batches delivered, and the error that ends them.
fn end(bench: &Bench) -> (usize, FeedError) {
    bench.let_go();
    let watched = bench.clone();
    let bench = bench.clone();
    let ended = must_end("a lane of a broken device", move || {
        let (_feed, mut lane) = lane_of(&bench, 2);
        let mut batches = 0;
        loop {
            match lane.next().expect("an error comes before the end") {
                Ok(batch) => {
                    assert_eq!(batch.records()[0].index, 4 * batches % 50);
                    batches += 1;
                }
                Err(error) => {
                    assert!(lane.next().is_none(), "once");
                    return (usize::try_from(batches).unwrap(), error);
                }
            }
        }
    });
    assert!(!watched.state().freed_in_use, "memory was freed before the transfer that may be reading it");
    ended
}

#[test]
fn an_error_of_submit_ends_the_lane_after_the_batches_before_it() {
    for number in [0, 1, 5] {
        let bench = Bench::new(Broken::Submit(number));
        let (batches, error) = end(&bench);
        assert_eq!(batches, number);
        assert_eq!(error, FeedError::Device(bench.error("submit")));
    }
}

#[test]
fn a_batch_that_failed_is_dropped_after_its_transfer() {
    let bench = Bench::new(Broken::Nothing);
    bench.let_go();
    let (watched, moved) = (bench.clone(), bench.clone());
    must_end("a lane with a bad record", move || {
        let mut lane =
            feed_of(with_a_bad_record(30), &moved, 2).build().unwrap().take_lanes().unwrap().remove(0);
        let error = lane.find_map(Result::err).unwrap();
        assert!(matches!(&error, FeedError::Record(error) if error.id.index == 30), "{error}");
    });
    assert!(!watched.state().freed_in_use, "memory was freed before the transfer that may be reading it");
}

#[test]
fn an_error_of_the_last_use_ends_the_lane() {
    let bench = Bench::new(Broken::LastUse(3));
    let (batches, error) = end(&bench);
    // Batch 3 was delivered, and perhaps the next one of the ring.
    assert!(batches == 4 || batches == 5, "{batches}");
    assert_eq!(error, FeedError::Device(bench.error("last_use")));
}

/// Dropping the others may take as long as the device still uses them.
#[test]
fn a_slot_whose_device_failed_is_dropped_before_all_others() {
    must_end("a lane whose second batch fails when it is to be used again", || {
        let bench = Bench::new(Broken::LastUse(1));
        let mut lane = feed(&bench, 2).build().unwrap().take_lanes().unwrap().remove(0);
        let [first, second] = [lane.next(), lane.next()].map(|batch| batch.unwrap().unwrap());
        drop(first);
        bench.wait_until(|state| state.awaited.contains(&0));
        drop(second);
        assert_eq!(lane.next().unwrap().unwrap_err(), FeedError::Device(bench.error("last_use")));
        bench.let_go();
        lane.close();
        assert_eq!(bench.state().dropped, [Some(1), Some(0)]);
    });
}

#[test]
fn an_error_of_release_ends_the_lane() {
    let bench = Bench::new(Broken::Release);
    let (batches, error) = end(&bench);
    assert!((1..=2).contains(&batches), "the ring has two: {batches}");
    assert_eq!(error, FeedError::Device(bench.error("release")));
}

#[test]
fn a_device_without_room_is_told_at_build() {
    for (broken, call) in [(Broken::Memory, "host_memory"), (Broken::Transfer, "transfer")] {
        let bench = Bench::new(broken);
        // Beside a lane that was already started.
        let devices = [Device::host(0), Device::from_backend(Arc::new(bench.clone()))];
        let source = MemorySource::images("device", 50, 1, 8, 8);
        let probe = source.probe();
        let error = feed_of(source, &bench, 2).devices(devices).build().unwrap_err();
        assert_eq!(error, FeedError::Device(bench.error(call)));
        settles(|| (probe.is_dropped(), probe.cursors()), &(true, 0), "nothing is left running");
    }
}

#[test]
fn a_device_that_gives_too_little_memory_is_an_error_and_not_a_write_past_its_end() {
    let bench = Bench::new(Broken::MemoryTooSmall);
    let error = feed(&bench, 2).build().unwrap_err();
    assert!(matches!(error, FeedError::Device(DeviceError::OutOfMemory { .. })), "{error}");
}

#[test]
fn a_broken_device_ends_its_own_lane_and_no_other() {
    must_end("the lane beside a broken device", || {
        let bench = Bench::new(Broken::Submit(2));
        bench.let_go();
        let devices = [Device::from_backend(Arc::new(bench.clone())), Device::host(1)];
        let mut feed = feed(&bench, 2).devices(devices).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (other, broken) = (lanes.remove(1), lanes.remove(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let errors: Vec<_> = broken.filter_map(Result::err).collect();
                assert_eq!(errors, [FeedError::Device(bench.error("submit"))]);
            });
            // Many times the capacity of the queues: the reader does not wait for the lane that is gone.
            assert_eq!(other.take(50).filter(Result::is_ok).count(), 50);
        });
    });
}

/// Whichever the feed learns of first.
#[test]
fn a_device_that_fails_before_a_bad_record_of_another_lane_ends_its_lane_with_its_own_error() {
    must_end("a broken device beside a bad record", || {
        let bench = Bench::new(Broken::Submit(0));
        bench.change(|state| state.holds_submit = true);
        bench.let_go();
        // Record 9 is in the second batch of lane 1.
        let devices = [Device::from_backend(Arc::new(bench.clone())), Device::host(1)];
        let mut feed = feed_of(with_a_bad_record(9), &bench, 2)
            .devices(devices)
            .epochs(Epochs::OnePass)
            .build()
            .unwrap();
        // Lane 1 has found it, and waits for lane 0 to complete its first batch: it has no other slot.
        while feed.stats().lanes[1].waits_for_lanes.count == 0 {
            std::thread::yield_now();
        }
        bench.change(|state| state.holds_submit = false);
        let mut lanes = feed.take_lanes().unwrap();
        let (batches, error) = drain(&mut lanes[0]);
        assert_eq!((batches.len(), error), (0, Some(FeedError::Device(bench.error("submit")))));
        let (batches, error) = drain(&mut lanes[1]);
        assert_eq!(batches.len(), 1);
        assert!(matches!(&error, Some(FeedError::Record(error)) if error.id.index == 9), "{error:?}");
    });
}

/// Of two things that end one lane, the one at the earlier batch does.
#[test]
fn a_device_and_a_bad_record_of_one_lane_end_it_at_the_earlier_batch() {
    for (submit, record) in [(0, 4), (0, 13), (1, 13), (1, 3), (0, 3), (2, 9)] {
        must_end("a lane with a broken device and a bad record", move || {
            let bench = Bench::new(Broken::Submit(submit));
            bench.let_go();
            let feed = feed_of(with_a_bad_record(record), &bench, 4).epochs(Epochs::OnePass);
            let (batches, error) = drain(&mut feed.build().unwrap().take_lanes().unwrap()[0]);
            // What is wrong with a batch's records is found before it is sent.
            let of_record = record / 4;
            assert_eq!(batches.len(), of_record.min(submit), "{submit}, {record}");
            match error.unwrap() {
                FeedError::Record(error) => {
                    assert!(of_record <= submit && error.id.index == record as u64, "{submit}: {error}");
                }
                error => {
                    assert!(submit < of_record, "{record}: {error}");
                    assert_eq!(error, FeedError::Device(bench.error("submit")));
                }
            }
        });
    }
}

#[test]
fn a_lane_that_has_ended_gives_nothing_by_a_poll_either() {
    must_end("a lane beside one that failed", || {
        let bench = Bench::new(Broken::Submit(0));
        bench.let_go();
        let devices = [Device::host(0), Device::from_backend(Arc::new(bench.clone()))];
        let mut feed = feed(&bench, 2).devices(devices).build().unwrap();
        let before = feed.snapshot().unwrap();
        let error = feed.steps().next().unwrap().unwrap_err();
        assert_eq!(error, FeedError::Device(bench.error("submit")));
        // All lanes lose the step. The first lane's ring is full again, and its next batch is that of step 1.
        while feed.stats().lanes[0].waits_for_free.count == 0 {
            std::thread::yield_now();
        }
        let mut lane = feed.take_lanes().unwrap().remove(0);
        assert!(lane.is_ended());
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(lane.next().is_none());
        assert_eq!(
            feed.snapshot().unwrap().to_string(),
            before.to_string(),
            "and the run goes on from step 0"
        );
    });
}

#[test]
fn a_panic_of_release_ends_the_lane_and_neither_its_consumer_nor_the_process() {
    must_end("a lane whose device panics", || {
        for as_tensors in [false, true] {
            let bench = Bench::new(Broken::ReleasePanics);
            bench.let_go();
            let (_feed, mut lane) = lane_of(&bench, 1);
            let batch = next(&mut lane);
            if as_tensors {
                let mut tensors = batch.into_dlpack().unwrap();
                let raw = tensors.take("data").unwrap().into_raw();
                drop(tensors);
                // SAFETY: the tensor lives until its deleter is called.
                let deleter = unsafe { (*raw).deleter }.unwrap();
                // SAFETY: it is called once, as a framework does.
                unsafe { deleter(raw) };
            } else {
                drop(batch);
            }
            let error = lane.next().unwrap().unwrap_err();
            assert_eq!(
                error.to_string(),
                "the device of lane 0: release failed: it panicked: the test says so"
            );
            assert!(lane.next().is_none());
        }
    });
}
