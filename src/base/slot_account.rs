//! What goes round must come home: the assertion behind both levels' conservation of slots.

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

/// A round that a fixed number of slots makes, between a reader and a consumer, or through a lane's ring.
/// It is open until somebody who takes part ends; only then may slots be dropped.
#[derive(Clone, Debug)]
pub(crate) struct SlotAccount(Arc<AtomicBool>);

impl SlotAccount {
    pub(crate) fn open() -> Self {
        SlotAccount(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn close(&self) {
        // SeqCst, with the fence in `is_closed`: whoever drops a slot has most often learnt of the end from a
        // queue, by a relaxed load that synchronises with nothing. But queues are closed after this, by a
        // SeqCst operation: so in the one order of all of these the store comes first, then that operation,
        // then the fence of whoever has seen it.
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    /// How many tokens, ends and others know of this round.
    #[cfg(test)]
    #[cfg(shuttle)]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// What makes a slot one of this round's.
    pub(crate) fn token(&self) -> SlotToken {
        SlotToken(self.clone())
    }
}

/// Part of a slot. Dropping it while its round is open means that the slot was lost: a bug, which asserts.
#[derive(Debug)]
pub(crate) struct SlotToken(SlotAccount);

impl SlotToken {
    /// Ends the round that it belongs to.
    pub(crate) fn close_account(&self) {
        self.0.close();
    }
}

impl Drop for SlotToken {
    fn drop(&mut self) {
        debug_assert!(
            self.0.is_closed() || std::thread::panicking(),
            "a slot was lost while its round was open"
        );
    }
}
