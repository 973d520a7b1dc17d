//! Blocks of an epoch, leased to workers that come, go, die and are cut off: each record counts once.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[macro_use]
#[path = "../metadata/passes_on.rs"]
mod passes_on;

mod beside;
mod faults;
mod job;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod refused;
mod reset;
mod set_back;
mod slow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percolator::source::{FnSource, Source};
use percolator::{Device, Feed, FeedBuilder, LastBatch, RawBytes, Shuffle};
use percolator_cluster::leases::{Job, LeasedStep, Leases};
use percolator_cluster::metadata::{MemoryMetadata, Metadata};
use percolator_proof::EpochState;

const RECORDS: u64 = 103;
/// As many as `assert_proven` expects.
const EPOCHS: u64 = 2;

/// A feed of records that say their number, 4 a batch, shuffled.
fn feed(lanes: usize) -> FeedBuilder {
    let source = FnSource::new("numbers", RECORDS, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    feed_of(source, lanes)
}

/// The same of another source.
fn feed_of(source: impl Source + 'static, lanes: usize) -> FeedBuilder {
    Feed::builder()
        .source(source)
        .decoder(RawBytes::fixed())
        .batch_size(4)
        .devices((0..lanes).map(Device::host))
        .shuffle(Shuffle::Global)
        .last_batch(LastBatch::Keep)
        .epochs(EPOCHS)
        .seed(3)
        .threads(1)
        .prefetch(2)
}

fn leases(metadata: &Arc<dyn Metadata>) -> Leases {
    Leases::of(metadata.clone(), "numbers").steps_per_block(3)
}

fn memory() -> Arc<dyn Metadata> {
    Arc::new(MemoryMetadata::new())
}

/// The records of a step, by epoch.
fn records(step: &LeasedStep) -> Vec<(u64, u64)> {
    let records = step.batches.iter().flat_map(|batch| batch.records());
    records.map(|record| (record.epoch, record.index)).collect()
}

/// Counts how often each record of each epoch is there.
fn counts(records: impl IntoIterator<Item = (u64, u64)>) -> BTreeMap<(u64, u64), usize> {
    let mut counts = BTreeMap::new();
    for record in records {
        *counts.entry(record).or_default() += 1;
    }
    counts
}

/// Every record of every epoch, once.
fn each_once() -> BTreeMap<(u64, u64), usize> {
    counts((0..EPOCHS).flat_map(|epoch| (0..RECORDS).map(move |index| (epoch, index))))
}

/// Waits until the records say that so many blocks are done.
fn wait_until_done(metadata: &Arc<dyn Metadata>, blocks: u64) {
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    loop {
        let now = metadata.read("").unwrap().revision;
        if job.status().unwrap().done >= blocks {
            return;
        }
        metadata.wait("", now, Duration::from_secs(1)).unwrap();
    }
}

/// The account proves every epoch, and the job is done.
#[track_caller]
fn assert_proven(metadata: &Arc<dyn Metadata>) {
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    let verdict = job.verdict(None).unwrap();
    let states: Vec<_> = verdict.verdict.epochs.iter().map(|epoch| epoch.state).collect();
    assert_eq!(states, [EpochState::Covered; 2], "{verdict:?}");
    assert!(verdict.is_sound() && verdict.done == EPOCHS && verdict.under_way.is_empty(), "{verdict:?}");
    let status = job.status().unwrap();
    assert!(status.is_done() && status.open.is_empty(), "{status:?}");
}
