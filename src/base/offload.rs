//! Work that one thread is about to do, and whoever is free before may do for it.
//!
//! A walk knows which blocks it will come to; unpacking them takes time, and in no order. It offers that as errands to
//! helpers, which a feed's workers are. Nothing depends on them: what no helper has begun when the walk comes to it,
//! the walk does itself.

use std::fmt;
use std::sync::Arc;

/// Something to be done, by whichever thread comes first.
pub(crate) trait OffloadedTask: Send + Sync {
    /// Does it, unless it has been done, or is being done, or is not wanted any more; whether it did.
    fn run(&self) -> bool;
}

/// Threads that run errands when they are free.
pub(crate) trait Helpers: Send + Sync + fmt::Debug {
    /// How many there are.
    fn threads(&self) -> usize;

    /// How many errands may be queued at a time.
    fn offloaded_max(&self) -> usize;

    /// Queues an errand, without a wait. `false` if that cannot be, because all helpers have gone, say: it is not run then.
    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool;
}

/// So many helpers as there will be, none of which is there yet: what a walk keeps of errands depends on their number.
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

    fn send(&self, _errand: Arc<dyn OffloadedTask>) -> bool {
        false
    }
}

/// The most errands of one walk that are queued at a time.
pub(crate) const OFFLOADED_MAX: usize = 32;
