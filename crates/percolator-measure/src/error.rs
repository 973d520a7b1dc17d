//! What keeps a feed from being measured.

use std::io;
use std::path::PathBuf;

use percolator::FeedError;
use percolator::device::DeviceError;
use percolator::source::SourceError;
use percolator::transform::MeanImageError;
use percolator_files::shown;

/// What keeps a feed from being measured.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The feed cannot be built, or has failed.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The source cannot be opened or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A device has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The machine lacks what is needed: a GPU that was fed, threads, memory, or a call of the system.
    #[error("{0}")]
    Machine(String),
    /// The files cannot be mapped.
    #[error("the database's files cannot be mapped")]
    Map(#[source] io::Error),
    /// The mean file cannot be read.
    #[error(transparent)]
    Mean(#[from] MeanImageError),
    /// A file cannot be opened, read or dropped from memory, or a folder cannot be listed.
    #[error("{}: cannot {action}", shown::path(path))]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it cannot be done.
        #[source]
        error: io::Error,
    },
    /// The feed is too short.
    #[error("the feed ended before it was measured: give it more epochs, or none")]
    EndedEarly,
    /// It was asked to stop.
    #[error("stopped before the measurements were complete")]
    Stopped,
}
