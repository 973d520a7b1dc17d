//! Why an input cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use percolator::source::SourceError;
use percolator_files::shown;

use crate::open::OpenError;

/// Why an input cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system refused.
    #[error("{}: cannot {action}: {error}", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's error: the message says it.
        error: io::Error,
    },
    /// A file or folder is not what it should be, or there is no memory to decode it.
    #[error("{}: {found}", shown::path(path))]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What was found, and what is allowed.
        found: String,
    },
    /// A path cannot be opened as a store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A list or a store cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Records of a store are lost, and their number is unknown, or all records after them are lost, too.
    #[error(
        "{error}; the records from number {first} on cannot be converted: write a store of all that can be \
         read, with `percolator verify {} --repair CLEAN`, and convert that",
        shown::shell_word(path)
    )]
    Lost {
        /// The store.
        path: PathBuf,
        /// The number of the first of them.
        first: u64,
        /// Why it cannot be read.
        error: Box<SourceError>,
    },
    /// It was told to end.
    #[error("the conversion was stopped")]
    Stopped,
}

impl InputError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> InputError + use<> {
        let path = path.to_owned();
        move |error| InputError::Io { path, action, error }
    }

    pub(crate) fn format(path: &Path, found: impl Into<String>) -> InputError {
        InputError::Format { path: path.to_owned(), found: found.into() }
    }
}
