//! The progress of a conversion, for a watcher, and the way to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between a conversion and its watchers.
#[derive(Debug, Default)]
pub struct Progress {
    is_stopped: AtomicBool,
    total: AtomicU64,
    done: AtomicU64,
    skipped: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// A progress with nothing done yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the conversion soon, with [`ConvertError::Stopped`](super::ConvertError::Stopped).
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The number of items; 0 until it is known.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How many items are converted or skipped, those of an earlier run included.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How many of them are skipped.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The bytes of values that this run has written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn set_done(&self, done: u64, skipped: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.skipped.store(skipped, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
