//! How far a measurement is, and whether it has to end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a measurement shares with whoever watches it. Its numbers only inform, so their order does not
/// matter.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicUsize,
    done: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Progress {
    /// The progress of a measurement that has not started.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of times that the feed, or a change of it, will run; 0 until it is known.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// How many of [`total`](Self::total) are done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Asks the measurement to end at the next batch, with
    /// [`MeasureError::Stopped`](crate::MeasureError::Stopped).
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the measurement was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn expect(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}
