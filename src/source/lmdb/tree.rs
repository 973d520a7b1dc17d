//! The walk over an LMDB's tree that finds where its records lie: branches and leaves, of values not a byte.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::page::{Fault, Meta, Pages, Place, fault};

/// What LMDB's own cursors have room for.
const DEPTH_MAX: u16 = 32;

/// A tree of databases, or of several values a key: `MDB_DUPSORT`.
const SEVERAL_VALUES: u16 = 0x04;

/// Trees whose keys are in another order than that of their bytes: `MDB_REVERSEKEY`, `MDB_INTEGERKEY`.
const OTHER_ORDERS: u16 = 0x02 | 0x08;

/// The places of all records of one state of the database, in the order of their keys, as numbers.
///
/// Its time and its memory are bounded by the file, whatever the pages say: a leaf has one record at least, there are
/// no more records than the meta page says, and it says no more than the file has room for.
pub(super) fn places(pages: &Pages, meta: &Meta) -> Result<Vec<u64>, Fault> {
    if meta.flags & SEVERAL_VALUES != 0 {
        return Err(Fault::OtherTrees);
    }
    let Some(root) = meta.root else { return counted(Vec::new(), meta, 0) };
    if meta.depth == 0 || meta.depth > DEPTH_MAX {
        return Err(fault(
            root,
            format!("is the root of a tree of depth {}, of 1 to {DEPTH_MAX}", meta.depth),
        ));
    }
    let file_bytes = pages.file_bytes();
    // A record has a node's head, its offset and a byte of a key at least.
    if meta.entries > file_bytes / 11 {
        let message =
            format!("is the root of {} records, which {file_bytes} bytes cannot hold", meta.entries);
        return Err(fault(root, message));
    }
    let is_by_bytes = meta.flags & OTHER_ORDERS == 0;
    let mut walk = Walk { pages, entries: meta.entries, is_by_bytes, last: None, places: Vec::new() };
    walk.enter(root, meta.depth)?;
    walk.places.shrink_to_fit();
    counted(walk.places, meta, root)
}

fn counted(places: Vec<u64>, meta: &Meta, root: u64) -> Result<Vec<u64>, Fault> {
    if places.len() as u64 == meta.entries {
        return Ok(places);
    }
    let message =
        format!("is the root of {} records, and {} are said to be there", places.len(), meta.entries);
    Err(fault(root, message))
}

struct Walk<'a> {
    pages: &'a Pages,
    /// How many records there are to be.
    entries: u64,
    /// Whether keys must rise, byte by byte. They do not where a page is come to twice.
    is_by_bytes: bool,
    /// The last record's key.
    last: Option<&'a [u8]>,
    places: Vec<u64>,
}

impl Walk<'_> {
    /// Walks what is below a page that is so far above the leaves: 1 is a leaf itself.
    fn enter(&mut self, number: u64, depth: u16) -> Result<(), Fault> {
        if depth <= 1 {
            return self.leaf(number);
        }
        let branch = self.pages.branch(number)?;
        self.ask_for(branch.children())?;
        for child in branch.children() {
            self.enter(child?, depth.saturating_sub(1))?;
        }
        Ok(())
    }

    /// Has all of these pages read at once: one by one each would be waited for. Neighbours are asked for together.
    fn ask_for(&self, numbers: impl Iterator<Item = Result<u64, Fault>>) -> Result<(), Fault> {
        let mut wanted = 0..0;
        for number in numbers {
            let number = number?;
            if number != wanted.end {
                self.pages.will_need_pages(wanted);
                wanted = number..number;
            }
            wanted.end = number.saturating_add(1);
        }
        self.pages.will_need_pages(wanted);
        Ok(())
    }

    fn leaf(&mut self, number: u64) -> Result<(), Fault> {
        let leaf = self.pages.leaf(number)?;
        let records = u16::try_from(leaf.records()).unwrap_or(u16::MAX);
        if (self.places.len() as u64).saturating_add(u64::from(records)) > self.entries {
            return Err(fault(number, format!("comes after the last of {} records", self.entries)));
        }
        for node in 0..records {
            let (key, _) = leaf.record(usize::from(node))?;
            if self.is_by_bytes && self.last.is_some_and(|last| last >= key) {
                return Err(fault(
                    number,
                    format!("has a key, node {node}, that is not behind the one before it"),
                ));
            }
            self.last = Some(key);
            self.places.push(Place { page: number, node }.to_number());
        }
        Ok(())
    }
}
