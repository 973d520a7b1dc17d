//! The progress of a preparation, for a watcher, and the way to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between a preparation and its watchers.
#[derive(Debug, Default)]
pub struct Progress {
    is_stopped: AtomicBool,
    total: AtomicU64,
    done: AtomicU64,
    records: AtomicU64,
}

impl Progress {
    /// A progress with nothing done yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the preparation at its next batch or block of text, with
    /// [`PrepareError::Stopped`](super::PrepareError::Stopped).
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The size of all of the work, in bytes of text: the text counts once for being cut into tokens, and
    /// once for each pass that makes records of it. 0 until the files are known.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How much of [`total`](Self::total) is done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How many records are written.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn add_done(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    pub(super) fn add_records(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }
}
