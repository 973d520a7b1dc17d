//! Work that the reader needs soon, and that any idle worker may do first.
//!
//! There is one such work: unpacking the compressed blocks of a LevelDB (`source/leveldb/ahead`). The cursor,
//! on the reader's thread, knows from the tables' indexes which blocks it will enter. One thread that both
//! unpacks and steps through them would limit the feed. So the cursor offers groups of blocks as
//! [tasks](OffloadedTask) to its [helpers](Helpers), which are the feed's workers.
//!
//! Nothing depends on the helpers: a task that none of them has started when it is needed, the cursor does
//! itself.

use std::fmt;
use std::sync::Arc;

/// A task that runs once, on whichever thread claims it first.
pub(crate) trait OffloadedTask: Send + Sync {
    /// Runs the task unless it is done, in progress or no longer needed; returns whether it ran.
    fn run(&self) -> bool;
}

/// Threads that run offloaded tasks when they are idle.
pub(crate) trait Helpers: Send + Sync + fmt::Debug {
    /// The number of helper threads.
    fn threads(&self) -> usize;

    /// How many tasks may be queued at a time.
    fn offloaded_max(&self) -> usize;

    /// Queues a task without waiting. Returns `false`, and drops the task, if that is impossible, for example
    /// because all helpers have gone.
    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool;
}

/// Stands in for helpers that do not run yet: how many tasks a walk keeps depends on their number.
#[derive(Debug)]
pub(crate) struct NotYet {
    pub(crate) threads: usize,
}

impl Helpers for NotYet {
    fn threads(&self) -> usize {
        self.threads
    }

    fn offloaded_max(&self) -> usize {
        OFFLOADED_MAX
    }

    fn send(&self, _task: Arc<dyn OffloadedTask>) -> bool {
        false
    }
}

/// The most tasks of one walk that are queued at a time.
pub(crate) const OFFLOADED_MAX: usize = 32;
