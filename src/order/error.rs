//! Why a job cannot be divided as it was asked for.

use crate::record::StepId;

/// What was asked for is no way to divide a data set among the replicas of a job.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// A count that must not be zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// What it counts.
        option: &'static str,
    },
    /// Workers that cannot all have as many replicas.
    #[error(
        "every worker has the same number of replicas, and {replicas} replicas cannot be divided by {workers} workers: \
         count those of all workers together, {workers} with one each"
    )]
    UnevenReplicas {
        /// Replicas of the whole job.
        replicas: usize,
        /// Workers.
        workers: usize,
    },
    /// Fewer files than workers, where each worker reads files of its own.
    #[error(
        "FILE gives each worker files of its own, and there are {files} for {workers} workers: bring at least as many \
         files as workers, or shard by DATA"
    )]
    TooFewFiles {
        /// Files, or databases, of the data set.
        files: usize,
        /// Workers.
        workers: usize,
    },
    /// A global batch that must be divided evenly, and cannot be.
    #[error(
        "a global batch of {records} records cannot be divided evenly by {replicas} replicas: make it a multiple"
    )]
    UnevenBatch {
        /// Records of the global batch.
        records: u64,
        /// Replicas.
        replicas: usize,
    },
    /// Caffe's order deals the records of one whole data set.
    #[error(
        "Caffe's order deals one data set to all consumers, record by record: with it go the policies AUTO and DATA, \
         and not {policy}"
    )]
    CaffeDealsAll {
        /// The policy that was asked for.
        policy: &'static str,
    },
    /// Batches that go on from epoch to epoch, of workers whose epochs end at different times.
    #[error(
        "batches wrap into the next epoch only where all workers read one stream: shard by DATA, or end each epoch \
         with a batch that is kept, dropped or padded, instead of {policy}"
    )]
    WrapsOne {
        /// The policy that was asked for.
        policy: &'static str,
    },
    /// No records at all, of which an epoch without end would be made.
    #[error("the data set has no records")]
    NoRecords,
    /// A sum that is not counted any more.
    #[error("the {what} are too many: at most {allowed} are counted")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        allowed: u64,
    },
    /// Batch sizes that never get anywhere.
    #[error("batch sizes are all 0: at least one must be more, or the records never end")]
    NoBatchSize,
    /// An epoch, or a step, that the plan does not have.
    #[error("there is no step {step} in epoch {epoch}: it has {steps}, counted from 0")]
    NoSuchStep {
        /// The epoch.
        epoch: u64,
        /// What was asked for.
        step: u64,
        /// How many there are.
        steps: u64,
    },
    /// A replica, or a worker, that the job does not have.
    #[error("there is no {kind} {found} in a job of {of}: they are counted from 0")]
    NoSuchMember {
        /// `replica` or `worker`.
        kind: &'static str,
        /// What was asked for.
        found: usize,
        /// How many there are.
        of: usize,
    },
    /// Proportions that are not one for each file.
    #[error("{found} weight(s) to mix {files} file(s) by: say one for each, in their order")]
    Weights {
        /// How many there are.
        found: usize,
        /// How many files.
        files: usize,
    },
    /// A file that cannot be mixed in.
    #[error(
        "file {file} (from 0), of {records} record(s), cannot be mixed with others: it has no records, or a weight of 0; leave it out"
    )]
    NothingToMix {
        /// Which file.
        file: usize,
        /// How many records it has.
        records: u64,
    },
    /// Files that are mixed, and not of one stream.
    #[error(
        "files are mixed only where all workers read one stream: with it go the policies AUTO and DATA, and not {policy}"
    )]
    MixesOne {
        /// The policy that was asked for.
        policy: &'static str,
    },
    /// A run cannot go on as a job that goes through other records, or in another order.
    #[error(
        "the run went by {what} {was}, and is to go on by {is}: what is left of it would not be what is left; say the \
         same, or begin anew"
    )]
    OtherOrder {
        /// What differs.
        what: &'static str,
        /// What it was.
        was: String,
        /// What it is now.
        is: String,
    },
    /// Replicas that are further apart than is kept count of.
    #[error(
        "the replicas are too far apart, at {first} and {last}, to go on as another job: let those behind catch up, as the job that they are of"
    )]
    TooFarApart {
        /// Where the hindmost is, or what is left between.
        first: StepId,
        /// Where the foremost is.
        last: StepId,
    },
    /// Not as many steps as replicas.
    #[error("{found} replicas say where they are, of a job of {allowed}: all of them must")]
    Replicas {
        /// How many there are.
        found: usize,
        /// How many the job has.
        allowed: usize,
    },
}
