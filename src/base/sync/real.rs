//! The primitives that ship.

pub(crate) use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, never, select, unbounded,
};
pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic;
pub(crate) use std::thread;

/// The standard library's locks. Unlike parking_lot's, they do not allocate when two threads first contend
/// for them.
pub(crate) mod std_locks {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

/// Receives from a queue. Returns `None` when the queue has ended, or is empty and `alarm` has
/// disconnected.
pub(crate) fn recv_unless<T>(queue: &Receiver<T>, alarm: &Receiver<()>) -> Option<T> {
    crossbeam_channel::select_biased! {
        recv(queue) -> item => item.ok(),
        // Whatever was sent before the alarm is in the queue by now.
        recv(alarm) -> _ => queue.try_recv().ok(),
    }
}

/// What the model checker is told about plain memory. Without the checker, this does nothing.
#[derive(Debug, Default)]
pub(crate) struct Touches {}

impl Touches {
    #[inline]
    pub(crate) fn write(&self, _parts: std::ops::Range<usize>) {}

    #[inline]
    pub(crate) fn read(&self, _parts: std::ops::Range<usize>) {}
}
