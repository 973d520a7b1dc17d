//! Unpacks the blocks ahead of a walk, by whoever is free.
//!
//! Where records begin is known only once their block is unpacked; where blocks lie, the index says. So as the walk
//! goes through a table whose blocks are compressed, groups of the blocks behind it are offered to its helpers, and it
//! collects each when it comes to it. Blocks of some KiB travel together, for to hand one over costs more than to
//! unpack it.
//!
//! A walk over several tables at once has one pool of groups for all. Each table may have one group more with every group
//! that the walk collects from it: so those that it goes through fast come to have the most.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::group::{BLOCK_BYTES_MAX, Block, GROUP_BLOCKS_MAX, Group, Work};
use super::map::{Store, TableBytes};
use crate::errand::Helpers;
use crate::table::{Following, Shelf};

/// What the blocks of a group come to, unless one is longer. The tables of tests are small.
const GROUP_BYTES: usize = if cfg!(test) { 9 << 10 } else { 128 << 10 };
/// What all groups of a walk come to, unless two come to more.
const WINDOW_BYTES: usize = 16 << 20;
/// The fewest groups of a walk, and of each helper.
const GROUPS_MIN: usize = 4;
const GROUPS_A_HELPER: usize = 4;

/// What the tables of a walk share.
#[derive(Debug)]
pub(super) struct Pool {
    helpers: Arc<dyn Helpers>,
    /// How many groups there may be.
    groups_max: usize,
    groups: Cell<usize>,
    idle: RefCell<Vec<Arc<Group>>>,
    /// The length of the longest block so far.
    block_bytes: Cell<usize>,
}

impl Pool {
    pub(super) fn new(helpers: Arc<dyn Helpers>) -> Rc<Self> {
        let wanted = helpers.threads().saturating_mul(GROUPS_A_HELPER).max(GROUPS_MIN);
        let groups_max = wanted.min(helpers.errands_max());
        let (groups, block_bytes) = (Cell::new(0), Cell::new(0));
        Rc::new(Pool { helpers, groups_max, groups, idle: RefCell::default(), block_bytes })
    }

    fn take(&self) -> Option<Arc<Group>> {
        let idle = self.idle.borrow_mut().pop();
        if idle.is_none() && self.groups.get() < self.groups_max {
            self.groups.set(self.groups.get() + 1);
            return Some(Group::new());
        }
        idle
    }

    fn put(&self, group: Arc<Group>) {
        self.idle.borrow_mut().push(group);
    }

    /// What a group's buffer has room for.
    fn room(&self) -> usize {
        match self.blocks() {
            1 => self.block_bytes.get().min(BLOCK_BYTES_MAX),
            _ => GROUP_BYTES,
        }
    }

    /// Blocks of a group.
    fn blocks(&self) -> usize {
        (GROUP_BYTES / self.block_bytes.get().max(1)).clamp(1, GROUP_BLOCKS_MAX)
    }

    /// What a walk over so many tables at once will keep, if no block comes to be longer than the longest so far.
    pub(super) fn held_bytes(&self, tables: usize) -> usize {
        let group = size_of::<Group>() + GROUP_BLOCKS_MAX * size_of::<Block>();
        // Each table has the buffer of the group that the walk is in.
        self.groups_max * group + (self.groups_max + tables) * self.room()
    }
}

/// What is ahead of a walk in one table after the other.
#[derive(Debug)]
pub(super) struct Ahead {
    pool: Rc<Pool>,
    /// The store and the number of the table that is open.
    table: Option<(Arc<Store>, usize)>,
    /// Groups that were offered, in the order of the table, each with the place of its first block.
    offered: VecDeque<(usize, Arc<Group>)>,
    /// The group that the walk is in, but for its buffer, which the walk has.
    work: Work,
    /// How many of its blocks have been entered.
    entered: usize,
    /// Whether the block that was asked for last is one of them, and whether it was brought.
    is_of_group: bool,
    is_brought: bool,
    /// Whether blocks are compressed, as far as the walk has seen.
    is_packed: bool,
    /// Groups collected since the walk began.
    collected: usize,
    /// Where in the index the first block is named that has not been offered, and before what place it cannot lie.
    next: usize,
    from: usize,
}

impl Ahead {
    pub(super) fn new(pool: &Rc<Pool>) -> Self {
        Ahead {
            pool: pool.clone(),
            table: None,
            offered: VecDeque::with_capacity(pool.groups_max),
            work: Work::default(),
            entered: 0,
            is_of_group: false,
            is_brought: false,
            is_packed: false,
            collected: 0,
            next: 0,
            from: 0,
        }
    }

    /// The walk is before the first block of a table. One that it maps for itself has nothing ahead.
    pub(super) fn open(&mut self, table: &TableBytes) {
        self.close();
        if let TableBytes::Kept { store, table } = table {
            self.table = Some((store.clone(), *table));
        }
    }

    /// The walk has left its table.
    pub(super) fn close(&mut self) {
        self.table = None;
        for (_, group) in self.offered.drain(..) {
            group.take_back();
            self.pool.put(group);
        }
        self.work.blocks.clear();
        (self.entered, self.next, self.from) = (0, 0, 0);
    }

    /// The walk begins anew.
    pub(super) fn restart(&mut self) {
        self.close();
        self.collected = 0;
    }

    /// Whether anything is unpacked ahead of this walk.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Whether no block is to be entered any more that lies in the walk's buffer.
    pub(super) fn is_last(&self) -> bool {
        self.entered >= self.work.blocks.len()
    }

    /// How many groups may be ahead now.
    fn groups(&self) -> usize {
        let fit = (WINDOW_BYTES / self.pool.room()).max(2);
        self.pool.groups_max.min(fit).min(self.collected + 1)
    }

    /// Puts the next blocks into a group's work; whether there are any.
    fn fill(&mut self, work: &mut Work, following: &Following<'_>) -> bool {
        work.room = self.pool.room();
        while work.blocks.len() < self.pool.blocks()
            && let Some((packed, next)) = following.block_at(self.next, self.from)
        {
            (self.next, self.from) = (next, packed.end);
            work.blocks.push(Block { packed, unpacked: None });
        }
        work.table = self.table.clone();
        !work.blocks.is_empty()
    }

    /// Offers the blocks behind those that have been.
    fn offer(&mut self, following: &Following<'_>) -> bool {
        let Some(group) = self.pool.take() else { return false };
        let pool = self.pool.clone();
        let mut start = 0;
        let is_offered = group.offer(&*pool.helpers, |work| {
            let is_filled = self.fill(work, following);
            start = work.blocks.first().map_or(0, |block| block.packed.start);
            is_filled
        });
        match is_offered {
            true => self.offered.push_back((start, group)),
            false => pool.put(group),
        }
        is_offered
    }

    /// Enters the group whose first block this is, if that is the next.
    fn collect(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) {
        if self.offered.front().is_none_or(|(start, _)| *start != block.start) {
            return;
        }
        let Some((_, group)) = self.offered.pop_front() else { return };
        // Whoever has it may have lost its processor: there is something else to do meanwhile.
        let others = self.offered.iter().take_while(|_| group.is_claimed());
        others.for_each(|(_, other)| other.help());
        std::mem::swap(&mut self.work.buffer, buffer);
        group.collect(&mut self.work);
        std::mem::swap(&mut self.work.buffer, buffer);
        self.pool.put(group);
        self.entered = 0;
        self.collected += 1;
        self.is_packed = self.work.blocks.iter().any(|block| block.unpacked.is_some());
    }
}

impl Shelf for Ahead {
    fn come_to(&mut self, following: &Following<'_>) {
        if !self.is_packed || self.table.is_none() {
            return;
        }
        self.next = self.next.max(following.start());
        while self.offered.len() < self.groups() && self.offer(following) {}
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
        match unpacked_bytes {
            Some(bytes) => {
                if !self.is_brought {
                    // The walk has unpacked it to the buffer that the others of its group lie in.
                    self.work.blocks.clear();
                }
                self.is_packed = true;
                self.pool.block_bytes.set(self.pool.block_bytes.get().max(bytes));
            }
            None if self.is_of_group => {}
            None => self.is_packed = false,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for (_, group) in &self.offered {
            group.abandon();
        }
    }
}
