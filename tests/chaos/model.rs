//! The plain model: which records each lane is due, what each batch must hold, and which errors the faults
//! explain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use percolator::bad::BadAction;
use percolator::order::{Block, Plan};
use percolator::reader::ReaderError;
use percolator::record::{RecordId, StepId};
use percolator::source::SourceError;
use percolator::{Batch, DeviceError, Feed, FeedError, LastBatch, Phase, Transform};
use percolator_chaos::{Effect, Fault, Place};

use crate::blocks::CLOSED;
use crate::mixture;
use crate::scenario::{Change, Job, Order, Scenario};
use crate::stores::{BYTES, Coding, SIDE, content};

/// The records of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub records: Vec<RecordId>,
    /// In a mixture: the epoch of the step.
    pub mixed: Option<u64>,
}

/// The batches of each lane.
pub(crate) type Due = Vec<Vec<Share>>;

/// What the lanes of a worker are due, from where its feed starts. In Caffe's order, which has no end,
/// `missing` records are asked for, and then as many as fill a step.
pub(crate) fn due(scenario: &Scenario, job: Job, feed: &Feed, worker: usize, missing: usize) -> Due {
    let start = feed.snapshot().unwrap();
    let steps = match scenario.order {
        Order::RoundRobin { .. } => missing.div_ceil(job.step()),
        _ => usize::MAX,
    };
    let of = |replica| {
        let first = start.next(replica).unwrap();
        let Some(plan) = start.plan() else {
            let global = match scenario.order {
                Order::RoundRobin { .. } => all(scenario).next_multiple_of(job.step()),
                _ => scenario.records,
            };
            let share = in_turn(scenario, job, replica, global);
            return share.into_iter().skip(usize::try_from(first.step).unwrap()).collect();
        };
        let epochs = if let Order::Plan { epochs, .. } = scenario.order { epochs } else { u64::MAX };
        let epochs = if scenario.order == Order::Once { 1 } else { epochs };
        let of_epoch = |epoch| {
            let from = if epoch == first.epoch { first.step } else { 0 };
            (from..plan.steps(epoch).unwrap()).map(move |step| (epoch, step))
        };
        let share = |(epoch, step)| share(scenario, plan, StepId { epoch, step }, replica);
        (first.epoch..epochs).flat_map(of_epoch).take(steps).map(share).collect()
    };
    (worker * job.lanes..(worker + 1) * job.lanes).map(of).collect()
}

/// The share of a replica of a step of a plan.
fn share(scenario: &Scenario, plan: &Plan, StepId { epoch, step }: StepId, replica: usize) -> Share {
    let records = plan.share(epoch, step, replica).unwrap().collect();
    Share { records, mixed: scenario.mix.map(|_| epoch) }
}

/// The share of a replica of the first `global` records, in Caffe's order.
fn in_turn(scenario: &Scenario, job: Job, replica: usize, global: usize) -> Vec<Share> {
    let records = (0..global).filter(|g| g % job.replicas() == replica).map(|g| name(scenario, g));
    let share = |records: &[RecordId]| Share { records: records.to_vec(), mixed: None };
    records.collect::<Vec<RecordId>>().chunks(job.size).map(share).collect()
}

/// The record that is dealt after `global` others, in Caffe's order.
fn name(scenario: &Scenario, global: usize) -> RecordId {
    let (epoch, index) = (global / scenario.records, global % scenario.records);
    RecordId { epoch: epoch as u64, index: index as u64 }
}

/// What the lanes of a worker are due that is given these blocks.
pub(crate) fn due_of_blocks(scenario: &Scenario, job: Job, plan: &Plan, blocks: &[Block]) -> Due {
    let steps_of = |block: &Block| {
        let StepId { epoch, step } = block.first;
        (step..step + block.steps).map(move |step| StepId { epoch, step })
    };
    let of = |replica| {
        let share = |step| share(scenario, plan, step, replica);
        blocks.iter().flat_map(steps_of).map(share).collect()
    };
    (0..job.lanes).map(of).collect()
}

/// The records that are to come in all.
pub(crate) fn all(scenario: &Scenario) -> usize {
    match scenario.order {
        Order::RoundRobin { batches } => batches * scenario.job.step(),
        Order::Once => scenario.records,
        Order::Plan { epochs, .. } => {
            let epoch = mixture::of(scenario).map_or(scenario.records, |mixture| mixture.epoch_len());
            epoch * usize::try_from(epochs).unwrap()
        }
    }
}

/// Checks that these are each record of each epoch once.
pub(crate) fn check_once<'a>(scenario: &Scenario, records: impl IntoIterator<Item = &'a RecordId>) {
    let mut seen = HashSet::new();
    for record in records {
        assert!(seen.insert(*record), "{record} comes twice");
        assert!(record.index < scenario.records as u64);
    }
    let all = all(scenario);
    // Of the job that began the run, and of the one that ends it. The last step may have records of an epoch
    // that does not come.
    let step = scenario.job.step() + scenario.resumes_as.map_or(0, Job::step);
    assert!(seen.len() <= all + step, "{} records come, of {all}", seen.len());
    let drops = scenario.has_last_batch(LastBatch::Drop);
    if let (Order::Plan { epochs, .. }, true) = (scenario.order, drops) {
        let most = step * usize::try_from(epochs).unwrap();
        return assert!(seen.len() + most >= all, "{} records come, of {all}", seen.len());
    }
    if let (Order::Plan { epochs, .. }, Some(mixture)) = (scenario.order, mixture::of(scenario)) {
        return mixture.check(&seen, usize::try_from(epochs).unwrap());
    }
    let missing = (0..all).find(|global| !seen.contains(&name(scenario, *global)));
    assert!(missing.is_none(), "{} does not come", name(scenario, missing.unwrap()));
}

/// Which records of a batch must be bad, and which others may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    /// Those that are worn; no others.
    No,
    /// And whatever the faults tear, from some time on.
    Perhaps,
    /// And whatever the faults tear.
    Yes,
}

impl Torn {
    /// Whether a record must be bad, and whether it may be.
    pub(crate) fn of(self, scenario: &Scenario, id: RecordId) -> (bool, bool) {
        let (is_worn, is_torn) = (scenario.worn.contains(&id.index), scenario.torn().contains(&id.index));
        (is_worn || is_torn && self == Torn::Yes, is_worn || is_torn && self != Torn::No)
    }
}

/// Checks a batch's records, and their bytes.
pub(crate) fn check_batch(scenario: &Scenario, batch: &Batch, due: &[RecordId], torn: Torn) {
    let bad = batch.bad_records();
    let is_bad = |id: &RecordId| bad.iter().any(|bad| bad.id == *id);
    assert!(bad.iter().all(|bad| due.contains(&bad.id) && torn.of(scenario, bad.id).1), "{bad:?}");
    let is_right = due.iter().all(|id| !torn.of(scenario, *id).0 || is_bad(id));
    assert!(is_right, "{bad:?} are bad of {due:?}: {:?}", batch.records());
    let good: Vec<usize> = (0..due.len()).filter(|&row| !is_bad(&due[row])).collect();
    let rows: Vec<RecordId> = match scenario.bad {
        // The next good record of the batch stands for a bad one, if there is any.
        BadAction::Replace if !good.is_empty() => {
            let donor = |row: usize| good.iter().find(|&&at| at >= row).or(good.first());
            (0..due.len()).map(|row| due[*donor(row).expect("one is good")]).collect()
        }
        _ => good.iter().map(|&row| due[row]).collect(),
    };
    assert_eq!(batch.records(), rows);
    for (row, id) in rows.iter().enumerate() {
        let expected = content(usize::try_from(id.index).unwrap());
        if scenario.coding != Coding::Datum {
            let found = batch.get::<u8>("content").unwrap().into_slice();
            assert_eq!(found[row * BYTES..][..BYTES], expected, "{id}");
            continue;
        }
        assert_eq!(u64::try_from(batch.labels().unwrap()[row]).unwrap(), id.index);
        let images = images(scenario.change, &expected);
        let is_right = |pixels: &[f32]| {
            let bytes = images[0].len();
            images.iter().any(|image| image[..] == pixels[row * bytes..][..bytes])
        };
        assert!(is_right(batch.pixels::<f32>().unwrap()), "the pixels of {id}");
        if scenario.has_target {
            assert!(is_right(batch.target_pixels::<f32>().unwrap()), "{id}'s target");
        }
    }
}

/// The side of a crop.
const CROP: usize = 4;
const MEAN: u8 = 16;
const SCALE: f32 = 0.5;

/// How a feed is told of a change.
pub(crate) fn transform(change: Change) -> Option<(Transform, Phase)> {
    let (phase, mirrors) = match change {
        Change::Nothing => return None,
        Change::Centre => (Phase::Test, false),
        Change::Random => (Phase::Train, true),
    };
    let side = u32::try_from(CROP).unwrap();
    let transform = Transform::new().crop(side).mean_values([f32::from(MEAN)]).scale(SCALE);
    Some((transform.mirror(mirrors), phase))
}

/// What may become of an image.
fn images(change: Change, pixels: &[u8]) -> Vec<Vec<f32>> {
    let crop = |top: usize, left: usize, is_mirrored: bool| {
        let column = move |at: usize| if is_mirrored { CROP - 1 - at } else { at };
        let places = (0..CROP).flat_map(|y| (0..CROP).map(move |x| (top + y) * SIDE + left + column(x)));
        places.map(|at| (f32::from(pixels[at]) - f32::from(MEAN)) * SCALE).collect::<Vec<_>>()
    };
    let most = SIDE - CROP;
    match change {
        Change::Nothing => vec![pixels.iter().copied().map(f32::from).collect()],
        Change::Centre => vec![crop(most / 2, most / 2, false)],
        Change::Random => {
            let places = (0..=most).flat_map(|top| (0..=most).map(move |left| (top, left)));
            places.flat_map(|(top, left)| [crop(top, left, false), crop(top, left, true)]).collect()
        }
    }
}

/// Whether a fault can be the cause of an error.
pub(crate) fn explains(scenario: &Scenario, fault: &Fault, error: &FeedError) -> bool {
    let is_here = |index: u64| fault.number == Some(index);
    match (fault.place, &fault.effect, error) {
        (Place::Record, Effect::Fail(said), FeedError::Reader(ReaderError::Source(error))) => {
            matches!(error, SourceError::Broken { index, message, .. } if is_here(*index) && message == said)
        }
        (Place::Record, Effect::Panic, FeedError::Reader(ReaderError::Panicked { message, .. })) => {
            message.starts_with(&format!("record {} panics", fault.number.unwrap_or_default()))
        }
        (Place::Record, Effect::Cut(_) | Effect::Damage, FeedError::Record(error)) => {
            // Without a good record nobody knows what a batch is.
            let is_bad = |record| scenario.torn().contains(&record) || scenario.worn.contains(&record);
            let are_all = (0..scenario.records as u64).all(is_bad);
            is_here(error.id.index) && (scenario.bad == BadAction::Fail || are_all)
        }
        (Place::Cursor, Effect::Fail(said), FeedError::Reader(ReaderError::Source(error))) => {
            matches!(error, SourceError::Other { message, .. } if message == said)
        }
        (Place::Memory | Place::Transfer, Effect::Fail(said), FeedError::Device(error)) => {
            matches!(error, DeviceError::OutOfMemory { message, .. } if message == said)
        }
        (Place::Submit, Effect::Panic, FeedError::Panicked { name, message }) => {
            name == "prefetch:0" && message.starts_with("submit ")
        }
        (place, Effect::Fail(said), FeedError::Device(DeviceError::Call { call, message, .. })) => {
            message == said && *call == place.to_string().replace(' ', "_")
        }
        (_, Effect::Panic, FeedError::BuildPanicked { message, .. }) => {
            message.ends_with("panics, as a fault says")
        }
        (_, Effect::Panic, FeedError::Panicked { name, message }) => {
            // It was built on a thread of its own.
            name == "build" && message.ends_with("panics, as a fault says")
        }
        (Place::Release, Effect::Panic, FeedError::Device(DeviceError::Call { call, message, .. })) => {
            *call == "release" && message.starts_with("it panicked: release ")
        }
        _ => false,
    }
}

/// Whether an error is that of whoever hands out blocks.
pub(crate) fn is_of_blocks(scenario: &Scenario, error: &FeedError) -> bool {
    let fails = scenario.blocks.is_some_and(|blocks| blocks.fail_after.is_some());
    let said = matches!(error, FeedError::Reader(ReaderError::Blocks { message, .. }) if message == CLOSED);
    fails && said
}

/// Whether a feed of this scenario must be refused: there is no memory for its batches, or no transfer.
pub(crate) fn must_be_refused(scenario: &Scenario) -> bool {
    let is_of_ring = |fault: &Fault| {
        let number = fault.number.is_some_and(|number| number < scenario.prefetch as u64);
        matches!(fault.place, Place::Memory | Place::Transfer) && number
    };
    let ends = |fault: &Fault| matches!(fault.effect, Effect::Fail(_) | Effect::Panic);
    scenario.is_armed_early && scenario.faults.iter().any(|fault| is_of_ring(fault) && ends(fault))
}

/// How many batches must come before the error, if that is certain: one lane, one fault.
pub(crate) fn batches_before(scenario: &Scenario, due: &Due) -> Option<usize> {
    let fault = scenario.only_fault()?;
    let [lane] = &due[..] else { return None };
    if !scenario.is_armed_early || scenario.job.workers > 1 || scenario.cut.is_some() {
        return None;
    }
    // Others may end it before.
    if !scenario.worn.is_empty() || scenario.blocks.is_some_and(|blocks| blocks.fail_after.is_some()) {
        return None;
    }
    let has = |share: &Share| share.records.iter().any(|record| Some(record.index) == fault.number);
    match (fault.place, &fault.effect) {
        (Place::Record, Effect::Fail(_) | Effect::Panic) => lane.iter().position(has),
        (Place::Record, Effect::Cut(_) | Effect::Damage) if scenario.bad == BadAction::Fail => {
            lane.iter().position(has)
        }
        (Place::Submit, Effect::Fail(_) | Effect::Panic) => {
            let number = usize::try_from(fault.number?).unwrap();
            (number < lane.len()).then_some(number)
        }
        _ => None,
    }
}
