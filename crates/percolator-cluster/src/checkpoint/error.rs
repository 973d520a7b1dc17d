//! Why a checkpoint cannot be written, or none restored.

use std::io;
use std::time::{Duration, SystemTime};

use percolator_files::IoCause;
use uuid::Uuid;

use super::entry::Writer;
use super::record::RecordError;
use crate::metadata::MetadataError;
use crate::store::{Id, IdError, StoreError};

/// Why a checkpoint cannot be written, or none restored.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The id cannot be one.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An option has a value that it cannot have.
    #[error("{option} cannot be {value}: {allowed}")]
    Options {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Another process has the id.
    #[error(
        "the id {id} is held by {by}, and was for the {waited:.1?} that were waited: stop that process, or \
         use another id"
    )]
    Held {
        /// The id.
        id: Id,
        /// Who has it.
        by: Box<Writer>,
        /// Since when, by the holder's clock.
        since: SystemTime,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A successor has the id: this process writes no more checkpoints, and should end.
    #[error(
        "the id {id} now belongs to {}: this process was cut off, and its state no longer counts",
        by_whom(by.as_deref())
    )]
    Superseded {
        /// The id.
        id: Id,
        /// Who has it, if it is known.
        by: Option<Box<Writer>>,
    },
    /// The record that this process put last is gone, or is an older one: it was removed, or the metadata
    /// were set back or lost their data. This process writes no more checkpoints, and should end.
    #[error(
        "the record that this process put last of the id {id} is gone from {metadata}, or an older one is \
         there: somebody removed it, or the metadata were set back. No file is removed; a process that \
         starts now begins with what the metadata have"
    )]
    RecordLost {
        /// The id.
        id: Id,
        /// The metadata.
        metadata: String,
    },
    /// The records cannot be read or changed.
    #[error("the records of checkpoints cannot be used")]
    Metadata(#[from] MetadataError),
    /// The files cannot be written or read.
    #[error("the store of checkpoints cannot be used")]
    Store(#[from] StoreError),
    /// The state could not be written.
    #[error("the state could not be written")]
    State {
        /// The cause.
        source: IoCause,
    },
    /// The state panicked while it was written.
    #[error("the state panicked while it was written: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// The file is written, and its record could not be put: that is tried again.
    #[error(
        "the checkpoint {uuid} is written, but does not count yet: its record will be put when that is \
         possible"
    )]
    NotRecorded {
        /// The file.
        uuid: Uuid,
        /// The cause.
        source: MetadataError,
    },
    /// This one was not begun, because too many earlier checkpoints still wait for an answer whether they
    /// count.
    #[error(
        "no checkpoint was written: {files} earlier ones wait for an answer that says whether they count"
    )]
    InDoubt {
        /// How many there are.
        files: usize,
        /// Why there is no answer.
        source: MetadataError,
    },
    /// It took too long. It goes on.
    #[error("no checkpoint was complete within {waited:.1?}: it is still being written")]
    TooLong {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Checkpoints are no longer written.
    #[error("checkpoints are no longer written: their thread has ended")]
    Ended,
    /// A thread cannot be started.
    #[error("could not start a thread for checkpoints")]
    Thread {
        /// The cause.
        source: IoCause,
    },
}

/// What was wrong with a checkpoint, or with the record of all of them.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    /// The record is not understood. It is kept under another key when it is replaced, and no finished file
    /// is removed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no record, although the store has files. These are not the metadata that name them, or the
    /// record was lost. No finished file is removed.
    #[error(
        "{metadata} has no record of its checkpoints, and {store} has {files} file(s) of them, which stay: \
         end this process if these are not their metadata"
    )]
    NoRecord {
        /// How many files there are.
        files: usize,
        /// The metadata.
        metadata: String,
        /// The store.
        store: String,
    },
    /// The file is not there, or cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file does not have its length.
    #[error("its file has {found} bytes, and had {recorded}")]
    Length {
        /// What it has.
        found: u64,
        /// What the record says.
        recorded: u64,
    },
    /// The file does not have its sum.
    #[error("the {algorithm} of its file is {found}, and was {recorded}")]
    Sum {
        /// MD5 or SHA-256.
        algorithm: &'static str,
        /// What it is.
        found: String,
        /// What the record says.
        recorded: String,
    },
    /// The file is as it was written, and the state does not take it.
    #[error("the state does not take it")]
    State {
        /// The cause.
        source: IoCause,
    },
    /// The state did not read the whole file.
    #[error("the state took {taken} bytes of it, and there are {bytes}")]
    Rest {
        /// What was read.
        taken: u64,
        /// What the file has.
        bytes: u64,
    },
}

impl Fault {
    /// Whether the file will never be what it was.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Fault::Length { .. } | Fault::Sum { .. })
    }
}

fn by_whom(by: Option<&Writer>) -> String {
    by.map_or_else(|| "a process that is not known".to_owned(), Writer::to_string)
}

impl CheckpointError {
    /// Whether this process may write no more checkpoints.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, CheckpointError::Superseded { .. } | CheckpointError::RecordLost { .. })
    }

    pub(super) fn thread(error: io::Error) -> Self {
        CheckpointError::Thread { source: error.into() }
    }
}
