//! How far a scan is, and whether it has to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a scan shares with whoever watches it. Its numbers only inform, so their order does not matter.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    is_in_bytes: AtomicBool,
    is_stopped: AtomicBool,
}

impl Progress {
    /// The progress of a scan that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The size of the work, in records, or in bytes if the number of records is not known; 0 until the scan
    /// begins.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How much of [`total`](Self::total) is done.
    #[must_use]
    pub fn done(&self) -> u64 {
        let done = if self.is_in_bytes.load(Ordering::Relaxed) { self.bytes() } else { self.records() };
        done.min(self.total())
    }

    /// The number of records that were done.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// The bytes of their keys and values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Asks the scan to end at the next records.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the scan was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Begins a scan of so many records, or of files with so many bytes.
    pub(crate) fn begin(&self, records: Option<u64>, bytes: u64) {
        self.records.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.is_in_bytes.store(records.is_none(), Ordering::Relaxed);
        self.total.store(records.unwrap_or(bytes), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
