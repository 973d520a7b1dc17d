//! How far a long task is, and a way to end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a long task, such as a conversion, shares with its observers.
///
/// Its numbers are for information: those of different kinds are not read at one moment. The task determines
/// the unit of its work, and which of the numbers it sets.
#[derive(Debug, Default)]
pub struct Progress {
    is_stopped: AtomicBool,
    total: AtomicU64,
    done: AtomicU64,
    done_before: AtomicU64,
    records: AtomicU64,
    skipped: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// The progress of work that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to end soon, with an error that says so.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the work was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// The size of all of the work; 0 until it is known.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How much of [`total`](Self::total) is done, including the work of an earlier run.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How much of [`done`](Self::done) an earlier run did. The time left follows from the rest of it.
    #[must_use]
    pub fn done_before(&self) -> u64 {
        self.done_before.load(Ordering::Relaxed)
    }

    /// The number of records read or written.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// The number of items skipped.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The bytes read or written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Begins work of this size, of which nothing is done yet.
    pub fn begin(&self, total: u64) {
        for number in [&self.done, &self.done_before, &self.records, &self.skipped, &self.bytes] {
            number.store(0, Ordering::Relaxed);
        }
        self.total.store(total, Ordering::Relaxed);
    }

    /// Sets how much an earlier run has done.
    pub fn set_done_before(&self, done: u64) {
        self.done_before.store(done, Ordering::Relaxed);
        self.set_done(done);
    }

    /// Sets how much is done.
    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Adds to what is done.
    pub fn add_done(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Adds to the records.
    pub fn add_records(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    /// Sets how many items were skipped.
    pub fn set_skipped(&self, skipped: u64) {
        self.skipped.store(skipped, Ordering::Relaxed);
    }

    /// Adds to the bytes.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
