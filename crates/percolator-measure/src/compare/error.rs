//! Why results cannot be read.

use std::io;
use std::path::PathBuf;

use percolator_files::shown;

/// Why results cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file cannot be read, or is empty.
    #[error("{}: cannot read the results", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
