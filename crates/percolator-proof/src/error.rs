//! Why receipts cannot be verified.

use percolator::order::OrderError;

/// Receipts cannot be verified together.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// No receipts were given.
    #[error("there are no receipts to verify: give those of all ranks of the run")]
    None,
    /// Two receipts, or a receipt and a digest, that disagree on something they must share.
    #[error(
        "{one} has {one_says:?}, and {other} has {other_says:?}: they do not belong to the same {of}; leave \
         one of them out"
    )]
    Differ {
        /// What they would have to share: a `run`, or a `data set`.
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
    /// [wrap](percolator::LastBatch), and are many times larger than the data set, or replicas were many
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

impl ProofError {
    /// The error of two that must share something, by their names, and what each has in its place.
    pub(crate) fn differ(
        of: &'static str,
        [one, other]: [&str; 2],
        (one_says, other_says): (String, String),
    ) -> Self {
        ProofError::Differ { of, one: one.to_owned(), one_says, other: other.to_owned(), other_says }
    }

    /// The error of a step that a receipt's plan does not have.
    pub(crate) fn of_plan(name: &str, error: OrderError) -> Self {
        ProofError::Order { name: name.to_owned(), error }
    }

    pub(crate) fn too_many_epochs(name: &str, epoch: u64, allowed: usize) -> Self {
        ProofError::TooManyEpochs { name: name.to_owned(), epoch, allowed }
    }

    pub(crate) fn no_memory(records: usize) -> Self {
        ProofError::Memory { records: records as u64 }
    }
}
