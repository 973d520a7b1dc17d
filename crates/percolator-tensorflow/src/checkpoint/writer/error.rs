//! What can go wrong while a checkpoint is written.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_leveldb::table::BuildError;

/// Why a checkpoint cannot be written. The prefix is the checkpoint's path without `.index`.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The prefix cannot be one of a checkpoint.
    #[error("{} cannot be the prefix of a checkpoint: {message}", shown::path(prefix))]
    Prefix {
        /// The prefix.
        prefix: PathBuf,
        /// What is wrong, and what to do.
        message: &'static str,
    },
    /// A checkpoint cannot have this many data files, or has no such one.
    #[error("checkpoint {}: {found} is no number of {what}: {allowed}", shown::path(prefix))]
    Shards {
        /// The prefix.
        prefix: PathBuf,
        /// What is counted.
        what: &'static str,
        /// The number found.
        found: usize,
        /// What is allowed.
        allowed: String,
    },
    /// There are files of a checkpoint with this prefix, which are to stay.
    #[error(
        "{}: there is a checkpoint, or a part of one; give another prefix, or let it be replaced",
        shown::path(prefix)
    )]
    Exists {
        /// The prefix.
        prefix: PathBuf,
    },
    /// The system refuses.
    #[error("{}: cannot {action}", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The name cannot be one of a tensor.
    #[error("checkpoint {}: no tensor can have the name {name}: {message}", shown::path(prefix))]
    Name {
        /// The prefix.
        prefix: PathBuf,
        /// The name, quoted.
        name: String,
        /// Why not, and what to do.
        message: &'static str,
    },
    /// The name is taken.
    #[error("checkpoint {}: {name} is there already: give each tensor its own name", shown::path(prefix))]
    Duplicate {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted; of a slice with its region.
        name: String,
    },
    /// A checkpoint cannot hold the tensor's type, shape or elements.
    #[error("checkpoint {}, tensor {name}: {reason}", shown::path(prefix))]
    Tensor {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// An earlier tensor was not written whole.
    #[error(
        "checkpoint {}: the tensor {name} was not written whole, so that the checkpoint cannot be: write it \
         anew",
        shown::path(prefix)
    )]
    Failed {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted.
        name: String,
    },
    /// The index cannot be written.
    #[error("{}: the index cannot be written", shown::path(path))]
    Index {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: BuildError,
    },
}

impl WriteError {
    pub(super) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| WriteError::Io { path, action, source }
    }
}

/// A tensor's name for a message, quoted.
pub(super) fn quoted(name: &[u8]) -> String {
    str::from_utf8(name).map_or_else(|_| shown::quoted(name).to_string(), crate::checkpoint::error::quoted)
}
