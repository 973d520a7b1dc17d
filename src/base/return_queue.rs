//! Returns a ring's slots from wherever they are dropped, on any thread, to the ring's own thread.
//!
//! The contents of a slot may take long to drop, because a device must release its memory first. So they are
//! dropped on a thread that nothing waits for: when the ring's thread has nothing left to do, it stays until
//! all slots have returned ([`await_returned`]).
//!
//! # Invariants
//!
//! 1. No slot is left in the queue: either the ring's thread has it, or the thread that dropped it.
//! 2. The ring thread's wait ends: the queue closes when its last holder drops it, and the holders are the
//!    ring's consumer and the holders of slots. No other thread waits for it to close.

use std::fmt;
use std::sync::Arc;

use crate::base::slot_account::SlotAccount;
use crate::base::sync::{Mutex, Receiver, Sender};

/// The sending end of a ring's return queue. Each slot that is out has a clone, until the slot has returned.
pub(crate) struct ReturnQueue<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// `None` once the queue is closed.
    free: Mutex<Option<Sender<T>>>,
    account: SlotAccount,
}

impl<T> ReturnQueue<T> {
    /// `free` must have room for every slot of the ring.
    pub(crate) fn new(free: Sender<T>, account: &SlotAccount) -> Self {
        ReturnQueue(Arc::new(Shared { free: Mutex::new(Some(free)), account: account.clone() }))
    }

    /// A closed queue that belongs to no ring.
    pub(crate) fn nowhere() -> Self {
        let account = SlotAccount::open();
        account.close();
        ReturnQueue(Arc::new(Shared { free: Mutex::new(None), account }))
    }

    /// Returns a slot; hands it back if the queue is closed or its receiver has gone.
    pub(crate) fn send(&self, slot: T) -> Result<(), T> {
        match &*self.0.free.lock() {
            Some(free) => free.send(slot).map_err(|unsent| unsent.0),
            None => Err(slot),
        }
    }

    /// Closes the queue: from here on, slots are dropped on the thread that releases them, and no thread
    /// waits for them.
    pub(crate) fn close(&self) {
        self.0.account.close();
        // Under the lock: the ring's thread receives what was sent before, because it drains the queue.
        drop(self.0.free.lock().take());
    }

    /// Whether a slot of the ring is still held.
    pub(crate) fn has_slots_out(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl<T> Clone for ReturnQueue<T> {
    fn clone(&self) -> Self {
        ReturnQueue(self.0.clone())
    }
}

impl<T> fmt::Debug for ReturnQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReturnQueue")
    }
}

/// Receives slots and drops each, until the queue is closed and empty.
pub(crate) fn await_returned<T>(free: &Receiver<T>) {
    while let Ok(slot) = free.recv() {
        drop(slot);
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model {
    use super::*;
    use crate::base::slot_account::SlotToken;
    use crate::base::sync::{bounded, thread};
    use crate::explore::explore;

    /// Which slots were dropped, and on which thread.
    type Dropped = Arc<Mutex<Vec<(usize, thread::ThreadId)>>>;

    /// A slot that records which thread dropped it.
    struct Slot {
        number: usize,
        dropped: Dropped,
        _token: SlotToken,
    }

    impl Drop for Slot {
        fn drop(&mut self) {
            self.dropped.lock().push((self.number, thread::current().id()));
        }
    }

    /// What a consumer holds; its drop returns the slot.
    struct Held {
        slot: Option<Slot>,
        queue: ReturnQueue<Slot>,
    }

    impl Drop for Held {
        fn drop(&mut self) {
            drop(self.slot.take().map(|slot| self.queue.send(slot)));
        }
    }

    /// A ring of three held slots. Its thread ends when the queue is closed, or when all its holders have
    /// dropped it and every slot has returned.
    fn ring() -> (Dropped, ReturnQueue<Slot>, [Held; 3], thread::JoinHandle<()>) {
        let (account, dropped) = (SlotAccount::open(), Arc::new(Mutex::new(Vec::new())));
        let (free_sender, free) = bounded(3);
        let queue = ReturnQueue::new(free_sender, &account);
        let held = [0, 1, 2].map(|number| {
            let slot = Slot { number, dropped: dropped.clone(), _token: account.token() };
            Held { slot: Some(slot), queue: queue.clone() }
        });
        let staying = thread::spawn(move || {
            account.close();
            await_returned(&free);
        });
        (dropped, queue, held, staying)
    }

    #[test]
    fn the_thread_that_returns_a_slot_never_drops_it() {
        explore(|| {
            let (dropped, queue, [first, second, third], staying) = ring();
            let elsewhere = thread::spawn(move || drop(second));
            drop(first);
            let home = staying.thread().id();
            // The consumer drops the ring while it holds a slot, and does not wait.
            assert!(queue.has_slots_out());
            drop(queue);
            drop(third);
            elsewhere.join().unwrap();
            staying.join().unwrap();
            let mut dropped = std::mem::take(&mut *dropped.lock());
            dropped.sort_by_key(|(number, _)| *number);
            assert_eq!(dropped, [0, 1, 2].map(|number| (number, home)));
        });
    }

    #[test]
    fn a_closed_queue_is_waited_out_whatever_is_held_and_keeps_no_slot() {
        explore(|| {
            let (dropped, queue, [first, second, third], staying) = ring();
            let elsewhere = thread::spawn(move || drop(second));
            drop(first);
            queue.close();
            staying.join().unwrap();
            elsewhere.join().unwrap();
            let mut gone: Vec<_> = dropped.lock().iter().map(|(number, _)| *number).collect();
            gone.sort_unstable();
            assert_eq!(gone, [0, 1], "the slot that is held keeps no other");
            drop(third);
            assert_eq!(dropped.lock().len(), 3);
        });
    }
}
