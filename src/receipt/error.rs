//! Why a receipt cannot be had, or several cannot be held against each other.

use std::path::PathBuf;

use crate::order::OrderError;
use crate::sealed_text::TextFault;
use crate::shown;

/// A receipt cannot be read or written, or receipts do not go together.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// A file cannot be read.
    #[error("{}: cannot read this receipt: {message}", shown::path(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// A file cannot be written. What was there before is as it was.
    #[error("{}: cannot write the receipt: {message}", shown::path(path))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// A file is no receipt as it was written.
    #[error("{}: not a whole receipt: {fault}", shown::path(path))]
    Text {
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
