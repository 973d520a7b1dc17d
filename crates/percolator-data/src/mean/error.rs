//! Why there is no mean.

use std::path::{Path, PathBuf};

use percolator::batch::ImageShape;
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
    /// A record has no image, or one that cannot be decoded, or whose shape is not the first one's.
    #[error("{}: record {number}, key {key}: {message}", shown::path(path))]
    Record {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// What is wrong with it.
        message: String,
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
    pub(super) fn record(path: &Path, number: u64, key: &[u8], message: impl ToString) -> Self {
        let (path, key) = (path.to_owned(), Key(key.to_owned()));
        MeanError::Record { path, number, key, message: message.to_string() }
    }
}
