//! What ends a job's input, or keeps it from starting.

use std::error::Error;
use std::sync::Arc;

use super::collective::CollectiveError;
use crate::error::FeedError;
use crate::order::OrderError;
use crate::record::StepId;

/// What ends the input of a job, or keeps it from starting.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum DistributeError {
    /// The job cannot be divided so.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Workers that have not the same number of devices.
    #[error(
        "worker {worker:?} has {found} device(s), and worker {first:?} has {wanted}: every worker has the same number of \
         replicas; give each as many devices"
    )]
    UnevenDevices {
        /// The worker.
        worker: String,
        /// How many devices it has.
        found: usize,
        /// The first worker.
        first: String,
        /// How many that has.
        wanted: usize,
    },
    /// Two workers of one name.
    #[error("two workers are named {name:?}: errors name workers, so give each a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A process that feeds no worker.
    #[error(
        "none of the {workers} worker(s) is of this process: say InputWorker::here for those that it feeds"
    )]
    NoneHere {
        /// How many workers there are.
        workers: usize,
    },
    /// A worker's feed could not be built, or it has ended with an error.
    #[error("worker {worker:?}: {error}")]
    Worker {
        /// The worker.
        worker: String,
        /// What is wrong. It is part of the message, and therefore not given again as the error's source.
        error: Box<FeedError>,
    },
    /// The function that describes a worker's feed failed.
    #[error("worker {worker:?}: its function failed: {error}")]
    Function {
        /// The worker that it was called for.
        worker: String,
        /// What it said.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// A worker of another process failed.
    #[error("worker {worker:?} failed, in another process: its error is there")]
    Elsewhere {
        /// The worker.
        worker: String,
    },
    /// A process has gone without a word.
    #[error("process {rank} has left the job, and with it its worker(s) {}", workers.join(", "))]
    ProcessLeft {
        /// The process, by its rank in the collective.
        rank: usize,
        /// The workers that it fed.
        workers: Vec<String>,
    },
    /// The processes have to agree, and cannot.
    #[error(
        "workers of other processes take part, and {what} must be agreed with them: give the workers a way, with \
         InputWorkers::collective"
    )]
    NoCollective {
        /// What must be agreed.
        what: &'static str,
    },
    /// The processes were told different things of the job.
    #[error(
        "process {rank} has {found} {what}, and process 0 has {wanted}: all processes of a job are told the same of it"
    )]
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
    /// A worker that is fed by nobody, or by several.
    #[error(
        "worker {worker:?} is fed by {processes} of the {of} processes: each worker is one process's own"
    )]
    NotFedOnce {
        /// The worker.
        worker: String,
        /// How many processes say that it is theirs.
        processes: usize,
        /// How many there are.
        of: usize,
    },
    /// One data set for each replica is none that is divided.
    #[error(
        "a data set that is distributed is divided, and not made anew for each replica: say PerWorker, or describe each \
         replica's own with distribute_from_fn"
    )]
    PerReplicaDataset,
    /// Two feeds of one data set that found different ones.
    #[error(
        "the data set has other records for one worker than for another: it must not be written to while a job reads it"
    )]
    DataChanged,
    /// Replicas that would go on from different steps.
    #[error(
        "the job goes on from a snapshot whose replicas are apart, one at {wanted} and another at {found}, and its steps have one of each: go on \
         with Feed::lanes until they are at one, or take snapshots behind whole steps"
    )]
    Apart {
        /// Where one is.
        found: StepId,
        /// Where the first is.
        wanted: StepId,
    },
    /// A mean of nothing.
    #[error("there is no mean: no replica has a record at this step")]
    NothingToReduce,
    /// Values that are not of one form.
    #[error(
        "replica {replica} has {found} number(s) to reduce, and the replicas before it have {wanted}: all replicas reduce \
         values of one form"
    )]
    UnevenValues {
        /// The replica.
        replica: usize,
        /// How many it has.
        found: usize,
        /// How many were due.
        wanted: usize,
    },
    /// The processes cannot agree any more.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}
