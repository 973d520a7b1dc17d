//! Keeps the first error, and wakes every waiting thread.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::base::sync::{Mutex, Receiver, Sender, bounded};

/// Where the stages of one pipeline store their first error. Clones share it.
#[derive(Debug)]
pub(crate) struct FirstError<E>(Arc<Inner<E>>);

#[derive(Debug)]
struct Inner<E> {
    error: OnceCell<E>,
    /// Dropped when the error is set, which disconnects every `alarm`.
    armed: Mutex<Option<Sender<()>>>,
    alarm: Receiver<()>,
}

impl<E: Clone> FirstError<E> {
    pub(crate) fn new() -> Self {
        let (armed, alarm) = bounded(1);
        FirstError(Arc::new(Inner { error: OnceCell::new(), armed: Mutex::new(Some(armed)), alarm }))
    }

    /// Stores an error unless there already is one; returns whether this was the first.
    pub(crate) fn set(&self, error: E) -> bool {
        let first = self.0.error.set(error).is_ok();
        drop(self.0.armed.lock().take());
        first
    }

    pub(crate) fn get(&self) -> Option<E> {
        self.0.error.get().cloned()
    }

    /// A channel that never carries anything and disconnects when the error is set. A `select!` waits on it
    /// beside its work.
    pub(crate) fn alarm(&self) -> &Receiver<()> {
        &self.0.alarm
    }
}

impl<E> Clone for FirstError<E> {
    fn clone(&self) -> Self {
        FirstError(self.0.clone())
    }
}
