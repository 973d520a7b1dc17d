//! What can go wrong while a checkpoint is written.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_leveldb::table::BuildError;

/// Why a checkpoint cannot be written. The prefix is the checkpoint's path without `.index`.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No checkpoint can have this prefix, or this many data files, or it has no such one.
    #[error("checkpoint {}: {message}", shown::path(prefix))]
    Refused {
        /// The prefix.
        prefix: PathBuf,
        /// What is wrong, and what to do.
        message: String,
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
    /// A checkpoint cannot hold the tensor's name, type, shape or elements, or has such a tensor already.
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

    pub(super) fn refused(prefix: &Path, message: impl Into<String>) -> Self {
        WriteError::Refused { prefix: prefix.to_owned(), message: message.into() }
    }

    pub(super) fn tensor(prefix: &Path, name: &[u8], reason: impl Into<String>) -> Self {
        WriteError::Tensor { prefix: prefix.to_owned(), name: quoted(name), reason: reason.into() }
    }
}

/// A tensor's name for a message, quoted.
pub(super) fn quoted(name: &[u8]) -> String {
    str::from_utf8(name).map_or_else(|_| shown::quoted(name).to_string(), crate::checkpoint::error::quoted)
}
