//! Arrow's files and streams.
//!
//! A file has a table of its batches, so that a row is found by its number. A stream has none: its messages
//! are walked once, their bodies passed over. Batches that are not compressed are used where they lie in the
//! map. All that they state is compared with what is there, offsets and texts by Arrow itself.

mod batch;
mod file;
mod message;
mod stream;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use self::file::ArrowFile;
use self::message::ArrowSource;
use self::stream::ArrowStream;
use crate::known_settings::KnownSettings;
use crate::table_files::{files_of, has_extension};
use crate::{DataFile, FormatError, Options, Shard};

/// What a file begins with, and ends with.
const MAGIC: &[u8] = b"ARROW1";

/// What a message begins with.
const CONTINUATION: [u8; 4] = [0xFF; 4];

const EXTENSIONS: [&str; 5] = ["arrow", "arrows", "feather", "ipc", "arrow_stream"];

/// Whether it is an Arrow file or stream, or named like one.
#[must_use]
pub fn is(path: &Path, head: &[u8]) -> bool {
    let metadata = |head: &[u8]| {
        let length = head.strip_prefix(&CONTINUATION)?.first_chunk::<4>()?;
        Some(i32::from_le_bytes(*length)).filter(|length| *length > 0 && length % 8 == 0)
    };
    head.starts_with(MAGIC)
        || metadata(head).is_some()
        || (!head.is_empty() && has_extension(path, &EXTENSIONS))
}

/// Opens a file or a stream, told apart by their first bytes, or all of a folder, ordered by their names.
///
/// # Errors
///
/// [`FormatError`] if one cannot be opened, is damaged, or has a type that is not read.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "arrow", options, &[])?;
    files_of(path, &EXTENSIONS)?.iter().map(|file| open_one(file, options)).collect()
}

/// Opens one file or stream.
pub(crate) fn open_one(path: &Path, options: &Options) -> Result<Arc<dyn Shard>, FormatError> {
    let file = DataFile::open(path, options.access)?;
    let all = 0..file.bytes();
    open_within(file, all, options)
}

/// Opens what lies in a range of a file, which has the range.
pub(crate) fn open_within(
    file: DataFile,
    within: Range<u64>,
    options: &Options,
) -> Result<Arc<dyn Shard>, FormatError> {
    let source = ArrowSource::new(file, within);
    let head = source.buffer(0..source.bytes().min(8))?;
    if head.starts_with(b"FEA1") {
        let what = "it is a Feather file of version 1, which is not read: write it again with version 2";
        return Err(FormatError::refused(source.path(), what));
    }
    if head.starts_with(MAGIC) {
        return Ok(Arc::new(ArrowFile::open(source, options)?));
    }
    Ok(Arc::new(ArrowStream::open(source, options)?))
}
