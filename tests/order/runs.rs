//! Runs for tests: feeds of images in memory, what a consumer sees of them, and runs that are cut.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU64;

use percolator::record::{RecordId, StepEnd};
use percolator::{Batch, Device, Feed, FeedBuilder, Shuffle, Snapshot, Transform};

use crate::common::source::MemorySource;

/// Everything that a consumer sees of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub step: Option<StepEnd>,
    pub records: Vec<RecordId>,
    bytes: Vec<u8>,
    labels: Vec<i32>,
}

impl Seen {
    pub(crate) fn of(batch: &Batch) -> Self {
        let (records, labels) = (batch.records().to_vec(), batch.labels().unwrap().to_vec());
        Seen { step: batch.step(), records, bytes: batch.bytes().to_vec(), labels }
    }
}

pub(crate) fn images(records: usize) -> MemorySource {
    MemorySource::images("snapshot", records, 1, 4, 4)
}

/// A feed whose pixels depend on the random numbers of each record.
pub(crate) fn feed(source: MemorySource, lanes: usize) -> FeedBuilder {
    let feed = Feed::builder().source(source).transform(Transform::new().crop(2).mirror(true));
    hosts(feed, lanes)
}

pub(crate) fn hosts(feed: FeedBuilder, lanes: usize) -> FeedBuilder {
    feed.devices((0..lanes).map(Device::host))
}

/// What each lane delivers: this many batches, or all there are.
pub(crate) fn take(feed: &mut [percolator::Lane], batches: &[usize]) -> Vec<Vec<Seen>> {
    take_from(feed, &vec![0; batches.len()], batches)
}

/// Takes batches of lanes that begin at these steps, up to these.
fn take_from(feed: &mut [percolator::Lane], starts: &[usize], ends: &[usize]) -> Vec<Vec<Seen>> {
    let mut seen: Vec<Vec<Seen>> = feed.iter().map(|_| Vec::new()).collect();
    // Step by step, so that none keeps the others waiting.
    for step in 0..ends.iter().copied().max().unwrap_or(0) {
        for ((lane, seen), (&start, &end)) in feed.iter_mut().zip(&mut seen).zip(starts.iter().zip(ends)) {
            if (start..end).contains(&step)
                && let Some(batch) = lane.next()
            {
                seen.push(Seen::of(&batch.unwrap()));
            }
        }
    }
    seen
}

pub(crate) fn window(records: u64) -> Shuffle {
    Shuffle::Window { records: NonZeroU64::new(records).unwrap() }
}

/// Cuts a run after this many batches of each lane, resumes it from its snapshot's text, and compares it with
/// a run that was not cut.
pub(crate) fn check_cut(describe: impl Fn() -> FeedBuilder, cut: &[usize], batches: usize) {
    let mut whole = describe().build().unwrap();
    let whole = take(&mut whole.take_lanes().unwrap(), &vec![batches; cut.len()]);
    let mut first = describe().build().unwrap();
    let mut lanes = first.take_lanes().unwrap();
    let mut seen = take(&mut lanes, cut);
    let snapshot: Snapshot = first.snapshot().unwrap().to_string().parse().unwrap();
    assert_eq!(snapshot, first.snapshot().unwrap());
    drop((first, lanes));
    let mut second = describe().resume(&snapshot).build().unwrap();
    let again = second.snapshot().unwrap();
    let next = |snapshot: &Snapshot| {
        (0..snapshot.replicas()).map(|replica| snapshot.next(replica)).collect::<Vec<_>>()
    };
    assert_eq!(next(&again), next(&snapshot), "nothing was delivered meanwhile");
    // A resumed run has an index, and may know more about its data.
    assert_eq!(Snapshot::join([&snapshot, &again]).unwrap().plan(), snapshot.plan());
    let mut lanes = second.take_lanes().unwrap();
    for (seen, rest) in seen.iter_mut().zip(take_from(&mut lanes, cut, &vec![batches; cut.len()])) {
        seen.extend(rest);
    }
    assert_eq!(seen, whole);
}

/// A text with a valid checksum, whatever its body.
pub(crate) fn unverified(body: &str) -> String {
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}
