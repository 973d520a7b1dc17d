//! Why files cannot be kept.

use std::io;
use std::path::Path;

use percolator_files::{IoCause, shown};

/// Why a file cannot be written, read, listed or removed.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such file.
    #[error("there is no file {path}")]
    Missing {
        /// Where it would be.
        path: String,
    },
    /// The place where files are kept is not there, or is no folder.
    #[error("the store {path} is no folder that can be used: make it, or mount it, and try again")]
    NoStore {
        /// The place.
        path: String,
        /// The cause.
        source: IoCause,
    },
    /// It failed in another way.
    #[error("could not {what} {path}{advice}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// The file, or the store.
        path: String,
        /// What to do about it, if that is known, after a colon.
        advice: &'static str,
        /// The cause.
        source: IoCause,
    },
}

impl StoreError {
    /// Says what failed, and where, and what to do about the cause.
    #[must_use]
    pub fn new(what: &'static str, path: &str, error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let advice = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => {
                ": the store is full, or a quota is used up: make room in it"
            }
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => {
                ": the store is read-only, or belongs to another user"
            }
            _ => "",
        };
        StoreError::Io { what, path: shown::message(path).to_string(), advice, source: error.into() }
    }

    /// The same for a file.
    pub(super) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| StoreError::new(what, &path.to_string_lossy(), error)
    }
}
