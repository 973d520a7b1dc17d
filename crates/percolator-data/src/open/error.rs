//! Why a path cannot be opened as a data set.

use std::io;
use std::path::{Path, PathBuf};

use percolator::source::SourceError;
use percolator_files::shown;
use percolator_files::what::Thing;

/// Why a path cannot be opened as a data set.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there, or it cannot be read.
    #[error("{}: cannot {action}: {error}{hint}", shown::path(path))]
    Io {
        /// The path.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The error.
        error: io::Error,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// Nothing there has records.
    #[error("{}: no data set: {found}{hint}", shown::path(path))]
    NoDataSet {
        /// The path.
        path: PathBuf,
        /// What is there, as in "it is a folder of images: make a data set of them" or "found a FIFO".
        found: String,
        /// What a data set is, if `found` does not say what to do; else empty.
        hint: &'static str,
    },
    /// A model is there, or an option has no use for what is there.
    #[error("{}: {message}", shown::path(path))]
    Refused {
        /// The path.
        path: PathBuf,
        /// What is there, and what to do about it.
        message: String,
    },
    /// The data set itself cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl OpenError {
    pub(super) fn refused(path: &Path, message: impl Into<String>) -> Self {
        OpenError::Refused { path: path.to_owned(), message: message.into() }
    }
}

/// A thing is at a path that is no data set.
pub(super) fn known(path: &Path, thing: &Thing) -> OpenError {
    OpenError::NoDataSet { path: path.to_owned(), found: format!("it is {thing}"), hint: "" }
}

/// What is at a path is no data set, and nothing else that is known.
pub(super) fn unknown(path: &Path, found: &str) -> OpenError {
    const HINT: &str = "; a data set is an LMDB (a folder with data.mdb), a LevelDB (a folder with CURRENT), \
                        TFRecord files, or a text file whose lines are an image's name and a label";
    OpenError::NoDataSet { path: path.to_owned(), found: format!("found {found}"), hint: HINT }
}

pub(super) fn cannot(path: &Path, action: &'static str, error: io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; check the path, and quote a pattern",
        io::ErrorKind::PermissionDenied => "; check the permissions of it and of the folders above it",
        _ => "",
    };
    OpenError::Io { path: path.to_owned(), action, error, hint }
}
