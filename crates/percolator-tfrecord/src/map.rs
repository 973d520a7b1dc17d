//! A mapped file.

#![expect(unsafe_code, reason = "the file is mapped")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap, MmapOptions};
use percolator_files::KeptMaps;

use crate::error::{RecordAt, TfRecordError};
use crate::frame::{FOOT_BYTES, Frame, HEAD_BYTES, checksum_of};

/// The most bytes that the kernel reads for one request, however long the requested range is.
const PIECE_BYTES: usize = 128 << 10;

/// A mapped file.
///
/// **Nothing in it changes, moves or is freed before it is dropped.** Unsafe code may rely on that, as far as
/// the file is not written to.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
    path: PathBuf,
    _kept: KeptMaps,
}

impl FileMap {
    /// Maps a file of so many bytes; `None` if the process has no map left.
    pub(crate) fn open(file: &File, path: &Path, bytes: u64) -> Result<Option<Self>, TfRecordError> {
        let failed = |error: io::Error| TfRecordError::io(path, "map the file", &error);
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
        Ok(Some(FileMap { map, path: path.to_owned(), _kept: kept }))
    }

    /// Tells the kernel that reading seeks: a page fault then reads no neighbouring pages.
    pub(crate) fn expect_seeks(&self) {
        if let Err(error) = self.map.advise(Advice::Random) {
            tracing::debug!(%error, "the kernel does not accept advice about a map");
        }
    }

    /// Returns the bytes of this range of the file, as far as the file has them.
    #[inline]
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.map.len());
        self.map.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    /// Returns head, data and foot of a record that was read from this map.
    #[inline]
    #[must_use]
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.bytes(frame.offset..frame.end())
    }

    /// Returns the data of a record that was read from this map. [`check`](Self::check) verifies them.
    #[inline]
    #[must_use]
    pub fn data(&self, frame: Frame) -> &[u8] {
        let start = frame.offset.saturating_add(HEAD_BYTES as u64);
        self.bytes(start..start.saturating_add(frame.length))
    }

    /// Asks the kernel to read a record's bytes, without waiting for them. It is not checked first whether
    /// they are in memory: that needs an open file, and the kernel finds out in a microsecond per piece.
    pub fn will_need(&self, frame: Frame) {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.map.len());
        let end = index(frame.end());
        for start in (index(frame.offset)..end).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(end.saturating_sub(start));
            if let Err(error) = self.map.advise_range(Advice::WillNeed, start, bytes) {
                tracing::debug!(%error, start, "the kernel does not read ahead");
            }
        }
    }

    /// Verifies the [data](Self::data) of a record by the checksum behind them. Bytes that are not in this
    /// map are not looked at.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Data`] if the checksum is wrong.
    #[inline]
    pub fn check(&self, data: &[u8]) -> Result<(), TfRecordError> {
        let start = data.as_ptr().addr().wrapping_sub(self.map.as_ptr().addr());
        // Data of this map have a head before them and a foot behind them, so even empty data are within it.
        if start >= self.map.len() { Ok(()) } else { self.check_at(start, data) }
    }

    #[inline]
    fn check_at(&self, start: usize, data: &[u8]) -> Result<(), TfRecordError> {
        let end = start.saturating_add(data.len());
        let foot = self.map.get(end..).and_then(<[u8]>::first_chunk::<FOOT_BYTES>);
        let stored = foot.map(|foot| u32::from_le_bytes(*foot)).unwrap_or_default();
        let found = checksum_of(data);
        if found == stored { Ok(()) } else { Err(self.wrong_data(start, data.len() as u64, found, stored)) }
    }

    #[cold]
    fn wrong_data(&self, start: usize, bytes: u64, found: u32, stored: u32) -> TfRecordError {
        let offset = start.saturating_sub(HEAD_BYTES) as u64;
        let at = RecordAt { record: self.count_before(offset), offset, is_unpacked: false };
        TfRecordError::Data { file: self.path.clone(), at, bytes, found, stored }
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

impl AsRef<[u8]> for FileMap {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}
