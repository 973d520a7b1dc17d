//! The walk over an LMDB's tree, from record to record in key order.
//!
//! A page is checked when the walk enters it, against the bounds that the branches above set for its keys. So
//! a page that is reached twice, or not at all, is an error. Other errors are a page that is free, and more
//! or fewer records than the tree states.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::fault::{Fault, fault};
use super::free::FreePages;
use super::page::{Bounds, Branch, Holds, Leaf, Place, Tree, Value};
use super::pages::{Held, Pages};

/// A record as its leaf has it.
type OnLeaf<'a> = (&'a [u8], Value<'a>);

/// A walk over one tree.
///
/// # Invariants
///
/// 1. `levels` has one for each level of the tree: branches, and a leaf at the end.
/// 2. Each of the first `entered` levels holds a page that is checked, and that the one above leads to.
#[derive(Debug)]
pub(super) struct Walk {
    tree: Tree,
    holds: Holds,
    free: FreePages,
    levels: Vec<Level>,
    /// How many of the levels, from the root on, hold a page.
    entered: usize,
    /// The node of the leaf that the next step returns, and the number of the leaf's nodes.
    next: usize,
    nodes: usize,
    /// The number of records in the leaves before this one.
    before: u64,
    /// The last key of the leaf before this one, for messages.
    last_key: Vec<u8>,
    /// Whether it has reached its end, or an error.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Level {
    page: Held,
    number: u64,
    /// The node of a branch that leads to the level below.
    at: usize,
    nodes: usize,
}

impl Walk {
    /// A walk at the start of a tree, which must lead to none of the free pages.
    pub(super) fn new(tree: Tree, holds: Holds, free: FreePages) -> Self {
        let levels = (0..tree.depth).map(|_| Level::default()).collect();
        Walk {
            tree,
            holds,
            free,
            levels,
            entered: 0,
            next: 0,
            nodes: 0,
            before: 0,
            last_key: Vec::new(),
            is_over: false,
        }
    }

    /// The memory of the pages that it holds, if the file is not mapped.
    pub(super) fn held_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.page.held_bytes()).fold(0, usize::saturating_add)
    }

    /// The page that the walk is on.
    #[inline]
    pub(super) fn page(&self) -> u64 {
        self.entered.checked_sub(1).and_then(|last| self.levels.get(last)).map_or(0, |level| level.number)
    }

    pub(super) fn rewind(&mut self) {
        (self.entered, self.next, self.nodes, self.before, self.is_over) = (0, 0, 0, 0, false);
        self.last_key.clear();
    }

    /// The key of the record before the page where something is wrong, if there is one.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        Some(&self.last_key[..]).filter(|key| !key.is_empty())
    }

    /// Steps to the next record; `None` past the last one, and after an error.
    #[inline]
    pub(super) fn step(&mut self, pages: &Pages) -> Result<Option<Place>, Fault> {
        if self.next == self.nodes && !self.enter_leaf(pages)? {
            return Ok(None);
        }
        // A leaf has fewer nodes than `u16::MAX`.
        let node = u16::try_from(self.next).unwrap_or(u16::MAX);
        self.next = self.next.saturating_add(1);
        Ok(Some(Place { page: self.page(), node }))
    }

    /// The leaf of the last step's record.
    pub(super) fn held(&self) -> Option<&Held> {
        self.levels.last().map(|leaf| &leaf.page)
    }

    /// Whether the last step's record is the first of a leaf.
    #[inline]
    pub(super) fn is_at_leaf_start(&self) -> bool {
        self.next == 1
    }

    /// The leaf that the walk is on.
    #[inline]
    fn leaf<'a>(&'a self, pages: &'a Pages) -> Result<Leaf<'a>, Fault> {
        let level = self.levels.last().filter(|_| self.entered == self.levels.len());
        let level = level.ok_or_else(|| fault(0, "is not a leaf that a walk is on"))?;
        Leaf::parse(pages.bytes(&level.page), level.number)
    }

    /// Enters the next leaf; `false` past the last one, and after an error.
    #[cold]
    pub(super) fn enter_leaf(&mut self, pages: &Pages) -> Result<bool, Fault> {
        if self.is_over {
            return Ok(false);
        }
        self.is_over = true;
        if self.entered > 0 {
            self.keep_last_key(pages)?;
        }
        self.before = self.before.saturating_add(self.nodes as u64);
        (self.next, self.nodes) = (0, 0);
        let Some(mut child) = self.next_child(pages)? else { return self.end() };
        loop {
            self.enter(pages, child)?;
            if self.entered == self.levels.len() {
                break;
            }
            child = self.child(pages)?;
        }
        self.is_over = false;
        Ok(true)
    }

    /// Goes up to the first branch that has a further page below it, and returns that page, or `None` if
    /// there is no such branch.
    fn next_child(&mut self, pages: &Pages) -> Result<Option<u64>, Fault> {
        if self.entered == 0 {
            return Ok(self.tree.root);
        }
        self.entered = self.entered.saturating_sub(1);
        while let Some(level) = self.entered.checked_sub(1).and_then(|above| self.levels.get_mut(above)) {
            level.at = level.at.saturating_add(1);
            if level.at < level.nodes {
                return self.child(pages).map(Some);
            }
            self.entered = self.entered.saturating_sub(1);
        }
        Ok(None)
    }

    /// The page below the last entered level.
    fn child(&self, pages: &Pages) -> Result<u64, Fault> {
        let above = self.entered.checked_sub(1).and_then(|above| self.levels.get(above));
        let above = above.ok_or_else(|| fault(0, "is not a branch that a walk is on"))?;
        Branch::parse(pages.bytes(&above.page), above.number)?.child(above.at)
    }

    /// Enters a page on the next level, and checks it.
    fn enter(&mut self, pages: &Pages, number: u64) -> Result<(), Fault> {
        let Walk { tree, holds, free, levels, entered, nodes, before, .. } = self;
        let is_leaf = entered.saturating_add(1) == levels.len();
        let Some((level, above)) = levels.get_mut(..=*entered).and_then(<[Level]>::split_last_mut) else {
            return Err(fault(number, "is below a leaf"));
        };
        free.check(number)?;
        pages.hold(number, &mut level.page)?;
        let bounds = bounds(pages, above)?;
        let bytes = pages.bytes(&level.page);
        (level.number, level.at) = (number, 0);
        if is_leaf {
            let leaf = Leaf::parse(bytes, number)?;
            leaf.check(tree, bounds, pages.file_bytes(), *holds, free)?;
            *nodes = leaf.len();
            if before.saturating_add(leaf.len() as u64) > tree.entries {
                *nodes = 0;
                return Err(fault(number, format!("comes after the last of {} records", tree.entries)));
            }
        } else {
            let branch = Branch::parse(bytes, number)?;
            branch.check(tree, bounds)?;
            level.nodes = branch.len();
        }
        *entered = entered.saturating_add(1);
        Ok(())
    }

    /// Keeps the last key of the leaf that the walk leaves, so that an error on the next page can name it.
    fn keep_last_key(&mut self, pages: &Pages) -> Result<(), Fault> {
        let mut last_key = std::mem::take(&mut self.last_key);
        last_key.clear();
        let last = self.leaf(pages)?;
        last_key.extend_from_slice(last.key(last.len().saturating_sub(1))?);
        self.last_key = last_key;
        Ok(())
    }

    /// Called when there is no further leaf: the tree must have had as many records as it states.
    fn end(&self) -> Result<bool, Fault> {
        match self.before == self.tree.entries {
            true => Ok(false),
            false => Err(Fault::TooFew { records: self.before, entries: self.tree.entries }),
        }
    }

    /// The named databases among the records of the leaf that the walk is on.
    pub(super) fn databases<'a>(
        &'a self,
        pages: &'a Pages,
    ) -> Result<impl Iterator<Item = Result<(&'a [u8], Tree), Fault>>, Fault> {
        let (leaf, last_page) = (self.leaf(pages)?, self.tree.last_page);
        Ok((0..leaf.len()).filter_map(move |node| leaf.database(node, last_page).transpose()))
    }

    /// The last record, found by following the last nodes of the branches.
    pub(super) fn last<'a>(&'a mut self, pages: &'a Pages) -> Result<Option<OnLeaf<'a>>, Fault> {
        self.rewind();
        self.is_over = true;
        let Some(mut child) = self.tree.root else { return Ok(None) };
        loop {
            self.enter(pages, child)?;
            if self.entered == self.levels.len() {
                break;
            }
            if let Some(level) = self.entered.checked_sub(1).and_then(|last| self.levels.get_mut(last)) {
                level.at = level.nodes.saturating_sub(1);
            }
            child = self.child(pages)?;
        }
        self.leaf(pages)?.record(self.nodes.saturating_sub(1)).map(Some)
    }

    /// Enters every leaf.
    pub(super) fn run(&mut self, pages: &Pages) -> Result<(), Fault> {
        while self.enter_leaf(pages)? {}
        Ok(())
    }

    /// The places of all records, as numbers, in key order. The pages below each branch are requested
    /// together; one by one, the walk would wait for each.
    ///
    /// The file bounds the time and the memory, whatever the pages say: a leaf has at least one record, there
    /// are no more records than the tree states, and it states no more than the file has room for.
    pub(super) fn places(&mut self, pages: &Pages) -> Result<Vec<u64>, Fault> {
        self.rewind();
        let mut places = Vec::new();
        while self.enter_leaf(pages)? {
            self.ask_for_siblings(pages)?;
            let page = self.page();
            let nodes = u16::try_from(self.nodes).unwrap_or(u16::MAX);
            places.extend((0..nodes).map(|node| Place { page, node }.to_number()));
        }
        places.shrink_to_fit();
        Ok(places)
    }

    /// If the walk has just entered the first leaf below a branch, asks the kernel to read all leaves below
    /// it. Neighbours are requested together.
    fn ask_for_siblings(&self, pages: &Pages) -> Result<(), Fault> {
        let above = self.levels.len().checked_sub(2).and_then(|above| self.levels.get(above));
        let Some(above) = above.filter(|above| above.at == 0) else { return Ok(()) };
        let branch = Branch::parse(pages.bytes(&above.page), above.number)?;
        let mut wanted = 0..0;
        for node in 0..branch.len() {
            let number = branch.child(node)?;
            if number != wanted.end {
                pages.will_need_pages(wanted);
                wanted = number..number;
            }
            wanted.end = number.saturating_add(1);
        }
        pages.will_need_pages(wanted);
        Ok(())
    }
}

/// The bounds of the keys below these branches.
fn bounds<'a>(pages: &'a Pages, above: &'a [Level]) -> Result<Bounds<'a>, Fault> {
    let mut bounds = Bounds::default();
    for level in above.iter().rev() {
        if bounds.from.is_some() && bounds.before.is_some() {
            break;
        }
        let branch = Branch::parse(pages.bytes(&level.page), level.number)?;
        if bounds.from.is_none() && level.at > 0 {
            bounds.from = Some(branch.key(level.at)?);
        }
        let next = level.at.saturating_add(1);
        if bounds.before.is_none() && next < level.nodes {
            bounds.before = Some(branch.key(next)?);
        }
    }
    Ok(bounds)
}
