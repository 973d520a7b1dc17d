//! The rate of reading files.

#![expect(unsafe_code, reason = "files are mapped")]

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Duration;

use memmap2::Mmap;
use percolator_files::input_file;

use super::together;

/// The most that is read of the files: more than any cache holds.
const READ_BYTES_MAX: usize = 1 << 30;
/// The most that a thread reads before it checks the time.
const PIECE_BYTES_MAX: usize = 4 << 20;
/// The least number of pieces for each thread, if there are as many pages.
const PIECES_MIN: usize = 8;
const PAGE_BYTES: usize = 4096;

/// Files of a database, mapped, to be read as fast as this machine can.
#[derive(Debug)]
pub struct PageCache {
    maps: Vec<Mmap>,
}

impl PageCache {
    /// Maps the files without reading them. Empty files are left out, and so is anything that is not a
    /// regular file, because a list may name anything.
    ///
    /// The files must not be written to or truncated for as long as this lives.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if a file cannot be opened or mapped.
    pub fn open(files: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Self> {
        let mut maps = Vec::new();
        for path in files {
            let Some((file, length)) = input_file::open_regular(path.as_ref())? else { continue };
            if length > 0 {
                // SAFETY: this process writes to no file that it reads. That nobody else writes to a database
                // or truncates it in the meantime is the assumption under which every database is read here
                // (docs/design.md).
                maps.push(unsafe { Mmap::map(&file) }?);
            }
        }
        Ok(PageCache { maps })
    }

    /// Measures the rate at which `threads` threads together read the files from the page cache, in bytes a
    /// second; every byte is summed up. They read the files, or the first GiB of them, once untimed, then
    /// repeatedly for about `time`.
    ///
    /// If the files are smaller than the processor's caches, this measures the caches, which is also what a
    /// feed of these files would read from.
    #[must_use]
    pub fn bytes_per_second(&self, threads: usize, time: Duration) -> f64 {
        let pieces = self.pieces(threads);
        together::per_second(threads, time, |number| {
            let own = || pieces.iter().copied().skip(number).step_by(threads.max(1));
            own().for_each(|piece| _ = black_box(sum(piece)));
            let mut again = own().cycle();
            move || again.next().map_or(0, read)
        })
    }

    /// Like [`bytes_per_second`](Self::bytes_per_second), but reads each byte only once, from wherever it is,
    /// which may be the disk.
    #[must_use]
    pub fn bytes_per_second_once(&self, threads: usize, time: Duration) -> f64 {
        let pieces = self.pieces(threads);
        together::per_second(threads, time, |number| {
            let mut own = pieces.iter().copied().skip(number).step_by(threads.max(1));
            move || own.next().map_or(0, read)
        })
    }

    /// The files cut into enough pieces for every thread.
    fn pieces(&self, threads: usize) -> Vec<&[u8]> {
        let whole: usize = self.maps.iter().map(|map| map.len()).sum::<usize>().min(READ_BYTES_MAX);
        let wanted = whole / (threads.max(1) * PIECES_MIN);
        let bytes = wanted.next_multiple_of(PAGE_BYTES).clamp(PAGE_BYTES, PIECE_BYTES_MAX);
        let mut left = READ_BYTES_MAX;
        let pieces = self.maps.iter().flat_map(|map| map.chunks(bytes));
        pieces
            .take_while(|piece| {
                let is_wanted = left > 0;
                left = left.saturating_sub(piece.len());
                is_wanted
            })
            .collect()
    }
}

fn read(piece: &[u8]) -> usize {
    black_box(sum(piece));
    piece.len()
}

/// The sum of the words, in eight parallel sums, so that no addition waits for the one before.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    let (words, rest) = bytes.as_chunks::<8>();
    let (rows, more) = words.as_chunks::<8>();
    for row in rows {
        for (sum, word) in sums.iter_mut().zip(row) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let more = more.iter().map(|word| u64::from_le_bytes(*word)).chain(rest.iter().map(|&byte| byte.into()));
    sums.into_iter().chain(more).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn every_byte_of_every_file_is_in_one_piece() {
        let folder = tempfile::tempdir().unwrap();
        let files = [0, 1, 4096, 100_000].map(|bytes: usize| {
            let path = folder.path().join(bytes.to_string());
            std::fs::write(&path, vec![7; bytes]).unwrap();
            path
        });
        let cache = PageCache::open(&files).unwrap();
        for threads in [0, 1, 2, 64] {
            let pieces = cache.pieces(threads);
            assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 104_097);
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
            assert!(cache.bytes_per_second(threads, Duration::ZERO) > 0.0);
            assert!(cache.bytes_per_second_once(threads, Duration::MAX) > 0.0, "it ends by itself");
        }
        assert!(PageCache::open([folder.path().join("none")]).is_err());
        assert_eq!(PageCache::open(&files[..1]).unwrap().bytes_per_second(2, Duration::MAX).to_bits(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn what_is_no_regular_file_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, file] = ["fifo", "file"].map(|name| folder.path().join(name));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        std::fs::write(&file, [7; 100]).unwrap();
        let cache = PageCache::open([&*fifo, &file, Path::new("/dev/zero")]).unwrap();
        assert_eq!(cache.pieces(1).iter().map(|piece| piece.len()).sum::<usize>(), 100);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn a_sum_has_every_byte() {
        let bytes: Vec<u8> = (0..200).collect();
        for length in 0..200 {
            let (words, rest) = bytes[..length].as_chunks();
            let words = words.iter().map(|word| u64::from_le_bytes(*word)).fold(0, u64::wrapping_add);
            let wanted = rest.iter().fold(words, |sum, &byte| sum.wrapping_add(byte.into()));
            assert_eq!(sum(&bytes[..length]), wanted);
        }
    }
}
