//! A file that is read by position. Nothing is allocated for bytes that the file does not have.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::ConvertError;
use crate::paths::open_regular;

/// A regular file, open for reading by any number of threads.
#[derive(Debug)]
pub(super) struct InputFile {
    path: PathBuf,
    file: File,
    length: u64,
}

/// A part of a file: where damage in it is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) path: &'a Path,
    /// The tensor that the part belongs to, if the file has several.
    pub(super) tensor: Option<&'a str>,
    /// Where the part starts in the file.
    pub(super) offset: u64,
}

impl Part<'_> {
    /// Damage at this byte of the part.
    pub(super) fn damaged(
        &self,
        at: u64,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) -> ConvertError {
        ConvertError::Damaged {
            path: self.path.to_owned(),
            tensor: self.tensor.map(str::to_owned),
            offset: self.offset.saturating_add(at),
            found: found.into(),
            allowed: allowed.into(),
        }
    }

    /// Elements of a type that TensorFlow does not have.
    pub(super) fn foreign(&self, found: impl Into<String>, remedy: impl Into<String>) -> ConvertError {
        ConvertError::ForeignType {
            path: self.path.to_owned(),
            tensor: self.tensor.map(str::to_owned),
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

impl InputFile {
    pub(super) fn open(path: &Path) -> Result<Self, ConvertError> {
        let (file, length) = open_regular(path).map_err(ConvertError::read(path))?;
        Ok(InputFile { path: path.to_owned(), file, length })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes that the file had when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The file from this byte on, for reports.
    pub(super) fn part<'a>(&'a self, tensor: Option<&'a str>, offset: u64) -> Part<'a> {
        Part { path: &self.path, tensor, offset }
    }

    /// Reads these bytes, which the file must have.
    pub(super) fn read(&self, tensor: Option<&str>, range: Range<u64>) -> Result<Vec<u8>, ConvertError> {
        let length = range.end.saturating_sub(range.start);
        if range.end > self.length {
            let found = format!("{length} bytes should be here");
            let allowed = format!("the file ends at byte {}: it has been cut", self.length);
            return Err(self.part(tensor, range.start).damaged(0, found, allowed));
        }
        let mut bytes = Vec::new();
        let exact = usize::try_from(length).unwrap_or(usize::MAX);
        let read = bytes.try_reserve_exact(exact).map_err(|_| io::ErrorKind::OutOfMemory.into());
        let read = read.and_then(|()| {
            bytes.resize(exact, 0);
            self.file.read_exact_at(&mut bytes, range.start)
        });
        read.map_err(ConvertError::read(&self.path))?;
        Ok(bytes)
    }

    /// Reads up to as many bytes as the buffer has. Fewer are read only at the file's end.
    pub(super) fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(read as u64)) {
                Ok(0) => break,
                Ok(more) => read = read.saturating_add(more),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}
