//! A Parquet file's bytes: parts of its map, or read for the purpose.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use percolator_files::Access;

use crate::table_files::mapped;
use crate::{DataFile, FormatError};

/// How many bytes are read at once where it is not known how many are wanted: the head of a page.
const PIECE: usize = 1024;

/// A Parquet file.
#[derive(Clone, Debug)]
pub(super) struct ParquetSource {
    file: Arc<DataFile>,
    whole: Option<Bytes>,
}

impl ParquetSource {
    pub(super) fn open(path: &Path, access: Access) -> Result<Self, FormatError> {
        let file = DataFile::open(path, access)?;
        Ok(ParquetSource { whole: mapped(&file), file: Arc::new(file) })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn length(&self) -> u64 {
        self.file.bytes()
    }

    /// A range of the file.
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Bytes, FormatError> {
        let ends = (usize::try_from(range.start), usize::try_from(range.end));
        match (&self.whole, ends) {
            (Some(whole), (Ok(start), Ok(end))) if start <= end && end <= whole.len() => {
                Ok(whole.slice(start..end))
            }
            _ => {
                let mut bytes = Vec::new();
                // Compares the range with the file's length before it allocates.
                self.file.lend(range, &mut bytes)?;
                Ok(bytes.into())
            }
        }
    }
}

impl Length for ParquetSource {
    fn len(&self) -> u64 {
        self.length()
    }
}

impl ChunkReader for ParquetSource {
    type T = BufReader<SourceReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::with_capacity(PIECE, SourceReader { source: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        let end = end.ok_or_else(|| ParquetError::EOF("a range beyond all files".to_owned()))?;
        self.bytes(start..end).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Reads on from a place.
#[derive(Debug)]
pub(super) struct SourceReader {
    source: ParquetSource,
    at: u64,
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.at.saturating_add(buffer.len() as u64).min(self.source.length());
        if end <= self.at {
            return Ok(0);
        }
        let bytes = self.source.bytes(self.at..end).map_err(io::Error::other)?;
        let read = (&*bytes).read(buffer)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}
