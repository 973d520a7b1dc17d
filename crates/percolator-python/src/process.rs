//! Values that belong to the process that made them.
//!
//! A fork copies memory, but no threads. In the child, a feed's threads do not exist, its locks may be held
//! by threads that will never release them, and its files are the parent's. So nothing in the child may touch
//! such a value, not even to drop it.

use pyo3::prelude::*;

use crate::errors;

/// A value that only the process that made it may use. Another process that has a copy of it forgets it.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    /// `Some` until the drop.
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        OfProcess { process: std::process::id(), value: Some(value) }
    }

    /// The value, or an error that says what to do instead of a fork.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match self.is_here() {
            true => Ok(self.get_anywhere()),
            false => Err(errors::forked(py, self.process)),
        }
    }

    /// The value, also in a forked child: for what only reads memory.
    pub(crate) fn get_anywhere(&self) -> &T {
        self.value.as_ref().expect("the value is taken only by the drop")
    }

    /// Whether this process made it.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
