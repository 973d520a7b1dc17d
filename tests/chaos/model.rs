//! The plain model: which records each lane is due, what each batch must hold, and which errors the faults
//! explain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use percolator::bad::BadAction;
use percolator::chaos::{Effect, Fault, Place};
use percolator::reader::ReaderError;
use percolator::record::RecordId;
use percolator::source::SourceError;
use percolator::{Batch, DeviceError, Feed, FeedError, LastBatch};

use crate::scenario::{Order, Scenario};
use crate::stores::{BYTES, Coding, content};

/// The batches of each lane.
pub(crate) type Due = Vec<Vec<Vec<RecordId>>>;

/// What the lanes of a worker are due.
pub(crate) fn due(scenario: &Scenario, feed: &Feed, worker: usize) -> Due {
    let ranks = worker * scenario.lanes..(worker + 1) * scenario.lanes;
    let of = scenario.workers * scenario.lanes;
    match scenario.order {
        Order::RoundRobin { batches } => {
            ranks.map(|rank| in_turn(scenario, rank, of, batches * scenario.size * of)).collect()
        }
        Order::Once => ranks.map(|rank| in_turn(scenario, rank, of, scenario.records)).collect(),
        Order::Plan { epochs, .. } => {
            let plan = feed.plan().unwrap();
            let share = |epoch, step, rank| plan.share(epoch, step, rank).unwrap().collect();
            let of_epoch =
                |epoch, rank| (0..plan.steps(epoch).unwrap()).map(move |step| share(epoch, step, rank));
            ranks.map(|rank| (0..epochs).flat_map(|epoch| of_epoch(epoch, rank)).collect()).collect()
        }
    }
}

/// The share of a rank of the first `global` records, in Caffe's order.
fn in_turn(scenario: &Scenario, rank: usize, of: usize, global: usize) -> Vec<Vec<RecordId>> {
    let records = scenario.records;
    let name = |g: usize| RecordId { epoch: (g / records) as u64, index: (g % records) as u64 };
    let share: Vec<RecordId> = (0..global).filter(|g| g % of == rank).map(name).collect();
    share.chunks(scenario.size).map(<[RecordId]>::to_vec).collect()
}

/// Checks that what all workers are due is each record of each epoch once.
pub(crate) fn check_once(scenario: &Scenario, dues: &[Due]) {
    let mut seen = HashSet::new();
    for record in dues.iter().flatten().flatten().flatten() {
        assert!(seen.insert(*record), "{record} is due twice");
        assert!(record.index < scenario.records as u64);
    }
    let step = scenario.workers * scenario.lanes * scenario.size;
    let all = match scenario.order {
        Order::RoundRobin { batches } => batches * step,
        Order::Once => scenario.records,
        Order::Plan { epochs, .. } => scenario.records * usize::try_from(epochs).unwrap(),
    };
    let may_lack = match scenario.order {
        Order::Plan { epochs, last: LastBatch::Drop, .. } => step * usize::try_from(epochs).unwrap(),
        // The last epoch is filled from one that does not come, or ends before its last step.
        Order::Plan { last: LastBatch::Wrap, .. } => step,
        _ => 0,
    };
    assert!(seen.len() + may_lack >= all, "{} records are due, of {all}", seen.len());
    let may_have = if let Order::Plan { last: LastBatch::Wrap, .. } = scenario.order { step } else { 0 };
    assert!(seen.len() <= all + may_have, "{} records are due, of {all}", seen.len());
}

/// Checks a batch's records, and their bytes. `is_torn` if all records that are torn must be bad in it.
pub(crate) fn check_batch(scenario: &Scenario, batch: &Batch, due: &[RecordId], is_torn: bool) {
    let (torn, bad) = (scenario.torn(), batch.bad_records());
    let is_bad = |id: &RecordId| bad.iter().any(|bad| bad.id == *id);
    assert!(bad.iter().all(|bad| torn.contains(&bad.id.index)), "{bad:?}");
    assert!(!is_torn || due.iter().all(|id| !torn.contains(&id.index) || is_bad(id)), "{bad:?}");
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
        if scenario.coding == Coding::Checked {
            let found = batch.get::<u8>("content").unwrap().into_slice();
            assert_eq!(found[row * BYTES..][..BYTES], expected, "{id}");
            continue;
        }
        assert_eq!(u64::try_from(batch.labels()[row]).unwrap(), id.index);
        let pixels = &batch.pixels::<f32>().unwrap()[row * BYTES..][..BYTES];
        let is_right =
            |pixels: &[f32]| pixels.iter().zip(&expected).all(|(one, two)| *one == f32::from(*two));
        assert!(is_right(pixels), "the pixels of {id}");
        if scenario.has_target {
            assert!(
                is_right(&batch.target_pixels::<f32>().unwrap()[row * BYTES..][..BYTES]),
                "{id}'s target"
            );
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
            let are_all = (0..scenario.records as u64).all(|record| scenario.torn().contains(&record));
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
        (Place::Release, Effect::Panic, FeedError::Device(DeviceError::Call { call, message, .. })) => {
            *call == "release" && message.starts_with("it panicked: release ")
        }
        _ => false,
    }
}

/// How many batches must come before the error, if that is certain: one lane, one fault.
pub(crate) fn batches_before(scenario: &Scenario, due: &Due) -> Option<usize> {
    let fault = scenario.only_fault()?;
    let [lane] = &due[..] else { return None };
    if !scenario.is_armed_early || scenario.workers > 1 || scenario.cut.is_some() {
        return None;
    }
    let has = |batch: &Vec<RecordId>| batch.iter().any(|record| Some(record.index) == fault.number);
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
