//! A few neighbouring blocks of a table, unpacked by the first thread to reach them: a helper's, or the
//! walk's.
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
//! 1. From the claim until the work is done or abandoned, the claimer owns it; otherwise the group holds it.
//! 2. Only the walk offers, collects and takes back. So only claims happen between an offer and what ends it.
//! 3. A group is queued at most once: `is_queued` is set from before it is sent until a helper has it. A
//!    helper may therefore find that the group is no longer offered, or is offered again.
//! 4. Every wait ends. The walk waits only for a claimer, which is a thread that is unpacking, and which
//!    abandons the claim if it panics.

use std::ops::Range;
use std::sync::Arc;

use percolator_leveldb::KeptTable;
use percolator_leveldb::table::unpack_ahead;

use crate::base::offload::{Helpers, OffloadedTask};
use crate::base::sync::{Condvar, Mutex};

/// The most blocks in a group.
pub(super) const GROUP_BLOCKS_MAX: usize = 32;
/// The most unpacked bytes of a block that is unpacked ahead.
pub(super) const BLOCK_BYTES_MAX: usize = 8 << 20;
/// How many times its room a buffer may have. A group's first block may make it twice as large.
const ROOMS_MAX: usize = 4;

/// A block of a group.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The block's range in the table.
    pub(super) packed: Range<usize>,
    /// Its range in the buffer. `None` if it is not unpacked; the walk finds out why.
    pub(super) unpacked: Option<Range<usize>>,
}

/// What is to be unpacked, and the result.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The blocks' table, as long as there is work to do.
    pub(super) table: Option<KeptTable>,
    pub(super) blocks: Vec<Block>,
    pub(super) buffer: Vec<u8>,
    /// The length of the buffer; a first block may have twice as many bytes.
    pub(super) room: usize,
}

impl Work {
    fn unpack(&mut self) {
        let Work { table, blocks, buffer, room } = self;
        let Some(file) = table.as_ref() else { return };
        fit(buffer, *room);
        let (mut start, mut bytes_max) = (0, room.saturating_mul(2).min(BLOCK_BYTES_MAX));
        for block in blocks {
            block.unpacked = unpack_ahead(file.as_ref(), &block.packed, buffer, start, bytes_max);
            start = block.unpacked.as_ref().map_or(start, |unpacked| unpacked.end);
            bytes_max = *room;
        }
        // Cleared last: work that is abandoned in a panic is offered again, and needs its table.
        *table = None;
    }
}

/// Makes a buffer as long as its room. Most buffers have had the same room before and need not grow.
///
/// A buffer that held an unusually long block is dropped, so that in time not all become that large. One that
/// is only longer is truncated, because a value is handed over with its buffer if it fills most of it.
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

    /// Offers the work that `fill` sets.
    pub(super) fn offer(self: &Arc<Self>, helpers: &dyn Helpers, fill: impl FnOnce(&mut Work)) {
        let mut state = self.state.lock();
        assert_eq!(state.phase, Phase::Idle, "a group is offered after it was collected or taken back");
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

    /// Claims the work, if it is offered.
    fn claim(&self) -> Option<Claim<'_>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Offered {
            return None;
        }
        state.phase = Phase::Claimed;
        Some(Claim { group: self, work: std::mem::take(&mut state.work), is_done: false })
    }

    /// Returns whether a thread is unpacking it.
    pub(super) fn is_claimed(&self) -> bool {
        self.state.lock().phase == Phase::Claimed
    }

    /// Unpacks the work if nobody has claimed it; returns whether it did.
    pub(super) fn help(&self) -> bool {
        let claim = self.claim();
        let is_claimed = claim.is_some();
        claim.into_iter().for_each(Claim::fulfil);
        is_claimed
    }

    /// Exchanges `work` for the group's finished work. Unpacks it here if nobody else has begun.
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
            // The claimer abandoned it.
            assert_eq!(state.phase, Phase::Offered, "a group that is collected was offered");
        }
    }

    /// Ends an offer whose work is no longer needed.
    pub(super) fn take_back(&self) {
        let mut state = self.state.lock();
        while state.phase == Phase::Claimed {
            self.ended.wait(&mut state);
        }
        state.phase = Phase::Idle;
        state.work.table = None;
    }

    /// Does the same for a group that is not offered again. Never waits.
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

/// The claimed work, owned by the thread that unpacks it.
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

    /// Offers one block that is in no table.
    fn offer(group: &Arc<Group>, room: usize) {
        group.offer(&NotYet { threads: 1 }, |work| {
            work.blocks.push(Block { packed: 0..9, unpacked: None });
            (work.room, work.table) = (room, Some(KeptTable::default()));
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
        // The group can be offered again.
        offer(&group, 99);
    }

    #[test]
    fn what_is_given_up_in_the_middle_of_the_unpacking_has_its_table_still() {
        let group = Group::new();
        // No buffer can have this much room, so making it panics.
        offer(&group, usize::MAX);
        let helper = group.clone();
        assert!(std::thread::spawn(move || helper.run()).join().is_err());
        let mut state = group.state.lock();
        assert_eq!(state.phase, Phase::Offered);
        assert!(state.work.table.is_some() && state.work.blocks.len() == 1);
        state.work.room = 99;
        drop(state);
        assert!(group.run(), "the next helper does it");
        let mut work = Work::default();
        group.collect(&mut work);
        assert!(work.table.is_none(), "the table is released");
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
        assert!(group.state.lock().work.table.is_none(), "the table is released");
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model {
    use super::*;
    use crate::base::sync::{Receiver, Sender, bounded, thread};
    use crate::explore::explore;

    /// A queue to helpers, with room for as many tasks as there are groups.
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
            assert!(self.0.len() < 2, "a group is queued at most once");
            self.0.send(Sent(task)).is_ok()
        }
    }

    fn help(offloaded: &Receiver<Sent>, count: usize) {
        for _ in 0..count {
            let Ok(Sent(task)) = offloaded.recv() else { return };
            task.run();
        }
    }

    /// A walk offers two groups in turn, and collects or takes back each. Helpers run them, and one helper
    /// leaves early.
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
            // The range that identifies an offer of a round.
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
                            assert_eq!(blocks, [packed(round - 1, number)], "the previous offer");
                            assert!(work.table.is_none(), "the work is done");
                            collected += 1;
                        }
                    }
                    group.offer(&queue, |work| {
                        work.blocks.push(Block { packed: packed(round, number), unpacked: None });
                        work.table = Some(KeptTable::default());
                    });
                }
            }
            groups.iter().for_each(|group| group.abandon());
            drop(queue);
            helpers.into_iter().for_each(|helper| helper.join().unwrap());
            assert_eq!(collected, 3);
            let is_let_go = |group: &Arc<Group>| group.state.lock().work.table.is_none();
            assert!(groups.iter().all(is_let_go), "an abandoned group, or one done last, holds no table");
        });
    }
}
