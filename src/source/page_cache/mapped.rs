//! A mapped file in the page cache: requesting its pages.
//!
//! Nothing here changes what is read: touching a page that is not in memory brings it back.

#![expect(unsafe_code, reason = "advice about a map is given by its address")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use rustix::mm::{Advice as MapAdvice, madvise};

use crate::source::in_memory::is_in_memory;
use percolator_files::file_id::FileId;
use percolator_files::input_file::open_without_waiting;
use percolator_files::shown;

/// The kernel reads this much for one request, however long the request: Linux cuts it to the disk's setting.
const PIECE_BYTES: u64 = 128 << 10;

/// A file, and where it is mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    file: File,
    file_bytes: u64,
    /// The addresses of the map, which begins with the file's first byte.
    map: Range<usize>,
}

impl Mapped {
    /// Opens the file at `path`, of which this is the map. `None` if another file has replaced it.
    ///
    /// # Safety
    ///
    /// The addresses are those of a shared map of the file from its first byte on, or none. The map stays for
    /// as long as the result lives.
    pub(super) unsafe fn of(path: &Path, id: FileId, map: Range<usize>) -> Option<Self> {
        // A pipe may have taken its place.
        let file = open_without_waiting(path).ok()?;
        let metadata = file.metadata().ok()?;
        if FileId::of(&metadata) != id {
            tracing::debug!(path = %shown::path(path), "another file has replaced the mapped one");
            return None;
        }
        Some(Mapped { file, file_bytes: metadata.len(), map })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The position in the file of these bytes of the map.
    #[inline]
    pub(super) fn place_of(&self, bytes: &[u8]) -> Range<u64> {
        let start = bytes.as_ptr().addr().wrapping_sub(self.map.start) as u64;
        start..start.saturating_add(bytes.len() as u64)
    }

    /// Asks the kernel to read a part of the file, without waiting for it.
    pub(super) fn will_need(&self, part: Range<u64>) {
        for piece in steps(part.clone(), PIECE_BYTES) {
            let len = NonZeroU64::new(PIECE_BYTES.min(part.end - piece));
            if let Err(error) = fadvise(&self.file, piece, len, Advice::WillNeed) {
                tracing::debug!(%error, piece, "the kernel does not read ahead");
            }
        }
    }

    /// Whether the byte at this position is in memory, as far as can be determined.
    pub(super) fn is_in_memory(&self, at: u64) -> bool {
        is_in_memory(&self.file, at)
    }

    /// Sets whether a page fault also reads the neighbouring pages.
    pub(super) fn reads_around(&self, is_so: bool) {
        let advice = if is_so { MapAdvice::Normal } else { MapAdvice::Random };
        if let Err(error) = self.advise(&(0..self.file_bytes), advice) {
            tracing::debug!(%error, ?advice, "the kernel does not accept advice about a map");
        }
    }

    fn advise(&self, part: &Range<u64>, advice: MapAdvice) -> io::Result<()> {
        let addresses = addresses_of(&self.map, part);
        if addresses.is_empty() {
            return Ok(());
        }
        let start = std::ptr::without_provenance_mut::<c_void>(addresses.start);
        // SAFETY: by `of`, the addresses are those of a shared map of a file, and it still exists. `Normal`
        // and `Random` are hints.
        let advised = unsafe { madvise(start, addresses.len(), advice) };
        Ok(advised?)
    }
}

/// The addresses of a part of the file, as far as this map contains it.
fn addresses_of(map: &Range<usize>, part: &Range<u64>) -> Range<usize> {
    let address = |place: u64| map.start + usize::try_from(place).unwrap_or(usize::MAX).min(map.len());
    address(part.start)..address(part.end)
}

/// The positions at which the steps through a part begin.
pub(super) fn steps(part: Range<u64>, step: u64) -> impl Iterator<Item = u64> {
    let end = part.end;
    std::iter::successors(Some(part.start), move |at| at.checked_add(step)).take_while(move |&at| at < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_file_is_found_outside_of_its_map() {
        let (first, end) = (0x7f12_4000_0000, 0x7f12_8000_0000);
        let addresses = |part| addresses_of(&(first..end), &part);
        assert_eq!(addresses(0x1000..0x3000), first + 0x1000..first + 0x3000);
        assert_eq!(addresses(0x3fff_f000..u64::MAX), end - 0x1000..end);
        assert!(addresses(0x4000_0000..0x5000_0000).is_empty());
        assert!(addresses_of(&(0..0), &(0..0x1000)).is_empty());
    }

    #[test]
    fn a_file_that_took_the_place_of_the_mapped_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.mdb");
        std::fs::write(&path, [1; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        let id = FileId::of(&file.metadata().unwrap());
        // SAFETY: nobody writes to the file, which has a page and more.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let addresses = |map: &[u8]| map.as_ptr().addr()..map.as_ptr().addr() + map.len();
        // SAFETY: `map` is of the whole file, and stays until the test ends.
        let open = || unsafe { Mapped::of(&path, id, addresses(&map)) };
        let mapped = open().unwrap();
        assert_eq!(mapped.place_of(&map[4096..5000]), 4096..5000);
        let other = folder.path().join("other");
        std::fs::write(&other, [2; 8192]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(open().is_none());
    }
}
