//! Feeds end in every order: by a cancellation, by an error of the source, and with their parts dropped one
//! after the other. What was complete is delivered, each lane is told once, and no thread stays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use percolator::batch::Field;
use percolator::reader::ReaderError;
use percolator::{Dtype, Epochs, Feed, FeedError};

use crate::common;
use crate::common::process::{is_alone, must_end, open_files, settles, this_test, threads};
use crate::lanes::{drain, due, hosts, images, over};

#[test]
fn cancelling_wakes_every_lane_once_after_what_was_complete() {
    must_end("lanes that are cancelled", || {
        let (source, mut stall) = images("cancelled", 20).stall_at(10);
        let mut feed = over(source).batch_size(2).devices(hosts(2)).build().unwrap();
        let handle = feed.handle();
        let mut lanes = feed.take_lanes().unwrap();
        std::thread::scope(|scope| {
            let drains: Vec<_> =
                lanes.iter_mut().map(|lane| scope.spawn(|| (lane.number(), drain(lane)))).collect();
            stall.wait();
            // The lanes wait for a source that does not answer: only the cancellation can wake them.
            handle.cancel();
            handle.cancel();
            for drain in drains {
                let (number, (seen, error)) = drain.join().unwrap();
                assert_eq!(error, Some(FeedError::Cancelled));
                assert_eq!(seen, due(20, number, 2, 2, 10)[..seen.len()], "the batches before, in order");
            }
        });
        stall.release();
    });
}

#[test]
fn an_error_of_the_source_comes_once_to_every_lane_after_the_batches_before_it() {
    must_end("lanes of a source that fails", || {
        for lanes in [1, 2, 3] {
            for is_panic in [false, true] {
                let source = images("faulty", 20);
                let source = if is_panic { source.panic_at(33) } else { source.fail_at(33) };
                let mut feed = over(source).batch_size(4).devices(hosts(lanes)).build().unwrap();
                let mut lanes_taken = feed.take_lanes().unwrap();
                std::thread::scope(|scope| {
                    for lane in &mut lanes_taken {
                        scope.spawn(move || {
                            let (seen, error) = drain(lane);
                            let error = error.expect("every lane hears of it");
                            match error {
                                FeedError::Reader(ReaderError::Panicked { .. }) => assert!(is_panic),
                                FeedError::Reader(ReaderError::Source(_)) => assert!(!is_panic),
                                other => panic!("{other}"),
                            }
                            let due = due(20, lane.number(), lanes, 4, 33);
                            assert_eq!(seen, due[..33 / (4 * lanes)], "all of the steps before it");
                        });
                    }
                });
            }
        }
    });
}

#[test]
fn a_dropped_lane_takes_nothing_from_its_siblings_and_is_accounted_for() {
    for batch_size in [1, 4, 16] {
        let records = 100;
        let mut feed = over(images("dropped", records))
            .batch_size(batch_size)
            .prefetch(1)
            .devices(hosts(3))
            .epochs(Epochs::OnePass)
            .build()
            .unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let mut leaving = lanes.remove(1);
        let first = leaving.next().unwrap().unwrap();
        assert_eq!(first.records(), due(records, 1, 3, batch_size, records)[0]);
        drop(leaving);
        std::thread::scope(|scope| {
            for mut lane in lanes {
                scope.spawn(move || {
                    let number = lane.number();
                    assert_eq!(drain(&mut lane), (due(records, number, 3, batch_size, records), None));
                });
            }
        });
        let stats = feed.stats();
        assert!(stats.reader.undelivered > 0, "{stats}");
        assert_eq!(
            stats.reader.records + stats.reader.undelivered,
            records as u64,
            "no record is lost: {stats}"
        );
    }
}

#[test]
fn feeds_end_in_every_order_and_leave_no_thread() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 40, 1, 6, 6);
    // The first feed may open what stays open. The system counts a thread for a moment after its join.
    let threads_before = threads();
    end_a_feed(folder.path(), 0);
    settles(threads, &threads_before, "threads after the first feed");
    let before = (threads_before, open_files());
    let path = folder.path().to_owned();
    must_end("the drop of a feed", move || (0..400).for_each(|number| end_a_feed(&path, number)));
    settles(|| (threads(), open_files()), &before, "threads and open files");
}

/// Drops the parts of a feed in an order derived from `number`, some of them while it runs at full speed.
fn end_a_feed(path: &std::path::Path, number: usize) {
    let mut state = number as u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let lanes = 1 + below(3);
    let mut builder =
        Feed::builder().lmdb(path).batch_size(1 + below(9)).prefetch(1 + below(4)).threads(1 + below(3));
    if below(4) == 0 {
        builder = builder.epochs(Epochs::OnePass);
    }
    let mut feed = builder.devices(hosts(lanes)).build().unwrap();
    let handle = feed.handle();
    let mut parts: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
    for mut lane in feed.take_lanes().unwrap() {
        // At most one batch a lane: a second one might wait for a sibling's consumer.
        if below(2) == 0
            && let Some(batch) = lane.next()
        {
            parts.push(Box::new(batch.unwrap()));
        }
        parts.push(Box::new(lane));
    }
    parts.push(Box::new(feed));
    if below(5) == 0 {
        handle.cancel();
    }
    while !parts.is_empty() {
        let part = parts.swap_remove(below(parts.len()));
        if below(3) == 0 {
            std::thread::spawn(move || drop(part)).join().unwrap();
        }
    }
}

#[test]
fn a_lane_that_is_left_ends_after_the_record_at_hand() {
    must_end("a lane whose workers have much to do", || {
        let (decoded, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new((Mutex::new(true), Condvar::new())));
        let (counts, stands) = (decoded.clone(), gate.clone());
        let x = Field::scalar("x", Dtype::U8);
        let feed = over(images("left", 1000)).decode([x], move |record, row| {
            counts.fetch_add(1, Ordering::SeqCst);
            if record.id.index > 0 {
                let is_shut = stands.0.lock().unwrap();
                drop(stands.1.wait_while(is_shut, |is_shut| *is_shut).unwrap());
            }
            Ok(row.set(0, 0_u8)?)
        });
        let feed = feed.batch_size(1).threads(1).prefetch(64).build().unwrap();
        let handle = feed.handle();
        let lane = || handle.stats().lanes.remove(0);
        // One batch is complete, the worker stands still in the next, and runs for the others wait.
        while decoded.load(Ordering::SeqCst) < 2 || lane().ready < 1 || lane().filling < 3 {
            std::thread::yield_now();
        }
        let leaves = std::thread::spawn(move || drop(feed));
        // What is complete is given up last of all.
        while lane().ready > 0 {
            std::thread::yield_now();
        }
        *gate.0.lock().unwrap() = false;
        gate.1.notify_all();
        leaves.join().unwrap();
        assert_eq!(decoded.load(Ordering::SeqCst), 2, "and not what was queued");
    });
}
