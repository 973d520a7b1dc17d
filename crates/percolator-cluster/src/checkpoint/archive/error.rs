//! Why the maintenance of checkpoints fails.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::{IoCause, shown};

use crate::checkpoint::{CheckpointError, Rejected};
use crate::store::Id;

/// Why checkpoints cannot be verified, taken out or cleaned up.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Records or files cannot be used, or another process has the id.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The id has no record.
    #[error("the id {id} has no checkpoint: {metadata} has no record of it, and {store} has {files} file(s)")]
    NoRecord {
        /// The id.
        id: Id,
        /// Where the records are.
        metadata: String,
        /// Where the files are.
        store: String,
        /// How many files it has.
        files: usize,
    },
    /// No checkpoint of the id can be read.
    #[error("no checkpoint of the id {id} could be restored: {}", reasons(rejected))]
    NoneWhole {
        /// The id.
        id: Id,
        /// What was tried, and why it was not taken.
        rejected: Vec<Rejected>,
    },
    /// The newest checkpoint that is whole has no such part.
    #[error("the newest whole checkpoint of the id {id} has no part {part:?}")]
    NoPart {
        /// The id.
        id: Id,
        /// The part that was asked for.
        part: String,
        /// Which parts there are, or that these are none.
        source: IoCause,
    },
    /// There is a file already.
    #[error(
        "{}: a file is there already: give another path, or say that it is to be replaced",
        shown::path(path)
    )]
    Exists {
        /// Its path.
        path: PathBuf,
    },
    /// The file that is to be written cannot be.
    #[error("{}: cannot write the file", shown::path(path))]
    Target {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: IoCause,
    },
    /// A number of checkpoints to keep that is not allowed.
    #[error("{found} checkpoints cannot be kept: from 1 to {} are", super::super::record::KEPT_MAX)]
    Keep {
        /// The number.
        found: usize,
    },
}

fn reasons(rejected: &[Rejected]) -> String {
    rejected.iter().map(Rejected::to_string).collect::<Vec<_>>().join("; ")
}

impl ArchiveError {
    pub(super) fn target(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::AlreadyExists => ArchiveError::Exists { path },
            _ => ArchiveError::Target { path, source: error.into() },
        }
    }
}
