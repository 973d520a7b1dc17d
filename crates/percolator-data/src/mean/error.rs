//! Why there is no mean.

use std::path::{Path, PathBuf};

use percolator::batch::{ImageShape, RecordCause};
use percolator::record::Key;
use percolator_files::shown;

use crate::scan::ScanError;

/// Why there is no mean.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum MeanError {
    /// The data set cannot be scanned.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A record has no image, or one that cannot be decoded.
    #[error("{}: record {number}, key {key}: {cause}", shown::path(path))]
    Record {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// What is wrong with it.
        cause: Box<RecordCause>,
    },
    /// A record's shape is not the first one's.
    #[error(
        "{}: record {number}, key {key}: the image is {found}, and the first is {first}; {}",
        shown::path(path),
        if found.channels == first.channels {
            "a mean image needs one size: resize them, or compute the channels' values only"
        } else {
            "all images must have as many channels: decode them to color, or to gray"
        }
    )]
    Shape {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// Its shape.
        found: ImageShape,
        /// The first record's.
        first: ImageShape,
    },
    /// There is no record.
    #[error("{}: there is no record, so there is no mean", shown::path(path))]
    Empty {
        /// The data set.
        path: PathBuf,
    },
    /// The mean image would be larger than a `BlobProto` of Caffe can be.
    #[error("a mean image of {shape} does not fit Caffe's BlobProto")]
    TooLarge {
        /// Its shape.
        shape: ImageShape,
    },
}

impl MeanError {
    pub(super) fn record(path: &Path, number: u64, key: &[u8], cause: RecordCause) -> Self {
        let (path, key) = (path.to_owned(), Key(key.to_owned()));
        MeanError::Record { path, number, key, cause: Box::new(cause) }
    }
}
