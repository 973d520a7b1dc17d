//! What can be wrong with a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_leveldb::table::TableError;

/// Why a checkpoint, or a tensor of it, cannot be read. Offsets count from the start of a file.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error("{}: cannot {action}: {message}", shown::path(file))]
    Io {
        /// The file.
        file: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The kind of error.
        kind: io::ErrorKind,
        /// What the system reports.
        message: String,
    },
    /// There is no checkpoint of this name.
    #[error(
        "{}: there is no such file, so there is no checkpoint of this name; {remedy}",
        shown::path(index)
    )]
    Missing {
        /// The index that was looked for.
        index: PathBuf,
        /// What to do.
        remedy: String,
    },
    /// The index is no sorted table, or is damaged.
    #[error("{}: {error}; copy the checkpoint again from where it came", shown::path(index))]
    Table {
        /// The index.
        index: PathBuf,
        /// What is wrong with the table.
        error: TableError,
    },
    /// What is there is not the index of a checkpoint that can be read: it is something else, of another
    /// version or format, or has no graph of objects, or a malformed one.
    #[error("{}: {message}", shown::path(index))]
    Index {
        /// The index, or the file in its place.
        index: PathBuf,
        /// What is wrong, and what to do.
        message: String,
    },
    /// An entry of the index contradicts itself, another entry, or the format.
    #[error("{}: the entry of {}: {message}", shown::path(index), quoted(tensor))]
    Entry {
        /// The index.
        index: PathBuf,
        /// The tensor, or the entry's key.
        tensor: String,
        /// What is wrong: what was found, and what is allowed.
        message: String,
    },
    /// A data file is missing.
    #[error(
        "{}: this file is missing; the tensor {} and others are in it: copy all {shards} data files of the \
         checkpoint",
        shown::path(file),
        quoted(tensor)
    )]
    MissingShard {
        /// The data file.
        file: PathBuf,
        /// The tensor that was wanted of it.
        tensor: String,
        /// How many data files the checkpoint has.
        shards: u32,
    },
    /// A tensor reaches past the end of its data file.
    #[error(
        "{}: the tensor {} takes {bytes} bytes from byte {offset} on, and the file has {found}: it is cut, \
         or of another checkpoint; copy it again from where it came",
        shown::path(file),
        quoted(tensor)
    )]
    Cut {
        /// The data file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Where it starts.
        offset: u64,
        /// How many bytes it takes.
        bytes: u64,
        /// The length of the file.
        found: u64,
    },
    /// A tensor's bytes are not those that were written.
    #[error(
        "{}: the {bytes} bytes of the tensor {} at byte {offset} have the masked crc32c {found:#010x} \
         instead of {stored:#010x}: the file is damaged, or of another checkpoint; copy it again from where \
         it came",
        shown::path(file),
        quoted(tensor)
    )]
    Checksum {
        /// The data file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Where it starts.
        offset: u64,
        /// How many bytes it takes.
        bytes: u64,
        /// The masked checksum of these bytes.
        found: u32,
        /// The masked checksum in the index.
        stored: u32,
    },
    /// Tensors claim the same bytes of a data file.
    #[error(
        "{}: the tensor {} and others before it claim more bytes of this file than it has: it is cut, or the \
         index is forged; copy the checkpoint again from where it came",
        shown::path(file),
        quoted(tensor)
    )]
    Shared {
        /// The data file.
        file: PathBuf,
        /// The first tensor for which none are left.
        tensor: String,
    },
    /// The strings of a tensor are malformed.
    #[error(
        "{}: the tensor {} at byte {offset}: {message}; the file is damaged, or of another checkpoint: copy \
         it again from where it came",
        shown::path(file),
        quoted(tensor)
    )]
    Strings {
        /// The data file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Where it starts.
        offset: u64,
        /// What is wrong.
        message: String,
    },
    /// There is no tensor of this name.
    #[error("{}: there is no tensor {}; {}", shown::path(index), quoted(tensor), near_names(near))]
    Unknown {
        /// The index.
        index: PathBuf,
        /// The name that was looked for.
        tensor: String,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// A tensor cannot be read as it was asked for: a region is not within it, memory does not fit it or is
    /// not there, or what a big-endian machine wrote can only be verified.
    #[error("{}: the tensor {}: {message}", shown::path(index), quoted(tensor))]
    Tensor {
        /// The index.
        index: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        message: String,
    },
}

impl CheckpointError {
    pub(crate) fn io(file: &Path, action: &'static str, error: &io::Error) -> Self {
        CheckpointError::Io { file: file.to_owned(), action, kind: error.kind(), message: error.to_string() }
    }
}

/// Displays a name, in quotes, without control characters, and no longer than is useful.
pub(crate) fn quoted(name: &str) -> String {
    format!("{:?}", shown::front(name))
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() {
        return "no name is like it: list the checkpoint's tensors".to_owned();
    }
    let names: Vec<_> = near.iter().map(|name| quoted(name)).collect();
    format!("names like it: {}", names.join(", "))
}
