//! The feed that the tests of CUDA lanes share.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "shared by tests only")]

use percolator::source::Matching;
use percolator::{Dtype, Feed, FeedBuilder, Lane, Target, Transform};

use super::common::source::MemorySource;

const RECORDS: usize = 23;

pub fn feed() -> FeedBuilder {
    let target = Target::paired(MemorySource::images("masks", RECORDS, 1, 8, 8), Matching::Keys);
    Feed::builder()
        .source(MemorySource::images("images", RECORDS, 3, 8, 8))
        .transform(Transform::new().crop(5).mirror(true))
        .target(target.transform(Transform::new().crop(5).mirror(true)).dtype(Dtype::U8))
        .dtype(Dtype::U8)
        .threads(2)
        .batch_size(4)
        .prefetch(3)
}

/// Runs each lane on a thread of its own.
pub fn consume<T: Send>(lanes: Vec<Lane>, run: impl Fn(Lane) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let consumers: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(|| run(lane))).collect();
        consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
    })
}
