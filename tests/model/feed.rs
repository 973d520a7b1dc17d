//! Whole feeds: a reader, its prefetchers, the workers, and the consumers of the lanes.

use std::path::Path;
use std::sync::Arc;

use percolator::batch::RecordCause;
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::reader::ReaderError;
use percolator::source::{Cursor, Record, Source, SourceError};
use percolator::{
    Batch, DecodeFailure, Device, DeviceError, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Lane,
    RecordDecoder, Row,
};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::explore::explore_a_share;
use crate::memory::{End, Memory};

/// A whole feed takes many steps: of the schedules of other scenarios, it gets one in this many.
const SHARE: usize = 5;

/// A source that the scenario keeps, to see that nobody else does.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) Arc<Memory>);

impl Source for Kept {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        self.0.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

/// What a decoder does with the record of this number.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    refuses: Option<u8>,
    panics: Option<u8>,
    /// From this record on, a row has 400 numbers and not 1: its batch does not fit in the ring's memory.
    grows: Option<u8>,
    /// A worker's scratch memory cannot be made.
    has_no_scratch: bool,
}

/// Writes a record's number to each element of its row.
struct Numbers {
    faults: Faults,
    /// The number of records that were begun. The scheduler may switch threads where it is counted, and PCT
    /// does not rank the worker behind all other threads, as it does when one yields.
    begun: AtomicUsize,
}

impl Numbers {
    fn row_of(&self, number: u8) -> Vec<Field> {
        let elements = if self.faults.grows.is_some_and(|first| number >= first) { 400 } else { 1 };
        vec![Field::new("number", Dtype::U64, [elements])]
    }
}

impl RecordDecoder for Numbers {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(self.row_of(first.value[0]))
    }

    fn scratch(&self, _setup: WorkerSetup) {
        if self.faults.has_no_scratch {
            // Not `panic!`: the checker's hook would print every schedule that reaches this.
            std::panic::resume_unwind(Box::new("no scratch"));
        }
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        let number = record.value[0];
        self.begun.fetch_add(1, Ordering::SeqCst);
        if self.faults.refuses == Some(number) {
            return Err(DecodeFailure::new("refused"));
        }
        if self.faults.panics == Some(number) {
            std::panic::resume_unwind(Box::new("torn"));
        }
        row.values_mut::<u64>("number")?.fill(number.into());
        Ok(())
    }

    fn may_reshape(&self) -> bool {
        true
    }

    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        let wanted = self.row_of(first.value[0]);
        Ok((wanted != fields).then_some(wanted))
    }
}

/// A feed of batches of 2 with two workers and rings of 2.
fn feed(source: &Arc<Memory>, faults: Faults) -> FeedBuilder {
    Feed::builder()
        .source(Kept(source.clone()))
        .decoder(Numbers { faults, begun: AtomicUsize::new(0) })
        .batch_size(2)
        .threads(2)
        .prefetch(2)
}

/// Runs `scenario` with a source of its own; afterwards nobody may hold the source.
fn explore_feeds(
    source: impl Fn() -> Arc<Memory> + Send + Sync + 'static,
    scenario: impl Fn(&Arc<Memory>) + Send + Sync + 'static,
) {
    explore_a_share(SHARE, move || {
        let source = source();
        scenario(&source);
        assert_eq!(Arc::strong_count(&source), 1, "a thread outlived its feed");
    });
}

/// The records of a batch, each of whose rows must hold its own.
fn records(batch: &Batch) -> Vec<u64> {
    let numbers: Vec<u64> = batch.records().iter().map(|id| id.index).collect();
    let rows = batch.get::<u64>("number").unwrap();
    let elements = rows.len() / numbers.len().max(1);
    for (number, row) in numbers.iter().zip(rows.chunks(elements.max(1))) {
        assert!(row.iter().all(|element| element == number), "record {number} holds {row:?}");
    }
    numbers
}

/// Takes all batches of a lane, one at a time, and then its error.
fn drain(lane: &mut Lane) -> (Vec<Vec<u64>>, Option<FeedError>) {
    let mut batches = Vec::new();
    loop {
        match lane.next() {
            Some(Ok(batch)) => batches.push(records(&batch)),
            Some(Err(error)) => {
                assert!(lane.next().is_none(), "an error comes once, and is the end");
                return (batches, Some(error));
            }
            None => return (batches, None),
        }
    }
}

fn only_lane(builder: FeedBuilder) -> Lane {
    builder.build().unwrap().take_lanes().unwrap().remove(0)
}

#[test]
fn every_record_is_delivered_once_and_in_order_through_a_recycled_ring() {
    for ring in [1, 2] {
        explore_feeds(
            || Memory::of(7),
            move |source| {
                let mut lane =
                    only_lane(feed(source, Faults::default()).prefetch(ring).epochs(Epochs::OnePass));
                let (batches, error) = drain(&mut lane);
                assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
                assert_eq!(error, None);
            },
        );
    }
}

#[test]
fn two_lanes_get_their_own_shares_and_one_that_leaves_takes_nothing_from_the_other() {
    explore_feeds(
        || Memory::of(8),
        |source| {
            let devices = [Device::host(0), Device::host(1)];
            let mut feed =
                feed(source, Faults::default()).devices(devices).epochs(Epochs::OnePass).build().unwrap();
            let mut lanes = feed.take_lanes().unwrap();
            drop(feed);
            let mut leaving = lanes.remove(0);
            let leaving = thread::spawn(move || {
                let first = leaving.next().unwrap().unwrap();
                assert_eq!(records(&first), [0, 2]);
            });
            assert_eq!(drain(&mut lanes[0]), (vec![vec![1, 3], vec![5, 7]], None));
            leaving.join().unwrap();
        },
    );
}

#[test]
fn a_batch_that_grows_is_delivered_whole() {
    explore_feeds(
        || Memory::of(6),
        |source| {
            let faults = Faults { grows: Some(2), ..Faults::default() };
            let mut lane = only_lane(feed(source, faults).epochs(Epochs::OnePass));
            assert_eq!(drain(&mut lane), (vec![vec![0, 1], vec![2, 3], vec![4, 5]], None));
        },
    );
}

/// The steps before the fault come first, then the error, once; both lanes get it.
#[test]
fn a_record_that_is_refused_ends_every_lane_once_after_what_was_complete() {
    explore_feeds(
        || Memory::of(9),
        |source| {
            let faults = Faults { refuses: Some(5), ..Faults::default() };
            let devices = [Device::host(0), Device::host(1)];
            let mut feed = feed(source, faults).devices(devices).epochs(Epochs::OnePass).build().unwrap();
            let mut lanes = feed.take_lanes().unwrap();
            drop(feed);
            let (mut first, mut second) = (lanes.remove(0), lanes.remove(0));
            let draining = thread::spawn(move || drain(&mut first));
            let (second, second_error) = drain(&mut second);
            let (first, first_error) = draining.join().unwrap();
            // Lane 1 has records 1 and 3, and then 5; so lane 0 ends before its second batch, too.
            assert_eq!((first, second), (vec![vec![0, 2]], vec![vec![1, 3]]));
            for error in [first_error, second_error] {
                let Some(FeedError::Record(error)) = error else { panic!("{error:?}") };
                assert_eq!(error.id.index, 5);
            }
        },
    );
}

#[test]
fn a_source_that_fails_ends_every_lane_at_one_step() {
    explore_feeds(
        || Memory::that(End::Fails, 7),
        |source| {
            let devices = [Device::host(0), Device::host(1)];
            let mut feed =
                feed(source, Faults::default()).devices(devices).epochs(Epochs::OnePass).build().unwrap();
            let mut lanes = feed.take_lanes().unwrap();
            drop(feed);
            let (mut first, mut second) = (lanes.remove(0), lanes.remove(0));
            let draining = thread::spawn(move || drain(&mut first));
            let (second, second_error) = drain(&mut second);
            let (first, first_error) = draining.join().unwrap();
            // Lane 0 has all records of its second batch, and lane 1 has not.
            assert_eq!((first, second), (vec![vec![0, 2]], vec![vec![1, 3]]));
            assert!(
                matches!(first_error, Some(FeedError::Reader(ReaderError::Source(_)))),
                "{first_error:?}"
            );
            assert_eq!(first_error, second_error);
        },
    );
}

#[test]
fn a_decoder_that_panics_fails_its_record() {
    explore_feeds(
        || Memory::of(4),
        |source| {
            let faults = Faults { panics: Some(2), ..Faults::default() };
            let (batches, error) = drain(&mut only_lane(feed(source, faults).epochs(Epochs::OnePass)));
            assert_eq!(batches, [[0, 1]]);
            let Some(FeedError::Record(error)) = error else { panic!("{error:?}") };
            assert!(error.id.index == 2 && matches!(error.cause, RecordCause::Panicked { .. }));
        },
    );
}

#[test]
fn workers_that_are_lost_end_the_feed_and_nobody_waits_for_them() {
    explore_feeds(
        || Memory::of(4),
        |source| {
            let faults = Faults { has_no_scratch: true, ..Faults::default() };
            let (batches, error) = drain(&mut only_lane(feed(source, faults).epochs(Epochs::OnePass)));
            assert!(batches.is_empty() && matches!(error, Some(FeedError::Panicked { .. })), "{error:?}");
        },
    );
}

#[test]
fn a_source_that_fails_ends_the_feed_after_what_was_complete() {
    for (end, records) in [(End::Fails, 4), (End::Fails, 5), (End::Panics, 4)] {
        explore_feeds(
            move || Memory::that(end, records),
            |source| {
                let (batches, error) =
                    drain(&mut only_lane(feed(source, Faults::default()).epochs(Epochs::OnePass)));
                // Record 4 is part of a batch that is never complete.
                assert_eq!(batches, [[0, 1], [2, 3]]);
                let is_readers = matches!(
                    error,
                    Some(FeedError::Reader(ReaderError::Source(_) | ReaderError::Panicked { .. }))
                );
                assert!(is_readers, "{error:?}");
            },
        );
    }
}

#[test]
fn a_run_begins_again_with_the_threads_and_the_ring_that_there_are() {
    for ring in [1, 2] {
        explore_feeds(
            || Memory::of(3),
            move |source| {
                let feed = feed(source, Faults::default()).prefetch(ring).epochs(Epochs::OnePass);
                let mut feed = feed.build().unwrap();
                for _round in 0..3 {
                    let batches = feed.epoch().unwrap().map(|batch| records(&batch.unwrap()));
                    assert_eq!(batches.collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
                }
            },
        );
    }
}

#[test]
fn cancelling_ends_a_run_that_begins_again_or_comes_after_its_end() {
    explore_feeds(
        || Memory::of(2),
        |source| {
            let mut feed = feed(source, Faults::default()).epochs(Epochs::OnePass).build().unwrap();
            assert_eq!(feed.epoch().unwrap().count(), 1);
            let handle = feed.handle();
            let cancelling = thread::spawn(move || handle.cancel());
            let seen: Result<Vec<_>, _> =
                feed.epoch().and_then(|epoch| epoch.map(|batch| Ok(records(&batch?))).collect());
            match seen {
                Ok(batches) => assert_eq!(batches, [[0, 1]]),
                Err(error) => assert_eq!(error, FeedError::Cancelled),
            }
            cancelling.join().unwrap();
        },
    );
}

#[test]
fn cancelling_wakes_a_consumer_that_waits_and_ends_the_lane_once() {
    explore_feeds(
        || Memory::of(3),
        |source| {
            // Without an end: only the handle can end it.
            let feed = feed(source, Faults::default());
            let mut feed = feed.build().unwrap();
            let handle = feed.handle();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            drop(feed);
            let cancelling = thread::spawn(move || handle.cancel());
            // Not for ever: a schedule need not let that thread run before the consumer waits for it.
            let (mut batches, mut error) = (Vec::new(), None);
            while batches.len() < 3 && error.is_none() {
                match lane.next().expect("the feed has no end") {
                    Ok(batch) => batches.push(records(&batch)),
                    Err(first) => error = Some(first),
                }
            }
            cancelling.join().unwrap();
            let (rest, later) = drain(&mut lane);
            batches.extend(rest);
            let expected = (0..).step_by(2).map(|at| vec![at % 3, (at + 1) % 3]);
            assert!(expected.zip(&batches).all(|(expected, found)| expected == *found), "{batches:?}");
            assert!(error.is_none() || later.is_none(), "an error comes once");
            assert_eq!(error.or(later), Some(FeedError::Cancelled));
        },
    );
}

#[test]
fn batches_are_dropped_elsewhere_while_their_lane_ends() {
    explore_feeds(
        || Memory::of(6),
        |source| {
            let mut lane = only_lane(feed(source, Faults::default()));
            let held = [lane.next().unwrap().unwrap(), lane.next().unwrap().unwrap()];
            let dropping = thread::spawn(move || {
                assert_eq!(held.each_ref().map(records), [[0, 1], [2, 3]]);
            });
            drop(lane);
            dropping.join().unwrap();
        },
    );
}

/// A device that uses each batch until a thread of its own is through with it.
#[derive(Debug, Default)]
struct Slow {
    /// Uses whose end the device's thread has yet to bring about; `None` when nobody asks for more.
    uses: Mutex<Option<Vec<Arc<Use>>>>,
    asked: Condvar,
}

/// One batch's last use.
#[derive(Debug, Default)]
struct Use {
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Use {
    fn end(&self) {
        *self.is_over.lock().unwrap() = true;
        self.over.notify_all();
    }
}

impl Event for Use {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(*self.is_over.lock().unwrap())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let mut is_over = self.is_over.lock().unwrap();
        while !*is_over {
            is_over = self.over.wait(is_over).unwrap();
        }
        Ok(())
    }
}

/// One of the device's transfers.
#[derive(Debug)]
struct SlowTransfer {
    device: Arc<Slow>,
    last_use: Arc<Use>,
    arrival: Use,
}

impl Transfer for SlowTransfer {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        assert!(self.last_use.is_complete().unwrap(), "a batch was filled again while it was in use");
        self.last_use = Arc::default();
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        &self.arrival
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        match &mut *self.device.uses.lock().unwrap() {
            Some(uses) => uses.push(self.last_use.clone()),
            None => self.last_use.end(),
        }
        self.device.asked.notify_all();
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        &*self.last_use
    }
}

impl Drop for SlowTransfer {
    /// As the trait says: waits until the device is through.
    fn drop(&mut self) {
        self.last_use.wait().unwrap();
    }
}

/// The device as a feed sees it.
#[derive(Debug)]
struct SlowBackend(Arc<Slow>);

impl Backend for SlowBackend {
    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        let (last_use, arrival) = (Use::default(), Use::default());
        last_use.end();
        arrival.end();
        Ok(Box::new(SlowTransfer { device: self.0.clone(), last_use: Arc::new(last_use), arrival }))
    }
}

impl Slow {
    /// The device's thread: ends one use after the other, until nobody asks for more and none is left.
    fn work(&self) {
        let mut uses = self.uses.lock().unwrap();
        while let Some(pending) = &mut *uses {
            match pending.pop() {
                Some(done) => {
                    drop(uses);
                    done.end();
                    uses = self.uses.lock().unwrap();
                }
                None => uses = self.asked.wait(uses).unwrap(),
            }
        }
    }

    /// Ends what is left; the device's thread then ends.
    fn stop(&self) {
        let left = self.uses.lock().unwrap().take();
        left.into_iter().flatten().for_each(|last_use| last_use.end());
        self.asked.notify_all();
    }
}

#[test]
fn no_batch_is_filled_before_its_device_is_through_and_no_drop_waits_for_it() {
    explore_a_share(SHARE, || {
        let source = Memory::of(10);
        let device = Arc::new(Slow { uses: Mutex::new(Some(Vec::new())), asked: Condvar::new() });
        let working = {
            let device = device.clone();
            thread::spawn(move || device.work())
        };
        let backend = Device::from_backend(Arc::new(SlowBackend(device.clone())));
        let mut lane = only_lane(
            feed(&source, Faults::default()).prefetch(1).devices([backend]).epochs(Epochs::OnePass),
        );
        assert_eq!(drain(&mut lane), ((0..10).step_by(2).map(|at| vec![at, at + 1]).collect(), None));
        // The prefetch thread stays for the slots that are still in use, and the lane does not.
        drop(lane);
        device.stop();
        working.join().unwrap();
    });
}
