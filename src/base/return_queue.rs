//! The way that a ring's slots go home: from whoever lets go of one, on any thread, to the ring's own.
//!
//! What a slot holds may take long to drop: a device must have let go of its memory first. So it is dropped
//! where nobody waits: the ring's thread stays, when there is nothing left to do, until all slots are home
//! ([`await_returned`]).
//!
//! # Invariants
//!
//! 1. No slot is left on the way: it is with the ring's thread, or with whoever let go of it.
//! 2. The thread's stay ends: the way is closed by its last holder, and those are the ring's consumer and the
//!    holders of slots. Nobody else waits for it to be closed.

use std::fmt;
use std::sync::Arc;

use crate::base::slot_account::SlotAccount;
use crate::base::sync::{Mutex, Receiver, Sender};

/// The way home from a ring's consumer. Each slot that is out has a clone of it, until it has gone.
pub(crate) struct ReturnQueue<T>(Arc<Way<T>>);

struct Way<T> {
    /// `None` once it is closed.
    free: Mutex<Option<Sender<T>>>,
    account: SlotAccount,
}

impl<T> ReturnQueue<T> {
    /// `free` has room for every slot of the round.
    pub(crate) fn new(free: Sender<T>, account: &SlotAccount) -> Self {
        ReturnQueue(Arc::new(Way { free: Mutex::new(Some(free)), account: account.clone() }))
    }

    /// A way of nobody's, closed.
    pub(crate) fn nowhere() -> Self {
        let account = SlotAccount::open();
        account.close();
        ReturnQueue(Arc::new(Way { free: Mutex::new(None), account }))
    }

    /// Sends a slot home; gives it back where nobody takes it any more.
    pub(crate) fn send(&self, slot: T) -> Result<(), T> {
        match &*self.0.free.lock() {
            Some(free) => free.send(slot).map_err(|unsent| unsent.0),
            None => Err(slot),
        }
    }

    /// From here on slots are dropped by those who let go of them, and nobody stays for them.
    pub(crate) fn close(&self) {
        self.0.account.close();
        // Under the lock: what was sent before is found by the ring's thread, which goes on until there is no
        // more.
        drop(self.0.free.lock().take());
    }

    /// Whether somebody still holds a slot of the round.
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
        f.write_str("WayHome")
    }
}

/// Takes slots home, one after the other, and drops them, until the way is closed and none is left on it.
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

    /// A slot that takes down which thread dropped it.
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

    /// What a consumer holds: it goes home when it is dropped.
    struct Held {
        slot: Option<Slot>,
        way: ReturnQueue<Slot>,
    }

    impl Drop for Held {
        fn drop(&mut self) {
            drop(self.slot.take().map(|slot| self.way.send(slot)));
        }
    }

    /// A ring of three slots: the first was taken and let go of before, the others are taken now. Its thread
    /// ends when the consumer has let go of the ring.
    fn ring() -> (Dropped, ReturnQueue<Slot>, [Held; 3], thread::JoinHandle<()>) {
        let (account, dropped) = (SlotAccount::open(), Arc::new(Mutex::new(Vec::new())));
        let (free_sender, free) = bounded(3);
        let way = ReturnQueue::new(free_sender, &account);
        let held = [0, 1, 2].map(|number| {
            let slot = Slot { number, dropped: dropped.clone(), _token: account.token() };
            Held { slot: Some(slot), way: way.clone() }
        });
        let staying = thread::spawn(move || {
            account.close();
            await_returned(&free);
        });
        (dropped, way, held, staying)
    }

    #[test]
    fn whoever_lets_go_of_a_slot_never_drops_it() {
        explore(|| {
            let (dropped, way, [first, second, third], staying) = ring();
            let elsewhere = thread::spawn(move || drop(second));
            drop(first);
            let home = staying.thread().id();
            // The consumer lets go of the ring while it holds a slot, and waits for nobody.
            assert!(way.has_slots_out());
            drop(way);
            drop(third);
            elsewhere.join().unwrap();
            staying.join().unwrap();
            let mut dropped = std::mem::take(&mut *dropped.lock());
            dropped.sort_by_key(|(number, _)| *number);
            assert_eq!(dropped, [0, 1, 2].map(|number| (number, home)));
        });
    }

    #[test]
    fn a_closed_way_is_waited_out_whatever_is_held_and_keeps_no_slot() {
        explore(|| {
            let (dropped, way, [first, second, third], staying) = ring();
            let elsewhere = thread::spawn(move || drop(second));
            drop(first);
            way.close();
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
