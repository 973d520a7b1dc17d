//! What can be wrong with a record, with what a user needs to find it: the path, the key, the record's
//! number, what was found and what was allowed.

use std::path::{Path, PathBuf};

use crate::base::shape::ImageShape;
use crate::base::shown;
use crate::batch::field::FieldError;
use crate::image::DecodeError;
use crate::record::datum::DatumError;
use crate::record::{Key, RecordId};
use crate::source::{Record, SourceError};
use crate::transform::TransformError;

/// A record that is not what it should be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {id}, key {key}: {cause}", shown::path(path))]
pub struct RecordError {
    /// The database: where several are one data set, the one that the record lies in.
    pub path: PathBuf,
    /// Which record of the data set.
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
    /// The file that it holds cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
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
    /// It holds floats, and its batch was begun with bytes for a device to transform.
    #[error(
        "the record holds floats and its batch, by its first record, bytes: a device transforms records of one \
         kind (transform them on the host: Place::Host)"
    )]
    FloatsAmongBytes,
    /// What goes with it is not what it should be.
    #[error("its companion in {}: {cause}", shown::path(path))]
    Companion {
        /// Where the companion comes from.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<RecordCause>,
    },
    /// Its target is cropped, and is not of its height and width.
    #[error(
        "the target is {target} and the record {image}: what is cropped together has one height and width"
    )]
    TargetSize {
        /// The target's shape before the transform.
        target: ImageShape,
        /// The record's.
        image: ImageShape,
    },
    /// A batch that it begins would be larger than memory can address.
    #[error("a batch of {records} records like it does not fit the address space; make it smaller")]
    BatchTooLarge {
        /// Records in a batch.
        records: usize,
    },
    /// A field of its row was used as something that it is not, or was not written.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// What its decoder says of it.
    #[error("{message}")]
    Other {
        /// The decoder's words.
        message: String,
    },
    /// It has no target where one was asked for.
    #[error("the record has no float_data to take its target from")]
    NoTarget,
    /// Handling it panicked.
    #[error("handling the record panicked: {message}; this is a bug, please report it")]
    Panicked {
        /// What the panic said.
        message: String,
    },
}

impl RecordError {
    pub(crate) fn new(path: &Path, record: &Record<'_>, cause: RecordCause) -> Box<Self> {
        Box::new(RecordError { path: path.to_owned(), id: record.id, key: Key(record.key.to_owned()), cause })
    }
}

/// What fails a batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BatchFault {
    /// One of its records is not what it should be.
    Record(Box<RecordError>),
    /// What one of its records lies in is not what was written: nothing is known of the record.
    Source(Box<SourceError>),
    /// Whoever was to write some of its records let go of their places before: what lies there is of an
    /// earlier batch.
    Unwritten,
}

impl From<Box<RecordError>> for BatchFault {
    fn from(error: Box<RecordError>) -> Self {
        BatchFault::Record(error)
    }
}

impl From<SourceError> for BatchFault {
    fn from(error: SourceError) -> Self {
        BatchFault::Source(Box::new(error))
    }
}
