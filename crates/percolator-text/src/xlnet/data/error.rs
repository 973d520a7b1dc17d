//! What can be wrong with the files of a data set.

use std::io;
use std::path::PathBuf;

use percolator::source::SourceError;
use percolator_files::shown;

use crate::xlnet::decoder::InputError;

/// Why a folder cannot be opened as a data set.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A folder or a file cannot be read.
    #[error("cannot read {}", shown::path(path))]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder's records are not those of one data set, not all there, or not what was asked for: what was
    /// found, and what to do.
    #[error("{0}")]
    Refused(String),
    /// A file of records cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file of records is not there.
    #[error("{} names the records {}, which are not there", shown::path(info), shown::path(records))]
    MissingRecords {
        /// The `record_info`.
        info: PathBuf,
        /// The file that it names.
        records: PathBuf,
        /// Why it cannot be used.
        source: io::Error,
    },
    /// The flags of the input function do not agree with each other.
    #[error(transparent)]
    Input(#[from] InputError),
}
