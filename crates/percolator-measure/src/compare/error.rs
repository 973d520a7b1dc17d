//! Why results cannot be read.

use std::io;
use std::path::PathBuf;

use percolator_files::shown;

/// Why results cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file cannot be read.
    #[error("{}: cannot read the results", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{}: the file has no results", shown::path(path))]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line is no result.
    #[error("{from}: line {line} is no result of percolator bench --json")]
    Line {
        /// Where the text is from.
        from: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}
