//! The two pages that an LMDB begins with. Each says where the trees of a commit are; commits take them in turn.
//!
//! ```text
//! meta: (behind a page's first 16 bytes) magic: 4 | version: 4 | address: 8 | map's size: 8 | free pages' tree: 48 |
//!       main tree: 48 | last page: 8 | transaction: 8
//! tree: pad (of the first: a page's length): 4 | flags: 2 | depth: 2 | branch, leaf and overflow pages: 8 each |
//!       entries: 8 | root: 8
//! ```
//!
//! They are judged before the library sees the file: it divides by what they say. The map's size is not: files written by old
//! releases have it wrong (ITS#7789), and nobody here goes by it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::fault::{Fault, fault};
use super::page::{META_PAGE, METAS, Tree, half, whole, word};

const MAGIC: u32 = 0xbeef_c0de;
const VERSION: u32 = 1;
const MAGIC_AT: usize = 16;
const VERSION_AT: usize = 20;
const PAGE_BYTES_AT: usize = 40;
const FREE_TREE_AT: usize = 40;
const MAIN_TREE_AT: usize = 88;
const LAST_PAGE_AT: usize = 136;
const TRANSACTION_AT: usize = 144;
const META_BYTES: usize = 152;
/// What is looked at to tell what a file is.
pub(super) const HEAD_BYTES: usize = PAGE_BYTES_AT + size_of::<u32>();

/// How often a page is read that somebody writes.
const READS: usize = 8;

const PAGE_BYTES_MIN: u32 = 512;
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// What one meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) transaction: u64,
    /// Of the unnamed database.
    pub(super) tree: Tree,
}

/// Both meta pages, which suit each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metas {
    pub(super) page_bytes: usize,
    /// The older one, then the newer one.
    commits: [Commit; 2],
}

/// What is wrong with the first bytes of a file that is no LMDB of this machine's.
pub(super) enum Foreign {
    /// It is something else, or of another kind of machine.
    Other(String),
    /// It has not even its two first pages.
    Cut { page_bytes: u64 },
}

/// Tells whether these may be the first bytes of an LMDB.
pub(super) fn check_head(head: &[u8; HEAD_BYTES], file_bytes: u64) -> Result<(), Foreign> {
    let magic = word(head, MAGIC_AT).unwrap_or_default();
    if magic == MAGIC.swap_bytes() {
        return Err(Foreign::Other("a file of a machine with the other byte order".to_owned()));
    }
    if magic != MAGIC {
        return Err(Foreign::Other(format!(
            "{magic:#010x} at byte {MAGIC_AT}, where LMDB writes {MAGIC:#010x}"
        )));
    }
    let page_bytes = word(head, PAGE_BYTES_AT).unwrap_or_default();
    let is_known = is_page_bytes(page_bytes);
    if is_known && file_bytes < METAS.saturating_mul(u64::from(page_bytes)) {
        return Err(Foreign::Cut { page_bytes: u64::from(page_bytes) });
    }
    Ok(())
}

fn is_page_bytes(bytes: u32) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

impl Metas {
    /// Reads and judges both. While somebody writes, they may be of commits that did not follow each other: then they are to be
    /// read again.
    pub(super) fn read(file: &File) -> Result<Self, Fault> {
        let first = read(file, 0)?;
        let page_bytes = word(&first, PAGE_BYTES_AT).unwrap_or_default();
        if !is_page_bytes(page_bytes) {
            let message = format!(
                "says that pages have {page_bytes} bytes, which is no power of two from {PAGE_BYTES_MIN} to {PAGE_BYTES_MAX}"
            );
            return Err(fault(0, message));
        }
        let second = read(file, u64::from(page_bytes))?;
        let [first, second] = [commit(&first, 0, page_bytes)?, commit(&second, 1, page_bytes)?];
        let commits = if second.transaction < first.transaction { [second, first] } else { [first, second] };
        let [older, newer] = commits;
        let is_new = newer.transaction == 0;
        if !is_new && newer.transaction != older.transaction.saturating_add(1) {
            let [older, newer] = commits.map(|commit| commit.transaction);
            let message = format!(
                "says that the last transaction is {newer}, and the other such page {older}, which does not come before it"
            );
            return Err(fault(newer & 1, message));
        }
        if newer.tree.last_page < older.tree.last_page {
            let [older_last, last] = commits.map(|commit| commit.tree.last_page);
            let message =
                format!("says that the last page is {last}, when it was {older_last} a transaction before");
            return Err(fault(newer.transaction & 1, message));
        }
        Ok(Metas { page_bytes: page_bytes as usize, commits })
    }

    pub(super) fn newest(&self) -> Commit {
        let [_, newest] = self.commits;
        newest
    }

    /// What the database was after this transaction, if that is still written down.
    pub(super) fn of(&self, transaction: u64) -> Option<Commit> {
        self.commits.into_iter().rev().find(|commit| commit.transaction == transaction)
    }
}

/// While somebody writes it, half of it may be new; so it is read until it is twice the same.
fn read(file: &File, at: u64) -> Result<[u8; META_BYTES], Fault> {
    let mut before = read_once(file, at)?;
    for _ in 0..READS {
        let bytes = read_once(file, at)?;
        if bytes == before {
            return Ok(bytes);
        }
        before = bytes;
    }
    Err(fault(u64::from(at > 0), "is being written to all the while"))
}

fn read_once(file: &File, at: u64) -> Result<[u8; META_BYTES], Fault> {
    let mut bytes = [0; META_BYTES];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Fault::Cut { number: u64::from(at > 0), page_bytes: at.max(META_BYTES as u64) })
        }
        Err(error) => Err(error.into()),
    }
}

/// The number of the newest transaction, whatever else there is.
pub(super) fn newest_transaction(file: &File, page_bytes: usize) -> Result<u64, Fault> {
    let mut newest = 0;
    for number in 0..METAS {
        let mut bytes = [0; size_of::<u64>()];
        let at = number.saturating_mul(page_bytes as u64).saturating_add(TRANSACTION_AT as u64);
        file.read_exact_at(&mut bytes, at)?;
        newest = newest.max(u64::from_le_bytes(bytes));
    }
    Ok(newest)
}

fn commit(bytes: &[u8; META_BYTES], number: u64, page_bytes: u32) -> Result<Commit, Fault> {
    let found = whole(bytes, 0).unwrap_or_default();
    if found != number {
        return Err(fault(number, format!("says that it is page {found}")));
    }
    let flags = half(bytes, 10).unwrap_or_default();
    if flags != META_PAGE {
        return Err(fault(number, format!("is no meta page: it has the flags {flags:#06x}")));
    }
    let [magic, version, own_page_bytes] =
        [MAGIC_AT, VERSION_AT, PAGE_BYTES_AT].map(|at| word(bytes, at).unwrap_or_default());
    if magic != MAGIC {
        return Err(fault(number, format!("has {magic:#010x} where LMDB writes {MAGIC:#010x}")));
    }
    if version != VERSION {
        let message = format!("is of version {version} of LMDB's file format, of which {VERSION} is known");
        return Err(fault(number, message));
    }
    if own_page_bytes != page_bytes {
        let message =
            format!("says that pages have {own_page_bytes} bytes, and page 0 that they have {page_bytes}");
        return Err(fault(number, message));
    }
    let last_page = whole(bytes, LAST_PAGE_AT).unwrap_or_default();
    let transaction = whole(bytes, TRANSACTION_AT).unwrap_or_default();
    // Pages have numbers of 48 bits.
    if !(1..1 << 48).contains(&last_page) {
        return Err(fault(
            number,
            format!("says that the last page is {last_page}, of 1 to {}", (1_u64 << 48) - 1),
        ));
    }
    let tree = |at: usize| {
        let tree = bytes.get(at..).and_then(<[u8]>::first_chunk);
        tree.map(|tree| Tree::read(tree, last_page))
    };
    let (Some(free), Some(main)) = (tree(FREE_TREE_AT), tree(MAIN_TREE_AT)) else {
        return Err(fault(number, "is too short"));
    };
    for tree in [free, main] {
        tree.check(page_bytes as usize).map_err(|message| fault(number, message))?;
    }
    if transaction == 0 {
        if main.root.is_some() || free.root.is_some() {
            return Err(fault(number, "says that there was no transaction, and has records"));
        }
    } else if transaction & 1 != number {
        let message = format!("is of transaction {transaction}, which belongs on page {}", transaction & 1);
        return Err(fault(number, message));
    }
    Ok(Commit { transaction, tree: main })
}
