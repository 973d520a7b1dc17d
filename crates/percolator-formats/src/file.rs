//! A file that is mapped, or read piece by piece.

#![expect(unsafe_code, reason = "the file is mapped")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use percolator_files::{Access, KeptMaps, Reading};

use crate::FormatError;

/// A mapped file.
///
/// **Nothing in it changes, moves or is freed before it is dropped.** Unsafe code may rely on that, as far as
/// the file is not written to.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
    _kept: KeptMaps,
}

impl AsRef<[u8]> for FileMap {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

/// A data file, opened for reading. Its length is that of the moment when it was opened.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    map: Option<Arc<FileMap>>,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub enum Lent<'a> {
    /// This range of a map, which may be kept beside the bytes for as long as they are used.
    Mapped(&'a Arc<FileMap>, Range<usize>),
    /// Bytes of a buffer that the next step reuses.
    Buffer(&'a [u8]),
}

impl<'a> Lent<'a> {
    /// The bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Lent::Mapped(map, range) => &map.map[range.clone()],
            Lent::Buffer(bytes) => bytes,
        }
    }
}

impl DataFile {
    /// Opens a file, and maps it if `access` says so and the process has a map left.
    ///
    /// # Errors
    ///
    /// [`FormatError::Io`] if it cannot be opened or is not a regular file.
    pub fn open(path: &Path, access: Access) -> Result<Self, FormatError> {
        let failed = |error| FormatError::io(path, "open the file", error);
        let (file, bytes) = percolator_files::input_file::open(path).map_err(failed)?;

        let map = match access.of(&file) {
            Reading::Mapped => map_of(&file, bytes).map_err(|e| FormatError::io(path, "map the file", e))?,
            Reading::Read => None,
        };
        Ok(DataFile { path: path.to_owned(), file, bytes, map })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The map, if the file is mapped.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<FileMap>> {
        self.map.as_ref()
    }

    /// Lends a range from the map, or reads it into the buffer, which then has it alone.
    ///
    /// # Errors
    ///
    /// [`FormatError::Damaged`] if the file ends before the range does, which is noticed before anything is
    /// allocated; [`FormatError::Io`] if it cannot be read.
    pub fn lend<'a>(&'a self, range: Range<u64>, buffer: &'a mut Vec<u8>) -> Result<Lent<'a>, FormatError> {
        if range.start > range.end || range.end > self.bytes {
            let what = format!(
                "{} bytes are wanted, and the file has {} bytes: it is cut; copy it again from where it came",
                range.end.saturating_sub(range.start),
                self.bytes
            );
            return Err(FormatError::damaged(&self.path, what).byte(range.start));
        }
        let index = |at: u64| usize::try_from(at).map_err(|_| self.too_large());
        match &self.map {
            Some(map) => Ok(Lent::Mapped(map, index(range.start)?..index(range.end)?)),
            None => {
                buffer.clear();
                buffer.resize(index(range.end - range.start)?, 0);
                self.file
                    .read_exact_at(buffer, range.start)
                    .map_err(|error| FormatError::io(&self.path, "read the file", error))?;
                Ok(Lent::Buffer(buffer))
            }
        }
    }

    /// As [`lend`](Self::lend), without the map.
    ///
    /// # Errors
    ///
    /// As [`lend`](Self::lend).
    pub fn read<'a>(&'a self, range: Range<u64>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], FormatError> {
        self.lend(range, buffer).map(|lent| lent.bytes())
    }

    /// A reader of all of its bytes, from the first one, for what is unpacked in order.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> FileReader {
        FileReader { file: Arc::clone(self), at: 0 }
    }

    fn too_large(&self) -> FormatError {
        FormatError::io(&self.path, "address the file", io::ErrorKind::FileTooLarge.into())
    }
}

/// Maps a file; `None` if it is empty, or the process has no map left.
fn map_of(file: &File, bytes: u64) -> io::Result<Option<Arc<FileMap>>> {
    let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let kept = KeptMaps::take(usize::from(length > 0));
    if kept.count() == 0 {
        return Ok(None);
    }
    // SAFETY: the map gives out shared references only. That no other program writes to the file or truncates
    // it is the assumption under which a file is mapped (`Access::Mapped`, docs/design.md).
    match unsafe { MmapOptions::new().len(length).map(file) } {
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Ok(None),
        Err(error) => Err(error),
        Ok(map) => Ok(Some(Arc::new(FileMap { map, _kept: kept }))),
    }
}

/// Reads a file in order.
#[derive(Debug)]
pub struct FileReader {
    file: Arc<DataFile>,
    at: u64,
}

impl io::Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.file.map() {
            Some(map) => {
                let rest = map.as_ref().as_ref().get(usize::try_from(self.at).unwrap_or(usize::MAX)..);
                io::Read::read(&mut rest.unwrap_or_default(), buffer)?
            }
            None => self.file.file.read_at(buffer, self.at)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}
