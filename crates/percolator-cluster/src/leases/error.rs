//! Why blocks cannot be leased.

use percolator::FeedError;
use percolator::receipt::ReceiptError;
use percolator_files::IoCause;
use percolator_proof::ProofError;

use super::keys::BlockId;
use crate::metadata::MetadataError;

/// Why blocks cannot be leased, or a leased feed has ended.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// The name of a job or worker cannot be a part of a key.
    #[error(
        "{name:?} cannot be the name of a {what}: give 1 to {allowed} bytes, no / and no control characters"
    )]
    Name {
        /// What it is to name.
        what: &'static str,
        /// The name.
        name: String,
        /// The most bytes that are allowed.
        allowed: usize,
    },
    /// An option is zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// The feed does not go with blocks: it follows no plan, or its batches reach into the next epoch.
    #[error("a leased feed {message}")]
    Feed {
        /// What is wrong with it.
        message: &'static str,
    },
    /// Blocks cannot be duplicated below this share of the median.
    #[error(
        "blocks cannot be given to a second worker below {found} of the median rate: give a share above 0, \
         and at most 1"
    )]
    Share {
        /// The share.
        found: f64,
    },
    /// The thread that makes a worker's progress known cannot be started.
    #[error("the thread that makes the worker's progress known cannot be started")]
    Thread(#[source] IoCause),
    /// The thread that tells the records what is confirmed has panicked: the worker can make nothing count
    /// any more.
    #[error("the thread that makes the worker's steps count has panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The job of this name is another one.
    #[error(
        "the job {job:?} was begun with another {what}: {found} here, and {stated} there; give this one \
         another name, or remove the other with `percolator leases reset`"
    )]
    OtherJob {
        /// The job's name.
        job: String,
        /// What differs.
        what: &'static str,
        /// What this worker has.
        found: String,
        /// What the job was begun with.
        stated: String,
    },
    /// Another worker of the job has this name.
    #[error(
        "the job has a worker {worker:?}, process {pid} on {host}: give this one another name, or wait until \
         the other's lease has ended"
    )]
    SameName {
        /// The name.
        worker: String,
        /// The other's host.
        host: String,
        /// The other's process.
        pid: u32,
    },
    /// A record is not what it must be.
    #[error("the record {key:?} is damaged, or of another version: {message}")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// There is no job of this name.
    #[error("there is no job {job:?}: no worker has begun it, or it was reset")]
    NoJob {
        /// The job's name.
        job: String,
    },
    /// The job was removed while this worker had it, or is being removed.
    #[error(
        "the job {job:?} was reset: what its workers had is lost; if the reset was cut short, run \
         `percolator leases reset` again"
    )]
    Reset {
        /// The job's name.
        job: String,
    },
    /// Workers of a job that is to be removed are alive.
    #[error(
        "{workers} worker(s) of the job {job:?} are alive: stop them, drain the job, or reset it with --force"
    )]
    InUse {
        /// The job's name.
        job: String,
        /// How many they are.
        workers: usize,
    },
    /// A block has a step that was not taken.
    #[error(
        "the feed delivered a step of no block that this worker has{}: this is a bug",
        last.map_or_else(String::new, |last| format!(", after {last}"))
    )]
    Unexpected {
        /// The block before it.
        last: Option<BlockId>,
    },
    /// The records cannot be read or changed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The feed has ended with an error.
    #[error(transparent)]
    Of(#[from] FeedError),
    /// The receipts of the job cannot be merged.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The receipts of the job cannot be verified.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

impl LeaseError {
    /// Whether it may pass by itself: the records cannot be reached, are full, do not take the worker for who
    /// it is, or answer more slowly than a lease ends; or the worker's name is still held by a lease that
    /// ends. A [`LeasedFeed`](super::LeasedFeed) that has returned such an error can be asked again.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use MetadataError::{Denied, Full, LeaseExpired, Unreachable};
        matches!(
            self,
            LeaseError::Metadata(Unreachable { .. } | Full { .. } | Denied { .. } | LeaseExpired { .. })
                | LeaseError::SameName { .. }
        )
    }
}
