//! A GPU reads a batch long after the call that sent it has returned. The device of these tests does nothing
//! by itself: an event happens when the test triggers it. They show that the feed waits for no event it does
//! not need, and that it writes and frees no memory that the device may still read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::sync::Arc;

use percolator::{Batch, Device, Epochs, Feed, FeedError, Lane};

use crate::bench::{Bench, Broken, feed, feed_of, lane_of, next};
use crate::common::process::must_end;
use crate::common::source::{MemorySource, Probe};

#[test]
fn batches_are_sent_in_order_and_handed_over_before_they_arrive() {
    must_end("a lane whose batches have not arrived", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 3);
        let batches = [next(&mut lane), next(&mut lane), next(&mut lane)];
        for (number, batch) in batches.iter().enumerate() {
            assert!(!batch.arrival().is_complete().unwrap(), "nobody waited for batch {number}");
            assert_eq!(batch.records()[0].index, 4 * number as u64);
            let state = bench.state();
            assert_eq!(state.sent[number].copy, batch.bytes());
            assert_eq!(state.sent[number].labels, batch.labels().unwrap());
        }
        // They arrive one by one, the last one first.
        bench.change(|state| state.arrived.insert(2));
        batches[2].wait().unwrap();
        assert!(!batches[0].arrival().is_complete().unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| batches[0].wait());
            bench.change(|state| state.arrived.insert(0));
            waiter.join().unwrap().unwrap();
        });
        assert!(!batches[1].arrival().is_complete().unwrap());
        bench.let_go();
        drop(batches);
        for number in 3..100 {
            assert_eq!(next(&mut lane).records()[0].index, 4 * number % 50);
        }
    });
}

#[test]
fn memory_is_not_written_before_its_last_use() {
    must_end("a lane whose batches are still read", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        assert_eq!(bench.state().released, HashSet::from([0, 1]), "the consumer has let go of both");
        // The feed needs the first batch's memory, and the device still reads both.
        bench.wait_until(|state| state.awaited.contains(&0));
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(bench.is_intact(0) && bench.is_intact(1));
        bench.change(|state| state.finished.insert(0));
        let third = next(&mut lane);
        assert_eq!(third.bytes().as_ptr() as usize, bench.state().sent[0].address, "its memory was reused");
        assert!(!bench.is_intact(0), "and the check can fail");
        bench.wait_until(|state| state.awaited.contains(&1));
        assert!(bench.is_intact(1), "the other's was not");
        drop(third);
        // The third was dropped too, but the device is not done with it or with the second.
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(bench.is_intact(1) && bench.is_intact(2));
        bench.let_go();
        for _ in 0..50 {
            next(&mut lane);
        }
    });
}

#[test]
fn a_batch_that_is_done_with_need_not_wait_for_one_before_it() {
    must_end("a lane whose second batch is done with first", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        bench.wait_until(|state| state.awaited.contains(&0) && state.awaited.contains(&1));
        bench.change(|state| state.finished.insert(1));
        let third = next(&mut lane);
        assert_eq!(
            third.bytes().as_ptr() as usize,
            bench.state().sent[1].address,
            "the second's memory was reused"
        );
        assert!(bench.is_intact(0), "the first's was not");
        bench.let_go();
    });
}

#[test]
fn a_lane_ends_while_its_device_is_still_busy() {
    must_end("a cancelled lane whose device has not let go of a batch", || {
        let bench = Bench::new(Broken::Nothing);
        let (feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        bench.wait_until(|state| state.awaited.contains(&0));
        // The prefetcher waits for the device and for a cancellation at once.
        feed.handle().cancel();
        assert!(matches!(lane.next(), Some(Err(FeedError::Cancelled))));
        bench.let_go();
    });
}

#[test]
fn a_complete_batch_is_delivered_while_an_earlier_one_is_still_read() {
    must_end("a complete batch behind one that is still read", || {
        // Large enough that the second is being written when the first is dropped.
        let bench = Bench::new(Broken::Nothing);
        let source = MemorySource::images("large", 4, 3, 1500, 1500);
        let mut feed = feed_of(source, &bench, 2).batch_size(1).threads(1).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        drop(next(&mut lane));
        // The device never finishes with the first; the second is delivered anyway.
        assert_eq!(next(&mut lane).records()[0].index, 1);
        bench.let_go();
    });
}

#[test]
fn a_lane_may_go_while_its_batches_are_on_their_way() {
    must_end("the drop of a lane whose batches have not arrived", || {
        for taken in 0..3 {
            let bench = Bench::new(Broken::WaitsInDrop);
            let (feed, mut lane) = lane_of(&bench, 3);
            let batches: Vec<Batch> = (0..taken).map(|_| next(&mut lane)).collect();
            bench.wait_until(|state| state.sent.len() == 3);
            drop(lane);
            drop(feed);
            drop(batches);
            assert_eq!(bench.state().released.len(), taken);
            bench.let_go();
            bench.wait_until(|state| state.memories == 0);
            assert!(!bench.state().freed_in_use);
        }
    });
}

/// A feed of one lane whose only pass has this many batches.
fn pass_of(bench: &Bench, batches: usize, prefetch: usize) -> (Feed, Lane, Arc<Probe>) {
    let source = MemorySource::images("pass", 4 * batches, 1, 8, 8);
    let probe = source.probe();
    let mut feed = feed_of(source, bench, prefetch).epochs(Epochs::OnePass).build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane, probe)
}

#[test]
fn the_end_of_a_pass_and_its_last_batches_wait_for_no_device() {
    must_end("a thread without which the device does not go on, at the end of a pass", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let (feed, mut lane, _) = pass_of(&bench, 4, 4);
        let mut batches: Vec<Batch> = (0..4).map(|_| next(&mut lane)).collect();
        // The device still reads the first batch while the others are held, and reads all of them when the
        // lane ends. It continues only when this thread tells it to, like a GPU whose step waits for another
        // one's, which is launched from here.
        drop(batches.remove(0));
        assert!(lane.next().is_none());
        drop(batches);
        assert_eq!(bench.state().released.len(), 4);
        // The lane does not wait either, although all batches have been returned.
        drop((lane, feed));
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

#[test]
fn a_lane_and_a_feed_that_are_closed_have_given_their_memory_back() {
    must_end("the end of a lane's batches", || {
        for closes_feed in [false, true] {
            let bench = Bench::new(Broken::WaitsInDrop);
            let mut feed = feed(&bench, 3).build().unwrap();
            bench.wait_until(|state| !state.sent.is_empty());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // The prefetch thread waits for the device.
                    bench.wait_until(|state| !state.dropped_on.is_empty());
                    bench.let_go();
                });
                if closes_feed {
                    feed.close();
                } else {
                    let mut lane = feed.take_lanes().unwrap().remove(0);
                    drop([next(&mut lane), next(&mut lane)]);
                    lane.close();
                }
                assert_eq!(bench.state().memories, 0);
            });
            assert!(!bench.state().freed_in_use);
        }
        // A batch that the consumer holds is not waited for: the thread that would wait may be the one that
        // holds it.
        let bench = Bench::new(Broken::WaitsInDrop);
        let (_feed, mut lane) = lane_of(&bench, 3);
        let held = next(&mut lane);
        lane.close();
        drop(held);
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
    });
}

#[test]
fn batches_that_outlive_their_lane_wait_for_no_device_and_hold_nothing_else() {
    must_end("a thread without which the device does not go on, and which drops its lane first", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let (feed, mut lane, probe) = pass_of(&bench, 8, 4);
        let first = next(&mut lane);
        let second = next(&mut lane);
        drop(next(&mut lane));
        drop(lane);
        drop(feed);
        assert!(probe.is_dropped() && probe.cursors() == 0, "the reader has ended");
        // The device finishes the third, and whatever was in flight.
        bench.change(|state| {
            state.finished.insert(2);
            state.finished.insert(3);
        });
        bench.wait_until(|state| state.memories == 2);
        assert_eq!(second.records()[0].index, 4, "what is held stays");
        drop(first);
        std::thread::spawn(|| drop(second)).join().unwrap();
        assert_eq!(bench.state().memories, 2, "the device is at work on both");
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

/// A lane on this device that has ended, so that empty batches stand in for its next ones.
fn ended(bench: &Bench) -> Lane {
    let source = MemorySource::images("ended", 1, 1, 8, 8);
    let feed = Feed::builder().source(source).threads(1).batch_size(1).epochs(Epochs::OnePass);
    let mut feed = feed.devices([Device::from_backend(Arc::new(bench.clone()))]).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    assert!(!next(&mut lane).is_empty(), "the first step has its record");
    assert!(lane.next().is_none());
    lane
}

/// Its next stand-in.
fn stand_in(lane: &mut Lane) -> Batch {
    lane.empty_batch().unwrap()
}

#[test]
fn empty_batches_wait_for_no_device_either() {
    must_end("a thread without which the device does not go on, at the end of a job", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let mut lane = ended(&bench);
        let [first, second, third] = [(); 3].map(|()| stand_in(&mut lane));
        assert!(first.is_empty() && second.is_empty() && third.is_empty());
        // The device reads all of them: the first while it is held beyond its lane, the second when the next
        // one is made, the third when the lane is dropped.
        drop(second);
        drop(stand_in(&mut lane));
        drop(third);
        drop(lane);
        std::thread::spawn(|| drop(first)).join().unwrap();
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

#[test]
fn empty_batches_go_round_again_once_their_device_is_done_with_them() {
    must_end("a job whose empty batches are used again", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let mut lane = ended(&bench);
        let mut address = || stand_in(&mut lane).bytes().as_ptr() as usize;
        let [first, second] = [address(), address()];
        assert_ne!(first, second, "the device is at work on the first when the second is made");
        bench.let_go();
        assert!([first, second].contains(&address()), "and now on none");
    });
}
