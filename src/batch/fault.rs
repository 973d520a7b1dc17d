//! What can be wrong with a record, with everything that a user needs to find it: the path, the key, the
//! record's number, what was found and what was allowed.

use std::path::{Path, PathBuf};

use crate::bad::QuarantineError;
use crate::base::shape::ImageShape;
use crate::batch::field::FieldError;
use crate::record::{FeatureError, Key, RecordId};
use crate::source::{Damage, Record, SourceError};
use crate::transform::TransformError;
use percolator_files::caller::words;
use percolator_files::shown;
use percolator_image::DecodeError;
use percolator_messages::example::ExampleError;
use percolator_messages::{DatumError, Value};

/// A record that is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {id}, key {key}: {cause}", shown::path(path))]
pub struct RecordError {
    /// The path of the database that contains the record, even if several databases form one data set.
    pub path: PathBuf,
    /// Which record of the data set it is.
    pub id: RecordId,
    /// Its key. When displayed, bytes other than printable ASCII are escaped.
    pub key: Key,
    /// What is wrong. It is part of the message, so the error does not repeat it as its source.
    pub cause: RecordCause,
}

/// What can be wrong with a record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordCause {
    /// Its bytes are not a Datum with pixels.
    #[error(transparent)]
    Datum(#[from] DatumError),
    /// Its bytes are something else than what the feed reads, and their kind is known.
    #[error("its value is {found}, and not {wanted}: {}", found.remedy())]
    Instead {
        /// What was wanted.
        wanted: Value,
        /// What it is.
        found: Value,
    },
    /// Its bytes are not a `tf.train.Example`.
    #[error(transparent)]
    Example(#[from] ExampleError),
    /// One of its features is missing, or does not fit its field.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// The encoded file in it cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The transform cannot be applied to it.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// Its shape is not that of its batch.
    #[error(
        "the record is {found} after its transform, but the first record of its batch is {batch}; all \
         records of a batch have one shape ({}, or use batches of 1)", remedy(*found, *batch)
    )]
    Shape {
        /// The record's shape after the transform.
        found: ImageShape,
        /// The batch's.
        batch: ImageShape,
    },
    /// Its crops do not have the shape of those of its batch.
    #[error(
        "its crops are {found}, and those of the first record of its batch are {batch}: let the view's \
         operations end with one size (center_crop, random_resized_crop), and decode all records to the same \
         channels"
    )]
    View {
        /// The field that they would make.
        found: String,
        /// The batch's.
        batch: String,
    },
    /// It holds floats, but its batch started with bytes for a device to transform.
    #[error(
        "the record holds floats, but the first record of its batch holds bytes; a device transforms records \
         of one kind (transform them on the host: {})",
        words("TransformPlace::Host", "--transform-on host", "transform_on=\"host\"")
    )]
    FloatsAmongBytes,
    /// Its companion is not valid.
    #[error("its companion in {}: {cause}", shown::path(path))]
    Companion {
        /// The companion's source.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<RecordCause>,
    },
    /// Its target is cropped, but differs from it in height or width.
    #[error(
        "the target is {target} and the record {image}: to be cropped together, both must have the same \
         height and width"
    )]
    TargetSize {
        /// The target's shape before the transform.
        target: ImageShape,
        /// The record's.
        image: ImageShape,
    },
    /// A batch that starts with it would be larger than memory can address.
    #[error("a batch of {records} records like it does not fit the address space; make it smaller")]
    BatchTooLarge {
        /// The number of records in a batch.
        records: usize,
    },
    /// A field of its row was misused, or was not written.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Its decoder reports an error.
    #[error("{message}")]
    Other {
        /// The decoder's message.
        message: String,
    },
    /// Its decoder failed, for a reason that is not the record's.
    #[error("{message}")]
    NotOfRecord {
        /// The decoder's message.
        message: String,
    },
    /// It has no target although the feed has targets.
    #[error("the record has no float_data to take its target from")]
    NoTarget,
    /// Its label is not one of the classes.
    #[error(
        "its label is {label}, and soft labels are of {classes} classes, from 0 to {}: say how many there \
         are ({})",
        classes - 1,
        words(".soft_labels(...)", "--soft-labels", "soft_labels=...")
    )]
    Class {
        /// The label.
        label: i32,
        /// How many classes there are.
        classes: usize,
    },
    /// Handling it panicked.
    #[error("handling the record panicked: {message}; unless the decoder is yours, this is a bug: report it")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

/// What makes records of two shapes fit one batch.
fn remedy(found: ImageShape, batch: ImageShape) -> String {
    if found.channels == batch.channels {
        return "crop them to one size".to_owned();
    }
    let has = |channels: usize| {
        if channels == 1 { "is gray".to_owned() } else { format!("has {channels} channels") }
    };
    let (this, first) = (has(found.channels), has(batch.channels));
    format!("this one {this}, and the first {first}: decode all as color, or all as gray")
}

impl RecordCause {
    /// What is wrong with a record that is something else than what was wanted, if its kind is known.
    #[cold]
    pub(crate) fn instead(wanted: Value, record: &[u8], error: impl Into<Self>) -> Self {
        match Value::of(record) {
            Some(found) if found != wanted => RecordCause::Instead { wanted, found },
            _ => error.into(),
        }
    }

    /// Whether the system refused memory. That says nothing about the record.
    #[must_use]
    pub fn is_lack_of_memory(&self) -> bool {
        match self {
            RecordCause::Companion { cause, .. } => cause.is_lack_of_memory(),
            RecordCause::Decode(DecodeError::Memory { .. }) => true,
            _ => false,
        }
    }

    /// Whether it depends only on this record, not on its batch, its decoder's state or how the program was
    /// built.
    pub(crate) fn is_of_record(&self) -> bool {
        match self {
            RecordCause::Companion { cause, .. } => cause.is_of_record(),
            RecordCause::Shape { .. }
            | RecordCause::View { .. }
            | RecordCause::FloatsAmongBytes
            | RecordCause::BatchTooLarge { .. }
            | RecordCause::NotOfRecord { .. }
            | RecordCause::Decode(DecodeError::Memory { .. } | DecodeError::NotBuiltIn { .. })
            | RecordCause::Panicked { .. } => false,
            RecordCause::Datum(_)
            | RecordCause::Instead { .. }
            | RecordCause::Example(_)
            | RecordCause::Feature(_)
            | RecordCause::Decode(_)
            | RecordCause::Transform(_)
            | RecordCause::TargetSize { .. }
            | RecordCause::Field(_)
            | RecordCause::Other { .. }
            | RecordCause::NoTarget
            | RecordCause::Class { .. } => true,
        }
    }
}

impl RecordError {
    pub(crate) fn new(path: &Path, record: &Record<'_>, cause: RecordCause) -> Box<Self> {
        Box::new(RecordError { path: path.to_owned(), id: record.id, key: Key(record.key.to_owned()), cause })
    }
}

/// Why a batch fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BatchFault {
    /// One of its records is not valid.
    Record(Box<RecordError>),
    /// The source of one of its records is damaged there, so nothing is known about the record.
    Source(Damage),
    /// A bad record could not be written to the quarantine file.
    Quarantine(Box<QuarantineError>),
    /// Its decoder panicked in [rest](crate::RecordDecoder::rest), which has nothing to do with a record.
    Rest {
        /// The record that it had decoded last.
        after: RecordId,
        /// The panic's message.
        message: String,
    },
    /// The places of some of its records were dropped before they were written; they still hold an earlier
    /// batch.
    Unwritten,
}

impl From<Box<RecordError>> for BatchFault {
    fn from(error: Box<RecordError>) -> Self {
        BatchFault::Record(error)
    }
}

impl From<Damage> for BatchFault {
    fn from(damage: Damage) -> Self {
        BatchFault::Source(damage)
    }
}

impl From<SourceError> for BatchFault {
    fn from(error: SourceError) -> Self {
        BatchFault::Source(Damage { error: Box::new(error), is_of_record: false })
    }
}

impl BatchFault {
    /// Why a record is bad, if the fault is this record's only: a function of its bytes and nothing else.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            BatchFault::Record(error) => error.cause.is_of_record().then(|| error.cause.to_string()),
            BatchFault::Source(damage) => damage.is_of_record.then(|| damage.error.to_string()),
            BatchFault::Quarantine(_) | BatchFault::Rest { .. } | BatchFault::Unwritten => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records would be skipped one after another, and all are good.
    #[test]
    fn a_format_that_is_not_built_in_is_no_fault_of_the_record() {
        let cause = RecordCause::Decode(DecodeError::NotBuiltIn { format: "WebP", feature: "webp" });
        assert!(!cause.is_of_record());
        let damage = DecodeError::Truncated { format: "WebP", offset: 9, inside: "its chunks" };
        assert!(RecordCause::Decode(damage).is_of_record());
    }
}
