//! Why a store cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_leveldb::table::BuildError;

/// Why a store cannot be written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The output exists.
    #[error(
        "{}: it already exists; give another path, or --force to replace it once the new one is whole",
        shown::path(path)
    )]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// The output would replace what it is made of.
    #[error("{}: it holds the input, {}: give another path", shown::path(path), shown::path(input))]
    Same {
        /// The output.
        path: PathBuf,
        /// What is read.
        input: PathBuf,
    },
    /// Something other than a store is at the output's path.
    #[error(
        "{}: {found}: --force replaces only an LMDB, a LevelDB or a TFRecord file; give another path",
        shown::path(path)
    )]
    NotAStore {
        /// The output.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// An earlier run did not finish.
    #[error(
        "{}: the partial output of a run that did not finish is in {}; --resume goes on with it, --force \
         starts over",
        shown::path(path),
        shown::path(partial)
    )]
    Partial {
        /// The output.
        path: PathBuf,
        /// The folder with what was written.
        partial: PathBuf,
    },
    /// Something other than a run's partial output has the name of that.
    #[error("{}: {found}: a run would write here; move it away, or give another path", shown::path(path))]
    NotPartial {
        /// What is there.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// An earlier run of another number of outputs was ended while it gave them their names.
    #[error(
        "{}: a run was ended when some of its {found} outputs had their names, and this one has {outputs}: \
         end that one with --resume first",
        shown::path(partial)
    )]
    HalfNamed {
        /// The folder with those that do not have their names yet.
        partial: PathBuf,
        /// How many outputs that run has.
        found: usize,
        /// How many this run has.
        outputs: usize,
    },
    /// Another process writes the output.
    #[error("{}: another process writes to it now", shown::path(path))]
    InUse {
        /// The folder with what is being written.
        path: PathBuf,
    },
    /// A partial output is not as its writer left it.
    #[error("{}: {found}; --force starts over", shown::path(path))]
    Changed {
        /// The part that differs.
        path: PathBuf,
        /// What was found.
        found: String,
    },
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
    /// A record has a key that the store cannot have.
    #[error("{}: a record cannot be written: {cause}", shown::path(path))]
    Key {
        /// The store.
        path: PathBuf,
        /// What is wrong with the key.
        cause: String,
    },
    /// The database library refused.
    #[error("{}: {call} failed: {error}{}", shown::path(path), hint(*error))]
    Lmdb {
        /// The database.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// The library's error: the message says it.
        error: lmdb::Error,
    },
    /// A table of a LevelDB cannot be written.
    #[error("{}: {}", shown::path(path), shown::with_sources(error))]
    Table {
        /// The table.
        path: PathBuf,
        /// What is wrong: the message says it.
        error: BuildError,
    },
}

/// What liblmdb's error may mean: a write that was cut short, as by a full disk, becomes an I/O error.
fn hint(error: lmdb::Error) -> &'static str {
    match error {
        lmdb::Error::Other(code) if code == rustix::io::Errno::IO.raw_os_error() => " (the disk may be full)",
        _ => "",
    }
}

impl StoreError {
    /// Whether the disk, or the writer's share of it, is full, as far as the error tells.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let is_full = |error: &io::Error| {
            use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        };
        match self {
            StoreError::Io { error, .. } => is_full(error),
            StoreError::Lmdb { error: error @ lmdb::Error::Other(code), .. } => {
                is_full(&io::Error::from_raw_os_error(*code)) || !hint(*error).is_empty()
            }
            StoreError::Table { error: BuildError::Io(error), .. } => is_full(error),
            _ => false,
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let path = path.to_owned();
        move |error| StoreError::Io { path, action, error }
    }

    pub(super) fn lmdb(folder: &Path, call: &'static str) -> impl FnOnce(lmdb::Error) -> StoreError + use<> {
        let path = folder.to_owned();
        move |error| StoreError::Lmdb { path, call, error }
    }
}
