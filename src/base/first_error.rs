//! The first error wins, stays, and wakes whoever waits.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::base::sync::{Mutex, Receiver, Sender, bounded};

/// Where the stages of one pipeline leave their first error. Clones share it.
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

    /// Leaves an error, unless there is one already; says whether this was the first.
    pub(crate) fn set(&self, error: E) -> bool {
        let first = self.0.error.set(error).is_ok();
        drop(self.0.armed.lock().take());
        first
    }

    pub(crate) fn get(&self) -> Option<E> {
        self.0.error.get().cloned()
    }

    /// A channel that never carries anything and disconnects when the error is set: what a `select!`
    /// waits on beside its work.
    pub(crate) fn alarm(&self) -> &Receiver<()> {
        &self.0.alarm
    }
}

impl<E> Clone for FirstError<E> {
    fn clone(&self) -> Self {
        FirstError(self.0.clone())
    }
}
