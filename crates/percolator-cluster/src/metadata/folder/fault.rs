//! What can go wrong inside a folder, before it is known who asked for what.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::metadata::MetadataError;

/// What went wrong. [`Fault::at`] makes it the caller's error.
#[derive(Debug)]
pub(super) enum Fault {
    /// The library failed.
    Engine(lmdb::Error),
    /// The operating system failed.
    Io(io::Error),
    /// The limit is reached: how many bytes there are, and may be.
    Full { bytes: u64, bytes_max: u64 },
    /// Another process, or another thread, did not end its turn in this time.
    Occupied(Duration),
    /// The folder cannot be used, and why.
    Denied(String),
    /// The records are damaged, and how.
    Damaged(String),
    /// It is the caller's own error.
    Asked(MetadataError),
}

/// Why nobody got a turn.
#[derive(Debug, thiserror::Error)]
#[error(
    "another process holds the lock of metadata.mdb: it was stopped, or its disk hangs; `lslocks` lists \
     who holds it"
)]
struct Occupied;

impl Fault {
    /// Whether the environment may be of no more use.
    pub(super) fn is_of_the_environment(&self) -> bool {
        matches!(self, Fault::Engine(_) | Fault::Damaged(_))
    }

    /// The error of a caller who asked for `what`.
    pub(super) fn at(self, place: &str, what: &'static str) -> MetadataError {
        let place = place.to_owned();
        match self {
            Fault::Asked(error) => error,
            Fault::Engine(lmdb::Error::Other(code)) => {
                of_system(place, what, io::Error::from_raw_os_error(code))
            }
            Fault::Io(error) => of_system(place, what, error),
            Fault::Engine(error) if is_damage(error) => {
                let message = format!("metadata.mdb is damaged: LMDB says: {error}; use another folder");
                MetadataError::Damaged { place, message }
            }
            Fault::Engine(error) => MetadataError::Failed { place, what, source: Arc::new(error) },
            Fault::Full { bytes, bytes_max } => {
                let message = format!(
                    "metadata.mdb has {bytes} bytes, and at most {bytes_max} are allowed: remove records, or \
                     open the folder with a higher limit"
                );
                MetadataError::Full { place, message }
            }
            Fault::Occupied(waited) => {
                let source: Arc<dyn Error + Send + Sync> = Arc::new(Occupied);
                MetadataError::Unreachable { place, what, waited, source: Some(source) }
            }
            Fault::Denied(message) => MetadataError::Denied { place, what, message },
            Fault::Damaged(message) => MetadataError::Damaged { place, message },
        }
    }
}

/// Whether it is the data file that is wrong.
fn is_damage(error: lmdb::Error) -> bool {
    use lmdb::Error::{Corrupted, Incompatible, Invalid, PageNotFound, VersionMismatch};

    matches!(error, Corrupted | Incompatible | Invalid | PageNotFound | VersionMismatch)
}

fn of_system(place: String, what: &'static str, error: io::Error) -> MetadataError {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};

    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            let message = format!("{error}: make room on its disk; nothing was changed");
            MetadataError::Full { place, message }
        }
        PermissionDenied | ReadOnlyFilesystem => {
            let message = format!("{error}: this process must be able to write there, also to read");
            MetadataError::Denied { place, what, message }
        }
        _ => MetadataError::Failed { place, what, source: Arc::new(error) },
    }
}

impl From<lmdb::Error> for Fault {
    fn from(error: lmdb::Error) -> Self {
        Fault::Engine(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

impl From<MetadataError> for Fault {
    fn from(error: MetadataError) -> Self {
        Fault::Asked(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_error_says_what_to_do() {
        const NO_SPACE: i32 = 28;
        const READ_ONLY: i32 = 30;
        let error = |fault: Fault| fault.at("the folder /x", "change records");
        let full = error(Fault::Engine(lmdb::Error::Other(NO_SPACE)));
        assert!(
            matches!(full, MetadataError::Full { .. }) && full.to_string().contains("make room"),
            "{full}"
        );
        let denied = error(Fault::Io(io::Error::from_raw_os_error(READ_ONLY)));
        assert!(matches!(denied, MetadataError::Denied { .. }), "{denied}");
        assert!(matches!(error(Fault::Engine(lmdb::Error::Corrupted)), MetadataError::Damaged { .. }));
        assert!(matches!(error(Fault::Engine(lmdb::Error::Panic)), MetadataError::Failed { .. }));
        let occupied = error(Fault::Occupied(Duration::from_secs(3)));
        assert_eq!(occupied.to_string(), "the folder /x did not answer in 3.0s: could not change records");
    }
}
