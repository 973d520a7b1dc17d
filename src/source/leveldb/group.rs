//! A few neighbouring blocks of a table, unpacked by whoever comes first: a helper, or the walk.
//!
//! ```text
//!            offer              claim                unpacked
//!    idle ---------> offered ---------> claimed --------------> done
//!     ^  <------------  ^  <----------------                      |
//!     |   take back           given up: a panic                   |
//!     +------------------------ collect --------------------------+
//! ```
//!
//! # Invariants
//!
//! 1. The work is the claimer's from the claim on until it is done, or given up; otherwise it lies in the group.
//! 2. Only the walk offers, collects and takes back. So between an offer and what ends it, nothing but claims happens.
//! 3. A group is queued once at the most: `is_queued` from before it is sent until a helper has it. A helper may therefore
//!    find that it is not offered any more, or again.
//! 4. Every wait ends: the walk waits for a claimer alone, which is a thread that unpacks, and gives up if it panics.

use std::ops::Range;
use std::sync::Arc;

use percolator_table::unpack_ahead;

use super::map::Store;
use crate::base::offload::{Helpers, OffloadedTask};
use crate::base::sync::{Condvar, Mutex};

/// The most blocks of a group.
pub(super) const GROUP_BLOCKS_MAX: usize = 32;
/// The longest block, unpacked, that is unpacked ahead.
pub(super) const BLOCK_BYTES_MAX: usize = 8 << 20;
/// How much larger than its room a buffer may be. A first block makes it twice as large.
const ROOMS_MAX: usize = 4;

/// A block of a group.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Where in the table it lies.
    pub(super) packed: Range<usize>,
    /// Where in the buffer it lies then. `None` if it is not unpacked: its walk will know why.
    pub(super) unpacked: Option<Range<usize>>,
}

/// What there is to do, and what has come of it.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The store and the number of the table that the blocks lie in, while there is something to do.
    pub(super) table: Option<(Arc<Store>, usize)>,
    pub(super) blocks: Vec<Block>,
    pub(super) buffer: Vec<u8>,
    /// What the buffer has room for; a first block may come to twice as much.
    pub(super) room: usize,
}

impl Work {
    fn unpack(&mut self) {
        let Work { table, blocks, buffer, room } = self;
        let Some((store, number)) = table else { return };
        let file = store.table(*number);
        fit(buffer, *room);
        let (mut start, mut bytes_max) = (0, room.saturating_mul(2).min(BLOCK_BYTES_MAX));
        for block in blocks {
            block.unpacked = unpack_ahead(file, &block.packed, buffer, start, bytes_max);
            start = block.unpacked.as_ref().map_or(start, |unpacked| unpacked.end);
            bytes_max = *room;
        }
        // Last: what is given up in a panic is offered with its table.
        *table = None;
    }
}

/// Makes a buffer as long as its room. Most have been round with the same, and need not grow.
///
/// One that held a block much longer than is usual is not kept, or in time all would be as large; and one that is only longer
/// is cut, for a value goes on with its buffer where it fills most of it.
fn fit(buffer: &mut Vec<u8>, room: usize) {
    if buffer.capacity() / ROOMS_MAX > room {
        *buffer = Vec::new();
    }
    buffer.reserve_exact(room.saturating_sub(buffer.len()));
    buffer.resize(room, 0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Offered,
    Claimed,
    Done,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    is_queued: bool,
    work: Work,
}

#[derive(Debug)]
pub(super) struct Group {
    state: Mutex<State>,
    /// Signalled when a claim ends.
    ended: Condvar,
}

impl Group {
    pub(super) fn new() -> Arc<Self> {
        let state = State { phase: Phase::Idle, is_queued: false, work: Work::default() };
        Arc::new(Group { state: Mutex::new(state), ended: Condvar::new() })
    }

    /// Offers what `fill` puts into the work.
    pub(super) fn offer(self: &Arc<Self>, helpers: &dyn Helpers, fill: impl FnOnce(&mut Work)) {
        let mut state = self.state.lock();
        assert_eq!(state.phase, Phase::Idle, "a group is offered when it was collected or taken back");
        state.work.blocks.clear();
        state.work.blocks.reserve_exact(GROUP_BLOCKS_MAX);
        fill(&mut state.work);
        state.phase = Phase::Offered;
        let was_queued = std::mem::replace(&mut state.is_queued, true);
        drop(state);
        if !was_queued && !helpers.send(self.clone()) {
            self.state.lock().is_queued = false;
        }
    }

    /// The work, for whoever comes first.
    fn claim(&self) -> Option<Claim<'_>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Offered {
            return None;
        }
        state.phase = Phase::Claimed;
        Some(Claim { group: self, work: std::mem::take(&mut state.work), is_done: false })
    }

    /// Whether somebody is at it.
    pub(super) fn is_claimed(&self) -> bool {
        self.state.lock().phase == Phase::Claimed
    }

    /// Does the work, if nobody has begun; whether it did.
    pub(super) fn help(&self) -> bool {
        let claim = self.claim();
        let is_claimed = claim.is_some();
        claim.into_iter().for_each(Claim::fulfil);
        is_claimed
    }

    /// Exchanges `work` for the group's, once that is done: here, if nobody else has begun.
    pub(super) fn collect(&self, work: &mut Work) {
        loop {
            self.help();
            let mut state = self.state.lock();
            while state.phase == Phase::Claimed {
                self.ended.wait(&mut state);
            }
            if state.phase == Phase::Done {
                state.phase = Phase::Idle;
                std::mem::swap(&mut state.work, work);
                return;
            }
            // Given up by whoever had it.
            assert_eq!(state.phase, Phase::Offered, "what is collected was offered");
        }
    }

    /// Ends an offer of which nothing is wanted any more.
    pub(super) fn take_back(&self) {
        let mut state = self.state.lock();
        while state.phase == Phase::Claimed {
            self.ended.wait(&mut state);
        }
        state.phase = Phase::Idle;
        state.work.table = None;
    }

    /// The same of a group that is not offered again: nobody is waited for.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Offered {
            state.phase = Phase::Idle;
            state.work.table = None;
        }
    }
}

impl OffloadedTask for Group {
    fn run(&self) -> bool {
        self.state.lock().is_queued = false;
        self.help()
    }
}

/// The work, in the hands of who unpacks.
struct Claim<'a> {
    group: &'a Group,
    work: Work,
    is_done: bool,
}

impl Claim<'_> {
    fn fulfil(mut self) {
        self.work.unpack();
        self.is_done = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.group.state.lock();
        state.work = std::mem::take(&mut self.work);
        state.phase = if self.is_done { Phase::Done } else { Phase::Offered };
        drop(state);
        self.group.ended.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::base::offload::NotYet;

    /// Makes an offer of one block that no table has.
    fn offer(group: &Arc<Group>, room: usize) {
        group.offer(&NotYet { threads: 1 }, |work| {
            work.blocks.push(Block { packed: 0..9, unpacked: None });
            (work.room, work.table) = (room, Some((Arc::default(), 0)));
        });
    }

    #[test]
    fn what_a_claimer_gives_up_in_a_panic_is_the_walks_again() {
        let group = Group::new();
        offer(&group, 99);
        let helper = group.clone();
        let helped = std::thread::spawn(move || {
            let _claim = helper.claim().unwrap();
            panic!("on purpose");
        });
        let mut work = Work::default();
        group.collect(&mut work);
        assert!(helped.join().is_err());
        assert_eq!(work.blocks.len(), 1);
        // It can be offered again.
        offer(&group, 99);
    }

    #[test]
    fn what_is_given_up_in_the_middle_of_the_unpacking_has_its_table_still() {
        let group = Group::new();
        // No buffer has so much room: to make it panics.
        offer(&group, usize::MAX);
        let helper = group.clone();
        assert!(std::thread::spawn(move || helper.run()).join().is_err());
        let mut state = group.state.lock();
        assert_eq!(state.phase, Phase::Offered);
        assert!(state.work.table.is_some() && state.work.blocks.len() == 1);
        state.work.room = 99;
        drop(state);
        assert!(group.run(), "whoever comes next does it");
        let mut work = Work::default();
        group.collect(&mut work);
        assert!(work.table.is_none(), "the table is let go of");
    }

    #[test]
    fn a_buffer_is_as_long_as_its_room_and_not_much_larger() {
        let mut buffer = Vec::new();
        for (room, capacity_max) in [(1000, 1000), (300, 1000), (1000, 1000), (200, 200), (700, 700)] {
            fit(&mut buffer, room);
            assert!(buffer.len() == room && buffer.capacity() <= capacity_max, "{}", buffer.capacity());
        }
    }

    #[test]
    fn what_is_taken_back_is_not_run() {
        let group = Group::new();
        offer(&group, 99);
        group.take_back();
        assert!(group.claim().is_none());
        assert!(group.state.lock().work.table.is_none(), "the table is let go of");
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model {
    use super::*;
    use crate::base::sync::{Receiver, Sender, bounded, thread};
    use crate::explore::explore;

    /// A queue to helpers, with room for as many errands as there are groups.
    #[derive(Debug)]
    struct Queue(Sender<Sent>);

    struct Sent(Arc<dyn OffloadedTask>);

    impl std::fmt::Debug for Sent {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Sent")
        }
    }

    impl Helpers for Queue {
        fn threads(&self) -> usize {
            2
        }

        fn offloaded_max(&self) -> usize {
            2
        }

        fn send(&self, task: Arc<dyn OffloadedTask>) -> bool {
            assert!(self.0.len() < 2, "a group is queued once at the most");
            self.0.send(Sent(task)).is_ok()
        }
    }

    fn help(offloaded: &Receiver<Sent>, count: usize) {
        for _ in 0..count {
            let Ok(Sent(task)) = offloaded.recv() else { return };
            task.run();
        }
    }

    /// A walk offers two groups in turn and collects, or takes back, each; helpers come, and one leaves early.
    #[test]
    fn every_offer_is_collected_whoever_comes_first() {
        explore(|| {
            let (sender, offloaded) = bounded(2);
            let helpers = [1, 9].map(|count| {
                let offloaded = offloaded.clone();
                thread::spawn(move || help(&offloaded, count))
            });
            drop(offloaded);
            let queue = Queue(sender);
            let groups = [Group::new(), Group::new()];
            let (mut work, mut collected) = (Work::default(), 0);
            // What is offered in a round, so that it is known again.
            let packed =
                |round: usize, number: usize| 100 * round + 10 * number..100 * round + 10 * number + 9;
            for round in 0..3 {
                for (number, group) in groups.iter().enumerate() {
                    match (round, number) {
                        (0, _) => {}
                        (1, 1) => group.take_back(),
                        _ => {
                            group.collect(&mut work);
                            let blocks: Vec<_> =
                                work.blocks.iter().map(|block| block.packed.clone()).collect();
                            assert_eq!(blocks, [packed(round - 1, number)], "the offer before");
                            assert!(work.table.is_none(), "somebody has done it");
                            collected += 1;
                        }
                    }
                    group.offer(&queue, |work| {
                        work.blocks.push(Block { packed: packed(round, number), unpacked: None });
                        work.table = Some((Arc::default(), 0));
                    });
                }
            }
            groups.iter().for_each(|group| group.abandon());
            drop(queue);
            helpers.into_iter().for_each(|helper| helper.join().unwrap());
            assert_eq!(collected, 3);
            let is_let_go = |group: &Arc<Group>| group.state.lock().work.table.is_none();
            assert!(groups.iter().all(is_let_go), "what is abandoned, or was done last, holds no table");
        });
    }
}
