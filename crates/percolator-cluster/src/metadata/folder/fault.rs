//! What can go wrong inside a folder; the request is added later.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHORT_READ, SQLITE_IOERR_WRITE};

use crate::metadata::MetadataError;

/// What went wrong. [`Fault::at`] makes it the caller's error.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operating system failed, as it says itself or as SQLite saw it.
    System(io::Error),
    /// Another process, or another thread, was in the way for too long.
    Occupied,
    /// The folder cannot be used, and why.
    Denied(String),
    /// The records are damaged, and how.
    Damaged(String),
    /// It is the caller's own error.
    Asked(MetadataError),
}

impl Fault {
    /// The error of a caller who asked for `what`, has waited, and allows so many bytes.
    pub(super) fn at(
        self,
        place: &str,
        what: &'static str,
        waited: Duration,
        bytes_max: u64,
    ) -> MetadataError {
        const OCCUPIED: &str = "another process, or a thread of this one, holds a lock of metadata.sqlite*: \
                                it was stopped, or its disk hangs; `lslocks` lists who holds it";
        let (place, is_full) = (place.to_owned(), self.is_full());
        match self {
            Fault::Asked(error) => error,
            Fault::Denied(message) => MetadataError::Denied { place, what, message },
            Fault::Damaged(message) => MetadataError::Damaged { place, message },
            Fault::Occupied => {
                let source = Arc::new(io::Error::other(OCCUPIED));
                MetadataError::Unreachable { place, what, waited, source: Some(source) }
            }
            Fault::System(error) if is_full => {
                let message = format!(
                    "{error}: at most {bytes_max} bytes are allowed in metadata.sqlite: remove records, open \
                     the folder with a higher limit, or make room on its disk; nothing was changed"
                );
                MetadataError::Full { place, message }
            }
            Fault::System(error) => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    let message = format!("{error}: this process must be able to write there, also to read");
                    MetadataError::Denied { place, what, message }
                }
                _ => MetadataError::Failed { place, what, source: Arc::new(error) },
            },
        }
    }

    /// Whether there is no room for what was to be written.
    pub(super) fn is_full(&self) -> bool {
        use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};

        let Fault::System(error) = self else { return false };
        matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

fn damaged(error: &rusqlite::Error) -> Fault {
    Fault::Damaged(format!("metadata.sqlite is damaged: SQLite says: {error}; use another folder"))
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        use ErrorCode::{
            DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, FileLockingProtocolFailed, NotADatabase,
            PermissionDenied, ReadOnly, Unknown,
        };

        let code = error.sqlite_extended_error_code();
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed) => Fault::Occupied,
            // A statement of ours that cannot be understood, a value that none of our columns has, and a file
            // that ends too early are damage as well.
            None | Some(DatabaseCorrupt | NotADatabase | Unknown) => damaged(&error),
            Some(_) if code == Some(SQLITE_IOERR_SHORT_READ) => damaged(&error),
            Some(DiskFull) => Fault::System(io::Error::new(ErrorKind::StorageFull, error)),
            Some(PermissionDenied | ReadOnly) => {
                Fault::System(io::Error::new(ErrorKind::PermissionDenied, error))
            }
            // A quota, or a limit of how long files may be. (It may be a disk that fails, too.)
            Some(_) if matches!(code, Some(SQLITE_IOERR_WRITE | SQLITE_IOERR_SHMSIZE)) => {
                Fault::System(io::Error::new(ErrorKind::QuotaExceeded, error))
            }
            Some(_) => Fault::System(io::Error::other(error)),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::System(error)
    }
}

impl From<MetadataError> for Fault {
    fn from(error: MetadataError) -> Self {
        Fault::Asked(error)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn the_callers_error_says_what_to_do() {
        const READ_ONLY: i32 = 30;
        let error = |fault: Fault| fault.at("the folder /x", "change records", Duration::from_secs(3), 4096);
        let engine = |code| error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into());
        for code in [ffi::SQLITE_FULL, SQLITE_IOERR_WRITE] {
            let full = engine(code);
            assert!(matches!(full, MetadataError::Full { .. }), "{full:?}");
            let said = full.to_string();
            assert!(said.contains("at most 4096 bytes") && said.contains("make room"), "{said}");
        }
        let denied = error(io::Error::from_raw_os_error(READ_ONLY).into());
        assert!(matches!(denied, MetadataError::Denied { .. }), "{denied}");
        assert!(matches!(engine(ffi::SQLITE_READONLY), MetadataError::Denied { .. }));
        assert!(matches!(engine(ffi::SQLITE_CORRUPT_INDEX), MetadataError::Damaged { .. }));
        assert!(matches!(engine(ffi::SQLITE_IOERR_FSYNC), MetadataError::Failed { .. }));
        assert_eq!(
            engine(ffi::SQLITE_BUSY).to_string(),
            "the folder /x did not answer in 3.0s: could not change records"
        );
    }
}
