//! Steps that are handed out block by block: each step is the plan's, whatever block it comes in, and what a
//! feed without an order of its own cannot do is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use percolator::feed::ConfigError;
use percolator::order::{Block, Blocks, JobWorker, Plan, World};
use percolator::reader::ReaderError;
use percolator::receipt::Receipt;
use percolator::record::{RecordId, StepId};
use percolator::snapshot::SnapshotError;
use percolator::transform::CaffeEra;
use percolator::{Batch, Device, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Seed, Shuffle, Transform};
use percolator_proof::{EpochState, Verdict};
use proptest::prelude::*;

use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Blocks from a list.
#[derive(Debug)]
pub(crate) struct Listed(std::vec::IntoIter<Block>);

impl Listed {
    pub(crate) fn of(blocks: impl Into<Vec<Block>>) -> Self {
        Listed(blocks.into().into_iter())
    }
}

impl Blocks for Listed {
    fn next(
        &mut self,
        _plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        Ok(self.0.next())
    }
}

fn block(epoch: u64, step: u64, steps: u64) -> Block {
    Block { first: StepId { epoch, step }, steps }
}

/// 23 records, 4 a batch, with pixels that depend on each record's random numbers.
fn describe(lanes: usize, last_batch: LastBatch) -> FeedBuilder {
    Feed::builder()
        .source(MemorySource::images("blocks", 23, 1, 4, 4))
        .transform(Transform::new().crop(2).mirror(true))
        .batch_size(4)
        .devices((0..lanes).map(Device::host))
        .shuffle(Shuffle::Global)
        .last_batch(last_batch)
        .seed(7)
}

type Seen = (Vec<RecordId>, Vec<u8>);

fn seen(batch: &Batch) -> Seen {
    (batch.records().to_vec(), batch.bytes().to_vec())
}

/// What each lane gets of each step, in order.
fn delivered(feed: &mut Feed) -> Vec<(StepId, Vec<Seen>)> {
    let steps = feed.steps().map(|step| {
        let step = step.unwrap();
        let id = step[0].step().unwrap().id();
        assert!(step.iter().all(|batch| batch.step().unwrap().id() == id));
        (id, step.iter().map(seen).collect())
    });
    steps.collect()
}

fn any_blocks() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((0..3_u64, any::<u64>(), any::<u64>()), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The naive twin: the feed of the whole plan, of which the same steps are picked.
    #[test]
    fn each_step_is_the_plans(
        blocks in any_blocks(),
        lanes in 1..3_usize,
        last_batch in prop::sample::select(vec![
            LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap,
        ]),
    ) {
        let mut whole = describe(lanes, last_batch).epochs(3).build().unwrap();
        let plan = whole.plan().unwrap().clone();
        let of_plan: BTreeMap<StepId, Vec<Seen>> = delivered(&mut whole).into_iter().collect();
        let blocks: Vec<Block> = blocks.into_iter().map(|(epoch, first, length)| {
            let steps = plan.steps(epoch).unwrap();
            let first = first % steps;
            block(epoch, first, 1 + length % (steps - first))
        }).collect();
        let ids = blocks.iter().flat_map(|block| {
            let StepId { epoch, step } = block.first;
            (step..step + block.steps).map(move |step| StepId { epoch, step })
        });
        let due: Vec<_> = ids.map(|id| (id, of_plan[&id].clone())).collect();
        let mut feed = describe(lanes, last_batch).blocks(Listed::of(blocks)).build().unwrap();
        prop_assert_eq!(delivered(&mut feed), due);
    }
}

/// Two workers share two epochs; their receipts together prove both, and prove nothing if a block is missing.
#[test]
fn the_receipts_of_all_workers_prove_an_epoch() {
    let receipt = |blocks: &[Block]| -> Receipt {
        let blocks = Listed::of(blocks);
        let feed = describe(2, LastBatch::Keep).epochs(2).receipts(true).blocks(blocks);
        let mut feed = feed.build().unwrap();
        feed.steps().for_each(|step| drop(step.unwrap()));
        feed.receipt().unwrap()
    };
    let one = receipt(&[block(0, 0, 1), block(1, 1, 2)]);
    let other = receipt(&[block(0, 1, 2), block(1, 0, 1)]);
    let states = |receipts: &[(&str, &Receipt)]| -> Vec<EpochState> {
        Verdict::of(receipts.iter().copied()).unwrap().epochs.into_iter().map(|epoch| epoch.state).collect()
    };
    assert_eq!(states(&[("one", &one), ("other", &other)]), [EpochState::Covered, EpochState::Covered]);
    assert!(!states(&[("one", &one)]).contains(&EpochState::Covered));
    let twice = [("one", &one), ("other", &other), ("one again", &one)];
    assert_eq!(states(&twice), [EpochState::Broken, EpochState::Broken]);
}

/// A receipt a block is as good as one for all of them.
#[test]
fn receipts_are_taken_block_by_block() {
    let blocks = Listed::of([block(0, 3, 3), block(0, 0, 3)]);
    let mut feed = describe(1, LastBatch::Keep).epochs(1).receipts(true).blocks(blocks).build().unwrap();
    let mut steps = feed.steps();
    let mut parts = Vec::new();
    for _ in 0..2 {
        (0..3).for_each(|_| drop(steps.next().unwrap().unwrap()));
        parts.push(steps.take_receipt().unwrap());
    }
    let parts: Vec<_> = parts.iter().map(|receipt| ("part", receipt)).collect();
    let verdict = Verdict::of(parts.iter().copied()).unwrap();
    assert_eq!(verdict.epochs[0].state, EpochState::Covered);
    assert_ne!(Verdict::of(parts[..1].iter().copied()).unwrap().epochs[0].state, EpochState::Covered);
    let mut feed = describe(1, LastBatch::Keep).blocks(Listed::of([])).build().unwrap();
    assert!(feed.steps().take_receipt().is_none(), "receipts are off");
}

#[test]
fn a_block_that_the_plan_does_not_have_is_an_error() {
    let refused = |bad: Block, epochs: u64, due: &str| {
        let blocks = Listed::of([block(0, 0, 1), bad]);
        let mut feed = describe(1, LastBatch::Keep).epochs(epochs).blocks(blocks).build().unwrap();
        let mut steps = feed.steps();
        assert_eq!(steps.next().unwrap().unwrap().len(), 1, "what came before is delivered");
        let error = steps.next().unwrap().unwrap_err();
        assert!(matches!(&error, FeedError::Reader(ReaderError::NoSuchBlock { block, .. }) if *block == bad));
        assert!(error.to_string().contains(due), "{error}");
        assert!(steps.next().is_none());
    };
    refused(block(0, 5, 2), 0, "epoch 0, steps 5 to 6) is not possible: the epoch has 6 steps");
    refused(block(0, 6, 1), 0, "the epoch has 6 steps");
    refused(block(0, u64::MAX, 2), 0, "the epoch has 6 steps");
    refused(block(0, 0, 0), 0, "a block at least one");
    refused(block(2, 0, 1), 2, "the feed has 2 epochs");
}

#[test]
fn blocks_are_handed_out_to_one_feed() {
    let builder = describe(1, LastBatch::Keep).blocks(Listed::of([block(0, 0, 2)]));
    let mut first = builder.clone().build().unwrap();
    assert_eq!(delivered(&mut first).len(), 2);
    let error = builder.build().unwrap().steps().next().unwrap().unwrap_err();
    assert!(matches!(&error, FeedError::Reader(ReaderError::BlocksTaken { .. })), "{error}");
    assert!(error.to_string().contains("another feed of the same builder has the blocks"), "{error}");
}

#[derive(Debug)]
struct Failing;

impl Blocks for Failing {
    fn next(
        &mut self,
        _plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        Err("the shop is closed".into())
    }
}

#[test]
fn an_error_of_whoever_hands_out_blocks_ends_the_feed() {
    let mut feed = describe(2, LastBatch::Keep).blocks(Failing).build().unwrap();
    let error = feed.steps().next().unwrap().unwrap_err();
    assert!(matches!(error, FeedError::Reader(ReaderError::Blocks { .. })), "{error}");
    assert!(error.to_string().ends_with("no more steps are handed out: the shop is closed"), "{error}");
}

/// Hands out one block, and waits for another until the feed stops.
#[derive(Debug)]
struct Waiting {
    first: Option<Block>,
    waits: mpsc::Sender<()>,
    has_stopped: Arc<AtomicBool>,
}

impl Blocks for Waiting {
    fn next(
        &mut self,
        _plan: &Plan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        if let Some(block) = self.first.take() {
            return Ok(Some(block));
        }
        self.waits.send(())?;
        while !is_stopping() {
            std::thread::yield_now();
        }
        self.has_stopped.store(true, Ordering::Relaxed);
        Ok(None)
    }
}

#[test]
fn a_feed_is_dropped_while_it_waits_for_a_block() {
    must_end("a feed that is dropped while it waits for a block", || {
        let (waits, is_waiting) = mpsc::channel();
        let has_stopped = Arc::new(AtomicBool::new(false));
        let blocks = Waiting { first: Some(block(0, 1, 1)), waits, has_stopped: has_stopped.clone() };
        let mut feed = describe(1, LastBatch::Keep).blocks(blocks).build().unwrap();
        // The block is delivered although the next one does not come.
        assert_eq!(feed.steps().next().unwrap().unwrap()[0].step().unwrap().id(), StepId::from((0, 1)));
        is_waiting.recv().unwrap();
        drop(feed);
        assert!(has_stopped.load(Ordering::Relaxed));
    });
}

#[test]
fn what_needs_an_order_of_its_own_is_refused() {
    let blocks = || Listed::of([block(0, 2, 2)]);
    let refused = |feed: FeedBuilder, due: &str| match feed.blocks(blocks()).resolve() {
        Err(FeedError::Config(ConfigError::WithBlocks { option })) => assert_eq!(option, due),
        found => panic!("{found:?}"),
    };
    let of_two = |lanes| {
        describe(lanes, LastBatch::Keep).share(JobWorker { world: World::new(2, 2).unwrap(), number: 0 })
    };
    refused(of_two(1), ".share(JobWorker { .. })");
    refused(describe(1, LastBatch::Keep).epochs(Epochs::OnePass), "Epochs::OnePass");
    refused(describe(1, LastBatch::Keep).seed(Seed::Caffe { seed: 1, era: CaffeEra::Today }), "Seed::Caffe");
    let snapshot = describe(1, LastBatch::Keep).epochs(0).build().unwrap().snapshot().unwrap();
    refused(describe(1, LastBatch::Keep).resume(&snapshot), "resume");

    let spec = describe(1, LastBatch::Keep).blocks(blocks()).spec().clone();
    let unattached = FeedBuilder::from(spec).source(MemorySource::images("blocks", 23, 1, 4, 4));
    let error = unattached.resolve().unwrap_err();
    let FeedError::Config(ConfigError::NotAttached { method, .. }) = &error else { panic!("{error}") };
    assert_eq!(*method, ".blocks(...)");

    let mut feed = describe(1, LastBatch::Keep).blocks(blocks()).build().unwrap();
    assert!(matches!(feed.snapshot(), Err(SnapshotError::OfBlocks { .. })));
    assert!(matches!(feed.steps().snapshot(), Err(SnapshotError::OfBlocks { .. })));
    for error in [feed.seek((0, 0)).unwrap_err(), feed.epoch().unwrap_err()] {
        assert!(matches!(error, FeedError::Config(ConfigError::WithBlocks { .. })), "{error}");
    }
    // A step alone is the plan's.
    let replayed = feed.replay((1, 3), 0).unwrap();
    let mut whole = describe(1, LastBatch::Keep).epochs(2).build().unwrap();
    whole.seek((1, 3)).unwrap();
    assert_eq!(seen(&replayed), seen(&whole.steps().next().unwrap().unwrap()[0]));
    // And the feed goes on as if nothing had been asked.
    let ids: Vec<_> = delivered(&mut feed).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [StepId::from((0, 2)), StepId::from((0, 3))]);
}
