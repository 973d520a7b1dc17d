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
    /// Something is there that is no data set.
    #[error(
        "{}: no data set: found {found}; a data set is an LMDB (a folder with data.mdb), a LevelDB (a folder \
         with CURRENT), TFRecord files, or a text file whose lines are an image's name and a label",
        shown::path(path)
    )]
    Unknown {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// Something is there that is no data set, and it is known what.
    #[error("{}: no data set: it is {thing}", shown::path(path))]
    Instead {
        /// The path.
        path: PathBuf,
        /// What is there, and what to do about it.
        thing: String,
    },
    /// A model's files are there, where records are needed.
    #[error(
        "{}: a model's files, which have no records; `percolator inspect` and `percolator model` read them",
        shown::path(path)
    )]
    Model {
        /// The path.
        path: PathBuf,
    },
    /// An option is given for which a data set of this kind has no use.
    #[error("{}: {}", shown::path(path), no_use(*kind, option))]
    NoUse {
        /// The path.
        path: PathBuf,
        /// What is there.
        kind: super::Kind,
        /// What the option is for.
        option: &'static str,
    },
    /// The data set itself cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Says what an option is for, and that it is not for this kind.
pub(crate) fn no_use(kind: super::Kind, option: &str) -> String {
    format!("{option}, and this is of the kind {kind}: leave it out")
}

/// What is at a path that is no data set.
pub(super) fn unknown(path: &Path, found: String) -> OpenError {
    let wanted = [Kind::Lmdb, Kind::LevelDb, Kind::TfRecord, Kind::List];
    let path = path.to_owned();
    match what::instead_of(&wanted, &path) {
        Some(thing) => OpenError::Instead { path, thing: thing.to_string() },
        None => OpenError::Unknown { path, found },
    }
}

pub(super) fn cannot(path: &Path, action: &'static str, error: io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; check the path, and quote a pattern",
        io::ErrorKind::PermissionDenied => "; check the permissions of it and of the folders above it",
        _ => "",
    };
    OpenError::Io { path: path.to_owned(), action, error, hint }
}
