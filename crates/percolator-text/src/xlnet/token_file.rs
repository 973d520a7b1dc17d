//! The tokens of a task in a temporary file, mapped: rows are cut from all places of a task's text, which may
//! be larger than memory.
//!
//! This module maps a file, so it has unsafe code. If the disk fails under the map, the kernel ends the
//! process (SIGBUS).
#![expect(unsafe_code, reason = "maps a file")]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// The file, being written.
#[derive(Debug)]
pub(super) struct TokenWriter {
    file: BufWriter<File>,
    /// The numbers that were written.
    len: usize,
}

impl TokenWriter {
    /// Starts a file in this folder. It has no name, so the kernel removes it whatever becomes of the
    /// process.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        Ok(TokenWriter { file: BufWriter::new(tempfile::tempfile_in(folder)?), len: 0 })
    }

    /// Appends numbers, and returns where they are.
    pub(super) fn append(&mut self, numbers: &[u32]) -> io::Result<Range<usize>> {
        self.file.write_all(bytemuck::cast_slice(numbers))?;
        let start = self.len;
        self.len += numbers.len();
        Ok(start..self.len)
    }

    pub(super) fn finish(self) -> io::Result<TokenFile> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if self.len == 0 {
            return Ok(TokenFile { map: None });
        }
        // SAFETY: the file has no name, and its only descriptor is dropped here: it cannot be written to or
        // truncated while it is mapped.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(TokenFile { map: Some(map) })
    }
}

/// The file, complete.
#[derive(Debug)]
pub(super) struct TokenFile {
    /// Whole numbers in the machine's byte order; `None` if there are none.
    map: Option<Mmap>,
}

impl TokenFile {
    /// The numbers at this place, which the writer returned.
    pub(super) fn get(&self, place: Range<usize>) -> &[u32] {
        self.map.as_ref().map_or(&[], |map| &bytemuck::cast_slice::<u8, u32>(map)[place])
    }

    pub(super) fn bytes(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn numbers_are_where_they_were_put() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TokenWriter::create(folder.path()).unwrap();
        let places = [&[1, 2][..], &[], &[u32::MAX]].map(|numbers| writer.append(numbers).unwrap());
        let file = writer.finish().unwrap();
        assert_eq!(places.map(|place| file.get(place).to_vec()), [vec![1, 2], vec![], vec![u32::MAX]]);
        assert_eq!(file.bytes(), 12);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it has no name");
        assert_eq!(TokenWriter::create(folder.path()).unwrap().finish().unwrap().get(0..0), &[0; 0]);
    }
}
