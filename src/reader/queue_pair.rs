//! A consumer's two queues: `full` brings it runs, `free` takes them back.
//!
//! A fixed number of slots circulates between the reader and one consumer, as Datums do in Caffe's
//! `QueuePair`. Both queues have room for all slots, so a push never waits; only a pop does.
//!
//! # Invariants
//!
//! 1. **Conservation.** Slots in `free` + in `full` + held by the reader + held by the consumer = capacity,
//!    as long as both ends live. Dropping a slot before one of the ends is a bug, and fails an assertion.
//! 2. **Every wait ends.** Dropping either end closes both queues. The consumer drains `full` and then sees
//!    its end; the reader's next push or pop reports that the consumer has left. Leases that are still held
//!    do not keep a queue open.
//! 3. **Slots may return in groups**, because waking the reader costs more than filling a small run. This
//!    requires that the holder of the other slots releases them without waiting for the reader, as a feed's
//!    workers do. Then no slot is held back for ever, because more slots are in use than are held back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::slot_account::{SlotAccount, SlotToken};
use crate::base::sync::{Mutex, Receiver, Sender, TryRecvError, bounded, recv_unless};
use crate::source::Run;

/// Creates the two ends of a pair with `slots` slots of `slot_records` records each, all of them free. Slots
/// return in groups of `together`, which is limited to at least one and at most half of the slots.
pub(crate) fn queue_pair(slots: usize, slot_records: usize, together: usize) -> (ReaderEnd, ConsumerEnd) {
    queue_pair_of(slots, together, || Run::with_capacity(slot_records))
}

/// The same, with a run made by the caller in each slot.
pub(crate) fn queue_pair_of(
    slots: usize,
    together: usize,
    run: impl Fn() -> Run,
) -> (ReaderEnd, ConsumerEnd) {
    let together = together.min(slots / 2).max(1);
    let (free_sender, free_receiver) = bounded(slots);
    let (full_sender, full_receiver) = bounded(slots);
    let account = SlotAccount::open();
    for _ in 0..slots {
        let slot = RunSlot { run: run(), _token: account.token() };
        free_sender.send(slot).expect("the queue has room for every slot, and its receiver is alive");
    }
    let kept = Vec::with_capacity(together);
    let returns = Returns { free: free_sender, kept, together, full: full_receiver.clone() };
    let slot_return = Arc::new(SlotReturn { returns: Mutex::new(Some(returns)), account: account.clone() });
    let reader = ReaderEnd { free: free_receiver, full: full_sender, account };
    (reader, ConsumerEnd { full: full_receiver, slot_return })
}

/// One of the pair's recycled runs.
#[derive(Debug)]
pub(crate) struct RunSlot {
    pub(crate) run: Run,
    _token: SlotToken,
}

/// The other end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;

/// The reader's end: takes free slots, gives full ones.
#[derive(Debug)]
pub(crate) struct ReaderEnd {
    free: Receiver<RunSlot>,
    full: Sender<RunSlot>,
    account: SlotAccount,
}

impl ReaderEnd {
    /// A free slot, if there is one now.
    pub(crate) fn try_pop(&self) -> Option<Result<RunSlot, Disconnected>> {
        match self.free.try_recv() {
            Ok(slot) => Some(Ok(slot)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Disconnected)),
        }
    }

    /// A free slot; waits until the consumer returns one.
    pub(crate) fn pop(&self) -> Result<RunSlot, Disconnected> {
        self.free.recv().map_err(|_| Disconnected)
    }

    /// Hands a slot to the consumer.
    pub(crate) fn push(&self, slot: RunSlot) -> Result<(), Disconnected> {
        self.full.send(slot).map_err(|_| Disconnected)
    }
}

impl Drop for ReaderEnd {
    fn drop(&mut self) {
        self.account.close();
    }
}

/// Takes a lease's slot back when the lease is dropped.
pub(crate) struct SlotReturn {
    /// `None` once the consumer's end is gone: the reader then sees `free` closed, whatever leases are still
    /// held.
    returns: Mutex<Option<Returns>>,
    account: SlotAccount,
}

/// Slots that are being returned.
struct Returns {
    free: Sender<RunSlot>,
    /// Fewer slots than return together.
    kept: Vec<RunSlot>,
    together: usize,
    /// Tells how many slots are in `full`. It is dropped before the consumer's end, and does not keep a queue
    /// open.
    full: Receiver<RunSlot>,
}

/// How many slots of a pair are in each of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Levels {
    pub(crate) full: usize,
    /// Including those that are kept to return together.
    pub(crate) free: usize,
}

impl SlotReturn {
    fn take_back(&self, mut slot: RunSlot) {
        slot.run.clear();
        if let Some(returns) = &mut *self.returns.lock() {
            returns.kept.push(slot);
            if returns.kept.len() >= returns.together {
                for slot in returns.kept.drain(..) {
                    // An error means that the reader is gone; the slot is dropped.
                    let _ = returns.free.send(slot);
                }
            }
        }
    }

    /// The queues' levels; zeros once the pair is closed.
    pub(crate) fn levels(&self) -> Levels {
        self.returns.lock().as_ref().map_or(Levels::default(), |returns| Levels {
            full: returns.full.len(),
            free: returns.free.len() + returns.kept.len(),
        })
    }

    /// Closes the pair from the consumer's side. Wakes the reader if it waits for a free slot.
    pub(crate) fn close(&self) {
        self.account.close();
        drop(self.returns.lock().take());
    }
}

impl fmt::Debug for SlotReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotReturn")
    }
}

/// The consumer's end: takes full slots as leases, which return by themselves.
#[derive(Debug)]
pub(crate) struct ConsumerEnd {
    full: Receiver<RunSlot>,
    slot_return: Arc<SlotReturn>,
}

impl ConsumerEnd {
    /// The next run; waits for one. `None` when every run was taken and the reader is gone, or when `alarm`
    /// reports that the reader failed: a reader blocked in its source does not close the queue.
    pub(crate) fn pop(&self, alarm: &Receiver<()>) -> Option<Lease> {
        recv_unless(&self.full, alarm).map(|slot| self.lease(slot))
    }

    /// The next run, if there is one now.
    pub(crate) fn try_pop(&self) -> Result<Option<Lease>, Disconnected> {
        match self.full.try_recv() {
            Ok(slot) => Ok(Some(self.lease(slot))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Disconnected),
        }
    }

    /// The queue itself, for a `select!` over several. What it yields becomes a lease.
    pub(crate) fn full(&self) -> &Receiver<RunSlot> {
        &self.full
    }

    pub(crate) fn lease(&self, slot: RunSlot) -> Lease {
        Lease { slot: Some(slot), slot_return: self.slot_return.clone() }
    }

    pub(crate) fn slot_return(&self) -> &Arc<SlotReturn> {
        &self.slot_return
    }

    pub(crate) fn free_len(&self) -> usize {
        self.slot_return.levels().free
    }

    pub(crate) fn full_len(&self) -> usize {
        self.full.len()
    }
}

impl Drop for ConsumerEnd {
    fn drop(&mut self) {
        self.slot_return.close();
    }
}

/// A run on loan from its reader. Dropping it, on any thread, returns the slot.
pub struct Lease {
    /// `Some` until dropped.
    slot: Option<RunSlot>,
    slot_return: Arc<SlotReturn>,
}

impl Deref for Lease {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.slot.as_ref().expect("the slot is taken only by the drop").run
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slot_return.take_back(slot);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("records", &self.len()).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::record::RecordId;
    use crate::source::Entry;

    /// Pops with an alarm that is never raised.
    fn pop(consumer: &ConsumerEnd) -> Option<Lease> {
        let (_armed, alarm) = bounded(1);
        consumer.pop(&alarm)
    }

    fn fill(mut slot: RunSlot, index: u64) -> RunSlot {
        slot.run.push(RecordId { epoch: 0, index }, Entry::borrowed(b"", b"value"));
        slot
    }

    #[test]
    fn slots_circulate_and_come_back_empty() {
        let (reader, consumer) = queue_pair(2, 1, 1);
        for index in 0..10 {
            reader.push(fill(reader.pop().unwrap(), index)).unwrap();
            let lease = pop(&consumer).unwrap();
            assert_eq!(lease.get(0).unwrap().id.index, index);
            assert_eq!(lease.len(), 1);
        }
        assert_eq!(reader.free.len(), 2);
    }

    #[test]
    fn the_levels_count_what_is_in_the_queues_until_the_pair_is_closed() {
        let (reader, consumer) = queue_pair(4, 1, 2);
        let slot_return = consumer.slot_return().clone();
        assert_eq!(slot_return.levels(), Levels { full: 0, free: 4 });
        reader.push(fill(reader.pop().unwrap(), 0)).unwrap();
        reader.push(fill(reader.pop().unwrap(), 1)).unwrap();
        assert_eq!(slot_return.levels(), Levels { full: 2, free: 2 });
        let lease = pop(&consumer).unwrap();
        assert_eq!(slot_return.levels(), Levels { full: 1, free: 2 }, "one is held");
        drop(lease);
        assert_eq!(slot_return.levels(), Levels { full: 1, free: 3 }, "one is kept to return with another");
        drop(consumer);
        assert_eq!(slot_return.levels(), Levels::default());
        assert!(reader.push(fill(reader.free.try_recv().unwrap(), 2)).is_err(), "nobody will take it");
    }

    #[test]
    fn slots_return_in_groups_when_allowed() {
        for (together, free) in [(1, [1, 2, 3, 4, 5]), (2, [0, 2, 2, 4, 4]), (4, [0, 0, 0, 4, 4])] {
            let (reader, consumer) = queue_pair(8, 1, together);
            for index in 0..8 {
                reader.push(fill(reader.pop().unwrap(), index)).unwrap();
            }
            let leases: Vec<_> = (0..8).map(|_| pop(&consumer).unwrap()).collect();
            for ((position, lease), free) in leases.into_iter().enumerate().zip(free) {
                drop(lease);
                assert_eq!((reader.free.len(), consumer.free_len()), (free, position + 1), "{together}");
            }
        }
        let (reader, consumer) = queue_pair(1, 1, 4);
        reader.push(fill(reader.pop().unwrap(), 0)).unwrap();
        drop(pop(&consumer));
        assert_eq!(reader.free.len(), 1, "a single slot returns at once");
    }

    #[test]
    fn the_consumer_drains_what_the_reader_left_behind() {
        let (reader, consumer) = queue_pair(3, 1, 1);
        for index in 0..2 {
            reader.push(fill(reader.pop().unwrap(), index)).unwrap();
        }
        drop(reader);
        let first = pop(&consumer).unwrap();
        assert_eq!(first.get(0).unwrap().id.index, 0);
        drop(first);
        assert!(pop(&consumer).is_some());
        assert!(pop(&consumer).is_none());
        assert_eq!(consumer.try_pop().err(), Some(Disconnected));
    }

    #[test]
    fn a_lease_still_held_does_not_keep_the_reader_waiting() {
        let (reader, consumer) = queue_pair(1, 1, 1);
        reader.push(fill(reader.pop().unwrap(), 0)).unwrap();
        let held = pop(&consumer).unwrap();
        drop(consumer);
        assert!(matches!(reader.pop(), Err(Disconnected)));
        assert_eq!(held.get(0).unwrap().value, b"value");
    }

    #[test]
    #[should_panic(expected = "a slot was lost")]
    #[cfg(debug_assertions)]
    fn losing_a_slot_while_both_ends_live_asserts() {
        let (reader, _consumer) = queue_pair(1, 1, 1);
        drop(reader.pop());
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model {
    use super::*;
    use crate::base::sync::thread;
    use crate::explore::explore;
    use crate::record::RecordId;
    use crate::source::Entry;

    /// Pops with an alarm that is never raised.
    fn pop(consumer: &ConsumerEnd) -> Option<Lease> {
        let (_armed, alarm) = bounded(1);
        consumer.pop(&alarm)
    }

    fn fill(mut slot: RunSlot, index: u64) -> RunSlot {
        assert!(slot.run.is_empty(), "a free slot is empty");
        slot.run.push(RecordId { epoch: 0, index }, Entry::borrowed(b"", b"value"));
        slot
    }

    fn index(lease: &Lease) -> u64 {
        assert_eq!(lease.len(), 1);
        lease.get(0).unwrap().id.index
    }

    /// Pushes until `records` are pushed or the consumer has left; returns how many the queue took.
    fn push(reader: &ReaderEnd, records: u64) -> u64 {
        for index in 0..records {
            let Ok(slot) = reader.try_pop().unwrap_or_else(|| reader.pop()) else { return index };
            if reader.push(fill(slot, index)).is_err() {
                return index;
            }
        }
        records
    }

    /// Every slot holds the pair's account, and so do the two ends. When all are gone, only the test does.
    fn assert_nothing_is_left(account: &SlotAccount) {
        assert_eq!(account.holders(), 1, "a slot outlived its pair");
    }

    #[test]
    fn records_go_through_in_order_and_all_slots_come_back() {
        for slots in 1..=3 {
            explore(move || {
                let (reader, consumer) = queue_pair(slots, 1, 1);
                let account = reader.account.clone();
                let reading = thread::spawn(move || {
                    assert_eq!(push(&reader, 4), 4);
                    reader
                });
                for expected in 0..4 {
                    assert_eq!(index(&pop(&consumer).unwrap()), expected);
                }
                let reader = reading.join().unwrap();
                assert_eq!((consumer.free_len(), consumer.full_len()), (slots, 0));
                drop(reader);
                assert!(pop(&consumer).is_none());
                drop(consumer);
                assert_nothing_is_left(&account);
            });
        }
    }

    #[test]
    fn slots_returned_in_groups_never_starve_the_reader() {
        for together in [1, 2] {
            explore(move || {
                let (reader, consumer) = queue_pair(4, 1, together);
                let account = reader.account.clone();
                let reading = thread::spawn(move || push(&reader, 9));
                // As in a feed: one thread takes the runs, another releases them.
                let (to_worker, from_consumer) = bounded(4);
                let working = thread::spawn(move || while from_consumer.recv().is_ok() {});
                for expected in 0..9 {
                    let lease = pop(&consumer).unwrap();
                    assert_eq!(index(&lease), expected);
                    let _ = to_worker.send(lease);
                }
                drop(to_worker);
                working.join().unwrap();
                assert_eq!(reading.join().unwrap(), 9);
                drop(consumer);
                assert_nothing_is_left(&account);
            });
        }
    }

    /// Hands over this many runs of three records, or fewer if the consumer leaves; returns how many the
    /// queue took.
    fn push_runs(reader: &ReaderEnd, runs: u64) -> u64 {
        for run in 0..runs {
            let Ok(mut slot) = reader.try_pop().unwrap_or_else(|| reader.pop()) else { return run };
            assert!(slot.run.is_empty(), "a free slot is empty");
            for index in 3 * run..3 * run + 3 {
                slot.run.push(RecordId { epoch: 0, index }, Entry::borrowed(b"", b"value"));
            }
            if reader.push(slot).is_err() {
                return run;
            }
        }
        runs
    }

    /// Takes this many runs and passes them to two workers in turn, which release them. Returns the workers'
    /// threads.
    fn pass_on(consumer: &ConsumerEnd, runs: u64) -> [thread::JoinHandle<()>; 2] {
        let (queues, workers): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (to_worker, from_consumer) = bounded::<Lease>(8);
                (to_worker, thread::spawn(move || while from_consumer.recv().is_ok() {}))
            })
            .unzip();
        for (run, queue) in (0..runs).zip(queues.iter().cycle()) {
            let lease = pop(consumer).unwrap();
            assert!(lease.iter().map(|record| record.id.index).eq(3 * run..3 * run + 3));
            let _ = queue.send(lease);
        }
        workers.try_into().unwrap()
    }

    #[test]
    fn eight_slots_returned_in_groups_all_come_back() {
        explore(|| {
            // Eight is not a multiple of three: some slots are held back whenever the reader waits.
            let (reader, consumer) = queue_pair(8, 3, 3);
            let account = reader.account.clone();
            let reading = thread::spawn(move || {
                assert_eq!(push_runs(&reader, 12), 12);
                reader
            });
            pass_on(&consumer, 12).into_iter().for_each(|worker| worker.join().unwrap());
            let reader = reading.join().unwrap();
            assert_eq!((consumer.free_len(), consumer.full_len()), (8, 0));
            drop((reader, consumer));
            assert_nothing_is_left(&account);
        });
    }

    #[test]
    fn a_consumer_that_leaves_with_slots_held_back_blocks_nobody() {
        for taken in [1, 6] {
            explore(move || {
                let (reader, consumer) = queue_pair(8, 3, 4);
                let account = reader.account.clone();
                let reading = thread::spawn(move || push_runs(&reader, u64::MAX));
                let workers = pass_on(&consumer, taken);
                drop(consumer);
                assert!(reading.join().unwrap() >= taken);
                workers.into_iter().for_each(|worker| worker.join().unwrap());
                assert_nothing_is_left(&account);
            });
        }
    }

    #[test]
    fn leases_come_back_from_another_thread() {
        explore(|| {
            let (reader, consumer) = queue_pair(2, 1, 1);
            let reading = thread::spawn(move || {
                assert_eq!(push(&reader, 5), 5);
                reader
            });
            let mut returning = Vec::new();
            for expected in 0..5 {
                let lease = pop(&consumer).unwrap();
                assert_eq!(index(&lease), expected);
                if expected % 2 == 0 {
                    returning.push(thread::spawn(move || drop(lease)));
                }
            }
            let reader = reading.join().unwrap();
            returning.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(consumer.free_len(), 2);
            drop((reader, consumer));
        });
    }

    #[test]
    fn the_reader_leaves_at_any_moment() {
        explore(|| {
            let (reader, consumer) = queue_pair(2, 1, 1);
            let account = reader.account.clone();
            let reading = thread::spawn(move || assert_eq!(push(&reader, 3), 3));
            for expected in 0..3 {
                assert_eq!(index(&pop(&consumer).unwrap()), expected);
            }
            assert!(pop(&consumer).is_none());
            assert_eq!(consumer.try_pop().err(), Some(Disconnected));
            reading.join().unwrap();
            drop(consumer);
            assert_nothing_is_left(&account);
        });
    }

    #[test]
    fn the_consumer_leaves_at_any_moment_holding_a_lease() {
        for taken in 0..=2 {
            explore(move || {
                let (reader, consumer) = queue_pair(2, 1, 1);
                let account = reader.account.clone();
                let reading = thread::spawn(move || push(&reader, u64::MAX));
                let mut held = None;
                for expected in 0..taken {
                    held = pop(&consumer);
                    assert_eq!(index(held.as_ref().unwrap()), expected);
                }
                drop(consumer);
                assert!(reading.join().unwrap() >= taken);
                drop(held);
                assert_nothing_is_left(&account);
            });
        }
    }

    #[test]
    fn a_lease_comes_back_while_both_ends_close() {
        explore(|| {
            let (reader, consumer) = queue_pair(1, 1, 1);
            let account = reader.account.clone();
            push(&reader, 1);
            let lease = pop(&consumer).unwrap();
            let returning = thread::spawn(move || drop(lease));
            // Waits for the lease, and takes it or finds the pair closed.
            let reading = thread::spawn(move || push(&reader, 1));
            drop(consumer);
            returning.join().unwrap();
            reading.join().unwrap();
            assert_nothing_is_left(&account);
        });
    }

    /// A cancelled reader: its consumer waits for a run, the reader waits for the slot that the consumer
    /// holds, and only a third thread can wake them.
    #[test]
    fn closing_from_a_third_thread_ends_both_waits() {
        explore(|| {
            let (reader, consumer) = queue_pair(1, 1, 1);
            let account = reader.account.clone();
            let slot_return = consumer.slot_return().clone();
            let reading = thread::spawn(move || push(&reader, u64::MAX));
            let closing = thread::spawn(move || slot_return.close());
            let held = pop(&consumer);
            assert!(pop(&consumer).is_none());
            reading.join().unwrap();
            closing.join().unwrap();
            drop((held, consumer));
            assert_nothing_is_left(&account);
        });
    }
}
