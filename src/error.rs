//! What can end a feed, with what a user needs to find the cause: the path, the key, the record, what was
//! found and what was allowed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use crate::datum::DatumError;
use crate::device::DeviceError;
use crate::reader::ReaderError;
use crate::record::RecordId;
use crate::shape::ImageShape;
use crate::source::{Record, SourceError};
use crate::transform::TransformError;

/// What ends a feed. Every lane gets it once, after the batches that were complete before it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FeedError {
    /// What was asked for cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The source could not be opened or read, or its consumers do not agree.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// A record is not what it should be.
    #[error(transparent)]
    Record(Box<RecordError>),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Handling a record panicked.
    #[error("a worker panicked at {record}: {message}; this is a bug, please report it")]
    WorkerPanicked {
        /// The record.
        record: String,
        /// What the panic said.
        message: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {message}")]
    Thread {
        /// The thread.
        name: String,
        /// What the operating system said.
        message: String,
    },
    /// Somebody cancelled the feed.
    #[error("the feed was cancelled")]
    Cancelled,
}

impl From<SourceError> for FeedError {
    fn from(error: SourceError) -> Self {
        FeedError::Reader(error.into())
    }
}

impl From<RecordError> for FeedError {
    fn from(error: RecordError) -> Self {
        FeedError::Record(Box::new(error))
    }
}

/// A record that is not what it should be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {id}, key {key}: {cause}", path.display())]
pub struct RecordError {
    /// The database.
    pub path: PathBuf,
    /// Which record of it.
    pub id: RecordId,
    /// Its key, with bytes that are no printable ASCII escaped.
    pub key: Key,
    /// What is wrong. It is part of the message, and therefore not given again as the error's source.
    pub cause: RecordCause,
}

/// What can be wrong with a record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordCause {
    /// Its bytes are no Datum with pixels.
    #[error(transparent)]
    Datum(#[from] DatumError),
    /// The transform does not go with it.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// It is not of the shape of its batch.
    #[error(
        "the record comes to {found} and its batch, by its first record, to {batch}; all records of a batch \
         have one shape (crop them to one size, or feed batches of 1)"
    )]
    Shape {
        /// The record's shape after the transform.
        found: ImageShape,
        /// The batch's.
        batch: ImageShape,
    },
}

impl RecordError {
    pub(crate) fn new(path: &Path, record: &Record<'_>, cause: RecordCause) -> Self {
        RecordError { path: path.to_owned(), id: record.id, key: Key(record.key.to_owned()), cause }
    }
}

/// A key, printed as text as far as it is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
