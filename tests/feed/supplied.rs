//! Feeds whose batches somebody else makes: what they deliver, how they end, and what is refused. The batches
//! are those of another feed here, from which each supplier copies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use percolator::feed::{
    BatchRoom, ConfigError, LaneSupplier, SuppliedBatch, Supply, SupplyError, SupplyLanes,
};
use percolator::record::{StepEnd, StepId};
use percolator::snapshot::SnapshotError;
use percolator::{
    BadRecords, Batch, Device, Epochs, Feed, FeedBuilder, FeedError, Lane, LastBatch, Shuffle, Snapshot,
};

use crate::bench::{Bench, Broken, feed as at_device, next};
use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn images(records: usize) -> FeedBuilder {
    Feed::builder().source(MemorySource::images("supplied", records, 1, 3, 2)).batch_size(4)
}

/// Two lanes, two epochs in orders of their own, short steps padded.
fn described() -> FeedBuilder {
    let lanes = images(27).devices([Device::host(0), Device::host(1)]);
    lanes.epochs(2).shuffle(Shuffle::Global).last_batch(LastBatch::Pad).receipts(true).threads(2)
}

/// Makes the batches of a feed, lane by lane.
#[derive(Debug)]
struct Twin(FeedBuilder);

struct TwinLane {
    lane: Lane,
    _feed: Feed,
}

impl SupplyLanes for Twin {
    fn supplier(&self, lane: usize, from: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError> {
        let begun = self.0.clone().only_lane(lane).and_then(FeedBuilder::build).and_then(|mut feed| {
            feed.seek(from)?;
            Ok(feed)
        });
        let mut feed = begun.map_err(SupplyError::new)?;
        Ok(Box::new(TwinLane { lane: feed.take_lanes().unwrap().remove(0), _feed: feed }))
    }
}

/// Copies a batch.
fn copied(batch: &Batch, mut room: BatchRoom) -> SuppliedBatch {
    assert_eq!(room.arrays(), batch.arrays().len());
    for (number, array) in batch.arrays().enumerate() {
        room.array_mut(number)[..array.bytes.len()].copy_from_slice(array.bytes);
    }
    room.records_mut()[..batch.len()].copy_from_slice(batch.records());
    room.filled(batch.step(), batch.rows(), batch.len())
}

impl LaneSupplier for TwinLane {
    fn fill(&mut self, room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
        let batch = self.lane.next().transpose().map_err(SupplyError::new)?;
        Ok(batch.map(|batch| copied(&batch, room)))
    }

    fn closer(&self) -> Box<dyn Fn() + Send> {
        Box::new(|| {})
    }
}

fn supply(feed: &FeedBuilder, lanes: impl SupplyLanes + 'static) -> Supply {
    let resolved = feed.clone().resolve().unwrap();
    let mut supply = Supply::new(resolved.snapshot().unwrap(), resolved.layout().fields(), Arc::new(lanes));
    (supply.records, supply.input_shape) = (resolved.source().records(), resolved.input_shape());
    supply
}

fn supplied(feed: &FeedBuilder) -> Feed {
    feed.clone().build_supplied(supply(feed, Twin(feed.clone()))).unwrap()
}

/// All that a consumer sees of the rest of a feed: its batches, where it is after each step, and its receipt.
fn seen(feed: &mut Feed) -> Vec<String> {
    let mut seen = vec![feed.schedule_text(), format!("{:?} {:?}", feed.layout(), feed.input_shape())];
    let mut steps = feed.steps();
    while let Some(step) = steps.next().transpose().unwrap() {
        for batch in step {
            let arrays: Vec<_> = batch.arrays().map(|array| (array.name, array.bytes)).collect();
            let shape = (batch.lane(), batch.step(), batch.rows(), batch.shape());
            seen.push(format!("{shape:?} {:?} {arrays:?}", batch.records()));
        }
        seen.push(steps.snapshot().unwrap().to_string());
    }
    seen.push(feed.receipt().map_or_else(|| "none".to_owned(), |receipt| receipt.to_string()));
    seen
}

#[test]
fn it_delivers_what_a_feed_of_its_own_delivers() {
    let once = images(22).epochs(Epochs::OnePass).devices([Device::host(0), Device::host(1)]);
    for described in [described(), described().receipts(false).last_batch(LastBatch::Keep), once] {
        must_end("a supplied feed", move || {
            let (mut own, mut supplied) = (described.clone().build().unwrap(), supplied(&described));
            assert_eq!(supplied.records(), own.records());
            let due = seen(&mut own);
            assert!(due.len() > 8, "{due:?}");
            assert_eq!(seen(&mut supplied), due);
        });
    }
}

#[test]
fn it_resumes_seeks_and_begins_again() {
    let (mut own, mut feed) = (described().build().unwrap(), supplied(&described()));
    assert_eq!(feed.steps().take(3).filter(Result::is_ok).count(), 3);
    let snapshot: Snapshot = feed.snapshot().unwrap().to_string().parse().unwrap();
    own.seek((0, 3)).unwrap();
    let due = seen(&mut own);
    let resumed = described().resume(&snapshot);
    let mut resumed = resumed.build_supplied(supply(&described(), Twin(described()))).unwrap();
    assert_eq!(seen(&mut resumed), due);
    feed.seek((0, 3)).unwrap();
    assert_eq!(seen(&mut feed), due, "batches that were made before are not lost");
    assert_eq!(feed.steps().count(), 0);
    let end = feed.snapshot().unwrap();
    let ended = described().resume(&end).build_supplied(supply(&described(), Twin(described())));
    assert_eq!(ended.unwrap().steps().count(), 0);
    let one = images(10).epochs(1);
    let mut one = supplied(&one);
    for _ in 0..3 {
        let records = one.epoch().unwrap().map(|batch| batch.unwrap().len());
        assert_eq!(records.collect::<Vec<_>>(), [4, 4, 2]);
    }
}

/// Supplies what it is told, one lane's only.
#[derive(Debug)]
struct Told(Mutex<Option<Receiver<Word>>>, SyncSender<Word>);

/// What a supplier does next.
enum Word {
    Batch(Option<StepEnd>, usize),
    Fail(&'static str),
    Panic,
    Close,
}

struct ToldLane(Receiver<Word>, SyncSender<Word>);

impl Told {
    fn new() -> (Self, SyncSender<Word>) {
        let (tell, told) = sync_channel(8);
        (Told(Mutex::new(Some(told)), tell.clone()), tell)
    }
}

impl SupplyLanes for Told {
    fn supplier(&self, _: usize, _: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError> {
        Ok(Box::new(ToldLane(self.0.lock().unwrap().take().unwrap(), self.1.clone())))
    }
}

impl LaneSupplier for ToldLane {
    fn fill(&mut self, room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
        match self.0.recv().unwrap() {
            Word::Batch(step, rows) => Ok(Some(room.filled(step, rows, rows))),
            Word::Fail(why) => Err(SupplyError::new(why)),
            Word::Panic => panic!("on purpose"),
            Word::Close => Ok(None),
        }
    }

    fn closer(&self) -> Box<dyn Fn() + Send> {
        let tell = self.1.clone();
        // If it does not wait, there may be no room, and need not be.
        Box::new(move || drop(tell.try_send(Word::Close)))
    }
}

fn told(words: impl IntoIterator<Item = Word>) -> (Feed, SyncSender<Word>) {
    let (lanes, tell) = Told::new();
    words.into_iter().for_each(|word| tell.send(word).unwrap());
    let feed = images(27).epochs(2);
    (feed.clone().build_supplied(supply(&feed, lanes)).unwrap(), tell)
}

fn at(step: u64, is_last: bool) -> Option<StepEnd> {
    Some(StepEnd { epoch: 0, step, is_last })
}

#[test]
fn its_end_comes_after_what_came_before_and_says_why() {
    let end = |word| {
        let (mut feed, _tell) = told([Word::Batch(at(0, false), 4), word]);
        let mut steps = feed.steps();
        assert_eq!(steps.next().unwrap().unwrap()[0].step(), at(0, false));
        let error = steps.next().unwrap().unwrap_err();
        assert!(steps.next().is_none());
        error.to_string()
    };
    assert_eq!(end(Word::Fail("the wire is cut")), "the wire is cut");
    assert_eq!(
        end(Word::Batch(at(0, false), 4)),
        "a supplied batch is of epoch 0, step 0, where epoch 0, step 1 was due"
    );
    assert_eq!(
        end(Word::Batch(at(1, false), 5)),
        "a supplied batch is none: 5 records in 5 rows, of which a batch has up to 4"
    );
    assert_eq!(end(Word::Panic), "the thread supply:0 panicked: on purpose; this is a bug, please report it");
}

#[test]
fn who_waits_for_a_supplier_can_leave_cancel_and_pause() {
    must_end("a lane whose supplier waits", || drop(told([]).0));
    must_end("a feed whose supplier waits", || {
        let (mut feed, _tell) = told([]);
        let handle = feed.handle();
        handle.cancel();
        assert_eq!(feed.steps().next().unwrap().unwrap_err(), FeedError::Cancelled);
    });
    must_end("a feed that is paused", || {
        let (mut feed, tell) = told([]);
        let handle = feed.handle();
        tell.send(Word::Batch(at(0, false), 4)).unwrap();
        assert!(feed.steps().next().unwrap().is_ok());
        handle.pause();
        // One fill may be under way, and is not stopped.
        (1..4).for_each(|step| tell.send(Word::Batch(at(step, false), 4)).unwrap());
        assert!(handle.is_paused() && handle.set_threads(2).is_err());
        handle.resume();
        assert_eq!(feed.steps().take(3).filter(Result::is_ok).count(), 3);
        handle.pause();
        drop(feed);
    });
}

#[test]
fn what_such_a_feed_cannot_do_is_refused() {
    let refused = |feed: FeedBuilder| {
        let supply = supply(&described(), Twin(described()));
        feed.build_supplied(supply).map(drop).unwrap_err()
    };
    let elsewhere = |option| FeedError::from(ConfigError::WithSupply { option });
    assert_eq!(refused(described().only_lane(1).unwrap()), elsewhere("only_lane"));
    let skips = described().bad_records(BadRecords::skip());
    assert_eq!(refused(skips), elsewhere("bad records that are left out"));
    assert_eq!(refused(described().prefetch(0)), ConfigError::Zero { option: "prefetch" }.into());
    let small = described().memory_limit(100);
    assert!(matches!(refused(small), FeedError::Config(ConfigError::OverBudget { .. })));
    let another = described().batch_size(5).build().unwrap().snapshot().unwrap();
    let error = refused(described().resume(&another));
    assert!(matches!(error, FeedError::Snapshot(SnapshotError::AnotherJob { .. })), "{error}");
    let data = images(28).devices([Device::host(0), Device::host(1)]).epochs(2).build().unwrap();
    let error = refused(described().resume(&data.snapshot().unwrap()));
    assert!(matches!(error, FeedError::Snapshot(SnapshotError::OtherData { .. })), "{error}");
    assert!(matches!(refused(described().seed(7)), FeedError::Snapshot(SnapshotError::OtherDraws { .. })));
    let error = supplied(&described()).replay((0, 0), 0).unwrap_err();
    assert_eq!(error, elsewhere("replay"));
}

/// A lane at a device that does nothing by itself, with two batches in its ring.
fn lane_at(bench: &Bench) -> (Feed, Lane) {
    let described = at_device(bench, 2).epochs(0);
    let here = described.clone().devices([Device::host(0)]);
    let mut feed = described.build_supplied(supply(&here, Twin(here.clone()))).unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane)
}

#[test]
fn a_device_gets_batches_from_where_they_were_filled_and_none_is_filled_while_it_reads() {
    must_end("a supplied lane whose batches are still read", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_at(&bench);
        let batches = [next(&mut lane), next(&mut lane)];
        for (sent, batch) in bench.state().sent.iter().zip(&batches) {
            assert_eq!((sent.address, &*sent.copy), (batch.bytes().as_ptr() as usize, batch.bytes()));
        }
        drop(batches);
        bench.wait_until(|state| state.awaited.contains(&0) && state.awaited.contains(&1));
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(bench.is_intact(0) && bench.is_intact(1));
        bench.change(|state| state.finished.insert(1));
        let third = next(&mut lane);
        assert_eq!(third.bytes().as_ptr() as usize, bench.state().sent[1].address, "its memory was reused");
        assert!(bench.is_intact(0), "the first's was not");
        assert_eq!(third.records()[0].index, 8);
        drop(third);
        bench.let_go();
        for _ in 0..50 {
            next(&mut lane);
        }
        lane.close();
    });
}
