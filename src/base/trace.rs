//! The spans and events that a listener draws a feed from: a trace, or a profiler's ranges.
//!
//! All have the target [`TARGET`] and the level TRACE. There is one per run or batch, never one per record,
//! so while nobody listens they cost a few instructions per run. A batch is named by its `feed` (a number in
//! this process, from 1), its `lane`, and the number `batch` of its lane's batches, from 0. A span without a
//! `feed` belongs to the feed of the span around it.
//!
//! | span | thread | fields | lasts |
//! |---|---|---|---|
//! | `deal` | reader | `lane`, `batch`, `records`, `bytes` | from a run's hand-over to that of the next |
//! | `place` | prefetcher | `lane`, `batch`, `records` | while the records of a run get their places |
//! | `run` | worker | `lane`, `batch`, `records`, `bytes` | while a run is decoded into its places |
//! | `submit` | prefetcher | `lane`, `batch` | while a complete batch is passed to its device |
//! | `wait` | any of them, consumer | `on` | while the thread waits |
//!
//! | event | thread | moment |
//! |---|---|---|
//! | `begun` | prefetcher | the batch gets its first record |
//! | `ready` | prefetcher | it is complete, and submitted to its device |
//! | `taken` | consumer | its consumer has it |
//! | `returned` | any | its consumer has dropped it |
//! | `left` | consumer | it has dropped its lane: batches that it has not taken go nowhere. Without `batch` |

use tracing::span::EnteredSpan;

/// The target of all spans and events of the stages.
pub const TARGET: &str = "percolator::trace";

/// A wait of this thread, until the guard is dropped.
#[inline]
pub(crate) fn wait(on: &'static str) -> EnteredSpan {
    tracing::trace_span!(target: TARGET, "wait", on).entered()
}

/// A moment in the life of a batch: an event of this name.
macro_rules! moment {
    ($name:literal, $feed:expr, $lane:expr, $batch:expr) => {
        tracing::event!(
            name: $name,
            target: $crate::base::trace::TARGET,
            tracing::Level::TRACE,
            feed = $feed,
            lane = $lane,
            batch = $batch
        )
    };
}

pub(crate) use moment;
