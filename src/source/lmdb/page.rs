//! The pages of an LMDB data file, looked at where they lie. Nothing that they say is taken for granted.
//!
//! ```text
//! page:    its number: 8 bytes | pad: 2 | flags: 2 | lower: 2 | upper: 2 | an offset a node: 2 each, up to lower
//! node:    low, high: 2 each | flags: 2 | key's length: 2 | key | (of a leaf) value, or its overflow page's number: 8
//! branch:  low, high and flags are the number of the page below
//! leaf:    low and high are the value's length
//! meta:    (behind a page's first 16 bytes) magic: 4 | version: 4 | address: 8 | map's size: 8 | free pages' tree: 48 |
//!          main tree: 48 | last page: 8 | transaction: 8
//! tree:    pad (of the first: a page's length): 4 | flags: 2 | depth: 2 | branch, leaf and overflow pages: 8 each |
//!          entries: 8 | root: 8
//! ```
//!
//! That is how machines with words of 64 bits, the low byte first, write it; on others a file is not read this way.

#![expect(unsafe_code, reason = "the data file is mapped")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use memmap2::{Advice, Mmap, MmapOptions};

use crate::lines;
use crate::source::Identity;
use crate::source::file_id::FileId;
use crate::source::in_memory::is_in_memory;

/// Whether this machine writes data files as they are read here.
pub(super) const IS_READ_HERE: bool = cfg!(all(target_pointer_width = "64", target_endian = "little"));

const HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
/// The two first pages say where the trees are.
const METAS: u64 = 2;
const META_BYTES: usize = 152;
const MAGIC: u32 = 0xbeef_c0de;
/// What LMDB allows.
const PAGE_BYTES_MIN: u32 = 512;
const PAGE_BYTES_MAX: u32 = 32 << 10;

/// What a page is.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// Of a page's flags, those that say nothing of what it is: whether it is being written, or kept.
const PASSING: u16 = 0x10 | 0x4000 | 0x8000;

/// Of a node's flags: its value is on pages of its own.
const OVERFLOW: u16 = 0x01;
/// Its value is a tree: of a database in the database, or of several values of one key.
const OTHER_TREES: u16 = 0x02 | 0x04;

/// What is asked for of a page's or a node's beginning.
const ASKED_BYTES: usize = 64;

/// What the system reads for one request, whatever it is asked for.
const PIECE_BYTES: usize = 128 << 10;

/// A key and a value.
pub(super) type Record<'a> = (&'a [u8], &'a [u8]);

/// Why a page is no good.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is damaged.
    Page { number: u64, message: String },
    /// It holds what no position counts.
    OtherTrees,
}

pub(super) fn fault(number: u64, message: impl Into<String>) -> Fault {
    Fault::Page { number, message: message.into() }
}

/// The data file, mapped without permission to write.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    map: Mmap,
    page_bytes: usize,
}

/// One state of the database: what a meta page says of the main tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) transaction: u64,
    /// `None` of an empty tree.
    pub(super) root: Option<u64>,
    pub(super) depth: u16,
    pub(super) entries: u64,
    pub(super) flags: u16,
}

/// Where a record lies: on a leaf page, as one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u64,
    pub(super) node: u16,
}

impl Place {
    /// As a number. No file has pages whose numbers need more than 48 bits: nodes have no room for them either.
    pub(super) fn to_number(self) -> u64 {
        self.page << 16 | u64::from(self.node)
    }

    pub(super) fn of_number(number: u64) -> Self {
        let [low, high, ..] = number.to_le_bytes();
        Place { page: number >> 16, node: u16::from_le_bytes([low, high]) }
    }
}

impl Pages {
    /// Maps the file at `path`; `None` where that is another one by now.
    pub(super) fn open(path: &Path, id: FileId) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if FileId::of(&metadata) != id {
            return Ok(None);
        }
        let length = usize::try_from(metadata.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: nobody in this process writes to the file. That nobody else writes to the pages that a read
        // transaction sees, or cuts the file, is the assumption under which every database is read (docs/design.md);
        // `length` bytes are there. What else may change, the meta pages, is not read through the map.
        let map = unsafe { MmapOptions::new().len(length).map(&file) }?;
        let page_bytes = read_meta(&file, 0)?.page_bytes;
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has pages of {page_bytes} bytes"),
            ));
        }
        let pages = Pages { file, map, page_bytes: page_bytes as usize };
        pages.read_singly();
        Ok(Some(pages))
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whoever touches a page waits for no other: who comes here knows which pages it wants, and asks for them.
    pub(super) fn read_singly(&self) {
        if let Err(error) = self.map.advise(Advice::Random) {
            tracing::debug!(%error, "the system does not take advice about a map");
        }
    }

    /// What the database was when this transaction was committed, if that is still written down.
    pub(super) fn meta(&self, transaction: u64) -> io::Result<Option<Meta>> {
        for number in 0..METAS {
            let at = number.saturating_mul(self.page_bytes as u64);
            let meta = read_meta(&self.file, at)?;
            if meta.magic == MAGIC && meta.meta.transaction == transaction {
                return Ok(Some(meta.meta));
            }
        }
        Ok(None)
    }

    /// Which state of which file it is.
    pub(super) fn identity(&self, meta: &Meta) -> io::Result<Identity> {
        let metadata = self.file.metadata()?;
        Ok(Identity::default()
            .with("file bytes", metadata.len())
            .with("modified", format_args!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()))
            .with("page bytes", self.page_bytes)
            .with("transaction", meta.transaction)
            .with("root page", meta.root.map_or_else(|| "none".to_owned(), |root| root.to_string()))
            .with("entries", meta.entries))
    }

    /// The pages that a branch page leads to, which must be one.
    pub(super) fn branch(&self, number: u64) -> Result<Branch<'_>, Fault> {
        let page = self.page(number, BRANCH)?;
        match page.nodes {
            0 | 1 => {
                Err(fault(number, format!("is a branch with {} pages below it, of 2 at least", page.nodes)))
            }
            _ => Ok(Branch(page)),
        }
    }

    /// A leaf page, which must be one.
    pub(super) fn leaf(&self, number: u64) -> Result<Leaf<'_>, Fault> {
        let page = self.page(number, LEAF)?;
        if page.nodes == 0 {
            return Err(fault(number, "is a leaf without records"));
        }
        Ok(Leaf { page, pages: self })
    }

    fn page(&self, number: u64, kind: u16) -> Result<Page<'_>, Fault> {
        let bytes = self.bytes_of(number).ok_or_else(|| {
            let pages = self.map.len().div_ceil(self.page_bytes);
            fault(number, format!("is none of a tree's, of a file of {pages} pages"))
        })?;
        let found = u64::from_le_bytes(*bytes.first_chunk().ok_or_else(|| fault(number, "is too short"))?);
        if found != number {
            return Err(fault(number, format!("says that it is page {found}")));
        }
        let [flags, lower] = [10, 12].map(|at| half(bytes, at).unwrap_or_default());
        if flags & !PASSING != kind {
            let kind = if kind == LEAF { "leaf" } else { "branch" };
            return Err(fault(number, format!("is no {kind}: it has the flags {flags:#06x}")));
        }
        let offsets_bytes = usize::from(lower).checked_sub(HEAD_BYTES);
        match offsets_bytes.filter(|bytes| bytes % 2 == 0 && usize::from(lower) <= self.page_bytes) {
            Some(offsets_bytes) => Ok(Page { number, bytes, nodes: offsets_bytes / 2 }),
            None => Err(fault(number, format!("has its free space at byte {lower} of {}", self.page_bytes))),
        }
    }

    fn bytes_of(&self, number: u64) -> Option<&[u8]> {
        let start = self.start_of(number)?;
        self.map.get(start..start.checked_add(self.page_bytes)?)
    }

    /// Asks for the first bytes of a page, for whoever looks at it soon.
    #[inline]
    pub(super) fn ask_for_head(&self, number: u64) {
        lines::ask_for(self.bytes_of(number).and_then(|page| page.get(..ASKED_BYTES)).unwrap_or_default());
    }

    /// Asks for the first bytes of a node, by what the page's first bytes say. Nothing of it is believed.
    #[inline]
    pub(super) fn ask_for_node(&self, place: Place) {
        let at = HEAD_BYTES.saturating_add(usize::from(place.node).saturating_mul(2));
        let node = self.bytes_of(place.page).and_then(|page| {
            let start = usize::from(half(page, at)?);
            page.get(start..start.checked_add(ASKED_BYTES)?)
        });
        lines::ask_for(node.unwrap_or_default());
    }

    /// A value on pages of its own. They are not looked at: they would be read from the disk here and now.
    fn overflow(&self, number: u64, value_bytes: usize) -> Option<&[u8]> {
        let start = self.start_of(number)?.checked_add(HEAD_BYTES)?;
        self.map.get(start..start.checked_add(value_bytes)?)
    }

    /// Where a page starts that is none of the first.
    fn start_of(&self, number: u64) -> Option<usize> {
        usize::try_from(number).ok().filter(|_| number >= METAS)?.checked_mul(self.page_bytes)
    }

    /// Has the system read some pages, without waiting for them.
    pub(super) fn will_need_pages(&self, numbers: Range<u64>) {
        let byte =
            |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(self.page_bytes);
        self.will_need(byte(numbers.start)..byte(numbers.end));
    }

    /// Has the system read bytes of the map, without waiting for them. Where they are in memory that is not said again: it takes
    /// the system as long to find that out, page by page, as to copy them.
    pub(super) fn will_need_bytes(&self, bytes: &[u8]) {
        let start = bytes.as_ptr().addr().saturating_sub(self.map.as_ptr().addr());
        self.will_need(start..start.saturating_add(bytes.len()));
    }

    fn will_need(&self, part: Range<usize>) {
        let end = part.end.min(self.map.len());
        for start in (part.start..end).step_by(PIECE_BYTES) {
            if is_in_memory(&self.file, start as u64) {
                continue;
            }
            let bytes = PIECE_BYTES.min(end.saturating_sub(start));
            if let Err(error) = self.map.advise_range(Advice::WillNeed, start, bytes) {
                tracing::debug!(%error, start, "the system does not read ahead");
            }
        }
    }
}

struct MetaPage {
    magic: u32,
    page_bytes: u32,
    meta: Meta,
}

fn read_meta(file: &File, at: u64) -> io::Result<MetaPage> {
    let mut bytes = [0; META_BYTES];
    file.read_exact_at(&mut bytes, at)?;
    let root = whole(&bytes, 128).unwrap_or(u64::MAX);
    Ok(MetaPage {
        magic: word(&bytes, 16).unwrap_or_default(),
        page_bytes: word(&bytes, 40).unwrap_or_default(),
        meta: Meta {
            transaction: whole(&bytes, 144).unwrap_or_default(),
            root: Some(root).filter(|&root| root != u64::MAX),
            depth: half(&bytes, 94).unwrap_or_default(),
            entries: whole(&bytes, 120).unwrap_or_default(),
            flags: half(&bytes, 92).unwrap_or_default(),
        },
    })
}

/// A page whose head is right.
#[derive(Clone, Copy, Debug)]
struct Page<'a> {
    number: u64,
    bytes: &'a [u8],
    /// How many nodes it says that it has. The offsets of all of them lie in it.
    nodes: usize,
}

/// A node's head, and what is behind it, up to the page's end.
struct Node<'a> {
    low: u16,
    high: u16,
    flags: u16,
    key: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Page<'a> {
    #[inline]
    fn node(&self, node: usize) -> Result<Node<'a>, Fault> {
        let look = || {
            let offset = half(self.bytes, HEAD_BYTES.checked_add(node.checked_mul(2)?)?)?;
            let lower = HEAD_BYTES.checked_add(self.nodes.checked_mul(2)?)?;
            let (head, rest) = self.bytes.get(usize::from(offset)..)?.split_first_chunk::<NODE_BYTES>()?;
            let [low, high, flags, key_bytes] = [0, 2, 4, 6].map(|at| half(head, at).unwrap_or_default());
            let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
            (node < self.nodes && usize::from(offset) >= lower).then_some(Node {
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
}

/// A branch page.
#[derive(Debug)]
pub(super) struct Branch<'a>(Page<'a>);

impl Branch<'_> {
    /// The numbers of the pages below it, in order.
    pub(super) fn children(&self) -> impl Iterator<Item = Result<u64, Fault>> {
        (0..self.0.nodes).map(|node| {
            let Node { low, high, flags, .. } = self.0.node(node)?;
            Ok(u64::from(low) | u64::from(high) << 16 | u64::from(flags) << 32)
        })
    }
}

/// A leaf page.
#[derive(Debug)]
pub(super) struct Leaf<'a> {
    page: Page<'a>,
    pages: &'a Pages,
}

impl<'a> Leaf<'a> {
    pub(super) fn records(&self) -> usize {
        self.page.nodes
    }

    /// A record's key and value.
    #[inline]
    pub(super) fn record(&self, node: usize) -> Result<Record<'a>, Fault> {
        let Node { low, high, flags, key, rest } = self.page.node(node)?;
        let value_bytes = usize::from(low) | usize::from(high) << 16;
        let number = self.page.number;
        let value = match flags {
            0 => rest.get(..value_bytes),
            OVERFLOW => rest
                .first_chunk()
                .and_then(|page| self.pages.overflow(u64::from_le_bytes(*page), value_bytes)),
            _ if flags & !(OVERFLOW | OTHER_TREES) == 0 => return Err(Fault::OtherTrees),
            _ => {
                return Err(fault(number, format!("has a record, node {node}, with the flags {flags:#06x}")));
            }
        };
        let value = value.ok_or_else(|| {
            fault(number, format!("has a record, node {node}, whose {value_bytes} bytes are not in the file"))
        })?;
        Ok((key, value))
    }
}

#[inline]
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn whole(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
