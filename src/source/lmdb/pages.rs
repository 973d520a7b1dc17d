//! The data file, page by page: mapped, or read into buffers.

#![expect(unsafe_code, reason = "the data file is mapped")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use memmap2::{Advice, Mmap, MmapOptions};
use percolator_files::checksum::crc32c;

use super::fault::{Fault, fault};
use super::page::{ASKED_BYTES, HEAD_BYTES, Leaf, METAS, Place, Tree, check_overflow, half};
use crate::base::cache_lines;
use crate::source::Identity;
use crate::source::in_memory::is_in_memory;
use percolator_files::Reading;

/// The most bytes that the kernel reads for one request, however long the requested range is.
const PIECE_BYTES: usize = 128 << 10;

/// The data file. Its meta pages, the only ones that may change while it is read, are read with `pread` each
/// time.
#[derive(Debug)]
pub(super) struct Pages {
    file: Arc<File>,
    /// `None` if each page is read when it is needed.
    map: Option<Mmap>,
    page_bytes: usize,
    file_bytes: u64,
}

/// A page that a cursor is on. It belongs to the [`Pages`] that filled it.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The byte where it starts in the map.
    start: usize,
    /// Its bytes, if the file is not mapped.
    read: Vec<u8>,
}

impl Held {
    pub(super) fn held_bytes(&self) -> usize {
        self.read.capacity()
    }
}

impl Pages {
    /// Opens the pages of a file of `file_bytes` bytes, each of `page_bytes` bytes.
    pub(super) fn open(
        file: Arc<File>,
        file_bytes: u64,
        page_bytes: usize,
        reading: Reading,
    ) -> io::Result<Self> {
        let map = match reading {
            Reading::Read => None,
            Reading::Mapped => {
                let length = usize::try_from(file_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
                // SAFETY: the map is private to this value, which gives out shared references alone. Nobody
                // can promise that no other program, or part of this one, writes to pages that a cursor sees,
                // or cuts the file: that is the assumption under which a file is mapped (`Access::Mapped`,
                // docs/design.md). LMDB keeps it for everybody who has a reader's slot.
                let map = unsafe { MmapOptions::new().len(length).map(&*file) };
                Some(map?)
            }
        };
        Ok(Pages { file, map, page_bytes, file_bytes })
    }

    /// The same file in a map of its own, as long as the file is now.
    pub(super) fn anew(&self) -> io::Result<Self> {
        let reading = if self.map.is_some() { Reading::Mapped } else { Reading::Read };
        Self::open(self.file.clone(), self.file.metadata()?.len(), self.page_bytes, reading)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The whole map; nothing if the file is read.
    pub(super) fn whole(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.map.is_some()
    }

    /// Turns the kernel's read-around off: a touched page is read alone. The callers know which pages they
    /// need, and request them.
    pub(super) fn read_singly(&self) {
        if let Some(map) = &self.map
            && let Err(error) = map.advise(Advice::Random)
        {
            tracing::debug!(%error, "the kernel does not accept advice about a map");
        }
    }

    /// The identity of the file and of its state.
    pub(super) fn identity(&self, transaction: u64, tree: &Tree) -> io::Result<Identity> {
        let metadata = self.file.metadata()?;
        let root = tree.root;
        Ok(Identity::default()
            .with("file bytes", metadata.len())
            .with("modified", format_args!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()))
            .with("page bytes", self.page_bytes)
            .with("transaction", transaction)
            .with("root page", root.map_or_else(|| "none".to_owned(), |root| root.to_string()))
            .with("root checksum", format_args!("{:08x}", self.checksum_of(root)?))
            .with("entries", tree.entries))
    }

    /// A checksum of a page's bytes, or of no bytes if there is no such page.
    fn checksum_of(&self, page: Option<u64>) -> io::Result<u32> {
        let mut held = Held::default();
        match page.map(|page| self.hold(page, &mut held)) {
            Some(Ok(())) => Ok(crc32c(self.bytes(&held))),
            Some(Err(Fault::Io(error))) => Err(error),
            _ => Ok(crc32c(&[])),
        }
    }

    /// Holds a page, which must not be a meta page.
    #[inline]
    pub(super) fn hold(&self, number: u64, held: &mut Held) -> Result<(), Fault> {
        let start = self.start_of(number)?;
        if start.saturating_add(self.page_bytes as u64) > self.file_bytes {
            return Err(self.cut(number));
        }
        match self.map {
            // It is within the map, which has the file's length.
            Some(_) => held.start = usize::try_from(start).unwrap_or(usize::MAX),
            None => {
                held.read.resize(self.page_bytes, 0);
                self.read_at(&mut held.read, start)?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn bytes<'a>(&'a self, held: &'a Held) -> &'a [u8] {
        match &self.map {
            Some(map) => {
                let end = held.start.saturating_add(self.page_bytes);
                map.get(held.start..end).unwrap_or_default()
            }
            None => &held.read,
        }
    }

    /// Fills a buffer with the bytes at this offset of the file.
    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<(), Fault> {
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let last = at.saturating_add(buffer.len() as u64).saturating_sub(1);
                self.cut(last.checked_div(self.page_bytes as u64).unwrap_or_default())
            }
            _ => Fault::Io(error),
        })
    }

    /// The byte where a page starts, which must not be a meta page.
    #[inline]
    pub(super) fn start_of(&self, number: u64) -> Result<u64, Fault> {
        let start = number.checked_mul(self.page_bytes as u64).filter(|_| number >= METAS);
        start.ok_or_else(|| fault(number, "cannot be a page of a tree"))
    }

    /// A value on pages of its own, in the map. These pages are not touched, because that would read them
    /// from the disk at once.
    #[inline]
    pub(super) fn overflow(&self, number: u64, value_bytes: usize) -> Result<&[u8], Fault> {
        let start = self.start_of(number)?.saturating_add(HEAD_BYTES as u64);
        let end = start.saturating_add(value_bytes as u64);
        let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        let value = self.map.as_ref().and_then(|map| map.get(range));
        value.ok_or_else(|| self.cut(number))
    }

    fn cut(&self, number: u64) -> Fault {
        Fault::Cut { number, page_bytes: self.page_bytes as u64 }
    }

    /// Checks the page that a value starts on, if the value is in the map on pages of its own. Such a value
    /// starts right after a page's head. No value on a leaf does, because the leaf's offsets are there.
    #[inline]
    pub(super) fn check_value(&self, value: &[u8]) -> Result<(), Fault> {
        let Some(map) = &self.map else { return Ok(()) };
        let at = value.as_ptr().addr().wrapping_sub(map.as_ptr().addr());
        // Page lengths are powers of two.
        if at >= map.len() || at & self.page_bytes.wrapping_sub(1) != HEAD_BYTES {
            return Ok(());
        }
        let start = at.saturating_sub(HEAD_BYTES);
        let number = start.checked_div(self.page_bytes).unwrap_or_default() as u64;
        let head = map.get(start..at).unwrap_or_default();
        check_overflow(head, number, value.len(), self.page_bytes)
    }

    /// The bytes of a page, if the file is mapped and has it.
    #[inline]
    pub(super) fn mapped(&self, number: u64) -> Option<&[u8]> {
        let start = usize::try_from(self.start_of(number).ok()?).ok()?;
        self.map.as_ref()?.get(start..start.checked_add(self.page_bytes)?)
    }

    /// Prefetches the first bytes of a page, which is read soon, into the processor's cache.
    #[inline]
    pub(super) fn ask_for_head(&self, number: u64) {
        cache_lines::ask_for(
            self.mapped(number).and_then(|page| page.get(..ASKED_BYTES)).unwrap_or_default(),
        );
    }

    /// Prefetches the first bytes of a node, which the page's first bytes locate. Nothing of this is trusted.
    #[inline]
    pub(super) fn ask_for_node(&self, place: Place) {
        let at = HEAD_BYTES.saturating_add(usize::from(place.node).saturating_mul(2));
        let node = self.mapped(place.page).and_then(|page| {
            let start = usize::from(half(page, at)?);
            page.get(start..start.checked_add(ASKED_BYTES)?)
        });
        cache_lines::ask_for(node.unwrap_or_default());
    }

    /// Prefetches the head of the page that a record's value starts on, if the value has pages of its own. If
    /// there is no such record, nothing is prefetched.
    #[inline]
    pub(super) fn ask_for_value_head(&self, place: Place) {
        let record = self
            .mapped(place.page)
            .and_then(|bytes| Leaf::parse(bytes, place.page).ok()?.value_page(usize::from(place.node)));
        if let Some(page) = record {
            self.ask_for_head(page);
        }
    }

    /// Asks the kernel to read some pages, without waiting for them.
    pub(super) fn will_need_pages(&self, numbers: Range<u64>) {
        let byte =
            |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(self.page_bytes);
        self.will_need(byte(numbers.start)..byte(numbers.end));
    }

    /// Asks the kernel to read bytes of the map, without waiting for them. Pieces whose first page is in
    /// memory are skipped: checking every page would take the kernel as long as copying them.
    pub(super) fn will_need_bytes(&self, bytes: &[u8]) {
        let Some(map) = &self.map else { return };
        let start = bytes.as_ptr().addr().saturating_sub(map.as_ptr().addr());
        self.will_need(start..start.saturating_add(bytes.len()));
    }

    fn will_need(&self, part: Range<usize>) {
        let Some(map) = &self.map else { return };
        let end = part.end.min(map.len());
        for start in (part.start..end).step_by(PIECE_BYTES) {
            if is_in_memory(&self.file, start as u64) {
                continue;
            }
            let bytes = PIECE_BYTES.min(end.saturating_sub(start));
            if let Err(error) = map.advise_range(Advice::WillNeed, start, bytes) {
                tracing::debug!(%error, start, "the kernel does not read ahead");
            }
        }
    }
}
