//! What ends a job's input, or keeps it from starting.

use std::error::Error;
use std::sync::Arc;

use crate::collective::{CollectiveError, because};
use percolator::FeedError;
use percolator::order::OrderError;
use percolator::record::StepId;
use percolator_files::shown;

/// What ends the input of a job, or keeps it from starting.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum DistributeError {
    /// The job cannot be divided among these workers and replicas.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The workers cannot be those of a job: their devices or names are at odds, or none is in this process.
    #[error("{message}")]
    Workers {
        /// What is wrong with them, and what to do.
        message: String,
    },
    /// A worker's feed could not be built, or has ended with an error.
    #[error("worker {worker:?}: {}", shown::with_sources(&**error))]
    Worker {
        /// The worker.
        worker: String,
        /// What is wrong. It is part of the message with its causes, so it is not the error's source.
        error: Box<FeedError>,
    },
    /// The function that describes a worker's feed failed.
    #[error("worker {worker:?}: its function failed: {}", shown::with_sources(&**error))]
    Function {
        /// The worker that it was called for.
        worker: String,
        /// The function's error.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// A worker of another process failed.
    #[error("worker {worker:?} failed in another process, which has its error")]
    Elsewhere {
        /// The worker.
        worker: String,
    },
    /// A process has left.
    #[error(
        "process {rank} has left the job, and with it its worker(s) {}{}",
        workers.join(", "),
        because(reason.as_deref())
    )]
    ProcessLeft {
        /// Its rank in the collective.
        rank: usize,
        /// The workers that it fed.
        workers: Vec<String>,
        /// Why, if it said so.
        reason: Option<Arc<str>>,
    },
    /// The processes must agree, but have no collective.
    #[error(
        "other processes take part, and {what} must be agreed with them: give the workers a collective, with \
         InputWorkers::collective"
    )]
    NoCollective {
        /// What must be agreed on.
        what: &'static str,
    },
    /// The processes are configured differently.
    #[error("process {rank} has {found} {what}, and process 0 has {wanted}: configure all processes alike")]
    NotOneJob {
        /// What differs.
        what: &'static str,
        /// The process.
        rank: usize,
        /// What it has.
        found: u64,
        /// What process 0 has.
        wanted: u64,
    },
    /// A worker is fed by no process, or by several.
    #[error(
        "worker {worker:?} is fed by {processes} of the {of} processes: exactly one must feed each worker"
    )]
    NotFedOnce {
        /// The worker.
        worker: String,
        /// The number of processes that feed it.
        processes: usize,
        /// The number of processes.
        of: usize,
    },
    /// `distribute` was asked for one data set per replica.
    #[error(
        "distribute divides one data set, and does not make one for each replica: use PerWorker, or describe \
         each replica's own with distribute_from_fn"
    )]
    PerReplicaDataset,
    /// Two feeds of one data set found different records.
    #[error(
        "two workers found different records in the data set: it must not be written to while a job reads it"
    )]
    DataChanged,
    /// The snapshot's replicas are at different steps.
    #[error(
        "the job resumes from a snapshot whose replicas are apart, one at {wanted} and another at {found}, \
         and each of its steps needs a batch of every replica: resume with Feed::take_lanes until they are \
         at one step, or take snapshots after whole steps"
    )]
    Apart {
        /// The step of one replica.
        found: StepId,
        /// The step of the first replica.
        wanted: StepId,
    },
    /// A mean over no records.
    #[error("there is no mean: no replica has a record at this step")]
    NothingToReduce,
    /// Replicas reduce different numbers of values.
    #[error(
        "replica {replica} has {found} number(s) to reduce, and the replicas before it have {wanted}: all \
         replicas must reduce the same number of values"
    )]
    UnevenValues {
        /// The replica.
        replica: usize,
        /// Its number of values.
        found: usize,
        /// The number expected.
        wanted: usize,
    },
    /// The processes can no longer agree.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

impl DistributeError {
    /// Whether it arose in this process, so that the others do not know of it.
    pub(super) fn is_of_this_process(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. } | Self::ProcessLeft { .. } | Self::Collective(_))
    }
}
