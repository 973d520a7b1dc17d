//! Where a feed of several lanes ends when a record, or the source, ends it: at the same step in every run,
//! for any number of threads. A plain model says at which: the first step in which any lane has a batch that
//! cannot be. Every lane gets its batches of the steps before, and then the same error.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use percolator::bad::BadRecords;
use percolator::feed::LaneStats;
use percolator::order::Block;
use percolator::reader::ReaderError;
use percolator::record::{RecordId, StepId};
use percolator::source::{FnSource, SourceError};
use percolator::{Device, Epochs, Feed, FeedBuilder, FeedError, Lane, Shuffle};
use percolator_chaos::{Chaos, Fault as Fail};
use proptest::prelude::*;

use crate::bad_policy::{decode, feed, fields};
use crate::blocks::Listed;
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
    /// Blocks of up to three steps, the last one first.
    Blocks,
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
            Feed::builder().source(source).decode(fields(), decode)
        }
    }
}

fn ordered(builder: FeedBuilder, order: Order, lanes: usize) -> FeedBuilder {
    let builder = builder.devices((0..lanes).map(Device::host));
    match order {
        Order::RoundRobin => builder.epochs(Epochs::OnePass),
        Order::Plan => builder.epochs(1),
        Order::Shuffled => builder.epochs(1).shuffle(Shuffle::Global).seed(7),
        Order::Blocks => {
            let builder = ordered(builder, Order::Shuffled, lanes);
            let steps = builder.clone().resolve().unwrap().plan().unwrap().steps(0).unwrap();
            let block = |step| Block { first: StepId { epoch: 0, step }, steps: (steps - step).min(3) };
            let mut blocks: Vec<_> = (0..steps).step_by(3).map(block).collect();
            blocks.reverse();
            builder.blocks(Listed::of(blocks))
        }
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
/// `submits` has the batches that devices fail to take: what is wrong behind one of them, nobody finds.
fn end(
    whole: &[Vec<Vec<RecordId>>],
    faulty: &BTreeSet<u64>,
    fault: Fault,
    submits: &[Option<usize>],
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
    let ends = whole.iter().zip(submits).filter_map(|(batches, submit)| {
        of_lane(batches).filter(|(step, _)| submit.is_none_or(|submit| *step <= submit))
    });
    ends.min()
}

/// Compares a run on threads and one by steps with the model.
fn check(records: u64, faulty: &BTreeSet<u64>, fault: Fault, order: Order, lanes: usize, set: &Set) {
    let set = |builder: FeedBuilder| ordered(set.of(builder), order, lanes);
    let whole: Vec<_> =
        concurrently(set(feed(records, &BTreeSet::new()))).into_iter().map(|lane| lane.0).collect();
    let expected = end(&whole, faulty, fault, &vec![None; lanes]);
    let builder = || set(made(records, faulty, fault));
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

/// The record that an error of the data names, if it names one.
fn named(error: &FeedError) -> Option<RecordId> {
    match error {
        FeedError::Record(error) => Some(error.id),
        FeedError::TooManyBad(error) => Some(error.record.id),
        FeedError::Reader(ReaderError::Source(SourceError::Other { .. })) => None,
        other => panic!("{other}"),
    }
}

#[derive(Clone, Copy, Debug)]
struct Set {
    batch_size: usize,
    threads: usize,
    prefetch: usize,
}

impl Set {
    fn of(&self, builder: FeedBuilder) -> FeedBuilder {
        builder.batch_size(self.batch_size).threads(self.threads).prefetch(self.prefetch)
    }
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
        order in prop_oneof![
            Just(Order::RoundRobin), Just(Order::Plan), Just(Order::Shuffled), Just(Order::Blocks),
        ],
        lanes in 1_usize..5,
        set in any_set(),
    ) {
        check(records, &faulty, fault, order, lanes, &set);
    }

    /// A device that fails ends its own lane, and no lane is told what is wrong behind that. If it fails at
    /// the step at which the feed ends, either error is right.
    #[test]
    fn lanes_of_failing_devices_end_where_a_plain_model_says(
        records in 4_u64..90,
        faulty in prop::collection::btree_set(1_u64..90, 0..6),
        fault in prop_oneof![Just(Fault::Refused), (0_u64..4).prop_map(Fault::TooMany)],
        order in prop_oneof![Just(Order::RoundRobin), Just(Order::Plan), Just(Order::Blocks)],
        submits in prop::collection::vec(prop::option::of(0_usize..12), 1..5),
        set in any_set(),
    ) {
        let lanes = submits.len();
        let whole = concurrently(ordered(set.of(feed(records, &BTreeSet::new())), order, lanes));
        let whole: Vec<_> = whole.into_iter().map(|lane| lane.0).collect();
        let due = end(&whole, &faulty, fault, &submits);
        let devices = submits.iter().enumerate().map(|(lane, submit)| match submit {
            Some(batch) => Chaos::new(Fail::submit(*batch as u64).fails("no")).device(Device::host(lane)),
            None => Device::host(lane),
        });
        let devices: Vec<_> = devices.collect();
        let got = concurrently(ordered(set.of(made(records, &faulty, fault)), order, lanes).devices(devices));
        for (lane, (batches, error)) in got.into_iter().enumerate() {
            let submit = submits[lane].filter(|submit| *submit < whole[lane].len());
            let data = due.map_or(usize::MAX, |(step, _)| step);
            let steps = data.min(submit.unwrap_or(usize::MAX)).min(whole[lane].len());
            prop_assert_eq!(batches.len(), steps, "lane {}: {:?}", lane, error);
            let is_of_device = matches!(&error, Some(FeedError::Device(_)));
            match submit {
                Some(submit) if submit < data => prop_assert!(is_of_device, "lane {}: {:?}", lane, error),
                Some(submit) if submit == data && is_of_device => {}
                _ => prop_assert_eq!(error.as_ref().map(named), due.map(|(_, id)| id), "lane {}", lane),
            }
        }
    }

    /// The step counts, and not how many batches a lane has had since it resumed.
    #[test]
    fn lanes_that_resume_apart_end_where_a_plain_model_says(
        records in 4_u64..90,
        faulty in prop::collection::btree_set(1_u64..90, 0..6),
        order in prop_oneof![Just(Order::Plan), Just(Order::Shuffled)],
        together in 0_usize..6,
        apart in prop::collection::vec(0_usize..4, 2..5),
        set in any_set(),
    ) {
        let lanes = apart.len();
        let set_of = |builder| ordered(set.of(builder), order, lanes);
        let whole = concurrently(set_of(feed(records, &BTreeSet::new())));
        let whole: Vec<_> = whole.into_iter().map(|lane| lane.0).collect();
        let taken: Vec<usize> =
            apart.iter().map(|apart| (together + apart.min(&set.prefetch)).min(whole[0].len())).collect();
        let snapshot = must_end("lanes that are taken apart", {
            let first = set_of(feed(records, &faulty).bad_records(BadRecords::skip()));
            let taken = taken.clone();
            move || {
                let mut feed = first.build().unwrap();
                let mut lanes = feed.take_lanes().unwrap();
                for step in 0..taken.iter().copied().max().unwrap() {
                    let takers = lanes.iter_mut().zip(&taken).filter(|(_, taken)| step < **taken);
                    takers.for_each(|(lane, _)| drop(lane.next().unwrap().unwrap()));
                }
                feed.snapshot().unwrap()
            }
        });
        let rests: Vec<Vec<_>> =
            whole.iter().zip(&taken).map(|(lane, taken)| lane[*taken..].to_vec()).collect();
        let first_bad = |(rest, taken): (&Vec<Vec<RecordId>>, &usize)| {
            let is_bad = |id: &&RecordId| faulty.contains(&id.index);
            rest.iter().enumerate().find_map(|(at, batch)| Some((taken + at, *batch.iter().find(is_bad)?)))
        };
        let due = rests.iter().zip(&taken).filter_map(first_bad).min();
        let got = concurrently(set_of(made(records, &faulty, Fault::Refused)).resume(&snapshot));
        for (lane, (batches, error)) in got.into_iter().enumerate() {
            let steps = due.map_or(usize::MAX, |(step, _)| step.saturating_sub(taken[lane]));
            prop_assert_eq!(&batches[..], &rests[lane][..steps.min(rests[lane].len())], "lane {}", lane);
            prop_assert_eq!(error.as_ref().map(named), due.map(|(_, id)| Some(id)), "lane {}", lane);
        }
    }
}

fn any_set() -> impl Strategy<Value = Set> {
    (1_usize..7, 1_usize..5, 1_usize..4).prop_map(|(batch_size, threads, prefetch)| Set {
        batch_size,
        threads,
        prefetch,
    })
}

/// What a lane waits for while it has batches that another one holds up: no deeper ring would help, and no
/// worker or consumer of its own is to blame.
#[test]
fn a_lane_that_another_one_holds_up_waits_for_that_alone() {
    /// Waits until all that waits in the lane is for other lanes, and so many of its batches do.
    fn await_held_up(feed: &Feed, filling: usize) {
        loop {
            let [before, after] = [feed.stats(), feed.stats()].map(|mut stats| stats.lanes.remove(0));
            let others = |lane: &LaneStats| {
                (lane.waits_for_free, lane.waits_for_device, lane.waits_for_workers, lane.waits_for_records)
            };
            let grows = after.waits_for_lanes.time > before.waits_for_lanes.time;
            if after.filling == filling && grows && others(&before) == others(&after) {
                return;
            }
            std::thread::yield_now();
        }
    }

    must_end("a lane in the middle, beside an idle one", || {
        let builder = ordered(feed(60, &BTreeSet::new()), Order::RoundRobin, 2).prefetch(2).batch_size(3);
        let mut feed = builder.build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let take = |lane: &mut Lane| lane.by_ref().take(2).for_each(|batch| drop(batch.unwrap()));
        // Lane 1 has completed two batches, and its ring is full; lane 0 completes two more.
        take(&mut lanes[0]);
        await_held_up(&feed, 2);
        for _ in 0..4 {
            take(&mut lanes[1]);
            take(&mut lanes[0]);
        }
        take(&mut lanes[1]);
        assert!(lanes.iter_mut().all(|lane| lane.next().is_none()));
    });
    must_end("the end of a lane, beside an idle one", || {
        let builder = ordered(feed(18, &BTreeSet::new()), Order::RoundRobin, 2).prefetch(2).batch_size(3);
        let mut feed = builder.build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        lanes[0].by_ref().take(2).for_each(|batch| drop(batch.unwrap()));
        await_held_up(&feed, 1);
        assert_eq!(drain(&mut lanes[1]).0.len(), 3);
        assert_eq!(drain(&mut lanes[0]).0.len(), 1);
    });
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
        let handle = feed.handle();
        let mut lanes = feed.take_lanes().unwrap();
        let (mut idle, mut ahead) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        std::thread::scope(|scope| {
            let draining = scope.spawn(|| drain(&mut ahead));
            while feed.stats().lanes[0].batches < 2 {
                std::thread::yield_now();
            }
            handle.cancel();
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
