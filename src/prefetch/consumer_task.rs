//! The task of a lane's consumer, where that is one of an asynchronous program's.

use std::task::Waker;

use parking_lot::Mutex;

/// Whom to wake when there is something in a lane's queue, or nothing will be any more.
#[derive(Debug, Default)]
pub(crate) struct Consumer(Mutex<Option<Waker>>);

impl Consumer {
    /// From now on somebody is woken, once, for what comes.
    #[cfg_attr(not(feature = "stream"), expect(dead_code, reason = "only streams have tasks"))]
    pub(crate) fn wake_later(&self, waker: &Waker) {
        let mut place = self.0.lock();
        match &mut *place {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }

    /// To be called after something was sent, or the sender was dropped.
    pub(crate) fn wake(&self) {
        // Not under the lock: whoever is woken may come back at once.
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
