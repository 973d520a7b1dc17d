//! Why a job cannot be divided as requested.

use crate::record::StepId;
use percolator_files::shown;

/// The configuration does not divide a data set among the replicas of a job.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// A count is zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The name of the count.
        option: &'static str,
    },
    /// The workers cannot all have the same number of replicas.
    #[error(
        "{replicas} replicas cannot be divided evenly among {workers} workers: every worker has the same \
         number of replicas, so give a multiple of {workers} as the number of all replicas"
    )]
    UnevenReplicas {
        /// The number of replicas in the whole job.
        replicas: usize,
        /// The number of workers.
        workers: usize,
    },
    /// There are fewer files than workers, but each worker reads its own files.
    #[error(
        "FILE gives each worker its own files, but there are {files} for {workers} workers: provide at \
         least as many files as workers, or shard by DATA"
    )]
    TooFewFiles {
        /// The number of files, or databases, in the data set.
        files: usize,
        /// The number of workers.
        workers: usize,
    },
    /// A global batch cannot be divided evenly, but must be.
    #[error(
        "a global batch of {records} records cannot be divided evenly among {replicas} replicas: make it a \
         multiple of {replicas}"
    )]
    UnevenBatch {
        /// The number of records in the global batch.
        records: u64,
        /// The number of replicas.
        replicas: usize,
    },
    /// Caffe's order deals the records of one whole data set.
    #[error(
        "Caffe's order deals one data set to all consumers, record by record: it allows the policies AUTO \
         and DATA, not {policy}"
    )]
    CaffeDealsAll {
        /// The requested policy.
        policy: &'static str,
    },
    /// Batches wrap into the next epoch, but the workers' epochs end at different times.
    #[error(
        "batches can wrap into the next epoch only if all workers read one stream: shard by DATA instead of \
         {policy}, or keep, drop or pad the last batch of each epoch"
    )]
    WrapsOne {
        /// The requested policy.
        policy: &'static str,
    },
    /// The data set has no records, so an endless epoch cannot be made of it.
    #[error("the data set has no records")]
    NoRecords,
    /// A sum exceeds what can be counted.
    #[error("the {what} are too many: at most {allowed} are counted")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The most that can be counted.
        allowed: u64,
    },
    /// All batch sizes are 0.
    #[error("batch sizes are all 0: at least one must be positive, or the records are never used up")]
    NoBatchSize,
    /// The plan does not have this epoch or step.
    #[error("there is no step {step} in epoch {epoch}: it has {steps}, counted from 0")]
    NoSuchStep {
        /// The epoch.
        epoch: u64,
        /// The requested step.
        step: u64,
        /// The number of steps in the epoch.
        steps: u64,
    },
    /// The job does not have this replica or worker.
    #[error("there is no {kind} {found} in a job of {of}: they are counted from 0")]
    NoSuchMember {
        /// `replica`, `worker` or `lane`.
        kind: &'static str,
        /// The requested number.
        found: usize,
        /// How many the job has.
        of: usize,
    },
    /// The number of weights differs from the number of files.
    #[error("{found} weight(s) to mix {files} file(s): give one weight for each file, in order")]
    Weights {
        /// The number of weights.
        found: usize,
        /// The number of files.
        files: usize,
    },
    /// A file cannot be mixed in.
    #[error(
        "file {file} (from 0), with {records} record(s), cannot be mixed with others: it has no records, or \
         a weight of 0; leave it out"
    )]
    NothingToMix {
        /// The number of the file.
        file: usize,
        /// The number of its records.
        records: u64,
    },
    /// Files are mixed, but the workers do not read one stream.
    #[error(
        "files can be mixed only if all workers read one stream: use the policy AUTO or DATA instead of \
         {policy}"
    )]
    MixesOne {
        /// The requested policy.
        policy: &'static str,
    },
    /// A run cannot resume as a job that reads other records, or in another order.
    #[error(
        "the run used {what} {}, and cannot resume with {}: what is left of it would differ; use the same \
         {what}, or start a new run",
        shown::line(was),
        shown::line(is)
    )]
    OtherOrder {
        /// The setting that differs.
        what: &'static str,
        /// The run's value.
        was: String,
        /// The job's value.
        is: String,
    },
    /// The replicas are further apart than can be recorded.
    #[error(
        "the replicas are too far apart, at {first} and {last}, to resume as another job: let those behind \
         catch up in the same job first"
    )]
    TooFarApart {
        /// The step of the last replica, or the first step of the gap between them.
        first: StepId,
        /// The step of the foremost replica.
        last: StepId,
    },
    /// The number of steps differs from the number of replicas.
    #[error("{found} replicas have a next step, in a job of {allowed}: all of them need one")]
    Replicas {
        /// The number of steps.
        found: usize,
        /// The number of replicas in the job.
        allowed: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_files_is_shortened() {
        // Miri formats slowly.
        let files = if cfg!(miri) { 1000 } else { 100_000 };
        let [was, is] = [1_u64, 2].map(|last| format!("{:?}", [vec![7; files], vec![last]].concat()));
        let error = OrderError::OtherOrder { what: "records of each file", was, is };
        let said = error.to_string();
        assert!(said.len() < 3000 && said.contains("7, 1], and cannot resume with [7, 7"), "{said}");
    }
}
