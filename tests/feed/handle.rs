//! A feed that is paused, or given other threads, while it runs or seeks: what it delivers stays the same, to
//! the byte and in order, and every wait still ends. A naive twin, which nobody touches, says what is due.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use percolator::decoder::{Decoded, WorkerSetup};
use percolator::feed::{ConfigError, FeedHandle, TryNext};
use percolator::record::StepId;
use percolator::source::Record;
use percolator::{
    Batch, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Lane, RecordDecoder, Row, Shuffle,
    Stats,
};
use percolator_chaos::{Chaos, Fault};

use crate::common::process::must_end;
use crate::common::source::MemorySource;

const RECORDS: usize = 60;

fn feed() -> FeedBuilder {
    let source = MemorySource::images("controlled", RECORDS, 1, 4, 4);
    Feed::builder().source(source).batch_size(4).prefetch(2)
}

/// What a batch has: its records, and its bytes.
type Seen = (Vec<u64>, Vec<u8>);

fn seen(batch: &Batch) -> Seen {
    (batch.records().iter().map(|id| id.epoch << 32 | id.index).collect(), batch.bytes().to_vec())
}

fn next(lane: &mut Lane) -> Option<Seen> {
    Some(seen(&lane.next()?.expect("the lane goes on")))
}

fn all_of(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.build().expect("the feed starts");
    let mut lane = feed.take_lanes().expect("nobody has taken them").remove(0);
    std::iter::from_fn(|| next(&mut lane)).collect()
}

/// Takes what a paused feed had dealt before, until its reader is at rest.
fn until_rest(handle: &FeedHandle, lane: &mut Lane) -> Vec<Seen> {
    let mut taken = Vec::new();
    while handle.stats().reader.waits_for_resume.count == 0 {
        if let TryNext::Batch(batch) = lane.try_next().expect("the lane goes on") {
            taken.push(seen(&batch));
        }
        std::thread::yield_now();
    }
    taken
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
            let handle = paused.handle();
            let mut lane = paused.take_lanes().unwrap().remove(0);
            let mut seen = Vec::new();
            let (to_resumer, pauses) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let (again, records) = (handle.clone(), 4 * due.len() as u64);
                scope.spawn(move || {
                    for before in pauses {
                        // The reader rests, or has nothing left to read. If it has not noticed yet that
                        // the pause before this one was over, it goes on with that rest.
                        while again.stats().reader.waits_for_resume == before
                            && again.stats().reader.records < records
                        {
                            std::thread::yield_now();
                        }
                        again.resume();
                    }
                });
                while let Some(batch) = next(&mut lane) {
                    seen.push(batch);
                    if seen.len() % 3 == 1 && !handle.is_paused() {
                        let before = paused.stats().reader.waits_for_resume;
                        handle.pause();
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
        let handle = feed.handle();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        handle.pause();
        assert!(handle.is_paused());
        let mut taken = 0;
        // What was dealt is delivered: two batches in the ring, and those whose records were dealt ahead.
        loop {
            match lane.try_next().unwrap() {
                TryNext::Batch(_) => taken += 1,
                TryNext::Ended => panic!("it ended after {taken} batches"),
                TryNext::NotYet => {
                    let stats = handle.stats();
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
        let at_rest = handle.stats();
        for _ in 0..100 {
            assert!(matches!(lane.try_next(), Ok(TryNext::NotYet)));
        }
        assert_eq!(handle.stats().reader.records, at_rest.reader.records, "nothing is read");
        assert_eq!(feed.snapshot().unwrap(), lane.snapshot().unwrap());
        handle.resume();
        assert!(!handle.is_paused());
        let rest = std::iter::from_fn(|| next(&mut lane)).count();
        assert_eq!(u64::try_from(rest).unwrap() + taken, 15);
        let stats = handle.stats();
        assert_eq!((stats.reader.waits_for_resume.count, stats.records()), (1, 60));
    });
}

#[test]
fn a_paused_feed_can_be_dropped_cancelled_and_snapshot() {
    must_end("the ends of paused feeds", || {
        // Dropped while the reader rests.
        let mut dropped = feed().build().unwrap();
        dropped.handle().pause();
        let mut lanes = dropped.take_lanes().unwrap();
        until_rest(&dropped.handle(), &mut lanes[0]);
        drop(lanes);
        // Cancelled while the consumer waits.
        let mut cancelled = feed().build().unwrap();
        let handle = cancelled.handle();
        let mut lane = cancelled.take_lanes().unwrap().remove(0);
        handle.pause();
        handle.cancel();
        let error = loop {
            match lane.next() {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("it ended without an error"),
            }
        };
        assert_eq!(error, FeedError::Cancelled);
        // After its end, a handle does nothing.
        drop((lane, cancelled));
        handle.resume();
        let threads = handle.threads();
        assert_eq!(handle.set_threads(threads + 3).unwrap(), threads, "none is started any more");
        assert_eq!(handle.threads(), threads);
    });
}

#[test]
fn threads_are_added_and_removed_without_a_change_to_any_batch() {
    must_end("a feed with more threads", || {
        let due = all_of(feed().epochs(3).threads(1));
        for chosen in [false, true] {
            let builder = feed().epochs(3);
            let mut grown = if chosen { builder } else { builder.threads(1) }.build().unwrap();
            let handle = grown.handle();
            let before = handle.memory_budget();
            assert_eq!(&before, grown.memory_budget());
            let at_first = handle.stats().workers.threads;
            let mut lane = grown.take_lanes().unwrap().remove(0);
            let mut seen = Vec::new();
            while let Some(batch) = next(&mut lane) {
                seen.push(batch);
                match seen.len() {
                    5 => assert_eq!(handle.set_threads(at_first + 2).unwrap(), at_first + 2),
                    20 => assert_eq!(handle.set_threads(1).unwrap(), 1),
                    30 => assert_eq!(handle.set_threads(at_first + 1).unwrap(), at_first + 1),
                    _ => {}
                }
                let workers = handle.stats().workers;
                match seen.len() {
                    5..20 => assert_eq!((workers.active, workers.threads), (at_first + 2, at_first + 2)),
                    20..30 => {
                        assert_eq!((workers.active, workers.threads), (1, at_first + 2), "they stand by")
                    }
                    30.. => assert_eq!((workers.active, workers.threads), (at_first + 1, at_first + 2)),
                    _ => {}
                }
                assert_eq!(handle.threads(), workers.active);
            }
            assert_eq!(seen, due);
            let scratch = |line: &&percolator::feed::BudgetLine| line.count == at_first + 2;
            let after = handle.memory_budget();
            assert_eq!(
                after.lines.iter().find(scratch).is_some(),
                after.total_bytes() > before.total_bytes()
            );
        }
    });
}

#[test]
fn numbers_of_threads_that_cannot_be_are_refused() {
    let refused = |handle: &FeedHandle, threads| handle.set_threads(threads).unwrap_err();
    let mut limited = feed().threads(1);
    let needed = limited.clone().resolve().unwrap().memory_budget().total_bytes();
    limited = limited.memory_limit(needed);
    let limited = limited.build().unwrap();
    let handle = limited.handle();
    assert_eq!(refused(&handle, 0), ConfigError::Zero { option: "threads" }.into());
    let too_many = ConfigError::TooMany { option: "threads", found: 1025, allowed: 1024 };
    assert_eq!(refused(&handle, 1025), too_many.into());
    let before = handle.memory_budget();
    // A decoder without scratch memory has nothing to be over.
    if feed().threads(2).resolve().unwrap().memory_budget().total_bytes() > needed {
        assert!(matches!(refused(&handle, 2), FeedError::Config(ConfigError::OverBudget { .. })));
        assert_eq!(handle.threads(), 1);
        assert_eq!(handle.memory_budget(), before);
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
    let handle = feed.handle();
    let before = handle.memory_budget();
    assert_eq!(handle.set_threads(4).unwrap(), 4);
    let added = handle.memory_budget().total_bytes() - before.total_bytes();
    assert_eq!(added, 3 * 1500, "{before}\n{}", handle.memory_budget());
}

#[test]
fn waits_that_are_reported_never_fall_whoever_waits_for_whom() {
    must_end("a feed whose waits are read all the time", || {
        let mut feed = feed().epochs(40).prefetch(1).build().unwrap();
        let (handle, has_ended) = (feed.handle(), Arc::new(AtomicBool::new(false)));
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
                let mut before = handle.stats();
                while !over.load(Ordering::Relaxed) {
                    let now = handle.stats();
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
        assert!(feed.handle().has_ended());
    });
}

#[test]
fn slots_are_counted_wherever_they_are() {
    must_end("a feed whose queues are watched", || {
        let mut feed =
            feed().devices(["host:0", "host:1"].map(|name| name.parse().unwrap())).build().unwrap();
        let handle = feed.handle();
        for step in feed.steps().take(50) {
            let batches = step.unwrap();
            let stats = handle.stats();
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
        let stats = handle.stats();
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
            let handle = feed.handle();
            let error = feed.steps().find_map(Result::err).expect("it ends with an error");
            let FeedError::Panicked { name, message } = error else { panic!("{error}") };
            assert!(name.starts_with("worker:") && message == "no memory for a worker", "{name}: {message}");
            // Workers that are added are lost as well.
            let _ = handle.set_threads(threads + 2);
            assert!(feed.steps().next().is_none());
        }
    });
}

#[test]
fn a_handle_from_before_a_seek_has_the_new_lanes() {
    must_end("a handle from before a seek", || {
        let mut feed = feed().epochs(0).build().unwrap();
        let handle = feed.handle();
        let mut before = feed.take_lanes().unwrap().remove(0);
        next(&mut before).unwrap();
        feed.seek((1, 5)).unwrap();
        assert!(!handle.has_ended());
        assert_eq!((handle.next_steps(), handle.stats().records()), (vec![StepId { epoch: 1, step: 5 }], 0));
        let mut lane = feed.take_lanes().unwrap().remove(0);
        next(&mut lane).unwrap();
        assert_eq!((handle.next_steps(), handle.stats().records()), (vec![StepId { epoch: 1, step: 6 }], 4));
        handle.pause();
        until_rest(&handle, &mut lane);
        assert!(feed.handle().is_paused());
        handle.cancel();
        assert_eq!(lane.find_map(Result::err), Some(FeedError::Cancelled));
        drop(lane);
        assert!(handle.has_ended());
    });
}

#[test]
fn a_paused_feed_stays_paused_when_it_seeks() {
    must_end("a paused feed that seeks", || {
        let due = all_of(feed().epochs(1));
        let mut feed = feed().epochs(1).build().unwrap();
        let handle = feed.handle();
        handle.pause();
        feed.seek((0, 3)).unwrap();
        assert!(handle.is_paused());
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let mut seen = until_rest(&handle, &mut lane);
        handle.resume();
        seen.extend(std::iter::from_fn(|| next(&mut lane)));
        assert_eq!(seen, due[3..]);
    });
}

#[test]
fn threads_that_were_set_stay_set_when_the_feed_seeks() {
    must_end("a feed with more threads that seeks", || {
        let due = all_of(feed().epochs(1).threads(1));
        let mut feed = feed().epochs(1).threads(2).build().unwrap();
        let handle = feed.handle();
        for (active, threads) in [(4, 4), (1, 2)] {
            assert_eq!(handle.set_threads(active).unwrap(), active);
            feed.seek((0, 3)).unwrap();
            let workers = handle.stats().workers;
            assert_eq!((handle.threads(), workers.active, workers.threads), (active, active, threads));
        }
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let seen: Vec<Seen> = std::iter::from_fn(|| next(&mut lane)).collect();
        assert_eq!(seen, due[3..]);
    });
}

/// A decoder that asks something of its own feed when that is built again.
struct Asks(Arc<OnceLock<FeedHandle>>);

impl RecordDecoder for Asks {
    type Scratch = ();

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        if let Some(handle) = self.0.get() {
            assert!(!handle.has_ended(), "it seeks");
            handle.pause();
            assert_eq!(handle.set_threads(3), Ok(3));
        }
        Ok(vec![Field::new("nothing", Dtype::U8, [1])])
    }

    fn scratch(&self, _setup: WorkerSetup) {}

    fn decode(&self, _record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(row.write(0, &[0_u8])?)
    }
}

#[test]
fn what_is_asked_during_a_seek_is_done_after_it() {
    must_end("a feed that is paused while it seeks", || {
        let asks = Arc::new(OnceLock::new());
        let mut feed = feed().decoder(Asks(asks.clone())).epochs(0).threads(1).build().unwrap();
        let handle = feed.handle();
        asks.set(handle.clone()).unwrap();
        feed.seek((0, 5)).unwrap();
        assert_eq!((handle.is_paused(), handle.threads()), (true, 3));
        until_rest(&handle, &mut feed.take_lanes().unwrap()[0]);
    });
}

#[test]
fn a_feed_whose_seek_failed_has_ended() {
    must_end("a seek that fails", || {
        let chaos = Chaos::new(Fault::memory(2).fails("no room"));
        let devices = [chaos.device(Device::host(0))];
        let mut feed = feed().devices(devices).build().unwrap();
        let handle = feed.handle();
        feed.seek((0, 5)).unwrap_err();
        assert!(handle.has_ended());
        feed.seek((0, 5)).unwrap();
        assert!(!handle.has_ended());
    });
}
