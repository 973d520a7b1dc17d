//! What can be wrong with a model.

use std::io;

/// A text that the model's own table of replacements makes absurdly long.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a text of {bytes} bytes becomes longer than {allowed} bytes when the model normalises it: its table of \
     replacements is damaged"
)]
pub struct TooLong {
    /// The text's bytes.
    pub bytes: usize,
    /// The most that it may become.
    pub allowed: usize,
}

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
    /// It is a model of a kind that is not known.
    #[error("it is a model of the kind {found}, and kinds are 1 (unigram), 2 (BPE), 3 (word) and 4 (char)")]
    Kind {
        /// The kind that the file states.
        found: String,
    },
}
