//! Unpacks the blocks ahead of a walk, on whichever thread is free.
//!
//! Where records begin is known only once their block is unpacked, but the index says where blocks are. So as
//! the walk goes through a table whose blocks are compressed, it offers groups of the blocks ahead to its
//! helpers, and collects each group when it gets there. Blocks of a few KiB are grouped because handing one
//! over costs more than unpacking it.
//!
//! A walk over several tables at once has one pool of groups for all of them, and one window of bytes. With
//! every group that the walk collects from a table, the table may have one group more, so the tables that the
//! walk goes through fast get the most. A table that makes no progress while the others need groups gives its
//! last offers back, and its allowance decreases by as many.
//!
//! A block's unpacked length is known only when the walk gets there. So groups are sized by the usual length.
//! A block that is much longer is left to the walk, and one such block among many does not change the usual
//! length.

mod group;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use percolator_leveldb::table::{Following, Shelf};
use percolator_leveldb::{self as stored, KeptTable};

use self::group::{BLOCK_BYTES_MAX, Block, GROUP_BLOCKS_MAX, Group, Work};
use crate::base::offload::Helpers;

/// The unpacked bytes of a group's blocks, unless one block is longer. The tests' tables are small.
const GROUP_BYTES: usize = if cfg!(test) { 9 << 10 } else { 128 << 10 };
/// The most bytes of all offered groups of a walk, unless two groups total more.
const WINDOW_BYTES: usize = 16 << 20;
/// How many groups may be offered even if they exceed the window.
const OFFERED_MIN: usize = 2;
/// The fewest groups of a walk, and the groups per helper.
const GROUPS_MIN: usize = 4;
const GROUPS_A_HELPER: usize = 4;
/// A table stands still if the walk has entered none of its blocks while it entered this many per table of
/// the walk.
const STILL_BLOCKS_A_TABLE: usize = 8;
/// A shorter block lowers the usual length by this part of the difference. A longer one at most doubles it.
const SHORTER_PART: usize = 8;

/// What the tables of a walk share; if the walk is over several databases, those of all of them.
#[derive(Debug)]
pub(in crate::source) struct Pool {
    helpers: Arc<dyn Helpers>,
    /// How many groups there may be. They are allocated when first needed.
    groups_max: usize,
    groups: Cell<usize>,
    idle: RefCell<Vec<Arc<Group>>>,
    /// The total room of all groups that are not idle.
    offered_bytes: Cell<usize>,
    /// The usual unpacked length of a block.
    usual_bytes: Cell<usize>,
    /// How many blocks the walk has entered.
    entered: Cell<usize>,
    queues: RefCell<Vec<Rc<RefCell<Queue>>>>,
}

/// The offers of one table.
#[derive(Debug, Default)]
struct Queue {
    /// In table order.
    offers: VecDeque<Offer>,
    /// The place in the index of the first block not offered yet, and the least offset in the file it may
    /// start at.
    next: usize,
    from: usize,
    /// How many groups the table may have besides its first.
    more: usize,
    /// How many blocks the walk had entered when it last entered one of this table.
    entered_at: usize,
}

#[derive(Debug)]
struct Offer {
    group: Arc<Group>,
    room: usize,
    /// Where the first block starts in the file.
    start: usize,
    /// The values of the queue's `next` and `from` before this offer.
    next: usize,
    from: usize,
}

impl Pool {
    pub(in crate::source) fn new(helpers: Arc<dyn Helpers>) -> Rc<Self> {
        let wanted = helpers.threads().saturating_mul(GROUPS_A_HELPER).max(GROUPS_MIN);
        let groups_max = wanted.min(helpers.offloaded_max());
        Rc::new(Pool {
            helpers,
            groups_max,
            groups: Cell::new(0),
            idle: RefCell::default(),
            offered_bytes: Cell::new(0),
            usual_bytes: Cell::new(0),
            entered: Cell::new(0),
            queues: RefCell::default(),
        })
    }

    /// Returns a queue for one more table.
    fn queue(&self) -> Rc<RefCell<Queue>> {
        let offers = VecDeque::with_capacity(self.groups_max);
        let queue = Rc::new(RefCell::new(Queue { offers, ..Queue::default() }));
        self.queues.borrow_mut().push(queue.clone());
        queue
    }

    /// Returns a group to offer, with `room` bytes of room, if there may be one more.
    fn take(&self, room: usize) -> Option<Arc<Group>> {
        let mut idle = self.idle.borrow_mut();
        let offered = self.groups.get() - idle.len();
        let bytes = self.offered_bytes.get() + room;
        if offered >= self.groups_max || (bytes > WINDOW_BYTES && offered >= OFFERED_MIN) {
            return None;
        }
        self.offered_bytes.set(bytes);
        Some(idle.pop().unwrap_or_else(|| {
            self.groups.set(self.groups.get() + 1);
            Group::new()
        }))
    }

    fn put(&self, group: Arc<Group>, room: usize) {
        self.offered_bytes.set(self.offered_bytes.get() - room);
        self.idle.borrow_mut().push(group);
    }

    /// Takes back the last offer of the table that has stood still the longest; returns whether there was
    /// one.
    fn take_back(&self) -> bool {
        let queues = self.queues.borrow();
        let still_since = self.entered.get().saturating_sub(STILL_BLOCKS_A_TABLE * queues.len());
        let is_still = |queue: &&Rc<RefCell<Queue>>| {
            let queue = queue.borrow();
            // Does not wait: an offer that is claimed now will not be claimed the next time.
            let has_offer = queue.offers.back().is_some_and(|offer| !offer.group.is_claimed());
            has_offer && queue.entered_at < still_since
        };
        let stillest = queues.iter().filter(is_still).min_by_key(|queue| queue.borrow().entered_at);
        let Some(mut queue) = stillest.map(|queue| queue.borrow_mut()) else { return false };
        let Some(Offer { group, room, next, from, start: _ }) = queue.offers.pop_back() else { return false };
        (queue.next, queue.from) = (next, from);
        queue.more = queue.more.saturating_sub(1);
        group.take_back();
        self.put(group, room);
        true
    }

    /// Updates the usual length with that of a block that has been entered.
    fn came_to(&self, bytes: usize) {
        let usual = self.usual_bytes.get();
        let now = match usual {
            0 => bytes,
            _ if bytes < usual => usual - (usual - bytes).div_ceil(SHORTER_PART),
            _ => bytes.min(usual.saturating_mul(2)),
        };
        self.usual_bytes.set(now.min(BLOCK_BYTES_MAX));
    }

    /// Returns the room of a group's buffer.
    fn room(&self) -> usize {
        match self.blocks() {
            // In steps: the usual length changes with every block, but buffers need not.
            1 => self.usual_bytes.get().next_multiple_of(GROUP_BYTES / 4).min(BLOCK_BYTES_MAX),
            _ => GROUP_BYTES,
        }
    }

    /// Returns how many blocks a group has.
    fn blocks(&self) -> usize {
        (GROUP_BYTES / self.usual_bytes.get().max(1)).clamp(1, GROUP_BLOCKS_MAX)
    }

    /// Returns how many tables, of all databases, may have blocks unpacked ahead.
    pub(super) fn tables(&self) -> usize {
        self.queues.borrow().len()
    }

    /// Returns how many bytes a walk over `tables` tables at once holds, as long as blocks are no longer than
    /// is usual now.
    pub(super) fn held_bytes(&self, tables: usize) -> usize {
        let group = size_of::<Group>() + GROUP_BLOCKS_MAX * size_of::<Block>();
        let room = self.room();
        let offered = self.groups_max.min((WINDOW_BYTES / room).max(OFFERED_MIN));
        // Each table has the buffer of the group that the walk is in.
        self.groups_max * group + (offered + tables) * room
    }
}

/// What is unpacked ahead of a walk, in one table after the other.
#[derive(Debug)]
pub(super) struct Ahead {
    pool: Rc<Pool>,
    /// The open table.
    table: Option<KeptTable>,
    queue: Rc<RefCell<Queue>>,
    /// The group that the walk is in, except its buffer, which the walk has.
    work: Work,
    /// How many of its blocks have been entered.
    entered: usize,
    /// Whether the block last asked for is in that group, and whether it was supplied unpacked.
    is_of_group: bool,
    is_brought: bool,
    /// Whether blocks are compressed, as far as the walk has seen.
    is_packed: bool,
}

impl Ahead {
    pub(super) fn new(pool: &Rc<Pool>) -> Self {
        Ahead {
            pool: pool.clone(),
            table: None,
            queue: pool.queue(),
            work: Work::default(),
            entered: 0,
            is_of_group: false,
            is_brought: false,
            is_packed: false,
        }
    }

    /// Returns whether one more group may be ahead now.
    fn may_offer(&self) -> bool {
        let queue = self.queue.borrow();
        queue.offers.len() < self.pool.groups_max.min(queue.more + 1)
    }

    /// Offers the blocks after those offered already; returns `false` if there are none, or no group for
    /// them.
    fn offer(&self, following: &Following<'_>) -> bool {
        let (next, from) = {
            let queue = self.queue.borrow();
            (queue.next, queue.from)
        };
        let Some((first, _)) = following.block_at(next, from) else { return false };
        let room = self.pool.room();
        let group = loop {
            match self.pool.take(room) {
                Some(group) => break group,
                None if self.pool.take_back() => {}
                None => return false,
            }
        };
        let mut queue = self.queue.borrow_mut();
        group.offer(&*self.pool.helpers, |work| {
            while work.blocks.len() < self.pool.blocks()
                && let Some((packed, next)) = following.block_at(queue.next, queue.from)
            {
                (queue.next, queue.from) = (next, packed.end);
                work.blocks.push(Block { packed, unpacked: None });
            }
            (work.room, work.table) = (room, self.table.clone());
        });
        queue.offers.push_back(Offer { group, room, start: first.start, next, from });
        true
    }

    /// Enters the group whose first block is `block`, if that group is the next.
    fn collect(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) {
        let mut queue = self.queue.borrow_mut();
        if queue.offers.front().is_none_or(|offer| offer.start != block.start) {
            return;
        }
        let Some(Offer { group, room, .. }) = queue.offers.pop_front() else { return };
        // The claimer may not be running on a processor. Meanwhile, unpack other groups.
        let others = queue.offers.iter().take_while(|_| group.is_claimed());
        others.for_each(|other| _ = other.group.help());
        std::mem::swap(&mut self.work.buffer, buffer);
        group.collect(&mut self.work);
        std::mem::swap(&mut self.work.buffer, buffer);
        self.pool.put(group, room);
        self.entered = 0;
        queue.more = self.pool.groups_max.min(queue.more + 1);
        self.is_packed = self.work.blocks.iter().any(|block| block.unpacked.is_some());
    }
}

impl stored::Ahead for Ahead {
    /// Nothing is unpacked ahead in a table the walk maps for itself.
    fn open(&mut self, table: Option<&KeptTable>) {
        self.close();
        self.table = table.cloned();
        self.is_packed &= table.is_some();
    }

    fn close(&mut self) {
        self.table = None;
        let mut queue = self.queue.borrow_mut();
        for Offer { group, room, .. } in queue.offers.drain(..) {
            group.take_back();
            self.pool.put(group, room);
        }
        (queue.next, queue.from) = (0, 0);
        self.work.blocks.clear();
        self.entered = 0;
    }

    fn restart(&mut self) {
        self.close();
        self.queue.borrow_mut().more = 0;
    }

    fn is_packed(&self) -> bool {
        self.is_packed
    }

    fn is_last(&self) -> bool {
        self.entered >= self.work.blocks.len()
    }
}

impl Shelf for Ahead {
    fn come_to(&mut self, following: &Following<'_>) {
        if !self.is_packed || self.table.is_none() {
            return;
        }
        {
            let mut queue = self.queue.borrow_mut();
            queue.next = queue.next.max(following.start());
            // Set before offering, so that a table that makes progress does not take back from itself.
            queue.entered_at = self.pool.entered.get();
        }
        while self.may_offer() && self.offer(following) {}
    }

    fn take(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) -> Option<Range<usize>> {
        if self.entered >= self.work.blocks.len() {
            self.collect(block, buffer);
        }
        let next = self.work.blocks.get(self.entered).filter(|next| next.packed == *block);
        self.is_of_group = next.is_some();
        self.entered += usize::from(self.is_of_group);
        let unpacked = next.and_then(|next| next.unpacked.clone());
        self.is_brought = unpacked.is_some();
        unpacked
    }

    fn entered(&mut self, unpacked_bytes: Option<usize>) {
        if self.table.is_none() {
            return;
        }
        self.pool.entered.set(self.pool.entered.get() + 1);
        match unpacked_bytes {
            Some(bytes) => {
                if !self.is_brought {
                    // The walk has unpacked the block into the buffer that held the rest of its group.
                    self.work.blocks.clear();
                }
                self.is_packed = true;
                self.pool.came_to(bytes);
            }
            None if self.is_of_group => {}
            None => self.is_packed = false,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for Offer { group, .. } in &self.queue.borrow().offers {
            group.abandon();
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::base::offload::NotYet;

    fn pool(threads: usize) -> Rc<Pool> {
        Pool::new(Arc::new(NotYet { threads }))
    }

    /// Adds an offer of a block that is in no table.
    fn offer(pool: &Pool, queue: &RefCell<Queue>, next: usize) {
        let group = pool.take(GROUP_BYTES).unwrap();
        group.offer(&*pool.helpers, |work| work.blocks.push(Block { packed: 0..9, unpacked: None }));
        let (room, start, from) = (GROUP_BYTES, 0, 10 * next);
        queue.borrow_mut().offers.push_back(Offer { group, room, start, next, from });
    }

    #[test]
    fn what_is_offered_fits_in_the_window_unless_two_groups_do_not() {
        for (room, count) in [(WINDOW_BYTES / 4, 4), (WINDOW_BYTES / 3, 3), (WINDOW_BYTES, 2)] {
            let pool = pool(8);
            let mut groups: Vec<_> = std::iter::from_fn(|| pool.take(room)).collect();
            assert_eq!(groups.len(), count, "groups of {room} bytes");
            pool.put(groups.pop().unwrap(), room);
            assert!(pool.take(room).is_some() && pool.take(room).is_none());
        }
        let pool = pool(1);
        assert_eq!(std::iter::from_fn(|| pool.take(1)).count(), GROUPS_MIN);
    }

    #[test]
    fn a_table_that_stands_still_gives_its_last_offer_back_and_one_that_moves_does_not() {
        let pool = pool(1);
        let [still, moving] = [pool.queue(), pool.queue()];
        (still.borrow_mut().more, moving.borrow_mut().more) = (2, 2);
        (0..2).for_each(|next| offer(&pool, &still, next));
        (0..2).for_each(|next| offer(&pool, &moving, next));
        assert!(pool.take(GROUP_BYTES).is_none() && !pool.take_back(), "both have just moved");
        pool.entered.set(1000);
        moving.borrow_mut().entered_at = 1000;
        assert!(pool.take_back());
        let Queue { next, from, more, .. } = *still.borrow();
        assert_eq!((next, from, more, still.borrow().offers.len()), (1, 10, 1, 1));
        assert!(pool.take(GROUP_BYTES).is_some());
        assert!(pool.take_back() && !pool.take_back(), "a table on the move keeps its own");
        assert_eq!((still.borrow().offers.len(), moving.borrow().offers.len()), (0, 2));
    }

    #[test]
    fn one_long_block_in_many_does_not_change_what_is_usual_and_many_do() {
        let pool = pool(1);
        pool.came_to(500);
        let blocks = pool.blocks();
        pool.came_to(1 << 20);
        assert!(pool.blocks() >= blocks / 2 && pool.room() == GROUP_BYTES);
        (0..60).for_each(|_| pool.came_to(500));
        assert_eq!(pool.blocks(), blocks);
        (0..12).for_each(|_| pool.came_to(1 << 20));
        assert!(pool.blocks() == 1 && pool.room() >= 1 << 20, "{}", pool.room());
        (0..99).for_each(|_| pool.came_to(500));
        assert_eq!(pool.blocks(), blocks);
    }
}
