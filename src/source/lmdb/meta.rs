//! The two pages at the start of an LMDB. Each says where the trees of a commit are; commits use them in
//! turn.
//!
//! ```text
//! meta: (after a page's first 16 bytes) magic: 4 | version: 4 | address: 8 | map's size: 8 |
//!       free pages' tree: 48 | main tree: 48 | last page: 8 | transaction: 8
//! tree: pad (in the first one: a page's length): 4 | flags: 2 | depth: 2 |
//!       branch, leaf and overflow pages: 8 each | entries: 8 | root: 8
//! ```
//!
//! They are validated before the library sees the file, because it divides by numbers in them. The map's size
//! is not validated: old releases wrote it wrong (ITS#7789), and nothing here uses it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::fault::{Fault, fault};
use super::page::{INTEGER_KEYS, META_PAGE, METAS, Tree, half, whole, word};

const MAGIC: u32 = 0xbeef_c0de;
const VERSION: u32 = 1;
const FLAGS_AT: usize = 10;
const MAGIC_AT: usize = 16;
const VERSION_AT: usize = 20;
const PAGE_BYTES_AT: usize = 40;
const FREE_TREE_AT: usize = 40;
const MAIN_TREE_AT: usize = 88;
const LAST_PAGE_AT: usize = 136;
const TRANSACTION_AT: usize = 144;
const META_BYTES: usize = 152;
/// The bytes that are read to determine what a file is.
pub(super) const HEAD_BYTES: usize = PAGE_BYTES_AT + size_of::<u32>();

/// How often a page is read while it is being written.
const READS: usize = 8;

const PAGE_BYTES_MIN: u32 = 512;
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// What one meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) transaction: u64,
    /// The tree of the lists of free pages.
    pub(super) free: Tree,
    /// The tree of the unnamed database.
    pub(super) tree: Tree,
}

/// Both meta pages, validated.
#[derive(Clone, Debug)]
pub(super) struct Metas {
    pub(super) page_bytes: usize,
    pub(super) newest: Commit,
    /// What is wrong with the older page, which is not read.
    pub(super) doubt: Option<String>,
}

/// Why a file is not an LMDB of this kind of machine.
pub(super) enum Foreign {
    /// It is something else, or from another kind of machine.
    Other(String),
    /// It is too short for its first two pages.
    Cut { page_bytes: u64 },
}

/// Checks whether these may be the first bytes of an LMDB.
pub(super) fn check_head(head: &[u8; HEAD_BYTES], file_bytes: u64) -> Result<(), Foreign> {
    let magic = word(head, MAGIC_AT).unwrap_or_default();
    if let Some((kind, dump)) = other_kind(head) {
        return Err(Foreign::Other(format!(
            "{kind}: write its records anew, with mdb_dump {dump} and then mdb_load of LMDB 0.9 here"
        )));
    }
    if magic != MAGIC {
        return Err(Foreign::Other(format!(
            "{magic:#010x} at byte {MAGIC_AT}, but LMDB writes {MAGIC:#010x} there"
        )));
    }
    let page_bytes = word(head, PAGE_BYTES_AT).unwrap_or_default();
    let is_known = is_page_bytes(page_bytes);
    if is_known && file_bytes < METAS.saturating_mul(u64::from(page_bytes)) {
        return Err(Foreign::Cut { page_bytes: u64::from(page_bytes) });
    }
    Ok(())
}

/// Returns which other LMDB's format this is, if it is one, and whose `mdb_dump` reads it.
///
/// The magic number tells, which follows a page's head: twelve bytes on machines of 32 bits, sixteen on those
/// of 64, and 24 since LMDB 1.0, which added the transaction's number (twice four on machines of 32 bits).
fn other_kind(head: &[u8; HEAD_BYTES]) -> Option<(&'static str, &'static str)> {
    let [of_32_bits, of_64_bits, of_one] = [12, MAGIC_AT, 24].map(|at| word(head, at).unwrap_or_default());
    if [of_32_bits, of_64_bits, of_one].contains(&MAGIC.swap_bytes()) {
        return Some(("a file of a machine with the other byte order", "on such a machine"));
    }
    match (of_64_bits == MAGIC).then(|| word(head, VERSION_AT)).flatten() {
        Some(2) => return Some(("LMDB 1.0's format, of a machine with words of 32 bits", "of LMDB 1.0")),
        Some(999) => {
            return Some(("version 999 of the format, a development build's", "of that build"));
        }
        Some(_) => return None,
        None => {}
    }
    match (of_32_bits == MAGIC, of_one == MAGIC) {
        (true, _) => Some(("a file of a machine with words of 32 bits", "on such a machine")),
        (_, true) => Some(("LMDB 1.0's format", "of LMDB 1.0")),
        _ => None,
    }
}

fn is_page_bytes(bytes: u32) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

impl Metas {
    /// Reads and validates both pages.
    ///
    /// The result is the newest commit or an error: damage must never lead to an older commit. The pages have
    /// no checksums. The damaged field may be the transaction's number, so the number alone does not decide:
    ///
    /// - Both pages are valid, and their transactions are consecutive. The later one is the newest.
    /// - Both pages are valid, and their transactions are not consecutive. Either a crash kept one of the
    ///   pages from the disk, or a number is damaged. No commit lowers the last page, so the later
    ///   transaction is the newest if its last page is higher. If it is not, this is an error.
    /// - One page is damaged. It is the older one if its transaction is the one before the other's. If not,
    ///   it may be the newer one, or its number is damaged too: an error. The number 0 proves nothing,
    ///   because a page that was wiped has it.
    /// - One is not a meta page at all. liblmdb refuses such a file, and so does this code.
    pub(super) fn read(file: &File) -> Result<Self, Fault> {
        let [first, second] = &read_both(file)?;
        let page_bytes = page_bytes(first)?;
        recognize(first, 0)?;
        recognize(second, 1)?;
        let numbers = [transaction(first), transaction(second)];
        let (newest, doubt) = match (commit(first, 0, page_bytes), commit(second, 1, page_bytes)) {
            (Ok(first), Ok(second)) => later(first, second)?,
            (Err(message), Ok(good)) => other_than(0, numbers, &message, good)?,
            (Ok(good), Err(message)) => other_than(1, numbers, &message, good)?,
            (Err(first), Err(second)) => {
                let [number, other] = numbers;
                return Err(if number > other { fault(0, first) } else { fault(1, second) });
            }
        };
        Ok(Metas { page_bytes: page_bytes as usize, newest, doubt })
    }
}

/// Returns the newest of two commits whose pages are valid, and what is wrong with the older one.
fn later(first: Commit, second: Commit) -> Result<(Commit, Option<String>), Fault> {
    let (older, newer) =
        if second.transaction < first.transaction { (second, first) } else { (first, second) };
    let page = newer.transaction & 1;
    let [before, last] = [older, newer].map(|commit| commit.transaction);
    let [pages_before, pages] = [older, newer].map(|commit| commit.tree.last_page);
    if newer.transaction == 0 || last == before.saturating_add(1) {
        if pages < pages_before {
            let message = format!(
                "says that the last page is {pages}, but one transaction earlier it was {pages_before}"
            );
            return Err(fault(page, message));
        }
        return Ok((newer, None));
    }
    let apart = format!(
        "the last transaction is {last}, but the other meta page has {before}, which is not the one before it"
    );
    if pages > pages_before {
        return Ok((newer, Some(format!("page {page} says that {apart}"))));
    }
    // The copy has what liblmdb takes for the newest commit, right or wrong.
    Err(fault(
        page,
        format!("says that {apart}; if a crash left it so, mdb_copy -c writes a copy that can be read"),
    ))
}

/// Returns the good commit beside a damaged page, and what is wrong with that page, if that page is the older
/// one.
fn other_than(
    page: u64,
    numbers: [u64; 2],
    message: &str,
    good: Commit,
) -> Result<(Commit, Option<String>), Fault> {
    let [first, second] = numbers;
    let damaged = if page == 0 { first } else { second };
    if damaged > 0 && good.transaction.checked_sub(1) == Some(damaged) {
        return Ok((good, Some(format!("page {page} {message}"))));
    }
    let number = good.transaction;
    Err(fault(page, format!("{message}; it has transaction {damaged}, and the other meta page {number}")))
}

impl Commit {
    /// Returns the commit of this transaction, if its page still has it, and the newest transaction in the
    /// file after the page was read.
    ///
    /// The other page is not validated, because a writer may be writing it. If the newest transaction is a
    /// later one, the transaction after that may have been writing this page.
    pub(super) fn of(file: &File, page_bytes: usize, number: u64) -> Result<(Option<Self>, u64), Fault> {
        let page = number & 1;
        let at = page.saturating_mul(page_bytes as u64);
        let bytes = twice_the_same(|| read_once(file, at))?;
        let (newest, _) = newest_tree(file, page_bytes)?;
        if transaction(&bytes) != number {
            return Ok((None, newest));
        }
        recognize(&bytes, page)?;
        match commit(&bytes, page, u32::try_from(page_bytes).unwrap_or(u32::MAX)) {
            Ok(commit) => Ok((Some(commit), newest)),
            Err(_) if newest != number => Ok((None, newest)),
            Err(message) => Err(fault(page, message)),
        }
    }
}

/// Reads both pages as they were at one time.
fn read_both(file: &File) -> Result<[[u8; META_BYTES]; 2], Fault> {
    twice_the_same(|| {
        let first = read_once(file, 0)?;
        let second = read_once(file, u64::from(page_bytes(&first)?))?;
        Ok([first, second])
    })
}

/// Reads until two readings are the same: while a page is being written, a reading may be half new.
fn twice_the_same<T: PartialEq>(read: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut before = read()?;
    for _ in 0..READS {
        let bytes = read()?;
        if bytes == before {
            return Ok(bytes);
        }
        before = bytes;
    }
    Err(Fault::Busy)
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

/// The number of the newest transaction, and its tree, whatever else the pages say.
pub(super) fn newest_tree(file: &File, page_bytes: usize) -> Result<(u64, Tree), Fault> {
    /// The tree of the unnamed database, the last page and the transaction: the end of what a meta page says.
    const PART_BYTES: usize = META_BYTES - MAIN_TREE_AT;

    let read = |number: u64| {
        let mut bytes = [0; PART_BYTES];
        let at = number.saturating_mul(page_bytes as u64).saturating_add(MAIN_TREE_AT as u64);
        file.read_exact_at(&mut bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the file was cut while it was read")
            }
            _ => error,
        })?;
        let last_page = whole(&bytes, LAST_PAGE_AT - MAIN_TREE_AT).unwrap_or_default();
        let transaction = whole(&bytes, TRANSACTION_AT - MAIN_TREE_AT).unwrap_or_default();
        let tree = bytes.first_chunk().unwrap_or(&[0; Tree::BYTES]);
        Ok::<_, io::Error>((transaction, Tree::read(tree, last_page)))
    };
    let (first, second) = (read(0)?, read(1)?);
    Ok(if second.0 > first.0 { second } else { first })
}

fn transaction(bytes: &[u8; META_BYTES]) -> u64 {
    whole(bytes, TRANSACTION_AT).unwrap_or_default()
}

/// The length of pages, in bytes, as the first page states it.
fn page_bytes(first: &[u8; META_BYTES]) -> Result<u32, Fault> {
    let page_bytes = word(first, PAGE_BYTES_AT).unwrap_or_default();
    if is_page_bytes(page_bytes) {
        return Ok(page_bytes);
    }
    let message = format!(
        "says that pages have {page_bytes} bytes, which is not a power of two from {PAGE_BYTES_MIN} to \
         {PAGE_BYTES_MAX}"
    );
    Err(fault(0, message))
}

/// Checks that these are a meta page's bytes at all.
fn recognize(bytes: &[u8; META_BYTES], number: u64) -> Result<(), Fault> {
    let flags = half(bytes, FLAGS_AT).unwrap_or_default();
    if flags & META_PAGE == 0 {
        return Err(fault(number, format!("is not a meta page: it has the flags {flags:#06x}")));
    }
    let [magic, version] = [MAGIC_AT, VERSION_AT].map(|at| word(bytes, at).unwrap_or_default());
    if magic != MAGIC {
        return Err(fault(number, format!("has {magic:#010x}, but LMDB writes {MAGIC:#010x} there")));
    }
    if version != VERSION {
        let message = format!("has version {version} of LMDB's file format, but only {VERSION} is known");
        return Err(fault(number, message));
    }
    Ok(())
}

/// Reads what a meta page says, or returns what is wrong with it.
fn commit(bytes: &[u8; META_BYTES], number: u64, page_bytes: u32) -> Result<Commit, String> {
    let found = whole(bytes, 0).unwrap_or_default();
    if found != number {
        return Err(format!("says that it is page {found}"));
    }
    let flags = half(bytes, FLAGS_AT).unwrap_or_default();
    if flags != META_PAGE {
        return Err(format!("is not only a meta page: it has the flags {flags:#06x}"));
    }
    let own_page_bytes = word(bytes, PAGE_BYTES_AT).unwrap_or_default();
    if own_page_bytes != page_bytes {
        return Err(format!("says that pages have {own_page_bytes} bytes, but page 0 says {page_bytes}"));
    }
    let last_page = whole(bytes, LAST_PAGE_AT).unwrap_or_default();
    let transaction = transaction(bytes);
    // Page numbers have 48 bits.
    if !(1..1 << 48).contains(&last_page) {
        return Err(format!("says that the last page is {last_page}, of 1 to {}", (1_u64 << 48) - 1));
    }
    let tree = |at: usize| {
        let tree = bytes.get(at..).and_then(<[u8]>::first_chunk);
        tree.map(|tree| Tree::read(tree, last_page))
    };
    let (Some(free), Some(main)) = (tree(FREE_TREE_AT), tree(MAIN_TREE_AT)) else {
        return Err("is too short".to_owned());
    };
    for tree in [free, main] {
        tree.check(page_bytes as usize)?;
    }
    if transaction == 0 {
        if main.root.is_some() || free.root.is_some() {
            return Err("says that there was no transaction, but has records".to_owned());
        }
    } else if transaction & 1 != number {
        return Err(format!("is of transaction {transaction}, which belongs on page {}", transaction & 1));
    }
    // LMDB's own code compares these keys as numbers, whatever the flags say.
    let free = Tree { flags: free.flags | INTEGER_KEYS, ..free };
    Ok(Commit { transaction, free, tree: main })
}
