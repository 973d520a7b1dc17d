//! What can be wrong with a model.

use std::io;

/// Why a SentencePiece model cannot be used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// The bytes are not a model's.
    #[error("it is not a SentencePiece model, or is damaged: {0}")]
    Damaged(String),
    /// It is a model of another kind.
    #[error("it is a model of the kind {found}, and only unigram models are supported")]
    Kind {
        /// The kind that the file states.
        found: String,
    },
}
