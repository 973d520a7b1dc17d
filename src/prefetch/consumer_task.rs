//! Wakes a lane's consumer, if it is a task of an asynchronous program.

use std::task::Waker;

use crate::base::sync::Mutex;

/// The task to wake when a lane's queue receives something or ends.
#[derive(Debug, Default)]
pub(crate) struct ConsumerTask(Mutex<Option<Waker>>);

impl ConsumerTask {
    /// Registers a task to be woken, once, when something arrives.
    #[cfg_attr(not(feature = "stream"), expect(dead_code, reason = "only streams have tasks"))]
    pub(crate) fn wake_later(&self, waker: &Waker) {
        let mut place = self.0.lock();
        match &mut *place {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }

    /// Wakes the task. Called after something was sent, or the sender was dropped.
    pub(crate) fn wake(&self) {
        // After the lock is released: the woken task may call back at once.
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
