//! Why results cannot be read.

use std::io;
use std::path::PathBuf;

use percolator_files::shown;

use super::results::BYTES_MAX;

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
    /// The file is longer than any results.
    #[error("{}: results have {BYTES_MAX} bytes at the most", shown::path(path))]
    TooLong {
        /// The file.
        path: PathBuf,
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
        source: LineError,
    },
}

/// Why a line is no result.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is no JSON, or has no figures.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has no rounds.
    #[error("its each_round is empty")]
    NoRounds,
    /// It lacks the figures of each round.
    #[error(
        "an older percolator wrote it, and left out what each of its {rounds} rounds gave: compare the two \
         programs instead of their results"
    )]
    Medians {
        /// The number of rounds.
        rounds: usize,
    },
}
