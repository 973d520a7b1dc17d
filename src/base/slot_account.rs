//! Asserts that no slot is lost: both levels conserve their slots.

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

/// The account of a fixed number of slots that circulate between a reader and a consumer, or in a lane's
/// ring. It is open until one of the parties ends; only then may slots be dropped.
#[derive(Clone, Debug)]
pub(crate) struct SlotAccount(Arc<AtomicBool>);

impl SlotAccount {
    pub(crate) fn open() -> Self {
        SlotAccount(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn close(&self) {
        // SeqCst, with the fence in `is_closed`. A thread that drops a slot has usually learnt of the end
        // from a queue, by a relaxed load that synchronises with nothing. But queues are closed after this
        // store, by a SeqCst operation. In the single order of all these operations the store is first, then
        // the closing of the queue, then the fence of the thread that saw it closed.
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    /// The number of handles to this account: tokens, ends and others.
    #[cfg(test)]
    #[cfg(shuttle)]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Creates the token that ties a slot to this account.
    pub(crate) fn token(&self) -> SlotToken {
        SlotToken(self.clone())
    }
}

/// Part of a slot. Dropping it while its account is open means that the slot was lost: a bug, which fails an
/// assertion.
#[derive(Debug)]
pub(crate) struct SlotToken(SlotAccount);

impl SlotToken {
    /// Closes the account.
    pub(crate) fn close_account(&self) {
        self.0.close();
    }
}

impl Drop for SlotToken {
    fn drop(&mut self) {
        debug_assert!(
            self.0.is_closed() || std::thread::panicking(),
            "a slot was lost while its account was open"
        );
    }
}
