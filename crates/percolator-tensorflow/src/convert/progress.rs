//! The progress of a conversion, for a watcher, and the way to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ConvertError;

/// Shared between a conversion and its watchers.
#[derive(Debug, Default)]
pub struct Progress {
    is_stopped: AtomicBool,
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// A progress with nothing done yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the conversion at its next tensor, with [`ConvertError::Stopped`].
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The size of all of the work, in bytes of tensors; at least 1 for each tensor. 0 until it is known.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How much of [`total`](Self::total) is done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Sets how much there is to do.
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Adds to what is done.
    pub fn add_done(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Returns an error if the work was stopped.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Stopped`] then.
    pub fn check(&self) -> Result<(), ConvertError> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(ConvertError::Stopped) } else { Ok(()) }
    }
}
