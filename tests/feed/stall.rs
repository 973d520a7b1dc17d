//! While a Caffe training loop waits, the log says only "Waiting for data". These tests make a lane wait for
//! each possible cause and read the warning. The test waits for the warning's text, then releases the stalled
//! side. After that, the statistics must blame the same side.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use percolator::feed::{Bottleneck, TryNext};
use percolator::{Device, Epochs, Feed, FeedBuilder, FeedError, Lane, Stats};
use percolator_chaos::{Chaos, Fault};

use crate::common::log::Log;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

const SHORT: Duration = Duration::from_millis(20);

fn feed(source: MemorySource) -> FeedBuilder {
    Feed::builder().source(source).threads(1).prefetch(2).warn_after(SHORT)
}

fn next(lane: &mut Lane) -> percolator::Batch {
    lane.next().expect("the lane goes on").unwrap()
}

/// Waits until the statistics say so, and returns them. The sides of a stall begin to wait one after another,
/// each by its own clock: when the consumer warns, only the consumer has waited for [`SHORT`].
fn wait_until(feed: &Feed, is_said: impl Fn(&Stats) -> bool) -> Stats {
    loop {
        let stats = feed.stats();
        if is_said(&stats) {
            return stats;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_stalled_source_is_named_and_blamed() {
    must_end("a lane of a stalled source", || {
        let (source, mut stall) = MemorySource::images("stalled", 10, 1, 4, 4).stall_at(3);
        let mut feed = feed(source).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let log = Log::default();
        let warning = std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || {
                log.listen(|| {
                    for index in 0..5 {
                        assert_eq!(next(&mut lane).records()[0].index, index);
                    }
                    lane
                })
            });
            let warning = log.wait_for("waiting for data");
            wait_until(&feed, |stats| {
                stats.bottleneck() == Bottleneck::Reader
                    && stats.lanes[0].waits_for_records.time >= SHORT
                    && stats.workers.waits_for_records.time >= SHORT
            });
            stall.release();
            waiter.join().unwrap();
            warning
        });
        assert!(warning.contains("WARN") && warning.contains("lane=0"), "{warning}");
        assert!(warning.contains("host:0") && warning.contains("cause=the source"), "{warning}");
        let stats = feed.stats();
        assert!(stats.lanes[0].waits_for_batch.time >= SHORT, "the consumer waited: {stats}");
        assert!(stats.lanes[0].waits_for_records.time >= SHORT, "so did the lane, for records: {stats}");
        assert!(stats.workers.waits_for_records.time >= SHORT, "and the worker: {stats}");
        assert!(stats.reader.waits_for_free.time < stats.lanes[0].waits_for_batch.time, "{stats}");
    });
}

#[test]
fn a_device_that_keeps_its_batches_is_named_and_blamed() {
    must_end("a lane of a busy device", || {
        let chaos = Chaos::new(Fault::every_last_use().sticks());
        let source = MemorySource::images("busy", 10, 1, 4, 4);
        let mut feed = feed(source).devices([chaos.device(Device::host(7))]).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let log = Log::default();
        let warning = std::thread::scope(|scope| {
            let log = &log;
            scope.spawn(move || {
                log.listen(|| {
                    drop([next(&mut lane), next(&mut lane)]);
                    next(&mut lane)
                })
            });
            let warning = log.wait_for("still uses the batches");
            wait_until(&feed, |stats| {
                stats.bottleneck() == Bottleneck::Device && stats.lanes[0].waits_for_device.time >= SHORT
            });
            chaos.release();
            warning
        });
        assert!(warning.contains("cause=host:7 still uses the batches that were dropped"), "{warning}");
        assert!(feed.stats().lanes[0].waits_for_device.time >= SHORT, "{}", feed.stats());
    });
}

#[test]
fn a_stall_is_blamed_while_it_lasts() {
    must_end("a look at a stalled feed", || {
        let (source, mut stall) = MemorySource::images("looked at", 10, 1, 4, 4).stall_at(1);
        let mut feed = feed(source).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let log = Log::default();
        std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || log.listen(|| (next(&mut lane), next(&mut lane), lane)));
            log.wait_for("waiting for data");
            let stats = wait_until(&feed, |stats| stats.bottleneck() == Bottleneck::Reader);
            stall.release();
            waiter.join().unwrap();
            assert!(stats.lanes[0].waits_for_batch.time >= SHORT, "the wait so far counts: {stats}");
        });
    });
}

#[test]
fn a_consumer_that_holds_every_batch_is_told_so() {
    must_end("a consumer that holds every batch", || {
        let mut feed = feed(MemorySource::images("held", 10, 1, 4, 4)).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let held = [next(&mut lane), next(&mut lane)];
        assert_eq!(feed.stats().lanes[0].held, 2);
        let log = Log::default();
        let warning = std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || log.listen(|| next(&mut lane).records()[0].index));
            let warning = log.wait_for("waiting for data");
            // Of the sides that wait, only this one could end the stall.
            wait_until(&feed, |stats| {
                stats.bottleneck() == Bottleneck::Consumer && stats.lanes[0].waits_for_free.time >= SHORT
            });
            drop(held);
            assert_eq!(waiter.join().unwrap(), 2);
            warning
        });
        assert!(warning.contains("the consumer holds all 2 batches of the lane"), "{warning}");
        let stats = feed.stats();
        assert!(stats.lanes[0].waits_for_free.time >= SHORT, "the lane waited for a batch back: {stats}");
        assert_eq!(stats.lanes[0].held, 0);
    });
}

#[test]
fn a_consumer_that_waits_while_it_holds_every_batch_gets_an_error_in_the_end() {
    must_end("a consumer that collects", || {
        let mut feed =
            feed(MemorySource::images("collected", 10, 1, 4, 4)).give_up_after(SHORT).build().unwrap();
        let mut collected = feed.take_lanes().unwrap().remove(0).collect::<Vec<_>>();
        let error = collected.pop().unwrap().unwrap_err();
        assert_eq!(collected.into_iter().map(|batch| batch.unwrap().records()[0].index).sum::<u64>(), 1);
        assert_eq!(feed.stats().bottleneck(), Bottleneck::Consumer, "{}", feed.stats());
        let text = error.to_string();
        let FeedError::AllHeld { lane: 0, held: 2, ring: 2, device, waited } = error else {
            panic!("{text}")
        };
        assert!(device == "host:0" && waited >= SHORT, "{text}");
        assert!(text.starts_with("lane 0 (host:0): its consumer holds all 2 batches of the ring"), "{text}");
        assert!(text.contains("lane.collect::<Vec<_>>()") && text.contains("give_up_after"), "{text}");
    });
}

#[test]
fn steps_that_are_held_are_an_error_to_all_lanes() {
    must_end("a consumer that collects steps", || {
        let devices = [0, 1].map(Device::host);
        let source = MemorySource::images("collected", 10, 1, 4, 4);
        let mut feed = feed(source).devices(devices).give_up_after(SHORT).build().unwrap();
        let mut steps: Vec<_> = feed.steps().collect();
        assert!(matches!(steps.pop(), Some(Err(FeedError::AllHeld { lane: 0, .. }))));
        assert_eq!(steps.len(), 2);
        assert_eq!(feed.stats().bottleneck(), Bottleneck::Consumer, "{}", feed.stats());
        // Two lanes on two threads: the lane that is not at fault must be told too, or it would wait for the
        // other for ever.
        let source = MemorySource::images("held", 10, 1, 4, 4);
        let mut feed =
            self::feed(source).devices([0, 1].map(Device::host)).give_up_after(SHORT).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (other, holding) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        let other = std::thread::spawn(move || other.filter_map(Result::err).next().unwrap());
        let held = holding.collect::<Vec<_>>();
        assert!(matches!(held.last(), Some(Err(FeedError::AllHeld { lane: 0, .. }))));
        assert!(matches!(other.join().unwrap(), FeedError::AllHeld { lane: 0, .. }));
    });
}

/// The other lanes wait for the one that is held, whichever that is.
#[test]
fn a_lane_that_is_held_is_named_whichever_lane_is_asked_first() {
    must_end("a consumer that keeps the batches of one lane", || {
        for held in 0..3 {
            for has_time in [false, true] {
                let source = MemorySource::images("kept", 10, 1, 4, 4);
                let feed = feed(source).devices([0, 1, 2].map(Device::host)).give_up_after(SHORT);
                let (mut feed, mut kept) = (feed.build().unwrap(), Vec::new());
                let error = loop {
                    while has_time && !feed.steps().wait_timeout(Duration::from_millis(1)) {}
                    match feed.steps().next().unwrap() {
                        Ok(mut step) => kept.push(step.remove(held)),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, FeedError::AllHeld { lane, .. } if lane == held), "{held}: {error}");
                assert_eq!(kept.len(), 2);
            }
        }
    });
}

#[test]
fn no_other_wait_is_given_up_and_none_where_nobody_wants_it() {
    must_end("waits that are not given up", || {
        // A source that stalls, with no batch held, and with one of two held.
        for held in [0, 1] {
            let (source, mut stall) = MemorySource::images("slow", 10, 1, 4, 4).stall_at(3);
            let mut feed = feed(source).give_up_after(Duration::ZERO).build().unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let log = Log::default();
            std::thread::scope(|scope| {
                let log = &log;
                let waiter = scope.spawn(move || {
                    log.listen(|| {
                        let kept: Vec<_> = (0..held).map(|_| next(&mut lane)).collect();
                        let last = (held..5).map(|_| next(&mut lane).records()[0].index).last();
                        (kept.len(), last)
                    })
                });
                log.wait_for("waiting for data");
                stall.release();
                assert_eq!(waiter.join().unwrap(), (held, Some(4)));
            });
        }
        // All batches are held, and another thread drops one.
        let mut feed = feed(MemorySource::images("held", 10, 1, 4, 4)).give_up_after(None).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let held = [next(&mut lane), next(&mut lane)];
        let log = Log::default();
        std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || log.listen(|| next(&mut lane).records()[0].index));
            log.wait_for("the consumer holds all 2 batches");
            drop(held);
            assert_eq!(waiter.join().unwrap(), 2);
        });
    });
}

#[test]
fn a_lane_behind_its_sibling_is_told_which() {
    must_end("a lane behind its sibling", || {
        let mut feed = feed(MemorySource::images("siblings", 10, 1, 4, 4))
            .devices([0, 1].map(Device::host))
            .build()
            .unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (mut idle, mut hungry) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        let log = Log::default();
        let warning = std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || {
                log.listen(|| {
                    for step in 0..50 {
                        assert_eq!(next(&mut hungry).records()[0].index, 2 * step % 10);
                    }
                })
            });
            let warning = log.wait_for("waiting for data");
            wait_until(&feed, |stats| stats.reader.waits_for_free.time >= SHORT);
            for _ in 0..50 {
                next(&mut idle);
            }
            waiter.join().unwrap();
            warning
        });
        assert!(warning.contains("lane=0"), "{warning}");
        assert!(warning.contains("the reader waits for lane 1, whose consumer does not take"), "{warning}");
        let stats = feed.stats();
        assert!(stats.reader.waits_for_free.time >= SHORT, "the reader waited for lane 1: {stats}");
        assert!(stats.lanes[0].waits_for_batch.time >= SHORT, "{stats}");
    });
}

/// All of its records are in batches, and the reader has nothing more to do.
#[test]
fn a_lane_whose_end_waits_for_its_sibling_is_told_which() {
    must_end("a lane that has ended, beside an idle one", || {
        let source = MemorySource::images("ending", 6, 1, 4, 4);
        let mut feed =
            feed(source).devices([0, 1].map(Device::host)).epochs(Epochs::OnePass).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (idle, hungry) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        let log = Log::default();
        std::thread::scope(|scope| {
            let log = &log;
            let waiter = scope.spawn(move || log.listen(|| hungry.map(Result::unwrap).count()));
            let warning = log.wait_for("lane 1 has yet to complete its batch of the step, or of one before");
            assert!(warning.contains("lane=0"), "{warning}");
            assert_eq!(idle.map(Result::unwrap).count(), 3);
            assert_eq!(waiter.join().unwrap(), 3);
        });
    });
}

#[test]
fn a_lane_that_does_not_wait_says_nothing() {
    let mut feed =
        feed(MemorySource::images("quiet", 10, 1, 4, 4)).warn_after(Duration::MAX).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let log = Log::default();
    log.listen(|| (0..50).for_each(|_| drop(next(&mut lane))));
    assert_eq!(log.text(), "");
}

#[test]
fn a_slow_consumer_is_blamed() {
    let mut feed = feed(MemorySource::images("slow", 10, 1, 4, 4)).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let mut work = 0_u64;
    for _ in 0..200 {
        let batch = next(&mut lane);
        for step in 0..200_000_u64 {
            work =
                std::hint::black_box(work.wrapping_mul(31).wrapping_add(step ^ u64::from(batch.bytes()[0])));
        }
    }
    let stats = feed.stats();
    assert_eq!(stats.bottleneck(), Bottleneck::Consumer, "{stats}");
    assert!(stats.reader.waits_for_free.count > 0, "the reader waited for a slot: {stats}");
}

#[test]
fn a_reader_that_is_through_is_not_blamed_and_time_stands_still_after_the_end() {
    must_end("a feed that is through", || {
        let mut feed = feed(MemorySource::images("through", 4, 1, 4, 4))
            .prefetch(4)
            .epochs(Epochs::OnePass)
            .build()
            .unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let mut work = 0_u64;
        for batch in lane.by_ref() {
            let batch = batch.unwrap();
            for step in 0..20_000_000_u64 {
                work = std::hint::black_box(
                    work.wrapping_mul(31).wrapping_add(step ^ u64::from(batch.bytes()[0])),
                );
            }
        }
        assert!(lane.is_ended());
        let stats = feed.stats();
        assert_eq!(stats.bottleneck(), Bottleneck::Consumer, "{stats}");
        drop(lane);
        assert_eq!(feed.stats().elapsed, stats.elapsed);
    });
}

#[test]
fn a_step_waits_for_all_its_lanes() {
    must_end("steps of a stalled source", || {
        let (source, mut stall) = MemorySource::images("steps", 40, 1, 4, 4).stall_at(30);
        let mut feed =
            feed(source).devices((0..4).map(Device::host)).epochs(Epochs::OnePass).build().unwrap();
        let log = Log::default();
        std::thread::scope(|scope| {
            let (log, feed) = (&log, &mut feed);
            let waiter =
                scope.spawn(move || log.listen(|| feed.steps().map(|step| step.unwrap().len()).sum()));
            log.wait_for("waiting for data");
            stall.release();
            let records: usize = waiter.join().unwrap();
            assert_eq!(records, 40);
        });
        for lane in feed.stats().lanes {
            assert!(lane.waits_for_batch.time >= SHORT, "{lane:?}");
        }
    });
}

#[test]
fn what_is_ready_counts_as_no_wait() {
    must_end("a lane whose consumer holds every batch of a pass", || {
        // Four batches and a ring of four: no batch has to be returned before the next can be begun, and the
        // end of the pass is still seen.
        let mut feed = feed(MemorySource::images("ready", 4, 1, 4, 4))
            .prefetch(4)
            .epochs(Epochs::OnePass)
            .build()
            .unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let held: Vec<_> = lane.by_ref().map(Result::unwrap).collect();
        assert_eq!(held.len(), 4);
        let lane = &feed.stats().lanes[0];
        assert!(lane.waits_for_free.count <= 1, "the ring came round at most once: {lane:?}");
    });
}

#[test]
fn a_wait_may_end_early_and_takes_nothing() {
    must_end("waits with a time", || {
        let (source, mut stall) = MemorySource::images("interrupted", 10, 1, 4, 4).stall_at(3);
        let mut feed =
            feed(source).devices([Device::host(0), Device::host(1)]).epochs(Epochs::OnePass).build().unwrap();
        let log = Log::default();
        log.listen(|| {
            // Records 0 and 1 are the first step; lane 0 has record 2, and lane 1 waits for record 3.
            assert!(feed.steps().wait_timeout(Duration::MAX));
            assert!(feed.steps().wait_timeout(Duration::ZERO), "it is still there");
            assert_eq!(feed.steps().next().unwrap().unwrap().len(), 2);
            while !log.text().contains("waiting for data") {
                assert!(!feed.steps().wait_timeout(Duration::from_millis(1)), "the source stalls");
            }
        });
        let next = feed.next_steps();
        assert!(next.iter().all(|step| step.step == 1), "what was waited for was not taken: {next:?}");
        stall.release();
        let rest =
            feed.steps().map(|step| step.unwrap().iter().map(|batch| batch.records()[0].index).collect());
        assert_eq!(rest.collect::<Vec<Vec<u64>>>(), [[2, 3], [4, 5], [6, 7], [8, 9]]);
        assert!(feed.steps().wait_timeout(Duration::MAX), "the end needs no wait");
    });
}

#[test]
fn an_error_of_one_lane_ends_a_wait_with_a_time_for_all() {
    must_end("a wait for a lane that stalls, beside one that failed", || {
        let (source, mut stall) = MemorySource::images("one failed", 10, 1, 4, 4).stall_at(5);
        let devices = [Device::host(0), Device::host(1)];
        let mut feed =
            feed(source).devices(devices).give_up_after(SHORT).epochs(Epochs::OnePass).build().unwrap();
        // All batches of lane 0 are held. Record 5 would be lane 1's next.
        let held: Vec<_> = (0..2).map(|_| feed.steps().next().unwrap().unwrap().remove(0)).collect();
        while !feed.steps().wait_timeout(Duration::from_millis(1)) {}
        assert!(matches!(feed.steps().next(), Some(Err(FeedError::AllHeld { lane: 0, .. }))));
        stall.release();
        drop(held);
    });
}

#[test]
fn what_was_waited_for_and_not_taken_returns_with_its_lane() {
    let source = MemorySource::images("waited for", 10, 1, 4, 4);
    let mut lane = feed(source).build().unwrap().take_lanes().unwrap().remove(0);
    assert!(lane.wait_timeout(Duration::MAX));
    assert!(matches!(lane.try_next(), Ok(TryNext::Batch(batch)) if batch.records()[0].index == 0));
    assert!(lane.wait_timeout(Duration::MAX));
    drop(lane);
}

#[test]
fn a_consumer_that_holds_all_batches_is_told_by_waits_with_a_time_as_well() {
    let source = MemorySource::images("held", 10, 1, 4, 4);
    let mut feed = feed(source).give_up_after(SHORT).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let held = [next(&mut lane), next(&mut lane)];
    while !lane.wait_timeout(Duration::from_millis(1)) {}
    assert!(matches!(lane.next(), Some(Err(FeedError::AllHeld { held: 2, .. }))));
    assert!(lane.next().is_none());
    drop(held);
}
