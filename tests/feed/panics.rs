//! An unforeseen panic, such as that of the program's own tracing subscriber, must not lead to a batch with
//! unwritten rows, nor to an endless wait. The subscriber of these tests panics at a span or an event of
//! the test's choice. It is global to the process, so each of these tests runs in a child.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, Once};

use percolator::reader::ReaderError;
use percolator::{Device, Feed, FeedBuilder, FeedError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common;
use crate::common::process::{is_alone, must_end, this_test};
use crate::common::source::MemorySource;

/// Runs of this many bytes belong to the first test.
static RUN_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
/// This many more of them pass before a panic.
static RUNS_LEFT: AtomicI64 = AtomicI64::new(0);
/// Whether a lane that nothing was taken from has ended; for the second test.
static UNTAKEN_ENDED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Spans and events of this name, or events with this message, belong to the other tests: so many of them
/// pass before a panic, at each one from then on.
static STRUCK: Mutex<(&str, u64)> = Mutex::new(("nothing", 0));

fn strike(name: &str) {
    let mut struck = STRUCK.lock().unwrap();
    if struck.0 != name {
        return;
    }
    let passes = struck.1 > 0;
    struck.1 = struck.1.saturating_sub(1);
    drop(struck);
    assert!(passes, "a panic of the test");
}

struct Panicking;

#[derive(Default)]
struct Seen {
    message: String,
    number: Option<u64>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if ["bytes", "batches_taken"].contains(&field.name()) {
            self.number = Some(value);
        }
    }
}

impl Subscriber for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen::default();
        span.record(&mut seen);
        if span.metadata().name() == "run" && seen.number == Some(RUN_BYTES.load(Ordering::SeqCst)) {
            assert!(RUNS_LEFT.fetch_sub(1, Ordering::SeqCst) > 0, "a panic of the test");
        }
        strike(span.metadata().name());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        if (&*seen.message, seen.number) == ("the lane ends", Some(0)) {
            *UNTAKEN_ENDED.0.lock().unwrap() = true;
            UNTAKEN_ENDED.1.notify_all();
            panic!("a panic of the test");
        }
        strike(event.metadata().name());
        strike(&seen.message);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn over(source: MemorySource) -> FeedBuilder {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Panicking).unwrap());
    Feed::builder().source(source)
}

#[test]
fn rows_that_a_lost_worker_left_unwritten_are_never_delivered() {
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed that loses its workers", || {
        for (threads, lanes) in [(1, 1), (2, 1), (2, 2)] {
            let value = common::image(0, 1, 7, 13).1;
            RUN_BYTES.store(value.len() as u64, Ordering::SeqCst);
            // Runs have one record each: the panic falls in the third use of the ring's slots, whose rows
            // hold earlier records.
            RUNS_LEFT.store(4 * 2 * lanes * 2 + 2, Ordering::SeqCst);
            let devices = (0..usize::try_from(lanes).unwrap()).map(Device::host);
            let source = MemorySource::images("lost", 100, 1, 7, 13);
            let builder = over(source).threads(threads).batch_size(4).prefetch(2).devices(devices);
            let mut feed = builder.build().unwrap();
            let lanes: Vec<_> = feed
                .take_lanes()
                .unwrap()
                .into_iter()
                .map(|lane| std::thread::spawn(move || drain(lane)))
                .collect();
            for lane in lanes {
                let error = lane.join().unwrap();
                let FeedError::Panicked { name, message } = error else { panic!("{error}") };
                assert!(
                    name.starts_with("worker:") && message.contains("a panic of the test"),
                    "{name}: {message}"
                );
            }
        }
    });
}

/// Takes all batches, which must be whole, and the error after them.
fn drain(mut lane: percolator::Lane) -> FeedError {
    let mut before = None;
    loop {
        match lane.next().expect("an error comes before the end") {
            Ok(batch) => {
                let ids = batch.records().iter().map(|id| id.epoch * 100 + id.index);
                for (id, label) in ids.zip(batch.labels().unwrap()) {
                    assert!(before.is_none_or(|before| before < id), "a record of an earlier batch");
                    assert_eq!(u64::try_from(*label).unwrap(), id % 100);
                    before = Some(id);
                }
            }
            Err(error) => {
                assert!(lane.next().is_none());
                return error;
            }
        }
    }
}

#[test]
fn a_panic_behind_an_error_behind_a_full_ring_keeps_nobody() {
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a prefetcher that panics when its consumer has taken nothing", || {
        for is_drained in [true, false] {
            let source = MemorySource::images("full", 10, 1, 4, 4).fail_at(2);
            let mut feed = over(source).threads(1).prefetch(2).build().unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut ended =
                UNTAKEN_ENDED.1.wait_while(UNTAKEN_ENDED.0.lock().unwrap(), |ended| !*ended).unwrap();
            *ended = false;
            drop(ended);
            if is_drained {
                let batches = [0, 1].map(|_| lane.next().unwrap().unwrap().records()[0].index);
                assert_eq!(batches, [0, 1]);
                let error = lane.next().unwrap().unwrap_err();
                let is_the_sources = matches!(&error, FeedError::Reader(ReaderError::Source(_)));
                assert!(is_the_sources, "the first error stays: {error}");
                assert!(lane.next().is_none());
            }
            // If it was not drained, nobody ever makes room for another message.
            drop(lane);
        }
    });
}

/// The error of each lane, whether it came from `build` or after batches.
fn errors_of(builder: FeedBuilder) -> Vec<FeedError> {
    let mut feed = match builder.build() {
        Ok(feed) => feed,
        Err(error) => return vec![error],
    };
    let lanes = feed.take_lanes().unwrap().into_iter();
    let lanes: Vec<_> = lanes.map(|lane| std::thread::spawn(move || drain(lane))).collect();
    lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
}

#[test]
fn a_panic_anywhere_on_the_readers_thread_is_told_to_every_lane() {
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose reader panics", || {
        for (name, passes) in [("reader", 0), ("deal", 0), ("deal", 3)] {
            for lanes in [1, 2] {
                *STRUCK.lock().unwrap() = (name, passes);
                let source = MemorySource::images("reader", 100, 1, 4, 4);
                let devices = (0..lanes).map(Device::host);
                for error in errors_of(over(source).batch_size(8).devices(devices)) {
                    let FeedError::Reader(ReaderError::Panicked { message, .. }) = error else {
                        panic!("{name}: {error}")
                    };
                    assert_eq!(message, "a panic of the test", "{name}");
                }
            }
        }
    });
}

#[test]
fn a_panic_after_the_sources_error_does_not_hide_it() {
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a feed whose reader panics after an error", || {
        // Two runs of two records, and a fifth record, which is handed over at the end.
        for (name, passes) in [("deal", 3), ("the reader stops", 0)] {
            *STRUCK.lock().unwrap() = (name, passes);
            let source = MemorySource::images("failing", 100, 1, 4, 4).fail_at(5);
            for error in errors_of(over(source).batch_size(8)) {
                let is_the_sources = matches!(&error, FeedError::Reader(ReaderError::Source(_)));
                assert!(is_the_sources, "{name}: {error}");
            }
        }
    });
}

#[test]
fn a_panic_where_a_batch_returns_is_the_lanes_error_and_not_its_consumers() {
    if !is_alone(this_test!()) {
        return;
    }
    must_end("a lane whose batch cannot return", || {
        *STRUCK.lock().unwrap() = ("returned", 0);
        let source = MemorySource::images("returned", 100, 1, 4, 4);
        let error = errors_of(over(source).batch_size(4).prefetch(2)).remove(0);
        let FeedError::Device(error) = error else { panic!("{error}") };
        assert!(error.to_string().contains("a panic of the test"), "{error}");
    });
}
