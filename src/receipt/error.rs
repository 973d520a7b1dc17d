//! Why a receipt cannot be had, or several cannot be held against each other.

use std::path::PathBuf;

use super::data::KIND as DIGEST;
use crate::base::checked_text::TextFault;
use crate::base::shown;
use crate::order::OrderError;

/// A receipt cannot be read or written, or receipts do not go together.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// A file cannot be read.
    #[error("{}: cannot read this {kind}: {message}", shown::path(path))]
    Read {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// A file cannot be written. What was there before is as it was.
    #[error("{}: cannot write the {kind}: {message}", shown::path(path))]
    Write {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// A text is larger than any file that is read. What was in its place before is as it was.
    #[error(
        "{}: the {kind} would have {found} bytes, and files of at most {allowed} are read: {}",
        shown::path(path),
        what_is_smaller(kind)
    )]
    TooLarge {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// How large it would be.
        found: u64,
        /// How large it may be.
        allowed: u64,
    },
    /// A file is no receipt as it was written.
    #[error("{}: not a whole {kind}: {fault}", shown::path(path))]
    Text {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: TextFault,
    },
    /// There is nothing to verify.
    #[error("there is no receipt: bring those of all ranks of a run")]
    None,
    /// Two that say different things of what must be the same.
    #[error(
        "{one} says {one_says:?}, and {other} says {other_says:?}: they are not of one {of}; take out what does not belong \
         here"
    )]
    Differ {
        /// What they would have to be of: `run`, or, to be merged, `plan`.
        of: &'static str,
        /// One of them.
        one: String,
        /// What it says, as its file does.
        one_says: String,
        /// The other one.
        other: String,
        /// What that one says.
        other_says: String,
    },
    /// A data set of more records than are counted.
    #[error("{records} records: at most {allowed} are verified, each has a counter in memory")]
    TooMany {
        /// How many there are.
        records: u64,
        /// How many there may be.
        allowed: u64,
    },
    /// The plan does not have what is claimed by it.
    #[error(
        "{name}: its plan does not have what it was given by it: {error}; take the receipt as the feed wrote it"
    )]
    Order {
        /// The receipt.
        name: String,
        /// What is wrong.
        error: OrderError,
    },
}

fn what_is_smaller(kind: &str) -> &'static str {
    match kind {
        DIGEST => "make one without each record's hash",
        _ => "give each session of the run a receipt of its own, all of which are verified together",
    }
}
