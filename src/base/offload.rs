//! Work the reader needs soon; any idle worker may do it first.
//!
//! A merged walk knows which blocks it will enter. Unpacking them takes time, and their order does not
//! matter, so it offers them as tasks to helpers, which are a feed's workers. Nothing depends on the helpers:
//! if none has started a task by the time the walk needs it, the walk does it itself.

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
