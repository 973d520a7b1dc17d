//! What can be wrong with a source, one of its records or one of its files.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use percolator_files::{shown, what};

use super::image_list::ImageListError;
use super::leveldb::LevelDbError;
use super::lmdb::LmdbError;
use super::tfrecord::TfRecordError;
use crate::record::Key;

/// An error of a source, or of one of its records or files.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// An error of a caller-implemented source.
    #[error("{}: {message}", shown::path(path))]
    Other {
        /// The source.
        path: PathBuf,
        /// The source's message.
        message: String,
    },
    /// The system refuses: nothing is at the path, or it cannot be read or mapped.
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
    /// Something is at the path, but not a database of this kind.
    #[error("{}: not {kind}: there is no {missing} in it{hint}", shown::path(path))]
    NotADatabase {
        /// The folder, or the file.
        path: PathBuf,
        /// The kind of database expected, with its article.
        kind: &'static str,
        /// The file that is missing.
        missing: &'static str,
        /// What to do instead; may be empty.
        hint: &'static str,
    },
    /// Something else is at the path, and its kind is known.
    #[error("{}: not {wanted}: it is {thing}", shown::path(path))]
    Instead {
        /// The path.
        path: PathBuf,
        /// What was wanted, with its article.
        wanted: &'static str,
        /// What is there, and what to do about it.
        thing: String,
    },
    /// The database holds no record, so there is nothing to feed.
    #[error("{}: there is no record: a feed needs at least 1", shown::path(path))]
    Empty {
        /// The database.
        path: PathBuf,
    },
    /// The database ended or changed where it must not.
    #[error("{}: record {index}: {message}", shown::path(path))]
    Broken {
        /// The database.
        path: PathBuf,
        /// The position of the record that could not be read.
        index: u64,
        /// What was found.
        message: String,
    },
    /// The database was written to after its records were counted, and before they were read.
    #[error(
        "{}: it was written to while the feed was built, so its records are not those of the feed's plan; \
         build the feed again; if its databases were joined, join them again first",
        shown::path(path)
    )]
    Committed {
        /// The database.
        path: PathBuf,
    },
    /// The database's records cannot be indexed.
    #[error("{}: its records cannot be addressed by position: {found}; {hint}", shown::path(path))]
    NoPositions {
        /// The database.
        path: PathBuf,
        /// What prevents it.
        found: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A record and its companion have different keys.
    #[error(
        "{}: record {index} has the key {key}, but its companion in {} has the key {found}; pair databases \
         that were written together, or match them by order",
        shown::path(path),
        shown::path(companions)
    )]
    KeysDiffer {
        /// The source.
        path: PathBuf,
        /// The source of its companions.
        companions: PathBuf,
        /// The position of both records.
        index: u64,
        /// The record's key.
        key: Key,
        /// The companion's key.
        found: Key,
    },
    /// A source ended before the one it is paired with.
    #[error(
        "{}: it ends after {records} records, but {}, with which it is paired, continues; pair databases \
         with the same number of records",
        shown::path(path),
        shown::path(longer)
    )]
    Unpaired {
        /// The source that ended.
        path: PathBuf,
        /// How many records it has.
        records: u64,
        /// The source that continues.
        longer: PathBuf,
    },
    /// A LevelDB cannot be read.
    #[error(transparent)]
    LevelDb(LevelDbError),
    /// A TFRecord file cannot be read.
    #[error(transparent)]
    TfRecord(TfRecordError),
    /// An LMDB cannot be read.
    #[error(transparent)]
    Lmdb(#[from] LmdbError),
    /// A list of images cannot be read.
    #[error(transparent)]
    ImageList(#[from] ImageListError),
}

/// Errors that other sources can have, too, are reported as theirs.
impl From<LevelDbError> for SourceError {
    fn from(error: LevelDbError) -> Self {
        match error {
            LevelDbError::Io { path, action, message, kind, code } => {
                SourceError::Io { path, action, message, kind, code }
            }
            LevelDbError::NotADatabase { path, hint } => {
                SourceError::NotADatabase { path, kind: "a LevelDB database", missing: "CURRENT", hint }
            }
            LevelDbError::Instead { path, thing } => {
                SourceError::Instead { path, wanted: "a LevelDB", thing }
            }
            error => SourceError::LevelDb(error),
        }
    }
}

/// Errors that other sources can have, too, are reported as theirs.
impl From<TfRecordError> for SourceError {
    fn from(error: TfRecordError) -> Self {
        match error {
            TfRecordError::Io { path, action, message, kind, code } => {
                SourceError::Io { path, action, message, kind, code }
            }
            TfRecordError::Instead { path, wanted, thing } => SourceError::Instead { path, wanted, thing },
            error => SourceError::TfRecord(error),
        }
    }
}

impl SourceError {
    /// Creates the error of a caller-implemented source, from the source's path and a message or another
    /// error, whose causes become part of the message.
    pub fn other(path: impl Into<PathBuf>, message: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message: Box<dyn Error + Send + Sync> = message.into();
        SourceError::Other { path: path.into(), message: shown::with_sources(&*message) }
    }

    /// Returns the file or folder in which something was found, if that is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            SourceError::Other { path, .. }
            | SourceError::Io { path, .. }
            | SourceError::NotADatabase { path, .. }
            | SourceError::Instead { path, .. }
            | SourceError::Empty { path }
            | SourceError::Broken { path, .. }
            | SourceError::Committed { path }
            | SourceError::NoPositions { path, .. }
            | SourceError::KeysDiffer { path, .. }
            | SourceError::Unpaired { path, .. } => Some(path),
            SourceError::Lmdb(error) => Some(error.path()),
            SourceError::ImageList(error) => Some(error.path()),
            SourceError::LevelDb(error) => Some(error.file()),
            SourceError::TfRecord(error) => Some(error.file()),
        }
    }

    /// What is at a path instead of what was wanted, if that is known; `None` if it may be a damaged
    /// database.
    pub(crate) fn instead(path: &Path, wanted: &'static str, kinds: &[what::Kind]) -> Option<Self> {
        let thing = what::instead_of(kinds, path)?.to_string();
        Some(SourceError::Instead { path: path.to_owned(), wanted, thing })
    }

    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        SourceError::Io { path, action, message, kind: error.kind(), code: error.raw_os_error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the line is dead")]
    struct Dead(#[source] io::Error);

    #[test]
    fn the_error_of_a_callers_source_is_said_with_its_causes() {
        let said = |error: SourceError| error.to_string();
        let dead = Dead(io::Error::other("no carrier"));
        assert_eq!(said(SourceError::other("remote", dead)), "remote: the line is dead: no carrier");
        assert_eq!(said(SourceError::other("remote", "it ended")), "remote: it ended");
    }
}
