//! An open file that is not compressed: mapped, or read.

#![expect(unsafe_code, reason = "the file is mapped")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Advice, Mmap, MmapOptions};
use once_cell::sync::OnceCell;

use super::error::{RecordAt, TfRecordError};
use super::frame::{FOOT_BYTES, Frame, HEAD_BYTES, checksum_of};
use crate::base::cache_lines;
use crate::source::checksum::{TableChecksum, TableKeeper};
use crate::source::page_cache::PageCache;
use crate::source::{Lender, SourceError};
use percolator_files::KeptMaps;
use percolator_files::Reading;
use percolator_files::file_id::FileState;
use percolator_files::shown;

/// The most bytes that the kernel reads for one request, however long the requested range is.
const PIECE_BYTES: usize = 128 << 10;

/// An open file of records. Nothing in it changes.
#[derive(Debug)]
pub(super) struct Plain {
    /// As messages name it.
    pub(super) path: PathBuf,
    /// The state of the whole file.
    pub(super) state: FileState,
    /// `None` if the file is read.
    map: Option<Arc<Map>>,
    /// Another map, for cursors that seek: advice to the kernel about one does not affect the other.
    map_by_position: OnceCell<Arc<Map>>,
}

impl Plain {
    pub(super) fn open(
        path: &Path,
        (file, state): (&File, FileState),
        reading: Reading,
    ) -> Result<Self, SourceError> {
        let map = match reading {
            Reading::Read => None,
            Reading::Mapped => {
                let map = Map::open(file, path, state.bytes)?;
                if map.is_none() {
                    let path = shown::path(path);
                    tracing::debug!(%path, "no more files can be mapped: reading it instead");
                }
                map.map(Arc::new)
            }
        };
        Ok(Plain { path: path.to_owned(), state, map, map_by_position: OnceCell::new() })
    }

    /// The map in which a cursor reads from record to record; `None` if the file is read.
    pub(super) fn map(&self) -> Option<&Arc<Map>> {
        self.map.as_ref()
    }

    /// The map in which a cursor seeks. A page fault in it reads no neighbouring pages.
    pub(super) fn map_by_position(&self) -> Result<Option<&Arc<Map>>, SourceError> {
        let Some(forward) = &self.map else { return Ok(None) };
        let open = || {
            let file = super::open_files::open_again(&self.path, self.state)?;
            let map = Map::open(&file, &self.path, self.state.bytes)?;
            let Some(map) = map else { return Ok(forward.clone()) };
            if let Err(error) = map.map.advise(Advice::Random) {
                tracing::debug!(%error, "the kernel does not accept advice about a map");
            }
            Ok(Arc::new(map))
        };
        self.map_by_position.get_or_try_init(open).map(Some)
    }

    /// The page cache of one of the maps, for the cursor over it.
    ///
    /// # Safety
    ///
    /// The map is one of this file's, and outlives the result.
    pub(super) unsafe fn page_cache(&self, map: &Map) -> PageCache {
        // SAFETY: the map begins with the file's first byte, and stays for as long as the caller keeps it.
        unsafe { PageCache::of(&self.path, self.state.id, &map.map) }
    }
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Map {
    map: Mmap,
    path: PathBuf,
    _kept: KeptMaps,
}

impl Map {
    /// Maps a file of so many bytes; `None` if the process has no map left.
    fn open(file: &File, path: &Path, bytes: u64) -> Result<Option<Self>, SourceError> {
        let failed = |error: io::Error| SourceError::io(path, "map the file", &error);
        let length = usize::try_from(bytes).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let kept = KeptMaps::take(1);
        if kept.count() == 0 {
            return Ok(None);
        }
        // SAFETY: the map gives out shared references only. That no other program writes to the file or
        // truncates it is the assumption under which a file is mapped (`Access::Mapped`, docs/design.md).
        let map = match unsafe { MmapOptions::new().len(length).map(file) } {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => return Ok(None),
            map => map.map_err(failed)?,
        };
        Ok(Some(Map { map, path: path.to_owned(), _kept: kept }))
    }

    /// The bytes of this range of the file, as far as the file has them.
    #[inline]
    pub(super) fn bytes(&self, range: Range<u64>) -> &[u8] {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.map.len());
        self.map.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    /// Head, data and foot of a record that was read from this map.
    #[inline]
    pub(super) fn frame(&self, frame: Frame) -> &[u8] {
        self.bytes(frame.offset..frame.end())
    }

    /// The data of a record that was read from this map.
    #[inline]
    pub(super) fn data(&self, frame: Frame) -> &[u8] {
        let start = frame.offset.saturating_add(HEAD_BYTES as u64);
        self.bytes(start..start.saturating_add(frame.length))
    }

    /// Prefetches the head of a record that is read soon, into the processor's cache.
    #[inline]
    pub(super) fn ask_for_head(&self, offset: u64) {
        cache_lines::ask_for(self.bytes(offset..offset.saturating_add(HEAD_BYTES as u64)));
    }

    /// Asks the kernel to read a record's bytes, without waiting for them. It is not checked first whether
    /// they are in memory: that needs an open file, and the kernel finds out in a microsecond per piece.
    pub(super) fn will_need(&self, frame: Frame) {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.map.len());
        let end = index(frame.end());
        for start in (index(frame.offset)..end).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(end.saturating_sub(start));
            if let Err(error) = self.map.advise_range(Advice::WillNeed, start, bytes) {
                tracing::debug!(%error, start, "the kernel does not read ahead");
            }
        }
    }

    /// Verifies the data of a record of this map.
    #[inline]
    pub(super) fn check(&self, data: &[u8]) -> Result<(), SourceError> {
        self.check_value(data)
    }

    /// The lender of this map's records. If `is_verified` is false, the borrower verifies their data.
    pub(super) fn lender(self: &Arc<Self>, is_verified: bool) -> Lender {
        if is_verified { Lender::new(self.clone()) } else { Lender::keeping(self.clone()) }
    }

    /// Verifies data that start here in this map.
    #[inline]
    fn check_data(&self, start: usize, data: &[u8]) -> Result<(), SourceError> {
        let end = start.saturating_add(data.len());
        let foot = self.map.get(end..).and_then(<[u8]>::first_chunk::<FOOT_BYTES>);
        let stored = foot.map(|foot| u32::from_le_bytes(*foot)).unwrap_or_default();
        let found = checksum_of(data);
        if found == stored { Ok(()) } else { Err(self.wrong_data(start, data.len() as u64, found, stored)) }
    }

    #[cold]
    fn wrong_data(&self, start: usize, bytes: u64, found: u32, stored: u32) -> SourceError {
        let offset = start.saturating_sub(HEAD_BYTES) as u64;
        let at = RecordAt { record: self.count_before(offset), offset, is_unpacked: false };
        TfRecordError::Data { file: self.path.clone(), at, bytes, found, stored }.into()
    }

    /// The number of the record at this offset, found by counting the records before it; `None` if one of
    /// those is damaged.
    fn count_before(&self, offset: u64) -> Option<u64> {
        let (mut at, mut records) = (0, 0_u64);
        let end = self.map.len() as u64;
        while at < offset {
            let head = self.bytes(at..at.saturating_add(HEAD_BYTES as u64));
            at = Frame::read(head, at, end.saturating_sub(at)).ok()?.end();
            records = records.saturating_add(1);
        }
        (at == offset).then_some(records)
    }
}

/// The map as the lender of records whose data have not been verified yet.
impl TableKeeper for Map {
    fn check_block(&self, _checksum: TableChecksum) -> Result<(), SourceError> {
        Ok(())
    }

    #[inline]
    fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        let start = value.as_ptr().addr().wrapping_sub(self.map.as_ptr().addr());
        // Data of another lender are elsewhere. Data of this one have a head before them and a foot after
        // them, so even empty data are within the map.
        if start >= self.map.len() { Ok(()) } else { self.check_data(start, value) }
    }
}
