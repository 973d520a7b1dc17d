//! Where a feed of several lanes ends when a record, or the source, ends it: at the same step in every run,
//! for any number of threads. A plain model says at which: the first step in which any lane has a batch that
//! cannot be. Every lane gets its batches of the steps before, and then the same error.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use percolator::bad::BadRecords;
use percolator::reader::ReaderError;
use percolator::record::RecordId;
use percolator::source::{FnSource, SourceError};
use percolator::{Device, Feed, FeedBuilder, FeedError, Shuffle};
use proptest::prelude::*;

use crate::bad_policy::{decode, feed, fields};
use crate::common::process::must_end;
use crate::lanes::drain;

/// What a lane got: its records, batch by batch, and the error that ended it.
type Got = (Vec<Vec<RecordId>>, Option<FeedError>);

/// What ends the feed.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The decoder refuses these records, and the policy is to fail.
    Refused,
    /// It refuses them, and each lane may have so many.
    TooMany(u64),
    /// The same, as a part of the lane's records. It is of 1,000 at least.
    TooLarge(f64),
    /// The source cannot read them.
    Unreadable,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    RoundRobin,
    Plan,
    Shuffled,
}

fn made(records: u64, faulty: &BTreeSet<u64>, fault: Fault) -> FeedBuilder {
    match fault {
        Fault::Refused => feed(records, faulty),
        Fault::TooMany(most) => {
            feed(records, faulty).bad_records(BadRecords::skip().at_most_rate(1.0).at_most(most))
        }
        Fault::TooLarge(rate) => feed(records, faulty).bad_records(BadRecords::skip().at_most_rate(rate)),
        Fault::Unreadable => {
            let faulty = faulty.clone();
            let source = FnSource::new("made", records, move |position, to| {
                to.extend([u8::try_from(position).unwrap(), 0]);
                match faulty.contains(&position) {
                    true => Err(SourceError::other("made", "torn")),
                    false => Ok(()),
                }
            });
            Feed::builder().source(source).fields(fields()).decode(decode)
        }
    }
}

fn ordered(builder: FeedBuilder, order: Order, lanes: usize) -> FeedBuilder {
    let builder = builder.devices((0..lanes).map(Device::host));
    match order {
        Order::RoundRobin => builder.once(),
        Order::Plan => builder.epochs(1),
        Order::Shuffled => builder.epochs(1).shuffle(Shuffle::Global).seed(7),
    }
}

/// Drains each lane on a thread of its own.
fn concurrently(builder: FeedBuilder) -> Vec<Got> {
    must_end("lanes on threads of their own", || {
        let mut lanes = builder.build().unwrap().take_lanes().unwrap();
        std::thread::scope(|scope| {
            let drains: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(|| drain(lane))).collect();
            drains.into_iter().map(|drain| drain.join().unwrap()).collect()
        })
    })
}

/// The steps of all lanes together: how many there are, and the error behind them.
fn together(builder: FeedBuilder) -> (usize, Option<FeedError>) {
    must_end("steps", || {
        let mut feed = builder.build().unwrap();
        let mut steps = 0;
        for step in feed.steps() {
            match step {
                Ok(_) => steps += 1,
                Err(error) => return (steps, Some(error)),
            }
        }
        (steps, None)
    })
}

/// The plain model: the step at which the feed ends, and the record that its error names, if it names one.
fn end(
    whole: &[Vec<Vec<RecordId>>],
    faulty: &BTreeSet<u64>,
    fault: Fault,
) -> Option<(usize, Option<RecordId>)> {
    let is_faulty = |id: &&RecordId| faulty.contains(&id.index);
    let of_lane = |batches: &Vec<Vec<RecordId>>| {
        let (mut bad, mut records) = (0, 0);
        batches.iter().enumerate().find_map(|(step, batch)| {
            bad += batch.iter().filter(is_faulty).count() as u64;
            records += batch.len() as u64;
            let (first, last) = (batch.iter().find(is_faulty)?, batch.iter().rfind(is_faulty)?);
            let named = match fault {
                Fault::Refused => Some(*first),
                Fault::Unreadable => None,
                Fault::TooMany(most) if bad > most => Some(*last),
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                Fault::TooLarge(rate) if bad as f64 > (records.max(1000) as f64 * rate).floor() => {
                    Some(*last)
                }
                _ => return None,
            };
            Some((step, named))
        })
    };
    whole.iter().filter_map(of_lane).min()
}

/// Compares a run on threads and one by steps with the model.
fn check(records: u64, faulty: &BTreeSet<u64>, fault: Fault, order: Order, lanes: usize, set: &Set) {
    let set = |builder: FeedBuilder| {
        let builder = ordered(builder, order, lanes).batch_size(set.batch_size).threads(set.threads);
        builder.prefetch(set.prefetch)
    };
    let whole: Vec<_> =
        concurrently(set(feed(records, &BTreeSet::new()))).into_iter().map(|lane| lane.0).collect();
    let expected = end(&whole, faulty, fault);
    let builder = || set(made(records, faulty, fault));
    let named = |error: &FeedError| match error {
        FeedError::Record(error) => Some(error.id),
        FeedError::TooManyBad(error) => Some(error.record.id),
        FeedError::Reader(ReaderError::Source(SourceError::Other { .. })) => None,
        other => panic!("{other}"),
    };
    let mut first_error = None;
    for (number, (got, error)) in concurrently(builder()).into_iter().enumerate() {
        let steps = expected.map_or(usize::MAX, |(step, _)| step).min(whole[number].len());
        let lengths: Vec<usize> = got.iter().map(Vec::len).collect();
        match fault {
            // Batches that go on without their bad records.
            Fault::TooMany(_) | Fault::TooLarge(_) => {
                assert_eq!(got.len(), steps, "lane {number}: {lengths:?}")
            }
            _ => assert_eq!(got, whole[number][..steps], "lane {number}"),
        }
        assert_eq!(error.as_ref().map(named), expected.map(|(_, named)| named), "lane {number}");
        assert_eq!(first_error.get_or_insert(error.clone()), &error, "lane {number}");
    }
    let (steps, error) = together(builder());
    let all = whole.iter().map(Vec::len).max().unwrap();
    assert_eq!(steps, expected.map_or(all, |(step, _)| step));
    assert_eq!(Some(error), first_error);
}

#[derive(Clone, Copy, Debug)]
struct Set {
    batch_size: usize,
    threads: usize,
    prefetch: usize,
}

/// Each way of it a hundred times: what ends early, or late, does so only now and then.
#[test]
fn every_run_ends_at_the_step_of_the_bad_record() {
    let batches = |builder: FeedBuilder| -> Vec<usize> {
        concurrently(builder).into_iter().map(|(seen, error)| (seen.len(), error.unwrap()).0).collect()
    };
    let faulty = BTreeSet::from([33]);
    for (lanes, steps) in [(1, 8), (2, 4), (3, 2), (4, 2)] {
        for run in 0..100 {
            let order = if run % 2 == 0 { Order::RoundRobin } else { Order::Plan };
            let fault = [Fault::Refused, Fault::Unreadable, Fault::TooMany(0)][run % 3];
            let builder =
                || ordered(made(60, &faulty, fault), order, lanes).batch_size(4).threads(1 + run % 4);
            assert_eq!(batches(builder()), vec![steps; lanes], "run {run}, {order:?}, {fault:?}");
            assert_eq!(together(builder()).0, steps, "run {run}, {order:?}, {fault:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn lanes_end_where_a_plain_model_says(
        records in 4_u64..90,
        faulty in prop::collection::btree_set(1_u64..90, 0..6),
        fault in prop_oneof![
            Just(Fault::Refused),
            (0_u64..4).prop_map(Fault::TooMany),
            (0_u32..4).prop_map(|of| Fault::TooLarge(f64::from(of) / 1000.0)),
            Just(Fault::Unreadable),
        ],
        order in prop_oneof![Just(Order::RoundRobin), Just(Order::Plan), Just(Order::Shuffled)],
        lanes in 1_usize..5,
        batch_size in 1_usize..7,
        threads in 1_usize..5,
        prefetch in 1_usize..4,
    ) {
        check(records, &faulty, fault, order, lanes, &Set { batch_size, threads, prefetch });
    }
}

/// A lane that is not drained keeps the others waiting once its ring is full, and not before.
#[test]
fn a_lane_is_ahead_of_another_by_a_ring() {
    must_end("lanes apart", || {
        for prefetch in [1, 2, 4] {
            let builder = ordered(feed(200, &BTreeSet::new()), Order::RoundRobin, 2).prefetch(prefetch);
            let mut lanes = builder.build().unwrap().take_lanes().unwrap();
            for ahead in [0, 1] {
                for _ in 0..3 {
                    lanes[ahead].by_ref().take(prefetch).for_each(|batch| drop(batch.unwrap()));
                    lanes[1 - ahead].by_ref().take(prefetch).for_each(|batch| drop(batch.unwrap()));
                }
            }
        }
    });
}

/// What has no place in the data keeps its rules: it ends the lanes at once, also those that wait for others.
#[test]
fn a_lane_that_waits_for_another_is_cancelled() {
    must_end("a lane that waits for another", || {
        let mut feed =
            ordered(feed(200, &BTreeSet::new()), Order::RoundRobin, 2).prefetch(2).build().unwrap();
        let canceller = feed.canceller();
        let mut lanes = feed.take_lanes().unwrap();
        let (mut idle, mut ahead) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        std::thread::scope(|scope| {
            let draining = scope.spawn(|| drain(&mut ahead));
            while feed.stats().lanes[0].batches < 2 {
                std::thread::yield_now();
            }
            canceller.cancel();
            let (seen, error) = draining.join().unwrap();
            // The other lane may have been told first: then its batches are waited for no longer.
            assert!((2..=4).contains(&seen.len()) && error == Some(FeedError::Cancelled), "{error:?}");
        });
        assert_eq!(drain(&mut idle).1, Some(FeedError::Cancelled));
    });
}

/// A lane whose consumer has left is waited for no longer, whatever it has found.
#[test]
fn a_lane_that_has_left_holds_nobody_up() {
    must_end("lanes beside one that has left", || {
        for leaves_after in 0..3 {
            let faulty = BTreeSet::from([150]);
            let builder = ordered(made(200, &faulty, Fault::Refused), Order::RoundRobin, 3).prefetch(2);
            let mut lanes = builder.build().unwrap().take_lanes().unwrap();
            // Record 150 is lane 0's.
            let mut leaving = lanes.remove(0);
            std::thread::scope(|scope| {
                let drains: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(|| drain(lane))).collect();
                leaving.by_ref().take(leaves_after).for_each(|batch| drop(batch.unwrap()));
                drop(leaving);
                for drained in drains.into_iter().map(|drain| drain.join().unwrap()) {
                    assert_eq!((drained.0.len(), drained.1), (17, None));
                }
            });
        }
    });
}
