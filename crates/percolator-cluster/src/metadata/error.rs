//! Why records cannot be read or changed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::records::LeaseId;

/// Why records cannot be read or changed.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetadataError {
    /// There was no answer in time, or the connection failed. What was asked for may have happened.
    #[error("{place} did not answer in {waited:.1?}: could not {what}")]
    Unreachable {
        /// Where the records are.
        place: String,
        /// What was asked for.
        what: &'static str,
        /// How long it was waited for.
        waited: Duration,
        /// The cause.
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// A lease has ended: its time was over, or it was revoked.
    #[error("the lease {lease} has ended: it was not kept alive in time, or was revoked")]
    LeaseExpired {
        /// The lease.
        lease: LeaseId,
    },
    /// The user may not do that, or is not known.
    #[error("{place} refuses to {what}: {message}")]
    Denied {
        /// Where the records are.
        place: String,
        /// What was asked for.
        what: &'static str,
        /// What the other side says.
        message: String,
    },
    /// Options that cannot be met.
    #[error("the options of {place} cannot be met: {message}")]
    Options {
        /// Where the records are to be.
        place: String,
        /// What was found, and what is allowed.
        message: String,
    },
    /// A transaction that no implementation takes.
    #[error("the transaction cannot be made: {message}")]
    Transaction {
        /// What is wrong with it.
        message: String,
    },
    /// The place is full.
    #[error("{place} has no room for more records: {message}")]
    Full {
        /// Where the records are.
        place: String,
        /// What it says, and what to do.
        message: String,
    },
    /// The records are damaged, or of another version.
    #[error("{place}: {message}")]
    Damaged {
        /// Where the records are.
        place: String,
        /// What was found, and what is allowed.
        message: String,
    },
    /// Something else failed.
    #[error("{place}: could not {what}")]
    Failed {
        /// Where the records are.
        place: String,
        /// What was asked for.
        what: &'static str,
        /// The cause.
        source: Arc<dyn Error + Send + Sync>,
    },
}
