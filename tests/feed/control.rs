//! A feed that is paused, or given other threads, while it runs: what it delivers stays the same, to the byte
//! and in order, and every wait still ends. A naive twin, which nobody touches, says what is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percolator::decoder::{Decoded, WorkerSetup};
use percolator::feed::{ConfigError, FeedControl, TryNext};
use percolator::source::Record;
use percolator::{
    Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Lane, RecordDecoder, Row, Shuffle, Stats,
};

use crate::common::process::must_end;
use crate::common::source::MemorySource;

const RECORDS: usize = 60;

fn feed() -> FeedBuilder {
    let source = MemorySource::images("controlled", RECORDS, 1, 4, 4);
    Feed::builder().source(source).batch_size(4).prefetch(2)
}

/// What a batch has: its records, and its bytes.
type Seen = (Vec<u64>, Vec<u8>);

fn next(lane: &mut Lane) -> Option<Seen> {
    let batch = lane.next()?.expect("the lane goes on");
    Some((batch.records().iter().map(|id| id.epoch << 32 | id.index).collect(), batch.bytes().to_vec()))
}

fn all_of(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.build().expect("the feed starts");
    let mut lane = feed.take_lanes().expect("nobody has taken them").remove(0);
    std::iter::from_fn(|| next(&mut lane)).collect()
}

/// Waits until the reader is at rest because the feed is paused.
fn wait_for_rest(feed: &Feed) {
    while feed.stats().reader.waits_for_resume.count == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_pause_changes_nothing_but_the_time() {
    must_end("a feed that is paused and resumed", || {
        for shuffled in [false, true] {
            let feed = || match shuffled {
                true => feed().epochs(2).shuffle(Shuffle::Global),
                false => feed().epochs(Epochs::OnePass),
            };
            let due = all_of(feed());
            let mut paused = feed().build().unwrap();
            let (control, watch) = (paused.control(), paused.watch());
            let mut lane = paused.take_lanes().unwrap().remove(0);
            let mut seen = Vec::new();
            let (to_resumer, pauses) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let (again, records) = (control.clone(), 4 * due.len() as u64);
                scope.spawn(move || {
                    for before in pauses {
                        // The reader rests, or has nothing left to read. If it has not noticed yet that
                        // the pause before this one was over, it goes on with that rest.
                        while watch.stats().reader.waits_for_resume == before
                            && watch.stats().reader.records < records
                        {
                            std::thread::yield_now();
                        }
                        again.resume();
                    }
                });
                while let Some(batch) = next(&mut lane) {
                    seen.push(batch);
                    if seen.len() % 3 == 1 && !control.is_paused() {
                        let before = paused.stats().reader.waits_for_resume;
                        control.pause();
                        to_resumer.send(before).unwrap();
                    }
                }
                drop(to_resumer);
            });
            assert_eq!(seen, due);
            assert!(paused.stats().reader.waits_for_resume.count > 0, "it was paused");
        }
    });
}

#[test]
fn a_paused_feed_begins_nothing_and_goes_on_where_it_was() {
    must_end("a paused feed", || {
        let mut feed = feed().epochs(Epochs::OnePass).build().unwrap();
        let (control, watch) = (feed.control(), feed.watch());
        let mut lane = feed.take_lanes().unwrap().remove(0);
        control.pause();
        assert!(watch.is_paused() && control.is_paused());
        let mut taken = 0;
        // What was dealt is delivered: two batches in the ring, and those whose records were dealt ahead.
        loop {
            match lane.try_next().unwrap() {
                TryNext::Batch(_) => taken += 1,
                TryNext::Ended => panic!("it ended after {taken} batches"),
                TryNext::NotYet => {
                    let stats = watch.stats();
                    // At rest: no run is on its way, and no batch is complete.
                    let [reader, lane] = [stats.reader.waits_for_resume.count > 0, stats.lanes[0].ready == 0];
                    if reader && lane && stats.reader.records / 4 == taken {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
        }
        assert!(taken <= 5, "{taken} batches: more than the ring and the queues have room for");
        let at_rest = watch.stats();
        for _ in 0..100 {
            assert!(matches!(lane.try_next(), Ok(TryNext::NotYet)));
        }
        assert_eq!(watch.stats().reader.records, at_rest.reader.records, "nothing is read");
        assert_eq!(feed.snapshot().unwrap(), lane.snapshot().unwrap());
        control.resume();
        assert!(!watch.is_paused());
        let rest = std::iter::from_fn(|| next(&mut lane)).count();
        assert_eq!(u64::try_from(rest).unwrap() + taken, 15);
        let stats = watch.stats();
        assert_eq!((stats.reader.waits_for_resume.count, stats.records()), (1, 60));
    });
}

#[test]
fn a_paused_feed_can_be_dropped_cancelled_and_snapshot() {
    must_end("the ends of paused feeds", || {
        // Dropped while the reader rests.
        let mut dropped = feed().build().unwrap();
        dropped.control().pause();
        let lanes = dropped.take_lanes().unwrap();
        wait_for_rest_after(&dropped, lanes);
        // Cancelled while the consumer waits.
        let mut cancelled = feed().build().unwrap();
        let (control, canceller) = (cancelled.control(), cancelled.canceller());
        let mut lane = cancelled.take_lanes().unwrap().remove(0);
        control.pause();
        canceller.cancel();
        let error = loop {
            match lane.next() {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("it ended without an error"),
            }
        };
        assert_eq!(error, FeedError::Cancelled);
        // After its end, a control does nothing.
        drop((lane, cancelled));
        control.resume();
        let threads = control.threads();
        assert_eq!(control.set_threads(threads + 3).unwrap(), threads, "none is started any more");
        assert_eq!(control.threads(), threads);
    });
}

/// Drops the lanes of a feed whose reader rests.
fn wait_for_rest_after(feed: &Feed, mut lanes: Vec<Lane>) {
    while feed.stats().reader.waits_for_resume.count == 0 {
        let _ = lanes[0].try_next().expect("the lane goes on");
        std::thread::yield_now();
    }
    wait_for_rest(feed);
    drop(lanes);
}

#[test]
fn threads_are_added_and_removed_without_a_change_to_any_batch() {
    must_end("a feed with more threads", || {
        let due = all_of(feed().epochs(3).threads(1));
        for chosen in [false, true] {
            let builder = feed().epochs(3);
            let mut grown = if chosen { builder } else { builder.threads(1) }.build().unwrap();
            let (control, watch) = (grown.control(), grown.watch());
            let before = watch.memory_budget();
            assert_eq!(&before, grown.memory_budget());
            let at_first = watch.stats().workers.threads;
            let mut lane = grown.take_lanes().unwrap().remove(0);
            let mut seen = Vec::new();
            while let Some(batch) = next(&mut lane) {
                seen.push(batch);
                match seen.len() {
                    5 => assert_eq!(control.set_threads(at_first + 2).unwrap(), at_first + 2),
                    20 => assert_eq!(control.set_threads(1).unwrap(), 1),
                    30 => assert_eq!(control.set_threads(at_first + 1).unwrap(), at_first + 1),
                    _ => {}
                }
                let workers = watch.stats().workers;
                match seen.len() {
                    5..20 => assert_eq!((workers.active, workers.threads), (at_first + 2, at_first + 2)),
                    20..30 => {
                        assert_eq!((workers.active, workers.threads), (1, at_first + 2), "they stand by")
                    }
                    30.. => assert_eq!((workers.active, workers.threads), (at_first + 1, at_first + 2)),
                    _ => {}
                }
                assert_eq!(control.threads(), workers.active);
            }
            assert_eq!(seen, due);
            let scratch = |line: &&percolator::feed::BudgetLine| line.count == at_first + 2;
            let after = watch.memory_budget();
            assert_eq!(
                after.lines.iter().find(scratch).is_some(),
                after.total_bytes() > before.total_bytes()
            );
        }
    });
}

#[test]
fn numbers_of_threads_that_cannot_be_are_refused() {
    let refused = |control: &FeedControl, threads| control.set_threads(threads).unwrap_err();
    let mut limited = feed().threads(1);
    let needed = limited.clone().resolve().unwrap().memory_budget().total_bytes();
    limited = limited.memory_limit(needed);
    let limited = limited.build().unwrap();
    let control = limited.control();
    assert_eq!(refused(&control, 0), ConfigError::Zero { option: "threads" }.into());
    let too_many = ConfigError::TooMany { option: "threads", found: 1025, allowed: 1024 };
    assert_eq!(refused(&control, 1025), too_many.into());
    let before = limited.watch().memory_budget();
    // A decoder without scratch memory has nothing to be over.
    if feed().threads(2).resolve().unwrap().memory_budget().total_bytes() > needed {
        assert!(matches!(refused(&control, 2), FeedError::Config(ConfigError::OverBudget { .. })));
        assert_eq!(control.threads(), 1);
        assert_eq!(limited.watch().memory_budget(), before);
    }
}

/// A decoder whose scratch memory has the name of another holder.
struct SameName;

impl RecordDecoder for SameName {
    type Scratch = ();

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("nothing", Dtype::U8, [1])])
    }

    fn scratch(&self, _setup: WorkerSetup) {}

    fn decode(&self, _record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(row.write(0, &[0_u8])?)
    }

    fn scratch_bytes(&self, _first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        Ok(vec![("queues: runs", 1000), ("nothing", 0), ("queues: runs", 500)])
    }
}

#[test]
fn only_what_threads_have_is_budgeted_by_thread_whatever_its_name() {
    let feed = feed().decoder(SameName).threads(1).build().unwrap();
    let (control, watch) = (feed.control(), feed.watch());
    let before = watch.memory_budget();
    assert_eq!(control.set_threads(4).unwrap(), 4);
    let added = watch.memory_budget().total_bytes() - before.total_bytes();
    assert_eq!(added, 3 * 1500, "{before}\n{}", watch.memory_budget());
}

#[test]
fn waits_that_are_reported_never_fall_whoever_waits_for_whom() {
    must_end("a feed whose waits are read all the time", || {
        let mut feed = feed().epochs(40).prefetch(1).build().unwrap();
        let (watch, has_ended) = (feed.watch(), Arc::new(AtomicBool::new(false)));
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let (to_holder, held) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            // The consumer waits while its only batch is held here: it waits for itself.
            scope.spawn(move || {
                for batch in held {
                    std::thread::yield_now();
                    drop(batch);
                }
            });
            let over = has_ended.clone();
            let seen = scope.spawn(move || {
                let mut before = watch.stats();
                while !over.load(Ordering::Relaxed) {
                    let now = watch.stats();
                    let waits = |stats: &Stats| {
                        let lane = &stats.lanes[0];
                        [lane.waits_for_batch, lane.waits_for_free, stats.workers.waits_for_records]
                    };
                    for (now, before) in waits(&now).into_iter().zip(waits(&before)) {
                        assert!(now.count >= before.count && now.time >= before.time, "{before:?} {now:?}");
                    }
                    assert!(now.elapsed >= before.elapsed);
                    before = now;
                }
            });
            for batch in lane.by_ref() {
                to_holder.send(batch.unwrap()).unwrap();
            }
            drop((to_holder, lane));
            has_ended.store(true, Ordering::Relaxed);
            seen.join().unwrap();
        });
        assert!(feed.watch().has_ended());
    });
}

#[test]
fn slots_are_counted_wherever_they_are() {
    must_end("a feed whose queues are watched", || {
        let mut feed =
            feed().devices(["host:0", "host:1"].map(|name| name.parse().unwrap())).build().unwrap();
        let watch = feed.watch();
        for step in feed.steps().take(50) {
            let batches = step.unwrap();
            let stats = watch.stats();
            assert!(stats.workers.queued <= stats.workers.queue_capacity);
            for lane in &stats.lanes {
                assert_eq!(lane.held, 1);
                assert!(lane.filling + lane.ready < lane.ring, "one is held: {lane:?}");
                assert!(lane.runs.full + lane.runs.free <= lane.runs.capacity, "{lane:?}");
                assert!(lane.runs.capacity > 0 && lane.runs.in_use() <= lane.runs.capacity);
            }
            drop(batches);
        }
        drop(feed);
        let stats = watch.stats();
        for lane in &stats.lanes {
            assert_eq!((lane.held, lane.ready, lane.filling), (0, 0, 0));
            assert_eq!((lane.runs.full, lane.runs.free), (0, 0), "the queues are closed");
        }
        assert_eq!(stats.workers.queued, 0);
    });
}

/// A decoder whose scratch memory cannot be made, on any worker.
struct NoScratch;

impl RecordDecoder for NoScratch {
    type Scratch = ();

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("bytes", Dtype::U8, [1])])
    }

    fn scratch(&self, _setup: WorkerSetup) {
        panic!("no memory for a worker");
    }

    fn decode(&self, _record: &Record<'_>, _row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        unreachable!("no worker begins");
    }
}

#[test]
fn a_feed_that_loses_all_workers_ends_with_their_error() {
    must_end("a feed without any worker", || {
        for threads in [1, 3] {
            let source = MemorySource::images("none", 100, 1, 4, 4);
            let builder = Feed::builder().source(source).decoder(NoScratch);
            let mut feed = builder.threads(threads).batch_size(4).build().unwrap();
            let control = feed.control();
            let error = feed.steps().find_map(Result::err).expect("it ends with an error");
            let FeedError::Panicked { name, message } = error else { panic!("{error}") };
            assert!(name.starts_with("worker:") && message == "no memory for a worker", "{name}: {message}");
            // Workers that are added are lost as well.
            let _ = control.set_threads(threads + 2);
            assert!(feed.steps().next().is_none());
        }
    });
}
