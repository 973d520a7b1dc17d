//! What can be wrong with a TFRecord file.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use crate::compression::Compression;

/// Why a TFRecord file cannot be read or written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TfRecordError {
    /// The system refuses: nothing is at the path, or it cannot be read, mapped or written.
    #[error("{}: cannot {action}: {message}", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The operating system's message.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
        /// The operating system's number of that error (`errno`), if it is the system's.
        code: Option<i32>,
    },
    /// Something else is at the path, and it is known what.
    #[error("{}: not {wanted}: it is {thing}", shown::path(path))]
    Instead {
        /// The path.
        path: PathBuf,
        /// What was wanted, with its article.
        wanted: &'static str,
        /// What is there, and what to do about it.
        thing: String,
    },
    /// The checksum of a record's length is wrong, so the length is, too.
    #[error(
        "{}: {at}: its length reads as {length}, with the checksum {found:#010x} instead of {stored:#010x}; \
         {}",
        shown::path(file),
        what_to_do(at)
    )]
    Length {
        /// The file.
        file: PathBuf,
        /// Where the record starts.
        at: RecordAt,
        /// The length that is stored.
        length: u64,
        /// The masked checksum of that length.
        found: u32,
        /// The masked checksum that is stored.
        stored: u32,
    },
    /// The checksum of a record's data is wrong.
    #[error(
        "{}: {at}: its {bytes} bytes have the checksum {found:#010x} instead of {stored:#010x}; the file is \
         damaged: copy it again from where it came",
        shown::path(file)
    )]
    Data {
        /// The file.
        file: PathBuf,
        /// Where the record starts.
        at: RecordAt,
        /// The length of its data.
        bytes: u64,
        /// The masked checksum of the data.
        found: u32,
        /// The masked checksum that is stored.
        stored: u32,
    },
    /// The file ends inside a record.
    #[error(
        "{}: {at}: it takes {needed} bytes with its length and its checksums, and the file ends after {left} \
         of them: it is cut; copy it again from where it came",
        shown::path(file)
    )]
    Cut {
        /// The file.
        file: PathBuf,
        /// Where the record starts.
        at: RecordAt,
        /// The bytes that the record takes: at least 12; if its length is known, with its data.
        needed: u64,
        /// The bytes that the file has from there on.
        left: u64,
    },
    /// A record of a compressed file is longer than the file can unpack to.
    #[error(
        "{}: {at}: its length is {length}, but a file of {packed_bytes} bytes unpacks to at most {allowed}; \
         the file is damaged or forged: copy it again from where it came",
        shown::path(file)
    )]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Where the record starts.
        at: RecordAt,
        /// The length that is stored.
        length: u64,
        /// The length of the file.
        packed_bytes: u64,
        /// The most that it can unpack to.
        allowed: u64,
    },
    /// A record is longer than what is read.
    #[error(
        "{}: {at}: it has {length} bytes of data, and at most {allowed} are read; write it anew as shorter \
         records",
        shown::path(file)
    )]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Where the record starts.
        at: RecordAt,
        /// The length that is stored.
        length: u64,
        /// The most that a record may have.
        allowed: u64,
    },
    /// A compressed file cannot be unpacked.
    #[error(
        "{}: {at}: it cannot be unpacked as {compression} near byte {packed_offset} of the file: {message}; \
         copy it again from where it came, or state how it is compressed",
        shown::path(file)
    )]
    Packed {
        /// The file.
        file: PathBuf,
        /// Where the record starts that could not be unpacked whole.
        at: RecordAt,
        /// How the file is compressed, as stated or detected.
        compression: Compression,
        /// The approximate place of the fault in the compressed file, in bytes.
        packed_offset: u64,
        /// What the decompressor reports.
        message: String,
    },
    /// The records of a compressed file were requested by position.
    #[error(
        "{}: it is compressed, so it can only be read from front to back: its records cannot be shuffled or \
         mixed, and its steps cannot be handed out in blocks; for that, convert it first: \
         percolator convert records IN OUT --backend tfrecord",
        shown::path(file)
    )]
    InOrderAlone {
        /// The file.
        file: PathBuf,
    },
    /// Something other than a regular file is there.
    #[error("{}: found {found}; a TFRecord is a regular file", shown::path(file))]
    NoFile {
        /// Its path.
        file: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A folder has no file, or a pattern matches none.
    #[error("{}: {message}", shown::path(path))]
    NoFiles {
        /// The folder, or the pattern.
        path: PathBuf,
        /// What was looked for.
        message: &'static str,
    },
    /// Files are missing that the names of others count: `train-00001-of-00003`.
    #[error(
        "{}: {} is missing{}: copy it from where the others came, or name those that are meant with a \
         pattern that leaves it out",
        shown::path(path),
        shown::path(Path::new(first)),
        match *missing {
            1 => format!(", of {files} files"),
            missing => format!(", and {} more of {files} files", missing - 1),
        }
    )]
    Missing {
        /// The folder, or the pattern.
        path: PathBuf,
        /// The name of the first that is missing.
        first: OsString,
        /// How many are missing.
        missing: usize,
        /// How many there should be.
        files: u32,
    },
    /// A file of a folder, or one that a pattern matches, is being replaced, and its successor is not there.
    #[error(
        "{}: it is missing: a conversion replaces it, or was ended while it did; wait for that, run it \
         again, or take the ending .percolator-replaced off its name",
        shown::path(file)
    )]
    BeingReplaced {
        /// The file.
        file: PathBuf,
    },
    /// The file is not the one that was opened, or has another length now.
    #[error(
        "{}: it had {was} bytes when it was opened, and {found}; open it when nobody writes to it",
        shown::path(file)
    )]
    Changed {
        /// The file.
        file: PathBuf,
        /// Its length when it was opened.
        was: u64,
        /// What is there now.
        found: String,
    },
}

impl TfRecordError {
    /// Returns the file in which it was found, or the path at which there is none.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            TfRecordError::Length { file, .. }
            | TfRecordError::Data { file, .. }
            | TfRecordError::Cut { file, .. }
            | TfRecordError::TooLong { file, .. }
            | TfRecordError::TooLarge { file, .. }
            | TfRecordError::Packed { file, .. }
            | TfRecordError::InOrderAlone { file }
            | TfRecordError::NoFile { file, .. }
            | TfRecordError::NoFiles { path: file, .. }
            | TfRecordError::Io { path: file, .. }
            | TfRecordError::Instead { path: file, .. }
            | TfRecordError::Missing { path: file, .. }
            | TfRecordError::BeingReplaced { file }
            | TfRecordError::Changed { file, .. } => file,
        }
    }

    /// Returns where the record is that cannot be read, if it is an error of one.
    #[must_use]
    pub fn at(&self) -> Option<RecordAt> {
        match self {
            TfRecordError::Length { at, .. }
            | TfRecordError::Data { at, .. }
            | TfRecordError::Cut { at, .. }
            | TfRecordError::TooLong { at, .. }
            | TfRecordError::TooLarge { at, .. }
            | TfRecordError::Packed { at, .. } => Some(*at),
            TfRecordError::Io { .. }
            | TfRecordError::Instead { .. }
            | TfRecordError::InOrderAlone { .. }
            | TfRecordError::NoFile { .. }
            | TfRecordError::NoFiles { .. }
            | TfRecordError::Missing { .. }
            | TfRecordError::BeingReplaced { .. }
            | TfRecordError::Changed { .. } => None,
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        TfRecordError::Io { path, action, message, kind: error.kind(), code: error.raw_os_error() }
    }
}

/// Where a record is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAt {
    /// Its number in the file, from 0, if it is known.
    pub record: Option<u64>,
    /// The byte where its length starts.
    pub offset: u64,
    /// Whether `offset` counts unpacked bytes, because the file is compressed.
    pub is_unpacked: bool,
}

impl fmt::Display for RecordAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordAt { record, offset, is_unpacked } = self;
        match record {
            Some(record) => write!(f, "record {record} at byte {offset}")?,
            None => write!(f, "the record at byte {offset}")?,
        }
        f.write_str(if *is_unpacked { " (unpacked)" } else { "" })
    }
}

fn what_to_do(at: &RecordAt) -> &'static str {
    match at {
        RecordAt { record: Some(0), is_unpacked: false, .. } => {
            "it is not a TFRecord file, it is compressed in another way, or it is damaged"
        }
        _ => "the file is damaged: copy it again from where it came",
    }
}
