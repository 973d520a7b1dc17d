//! A feed that takes the whole machine for what one thread could do robs the training of it; rings that are
//! too shallow make a GPU wait for a feed that is fast enough. Sizing chooses what is not configured and
//! keeps what is. These tests check the choice, and that it changes no byte.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use percolator::feed::{ConfigError, Sizing};
use percolator::record::RecordId;
use percolator::source::{Cursor, Entry, Source, SourceError};
use percolator::{Device, Epochs, Feed, FeedBuilder, FeedError, Stats};

use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn over(source: impl Source + 'static) -> FeedBuilder {
    Feed::builder().source(source).batch_size(8)
}

fn images(name: &str, count: usize) -> MemorySource {
    MemorySource::images(name, count, 3, 16, 16)
}

fn cores() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

#[test]
fn what_is_said_is_kept_and_what_is_not_is_chosen() {
    let chosen = over(images("chosen", 8)).build().unwrap();
    let sizing = chosen.sizing();
    assert_eq!((sizing.threads, sizing.are_threads_chosen), (cores(), true));
    assert_eq!((sizing.prefetch, sizing.prefetch_max, sizing.is_prefetch_chosen), (4, 8, true));
    let stats = chosen.stats();
    assert_eq!((stats.workers.threads, stats.workers.active, stats.lanes[0].ring), (cores(), cores(), 4));

    let said = over(images("said", 8)).threads(3).prefetch(5).build().unwrap();
    let sizing = said.sizing();
    assert_eq!((sizing.threads, sizing.are_threads_chosen), (3, false));
    assert_eq!((sizing.prefetch, sizing.prefetch_max, sizing.is_prefetch_chosen), (5, 5, false));
    assert_eq!(said.stats().lanes[0].ring, 5);
}

#[test]
fn a_memory_limit_is_kept_by_fewer_batches_then_fewer_threads_and_what_cannot_be_is_an_error() {
    let build = |limit| over(images("limited", 100)).memory_limit(limit).epochs(Epochs::OnePass).build();
    let plenty = build(usize::MAX).unwrap();
    let mut needed = plenty.memory_budget().total_bytes();
    let mut sizing = plenty.sizing();
    let mut steps = 0;
    // One byte less than the last choice took, down to the smallest.
    let refused = loop {
        let feed = match build(needed - 1) {
            Ok(feed) => feed,
            Err(error) => break error,
        };
        let next = feed.sizing();
        assert!(feed.memory_budget().total_bytes() < needed, "{next}");
        let is_less = |count: fn(&Sizing) -> usize| count(&next) < count(&sizing);
        assert!(is_less(|sizing| sizing.prefetch_max) || is_less(|sizing| sizing.threads), "{next}");
        assert!(next.prefetch_max >= 2 || next.threads == 1, "the last batch but one goes last: {next}");
        (needed, sizing, steps) = (feed.memory_budget().total_bytes(), next, steps + 1);
        let records: usize = { feed }.steps().map(|step| step.unwrap()[0].len()).sum();
        assert_eq!(records, 100);
    };
    assert!(steps >= 7, "{steps}");
    assert_eq!((sizing.threads, sizing.prefetch_max), (1, 1));
    let FeedError::Config(ConfigError::OverBudget { needed: least, allowed, .. }) = refused else {
        panic!("{refused}");
    };
    assert_eq!((least, allowed), (needed, needed - 1));
    let said = over(images("limited", 100)).memory_limit(needed).prefetch(2).build();
    assert!(matches!(said, Err(FeedError::Config(ConfigError::OverBudget { .. }))), "what is said is kept");
}

/// A source whose cursor stands still while the flag is set.
#[derive(Debug)]
struct Weather {
    source: MemorySource,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }
}

struct Walk(Box<dyn Cursor>, Arc<Gate>);

impl Source for Weather {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        self.source.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(Walk(self.source.cursor()?, self.gate.clone())))
    }
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let is_shut = self.1.is_shut.lock().unwrap();
        drop(self.1.changed.wait_while(is_shut, |is_shut| *is_shut).unwrap());
        self.0.advance()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.0.rewind()
    }
}

/// Polls the statistics until this much more time was spent waiting.
fn until_waited(feed: &Feed, of: impl Fn(&Stats) -> Duration) {
    let before = of(&feed.stats());
    while of(&feed.stats()) < before + Duration::from_millis(20) {
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_that_bursts_do_not_even_out_in_becomes_deeper_and_its_batches_are_the_same() {
    const RECORDS: usize = 100;

    must_end("a ring that gets deeper", || {
        let gate = Arc::new(Gate::default());
        let source = Weather { source: images("bursts", RECORDS), gate: gate.clone() };
        let mut feed = over(source).devices([Device::host(0)]).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        // Whether the consumer is to leave the batches where they are.
        let (rests, is_deep) = (AtomicBool::new(false), AtomicBool::new(false));
        let (feed, rests, is_deep) = (&feed, &rests, &is_deep);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while feed.stats().lanes[0].ring < 8 {
                    gate.shut(true);
                    until_waited(feed, |stats| stats.lanes[0].waits_for_batch.time);
                    rests.store(true, Ordering::SeqCst);
                    gate.shut(false);
                    until_waited(feed, |stats| stats.lanes[0].waits_for_free.time);
                    rests.store(false, Ordering::SeqCst);
                }
                is_deep.store(true, Ordering::SeqCst);
            });
            let mut global = 0;
            while !is_deep.load(Ordering::SeqCst) {
                let batch = lane.next().unwrap().unwrap();
                for &id in batch.records() {
                    let due = RecordId { epoch: (global / RECORDS) as u64, index: (global % RECORDS) as u64 };
                    assert_eq!(id, due);
                    global += 1;
                }
                drop(batch);
                while rests.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
        });
        // Every batch of the ring is used.
        let held: Vec<_> = lane.by_ref().take(8).map(Result::unwrap).collect();
        assert_eq!((held.len(), feed.stats().lanes[0].held), (8, 8));
    });
}

#[test]
fn workers_that_nobody_needs_stand_by_and_the_batches_are_the_same() {
    if cores() == 1 {
        println!("one processor has one worker: nobody stands by");
        return;
    }
    must_end("a consumer that is slow", || {
        let mut feed = over(images("slow", 1000)).build().unwrap();
        let mut other = over(images("slow", 1000)).threads(1).prefetch(1).build().unwrap();
        let (mut lane, mut lane_of_other) =
            (feed.take_lanes().unwrap().remove(0), other.take_lanes().unwrap().remove(0));
        let mut compare = || {
            let (one, two) = (lane.next().unwrap().unwrap(), lane_of_other.next().unwrap().unwrap());
            assert_eq!(one.records(), two.records());
            assert_eq!(one.pixels::<f32>().unwrap(), two.pixels::<f32>().unwrap());
        };
        while feed.stats().workers.active > 1 {
            compare();
            // The ring is full for a while, and every thread idle.
            until_waited(&feed, |stats| stats.lanes[0].waits_for_free.time);
        }
        assert_eq!(feed.stats().workers.threads, cores());
        for _batch in 0..100 {
            compare();
        }
        // Parked workers do not keep a feed from ending.
        drop((lane, lane_of_other));
    });
}
