//! The pages of an LMDB data file. Nothing that they say is trusted.
//!
//! ```text
//! page:     its number: 8 bytes | pad: 2 | flags: 2 | lower: 2 | upper: 2 |
//!           an offset for each node: 2 each, up to lower | free space, up to upper |
//!           nodes, up to the page's end, each of an even length
//! node:     low, high: 2 each | flags: 2 | key's length: 2 | key |
//!           (on a leaf) value, or its overflow page's number: 8
//! branch:   low, high and flags are the number of the page below; the first node's key has no meaning
//! leaf:     low and high are the value's length
//! overflow: its number: 8 | pad: 2 | flags: 2 | how many pages it is: 4 | a value, on these pages
//! ```
//!
//! This is the format of little-endian machines with 64-bit words; other machines read no file.
//!
//! LMDB has no checksums. What can be checked is checked when a walk enters a page: the page's number and
//! kind, that its nodes fill it from `upper` to its end, and that its keys ascend and are within the bounds
//! of the branches above. What cannot be detected: other bytes in a value, a changed length of a value, or
//! another character in a key that keeps it between its neighbours.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use super::fault::{Fault, fault};
use super::free::FreePages;

/// Whether this machine writes data files in the format that is read here.
pub(super) const IS_READ_HERE: bool = cfg!(all(target_pointer_width = "64", target_endian = "little"));

pub(super) const HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
/// The first two pages, which say where the trees are.
pub(super) const METAS: u64 = 2;
/// The depth that LMDB's own cursors have room for.
pub(super) const DEPTH_MAX: u16 = 32;

/// The flags of a page that say what it is.
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const OVERFLOW_PAGE: u16 = 0x04;
pub(super) const META_PAGE: u16 = 0x08;
/// The flags that do not say what it is: whether it is being written, or kept.
const PASSING: u16 = 0x10 | 0x4000 | 0x8000;

/// A flag of a node: its value is on pages of its own.
const OVERFLOW: u16 = 0x01;
/// A flag of a node: its value is a database within the database.
const DATABASE: u16 = 0x02;
/// A flag of a node: it has several values.
const SEVERAL: u16 = 0x04;

/// A flag of a tree: keys are numbers (`MDB_INTEGERKEY`).
pub(super) const INTEGER_KEYS: u16 = 0x08;
/// The flags of trees whose keys are compared from their ends. Keys with `MDB_REVERSEKEY` are, too.
const FROM_THE_END: u16 = 0x02 | INTEGER_KEYS;

/// How much of the start of a page or of a node is prefetched, in bytes.
pub(super) const ASKED_BYTES: usize = 64;

/// One tree of one commit: that of the unnamed database, or of a named one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// `None` if the tree is empty.
    pub(super) root: Option<u64>,
    pub(super) depth: u16,
    pub(super) entries: u64,
    pub(super) flags: u16,
    /// The last page that the commit uses.
    pub(super) last_page: u64,
}

impl Tree {
    /// The length of a tree's description on a meta page, or as the value of a named database.
    pub(super) const BYTES: usize = 48;

    pub(super) fn read(bytes: &[u8; Self::BYTES], last_page: u64) -> Self {
        let root = whole(bytes, 40).unwrap_or(u64::MAX);
        Tree {
            root: Some(root).filter(|&root| root != u64::MAX),
            depth: half(bytes, 6).unwrap_or_default(),
            entries: whole(bytes, 32).unwrap_or_default(),
            flags: half(bytes, 4).unwrap_or_default(),
            last_page,
        }
    }

    pub(super) fn order(&self) -> KeyOrder {
        if self.flags & FROM_THE_END == 0 { KeyOrder::Bytes } else { KeyOrder::FromTheEnd }
    }

    /// Checks what its description alone shows, for pages of this length.
    pub(super) fn check(&self, page_bytes: usize) -> Result<(), String> {
        let Tree { root, depth, entries, last_page, .. } = *self;
        let Some(root) = root else {
            return match (depth, entries) {
                (0, 0) => Ok(()),
                _ => Err(format!("says that a tree of depth {depth} without a root has {entries} records")),
            };
        };
        if !(METAS..=last_page).contains(&root) {
            return Err(format!(
                "says that page {root} is the root of a tree, of pages {METAS} to {last_page}"
            ));
        }
        if depth == 0 || depth > DEPTH_MAX {
            return Err(format!("says that a tree has depth {depth}, of 1 to {DEPTH_MAX}"));
        }
        // A record needs at least a node's head, its offset and one byte of a key.
        let entries_max = last_page.saturating_mul(page_bytes as u64 / 11);
        if entries == 0 || entries > entries_max {
            return Err(format!(
                "says that a tree has {entries} records, but there is room for {entries_max}"
            ));
        }
        Ok(())
    }
}

/// How keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOrder {
    Bytes,
    /// From the last byte to the first, which is also the order of little-endian numbers.
    FromTheEnd,
}

impl KeyOrder {
    #[inline]
    fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            KeyOrder::Bytes => one.cmp(other),
            KeyOrder::FromTheEnd => one.iter().rev().cmp(other.iter().rev()),
        }
    }
}

/// The bounds of a page's keys, which the branches above set: from the first bound on, and before the second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds<'a> {
    pub(super) from: Option<&'a [u8]>,
    pub(super) before: Option<&'a [u8]>,
}

/// What leaves may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Records,
    /// Databases as well.
    Databases,
}

/// Where a record is stored: a leaf page, and one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u64,
    pub(super) node: u16,
}

impl Place {
    /// The place as a number. No page number needs more than 48 bits: nodes have no room for more either.
    pub(super) fn to_number(self) -> u64 {
        self.page << 16 | u64::from(self.node)
    }

    pub(super) fn of_number(number: u64) -> Self {
        let [low, high, ..] = number.to_le_bytes();
        Place { page: number >> 16, node: u16::from_le_bytes([low, high]) }
    }
}

/// Where a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// On the leaf.
    Inline(&'a [u8]),
    /// On pages of its own.
    Overflow { page: u64, bytes: usize },
}

/// A page whose head has been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    number: u64,
    bytes: &'a [u8],
    /// The number of nodes that it states. The offsets of all of them are within the page.
    nodes: usize,
    /// The byte where its nodes start.
    upper: usize,
}

/// A node's head, and what follows it, up to the page's end.
struct Node<'a> {
    low: u16,
    high: u16,
    flags: u16,
    key: &'a [u8],
    rest: &'a [u8],
}

impl Node<'_> {
    /// The bytes that it takes up on its page, if the part of its value that is there has this length.
    fn bytes(&self, value_bytes: usize) -> usize {
        let bytes = NODE_BYTES.saturating_add(self.key.len()).saturating_add(value_bytes);
        bytes.saturating_add(bytes % 2)
    }

    fn value_bytes(&self) -> usize {
        usize::from(self.low) | usize::from(self.high) << 16
    }

    fn child(&self) -> u64 {
        u64::from(self.low) | u64::from(self.high) << 16 | u64::from(self.flags) << 32
    }
}

impl<'a> Page<'a> {
    /// Checks the head of the page that should have this number and kind.
    #[inline]
    fn parse(bytes: &'a [u8], number: u64, kind: u16) -> Result<Self, Fault> {
        let found = whole(bytes, 0).unwrap_or_default();
        if found != number {
            return Err(fault(number, format!("says that it is page {found}")));
        }
        let [flags, lower, upper] = [10, 12, 14].map(|at| half(bytes, at).unwrap_or_default());
        if flags & !PASSING != kind {
            let kind = if kind == LEAF { "leaf" } else { "branch" };
            return Err(fault(number, format!("is not a {kind}: it has the flags {flags:#06x}")));
        }
        let offsets_bytes = usize::from(lower).checked_sub(HEAD_BYTES);
        match offsets_bytes.filter(|bytes| bytes % 2 == 0) {
            Some(offsets_bytes) if lower <= upper && usize::from(upper) <= bytes.len() => {
                Ok(Page { number, bytes, nodes: offsets_bytes / 2, upper: usize::from(upper) })
            }
            _ => Err(fault(number, format!("has its free space at byte {lower} of {}", bytes.len()))),
        }
    }

    #[inline]
    fn node(&self, node: usize) -> Result<Node<'a>, Fault> {
        let look = || {
            let offset = half(self.bytes, HEAD_BYTES.checked_add(node.checked_mul(2)?)?)?;
            let (head, rest) = self.bytes.get(usize::from(offset)..)?.split_first_chunk::<NODE_BYTES>()?;
            let [low, high, flags, key_bytes] = [0, 2, 4, 6].map(|at| half(head, at).unwrap_or_default());
            let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
            (node < self.nodes && usize::from(offset) >= self.upper && offset % 2 == 0).then_some(Node {
                low,
                high,
                flags,
                key,
                rest,
            })
        };
        look().ok_or_else(|| {
            fault(self.number, format!("has no node {node} within its {} bytes", self.bytes.len()))
        })
    }

    /// Checks all nodes together: their keys, except for the first `unordered`, ascend within `bounds`, and
    /// they fill the page from `upper` on. `bytes_of` checks a node, and returns how many bytes its value
    /// takes up on the page.
    fn check(
        &self,
        order: KeyOrder,
        bounds: Bounds<'_>,
        unordered: usize,
        bytes_of: impl Fn(usize, &Node<'_>) -> Result<usize, Fault>,
    ) -> Result<(), Fault> {
        let upper = self.upper;
        let (mut last, mut filled) = (bounds.from, 0_usize);
        for at in 0..self.nodes {
            let node = self.node(at)?;
            filled = filled.saturating_add(node.bytes(bytes_of(at, &node)?));
            if at < unordered {
                continue;
            }
            if node.key.is_empty() {
                return Err(fault(self.number, format!("has a node, {at}, with an empty key")));
            }
            let ascends = match last.map(|last| order.compare(last, node.key)) {
                None | Some(Ordering::Less) => true,
                // A page's first key may equal the key that its branch has for it.
                Some(Ordering::Equal) => at == unordered && unordered == 0,
                Some(Ordering::Greater) => false,
            };
            if !ascends {
                return Err(fault(
                    self.number,
                    format!("has a key, node {at}, that does not come after the one before it"),
                ));
            }
            last = Some(node.key);
        }
        if let (Some(last), Some(before)) = (last, bounds.before)
            && order.compare(last, before) != Ordering::Less
        {
            return Err(fault(self.number, "has a key that belongs on a later page, by the branch above"));
        }
        let there = self.bytes.len().checked_sub(upper);
        if there != Some(filled) {
            let message = format!(
                "has nodes of {filled} bytes together, between byte {upper} and its end at {}",
                self.bytes.len()
            );
            return Err(fault(self.number, message));
        }
        Ok(())
    }
}

/// A branch page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch<'a>(Page<'a>);

impl<'a> Branch<'a> {
    #[inline]
    pub(super) fn parse(bytes: &'a [u8], number: u64) -> Result<Self, Fault> {
        let page = Page::parse(bytes, number, BRANCH)?;
        match page.nodes {
            0 | 1 => Err(fault(
                number,
                format!("is a branch with {} pages below it, and needs at least 2", page.nodes),
            )),
            _ => Ok(Branch(page)),
        }
    }

    /// Checks the whole page.
    pub(super) fn check(&self, tree: &Tree, bounds: Bounds<'_>) -> Result<(), Fault> {
        let number = self.0.number;
        self.0.check(tree.order(), bounds, 1, |at, node| match node.child() {
            child if (METAS..=tree.last_page).contains(&child) => Ok(0),
            child => {
                let last = tree.last_page;
                Err(fault(
                    number,
                    format!("has page {child} below it, node {at}, of pages {METAS} to {last}"),
                ))
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.0.nodes
    }

    /// The number of a page below it.
    pub(super) fn child(&self, node: usize) -> Result<u64, Fault> {
        Ok(self.0.node(node)?.child())
    }

    /// The lower bound of the keys below this node. The first node's key means nothing.
    pub(super) fn key(&self, node: usize) -> Result<&'a [u8], Fault> {
        Ok(self.0.node(node)?.key)
    }
}

/// A leaf page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf<'a>(Page<'a>);

impl<'a> Leaf<'a> {
    #[inline]
    pub(super) fn parse(bytes: &'a [u8], number: u64) -> Result<Self, Fault> {
        let page = Page::parse(bytes, number, LEAF)?;
        if page.nodes == 0 {
            return Err(fault(number, "is a leaf without records"));
        }
        Ok(Leaf(page))
    }

    /// Checks the whole page, except for the bytes of values on pages of their own. For these, it checks that
    /// the file has their pages, and that none of them is free.
    pub(super) fn check(
        &self,
        tree: &Tree,
        bounds: Bounds<'_>,
        file_bytes: u64,
        holds: Holds,
        free: &FreePages,
    ) -> Result<(), Fault> {
        let page_bytes = self.0.bytes.len();
        self.0.check(tree.order(), bounds, 0, |at, node| match self.value(at, node) {
            Err(Fault::Databases) if holds == Holds::Databases => Ok(node.value_bytes()),
            Err(fault) => Err(fault),
            Ok(Value::Inline(value)) => Ok(value.len()),
            Ok(Value::Overflow { page, bytes }) => {
                let number = self.0.number;
                let pages = (HEAD_BYTES as u64).saturating_add(bytes as u64).div_ceil(page_bytes as u64);
                let last = page.saturating_add(pages).saturating_sub(1);
                if page < METAS || last > tree.last_page {
                    let of = tree.last_page;
                    let message = format!(
                        "has a record, node {at}, whose {bytes} bytes are on pages {page} to {last}, \
                         of pages {METAS} to {of}"
                    );
                    return Err(fault(number, message));
                }
                let page_bytes = page_bytes as u64;
                if last.saturating_add(1).saturating_mul(page_bytes) > file_bytes {
                    return Err(Fault::Cut { number: last, page_bytes });
                }
                if let Some(free) = free.first_of(page..=last) {
                    let message = format!(
                        "has a record, node {at}, whose {bytes} bytes are on pages {page} to {last}, \
                         of which page {free} is listed as free"
                    );
                    return Err(fault(number, message));
                }
                Ok(size_of::<u64>())
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.0.nodes
    }

    pub(super) fn key(&self, node: usize) -> Result<&'a [u8], Fault> {
        Ok(self.0.node(node)?.key)
    }

    /// A record's key and value.
    #[inline]
    pub(super) fn record(&self, node: usize) -> Result<(&'a [u8], Value<'a>), Fault> {
        let found = self.0.node(node)?;
        Ok((found.key, self.value(node, &found)?))
    }

    /// The first page of a record's value, if there is such a record and its value has pages of its own.
    #[inline]
    pub(super) fn value_page(&self, node: usize) -> Option<u64> {
        if node >= self.0.nodes {
            return None;
        }
        let found = self.0.node(node).ok()?;
        if found.flags == OVERFLOW { whole(found.rest, 0) } else { None }
    }

    #[inline]
    fn value<'b>(&self, at: usize, node: &Node<'b>) -> Result<Value<'b>, Fault> {
        let (number, bytes) = (self.0.number, node.value_bytes());
        let value = match node.flags {
            0 => node.rest.get(..bytes).map(Value::Inline),
            OVERFLOW => whole(node.rest, 0).map(|page| Value::Overflow { page, bytes }),
            DATABASE if node.rest.len() >= bytes => return Err(Fault::Databases),
            flags if flags & SEVERAL != 0 && flags & !(SEVERAL | DATABASE) == 0 => {
                return Err(Fault::SeveralValues);
            }
            flags => {
                return Err(fault(number, format!("has a record, node {at}, with the flags {flags:#06x}")));
            }
        };
        value.ok_or_else(|| fault(number, format!("has a record, node {at}, that does not end on it")))
    }

    /// The name and the tree of a named database, if the node is one. `last_page` is the commit's last page.
    pub(super) fn database(&self, node: usize, last_page: u64) -> Result<Option<(&'a [u8], Tree)>, Fault> {
        let found = self.0.node(node)?;
        if found.flags != DATABASE {
            return Ok(None);
        }
        match found.rest.first_chunk() {
            Some(tree) if found.value_bytes() == Tree::BYTES => {
                Ok(Some((found.key, Tree::read(tree, last_page))))
            }
            _ => Err(fault(
                self.0.number,
                format!("has a database, node {node}, whose description is incomplete"),
            )),
        }
    }
}

/// Checks the head of a value on pages of its own: that it is such a head, and that its pages have room for
/// the value.
#[inline]
pub(super) fn check_overflow(
    head: &[u8],
    number: u64,
    value_bytes: usize,
    page_bytes: usize,
) -> Result<(), Fault> {
    let [found, flags, pages] =
        [whole(head, 0), half(head, 10).map(u64::from), word(head, 12).map(u64::from)]
            .map(Option::unwrap_or_default);
    let room = pages.saturating_mul(page_bytes as u64);
    let needed = (HEAD_BYTES as u64).saturating_add(value_bytes as u64);
    let is_one = flags & !u64::from(PASSING) == u64::from(OVERFLOW_PAGE);
    if found == number && is_one && room >= needed {
        return Ok(());
    }
    Err(not_an_overflow(number, found, flags, pages, value_bytes))
}

#[cold]
fn not_an_overflow(number: u64, found: u64, flags: u64, pages: u64, value_bytes: usize) -> Fault {
    let message = match () {
        () if found != number => format!("says that it is page {found}"),
        () if flags & !u64::from(PASSING) != u64::from(OVERFLOW_PAGE) => {
            format!("holds no value of a record: it has the flags {flags:#06x}")
        }
        () => format!("holds a value on {pages} pages, too few for its {value_bytes} bytes"),
    };
    fault(number, message)
}

#[inline]
pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
pub(super) fn whole(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
