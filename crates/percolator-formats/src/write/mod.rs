//! Writes records with named parts as other libraries read them: shards of WebDataset, Parquet files.
//!
//! What a format cannot hold is refused, with the record's number: nothing is left out or rounded silently.

mod column;
mod member;
mod npy;
mod parquet;
mod tar;

use std::fmt;
use std::path::Path;

use percolator_files::whole_file::{Existing, WholeFile};

use crate::{FormatError, Key, Part};

pub use self::parquet::ParquetWriter;
pub use self::tar::TarWriter;

/// Writes a file of records. It has its name once it is [finished](Self::finish); one that is dropped before
/// leaves nothing.
pub trait RecordWriter: fmt::Debug {
    /// Adds a record.
    ///
    /// # Errors
    ///
    /// [`FormatError::Refused`] if the format cannot hold a part; [`FormatError::Io`] if the file cannot be
    /// written. The file is then not to be finished.
    fn put(&mut self, key: &Key<'_>, parts: &[Part<'_>]) -> Result<(), FormatError>;

    /// Completes the file, and gives it its name.
    ///
    /// # Errors
    ///
    /// [`FormatError::Io`] if it cannot be written.
    fn finish(self: Box<Self>, existing: Existing) -> Result<(), FormatError>;
}

/// Starts a file that is to have this name.
fn started(path: &Path) -> Result<WholeFile, FormatError> {
    WholeFile::create(path).map_err(|error| FormatError::io(path, "create the file", error))
}

/// What a writer calls a record that has no key: its number, with at least eight digits.
fn name_of(key: &Key<'_>, number: u64) -> Vec<u8> {
    match key {
        Key::Bytes(name) if !name.is_empty() => name.to_vec(),
        Key::Number(number) => format!("{number:08}").into_bytes(),
        Key::Bytes(_) | Key::None => format!("{number:08}").into_bytes(),
    }
}
