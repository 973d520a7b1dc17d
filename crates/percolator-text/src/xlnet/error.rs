//! What ends a preparation.

use std::io;

use percolator_tfrecord::TfRecordError;

use crate::sentencepiece::{ModelError, TooLong};

/// Why XLNet's data could not be prepared. Complete files stay; no incomplete one is left.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The flags do not agree, or cannot be met.
    #[error("{0}")]
    Flags(String),
    /// The SentencePiece model cannot be used.
    #[error("the model {path} cannot be used")]
    Model {
        /// The model's file.
        path: String,
        /// What is wrong with it.
        source: ModelError,
    },
    /// The model is not one for XLNet.
    #[error(
        "the model {path} is not one for XLNet: its piece {token} is {}, and must be {expected}: train it \
         with <unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop> as its pieces 0 to 8",
        .found.as_deref().unwrap_or("missing")
    )]
    Special {
        /// The model's file.
        path: String,
        /// The number of the piece.
        token: u32,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: Option<String>,
    },
    /// No file matches the pattern.
    #[error("no file matches the input {pattern}")]
    NoFiles {
        /// The pattern.
        pattern: String,
    },
    /// A folder or a file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The folder or file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file became shorter while it was read, so lines of it are lost.
    #[error(
        "{path}: it had {expected} bytes when it was opened, and ended after {found}: something shortened it \
         while it was read: prepare again when nothing writes to it"
    )]
    Shortened {
        /// The file.
        path: String,
        /// Its length in bytes when it was opened.
        expected: u64,
        /// The bytes that were there.
        found: u64,
    },
    /// A line is not UTF-8.
    #[error(
        "{path}, line {line}: not UTF-8: byte {offset} of the file is {found:#04x}: convert the file to \
         UTF-8 (iconv -t utf-8)"
    )]
    NotUtf8 {
        /// The file.
        path: String,
        /// The line's number, from 1.
        line: u64,
        /// Where the byte is, from the start of the file.
        offset: u64,
        /// The byte.
        found: u8,
    },
    /// A line is too long.
    #[error(
        "{path}, line {line}: the line has more than {max} bytes: break the text into lines of a sentence"
    )]
    LongLine {
        /// The file.
        path: String,
        /// The line's number, from 1.
        line: u64,
        /// The most bytes that a line may have.
        max: usize,
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
    /// A file of token numbers has a word that is not a token.
    #[error(
        "{path}, line {line}: \"{found}\" is not a token of the model, which has the tokens 0 to {last}; if \
         the file is text, set --from-raw-text=true"
    )]
    Token {
        /// The file.
        path: String,
        /// The line's number, from 1.
        line: u64,
        /// What was found.
        found: String,
        /// The model's last token.
        last: usize,
    },
    /// An output would replace a file that is read.
    #[error("{path}: it is read, and would be replaced: write to another folder (--out)")]
    IsInput {
        /// The output.
        path: String,
    },
    /// A file that is no `corpus_info.json` has that name.
    #[error(
        "{path}: it is no corpus_info.json of XLNet's, so it is not replaced: write to another folder (--out)"
    )]
    Foreign {
        /// The file.
        path: String,
    },
    /// The folder's path is not UTF-8, and the files that name the records are JSON.
    #[error(
        "{path}: the path is not UTF-8, and what names the records must be: write to another folder (--out)"
    )]
    NoName {
        /// The folder.
        path: String,
    },
    /// The folder has records of another preparation, which would not be replaced.
    #[error(
        "{path} is of another preparation: {differs}: nothing was written, because its records and the new \
         ones cannot be read as one data set: write to another folder (--out), or remove it and its records"
    )]
    OtherPreparation {
        /// A `record_info` that would stay.
        path: String,
        /// What differs.
        differs: String,
    },
    /// No file of a task has a token.
    #[error("task {task} has no text: none of its {files} files has a token")]
    NoText {
        /// The task.
        task: u32,
        /// How many files it has.
        files: usize,
    },
    /// The text of a task does not fill one batch.
    #[error(
        "task {task} has {tokens} tokens, too few for one batch: they are cut into {rows} rows of \
         {row_tokens} tokens, and a batch takes {needed} tokens of each, and more if its last sentence \
         continues: lower --bsz-per-host or --seq-len, or give more text"
    )]
    TooShort {
        /// The task.
        task: u32,
        /// Its tokens.
        tokens: usize,
        /// The rows that the tokens are cut into.
        rows: usize,
        /// The tokens of each such row.
        row_tokens: usize,
        /// The tokens that a batch takes from a row.
        needed: usize,
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
