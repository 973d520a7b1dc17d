//! Why a receipt cannot be read or written, or receipts cannot be verified together.

use std::path::PathBuf;

use super::data::KIND as DIGEST;
use crate::order::OrderError;
use percolator_files::caller::words;
use percolator_files::checked_text::TextFault;
use percolator_files::shown;

/// A receipt cannot be read or written, or receipts cannot be combined.
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
        /// The operating system's error message.
        message: String,
    },
    /// A file cannot be written. The previous file is untouched.
    #[error("{}: cannot write the {kind}: {message}", shown::path(path))]
    Write {
        /// A receipt, or a digest.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error message.
        message: String,
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
    /// No receipts were given.
    #[error("there are no receipts to verify: give those of all ranks of the run")]
    None,
    /// Two receipts, or a receipt and a digest, that disagree on something they must share.
    #[error(
        "{one} has {one_says:?}, and {other} has {other_says:?}: they do not belong to the same {of}; leave \
         one of them out"
    )]
    Differ {
        /// What they would have to share: a `run`, a `data set`, or, to be merged, a `plan`.
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
    /// The data set has more records than can be counted.
    #[error("{records} records: at most {allowed} can be verified, since each has a counter in memory")]
    TooMany {
        /// The number of records.
        records: u64,
        /// The largest number allowed.
        allowed: u64,
    },
    /// Records of too many epochs would have to be counted at a time: batches
    /// [wrap](crate::order::LastBatch), and are many times larger than the data set, or replicas were many
    /// epochs apart.
    #[error(
        "{name}: at epoch {epoch}, records of more than {allowed} epochs would have to be counted, and no \
         more are counted at a time, since each record of each epoch has a counter in memory"
    )]
    TooManyEpochs {
        /// The receipt.
        name: String,
        /// The epoch.
        epoch: u64,
        /// The largest number allowed for a data set of this size.
        allowed: usize,
    },
    /// There is no memory for the counters of a data set of this size.
    #[error(
        "{records} records: there is no memory for a counter each, {} bytes; verify on a larger machine",
        records.saturating_mul(size_of::<u32>() as u64)
    )]
    Memory {
        /// The number of records, as the receipts state it.
        records: u64,
    },
    /// The plan does not have the steps that the receipt lists.
    #[error(
        "{name}: its plan does not have the steps it lists: {error}; use the receipt as the feed wrote it"
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
        DIGEST => words(
            "make one without each record's hash: with DigestDetail::Sum",
            "make one without each record's hash: without --each-record",
            "make one without each record's hash",
        ),
        _ => "give each resumed run a receipt of its own, and verify all of them together",
    }
}
