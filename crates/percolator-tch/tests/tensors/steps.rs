//! The steps of one lane and of several, and where they go on after a stop.

use percolator::{Device as Lane, LastBatch, Shuffle, Snapshot};
use percolator_tch::{TchFeed as _, Tensors};
use tch::Device;

use crate::common::{elements, numbers, positions, rows_of};

#[test]
fn every_record_comes_once_an_epoch() {
    let mut feed =
        numbers(positions(23, None)).epochs(2).shuffle(Shuffle::Global).receipts(true).build().unwrap();
    let mut steps = feed.tensors(Device::Cpu).unwrap();
    let mut seen = Vec::new();
    for step in &mut steps {
        let tensors = step.unwrap();
        let rows = elements::<i64>(tensors.get("y").unwrap());
        let records = tensors.records().iter().map(|record| (record.epoch, record.index));
        seen.extend(records.zip(rows).map(|((epoch, index), y)| {
            assert_eq!(i64::try_from(index).unwrap(), y);
            (epoch, index)
        }));
    }
    let receipt = steps.take_receipt().unwrap();
    let delivered = receipt.epochs().map(|account| account.digest().records());
    assert_eq!(delivered.collect::<Vec<_>>(), [23, 23]);
    seen.sort_unstable();
    let wanted: Vec<_> = (0..2).flat_map(|epoch| (0..23).map(move |index| (epoch, index))).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn each_lane_has_a_device() {
    let build = || {
        let feed = numbers(positions(24, None)).devices([Lane::host(0), Lane::host(1)]);
        feed.epochs(1).last_batch(LastBatch::Keep).build().unwrap()
    };
    let mut lanes: Vec<Vec<f32>> = vec![Vec::new(); 2];
    let mut feed = build();
    for step in feed.tensors_on(&[Device::Cpu, Device::Cpu]).unwrap() {
        for tensors in step.unwrap() {
            lanes[tensors.lane()].extend(elements::<f32>(tensors.get("x").unwrap()));
        }
    }
    let mut wanted: Vec<Vec<f32>> = vec![Vec::new(); 2];
    for step in build().steps() {
        for batch in step.unwrap() {
            wanted[batch.lane()].extend_from_slice(&batch.get::<f32>("x").unwrap());
        }
    }
    assert_eq!(lanes, wanted);
    assert_eq!(lanes.concat().len(), rows_of(0..24).len());
}

/// What a training loop sees of a step.
fn seen(step: Result<Tensors, percolator_tch::TchError>) -> (Vec<(u64, u64)>, Vec<f32>) {
    let tensors = step.unwrap();
    let records = tensors.records().iter().map(|record| (record.epoch, record.index)).collect();
    (records, elements(tensors.get("x").unwrap()))
}

#[test]
fn a_run_goes_on_in_the_middle_of_an_epoch() {
    let feed = || numbers(positions(23, None)).epochs(3).shuffle(Shuffle::Global).seed(7);
    let mut whole = feed().build().unwrap();
    let whole: Vec<_> = whole.tensors(Device::Cpu).unwrap().map(seen).collect();
    // Six steps an epoch: this is the middle of the second.
    for stop in [8, 9] {
        let mut first = feed().build().unwrap();
        let mut steps = first.tensors(Device::Cpu).unwrap();
        let mut parts: Vec<_> = steps.by_ref().take(stop).map(seen).collect();
        let snapshot: Snapshot = steps.snapshot().unwrap();
        drop(first);
        let mut second = feed().resume(&snapshot).build().unwrap();
        parts.extend(second.tensors(Device::Cpu).unwrap().map(seen));
        assert_eq!(parts, whole, "stopped after {stop} steps");
    }
}
