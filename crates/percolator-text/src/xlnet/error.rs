//! What ends a preparation.

use std::io;

use percolator_tfrecord::TfRecordError;

use crate::sentencepiece::{ModelError, TooLong};

/// Why XLNet's data could not be prepared. Complete files stay; no incomplete one is left.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The flags, the model, the text, or what is in the folder do not allow it: what was found, and what to
    /// do.
    #[error("{0}")]
    Refused(String),
    /// The SentencePiece model cannot be used.
    #[error("the model {path} cannot be used")]
    Model {
        /// The model's file.
        path: String,
        /// What is wrong with it.
        source: ModelError,
    },
    /// A folder or a file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The folder or file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A line that the model makes absurdly long.
    #[error("{path}, line {line}: cannot be cut into tokens")]
    Normalized {
        /// The file.
        path: String,
        /// The line's number, from 1.
        line: u64,
        /// How long it would become.
        source: TooLong,
    },
    /// A file of records cannot be written.
    #[error(transparent)]
    Records(#[from] TfRecordError),
    /// A folder, or one of the JSON files, cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// `stop` was called.
    #[error("stopped before it was done; no half-written file is left")]
    Stopped,
}
