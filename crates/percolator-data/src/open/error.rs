//! Why a path cannot be opened as a data set.

use std::io;
use std::path::{Path, PathBuf};

use percolator::source::SourceError;
use percolator_files::shown;
use percolator_files::what::{self, Kind};

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
    /// Something is there that is no data set, or for which an option has no use.
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

/// What is at a path that is no data set.
pub(super) fn unknown(path: &Path, found: &str) -> OpenError {
    const WANTED: [Kind; 4] = [Kind::Lmdb, Kind::LevelDb, Kind::TfRecord, Kind::List];
    let message = match what::instead_of(&WANTED, path) {
        Some(thing) => format!("no data set: it is {thing}"),
        None => format!(
            "no data set: found {found}; a data set is an LMDB (a folder with data.mdb), a LevelDB (a folder \
             with CURRENT), TFRecord files, or a text file whose lines are an image's name and a label"
        ),
    };
    OpenError::refused(path, message)
}

pub(super) fn cannot(path: &Path, action: &'static str, error: io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; check the path, and quote a pattern",
        io::ErrorKind::PermissionDenied => "; check the permissions of it and of the folders above it",
        _ => "",
    };
    OpenError::Io { path: path.to_owned(), action, error, hint }
}
