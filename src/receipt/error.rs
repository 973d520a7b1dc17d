//! Why a receipt cannot be read or written, or receipts cannot be merged.

use std::path::PathBuf;

use super::data::KIND as DIGEST;
use percolator_files::caller::words;
use percolator_files::checked_text::TextFault;
use percolator_files::{IoCause, shown};

/// A receipt or a digest cannot be read or written, or receipts cannot be merged.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// A file cannot be read.
    #[error("{}: cannot read this {kind}", shown::path(path))]
    Read {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: IoCause,
    },
    /// A file cannot be written. The previous file is untouched.
    #[error("{}: cannot write the {kind}", shown::path(path))]
    Write {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: IoCause,
    },
    /// A text is larger than the largest file that is read. The previous file is untouched.
    #[error(
        "{}: the {kind} would be {found} bytes, but only files of at most {allowed} can be read back: {}",
        shown::path(path),
        what_is_smaller(kind)
    )]
    TooLarge {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The size it would have, in bytes.
        found: u64,
        /// The largest size allowed, in bytes.
        allowed: u64,
    },
    /// A file is not a receipt, or not as it was written.
    #[error("{}: not a valid {kind}: {fault}", shown::path(path))]
    Text {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: TextFault,
    },
    /// Two receipts cannot be merged: they disagree on something they must share.
    #[error(
        "{one} has {one_says:?}, and {other} has {other_says:?}: they do not belong to the same {of}; leave \
         one of them out"
    )]
    Differ {
        /// What they would have to share: a `plan`, or a `data set`.
        of: &'static str,
        /// One of them.
        one: String,
        /// Its line, as in its file.
        one_says: String,
        /// The other one.
        other: String,
        /// The other one's line.
        other_says: String,
    },
}

fn what_is_smaller(kind: &str) -> &'static str {
    match kind {
        DIGEST => words(
            "make one without each record's hash: with DigestDetail::Sum",
            "make one without each record's hash: without --each-record",
            "make one without each record's hash",
        ),
        _ => "give each resumed run a receipt of its own, and verify all of them together",
    }
}
