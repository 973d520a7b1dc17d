//! Lanes for tests: feeds of images in memory, and what each lane is due.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::TryNext;
use percolator::record::RecordId;
use percolator::{Batch, Device, Feed, FeedBuilder, FeedError, Lane};

use crate::common;
use crate::common::source::MemorySource;

pub(crate) const SHAPE: [usize; 3] = [3, 12, 12];

pub(crate) fn pixels(index: usize, [channels, height, width]: [usize; 3]) -> Vec<u8> {
    (0..channels * height * width).map(|at| common::pixel(index, at)).collect()
}

pub(crate) fn images(name: &str, count: usize) -> MemorySource {
    let [c, h, w] = SHAPE;
    MemorySource::images(name, count, c, h, w)
}

pub(crate) fn over(source: MemorySource) -> FeedBuilder {
    Feed::builder().source(source).threads(2)
}

pub(crate) fn hosts(count: usize) -> Vec<Device> {
    (0..count).map(Device::host).collect()
}

pub(crate) fn only_lane(feed: &mut Feed) -> Lane {
    let mut lanes = feed.take_lanes().unwrap();
    assert_eq!(lanes.len(), 1);
    lanes.remove(0)
}

/// The expected records of a lane, batch by batch, when the first `global` records are dealt in round-robin
/// order.
pub(crate) fn due(
    records: usize,
    lane: usize,
    lanes: usize,
    batch_size: usize,
    global: usize,
) -> Vec<Vec<RecordId>> {
    let name = |g: usize| RecordId { epoch: (g / records) as u64, index: (g % records) as u64 };
    let share: Vec<RecordId> = (0..global).filter(|g| g % lanes == lane).map(name).collect();
    share.chunks(batch_size).map(<[RecordId]>::to_vec).collect()
}

/// Checks labels and untransformed f32 pixels against the records' identifiers.
pub(crate) fn check(batch: &Batch) {
    let elements: usize = SHAPE.iter().product();
    assert_eq!(batch.shape().dims(), [batch.len(), SHAPE[0], SHAPE[1], SHAPE[2]]);
    for (at, id) in batch.records().iter().enumerate() {
        assert_eq!(batch.labels().unwrap()[at], i32::try_from(id.index).unwrap());
        let found = &batch.pixels::<f32>().unwrap()[at * elements..][..elements];
        let index = usize::try_from(id.index).unwrap();
        assert!(pixels(index, SHAPE).iter().map(|&pixel| f32::from(pixel)).eq(found.iter().copied()), "{id}");
    }
}

/// Drains a lane: the records of its batches, and the error that ended it.
pub(crate) fn drain(lane: &mut Lane) -> (Vec<Vec<RecordId>>, Option<FeedError>) {
    let mut seen = Vec::new();
    while let Some(batch) = lane.next() {
        match batch {
            Ok(batch) => seen.push(batch.records().to_vec()),
            Err(error) => {
                assert!(lane.next().is_none(), "an error comes last, and once");
                assert!(matches!(lane.try_next().unwrap(), TryNext::Ended));
                return (seen, Some(error));
            }
        }
    }
    assert!(lane.next().is_none(), "the end stays the end");
    (seen, None)
}
