//! Why a process cannot be in a group.

use std::time::Duration;

use crate::metadata::MetadataError;

/// Why a process cannot join a group, or its rounds fail where the records are.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// The job's name cannot be a part of a key.
    #[error(
        "{name:?} cannot be the name of a job: give 1 to {allowed} bytes, no / and no control characters"
    )]
    Name {
        /// The name.
        name: String,
        /// The most bytes that are allowed.
        allowed: usize,
    },
    /// There is no such process in a group of this size.
    #[error("there is no process {rank} of {size}: a group has 1 to {allowed} processes, counted from 0")]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// The number of processes.
        size: usize,
        /// The most that are allowed.
        allowed: usize,
    },
    /// The group of this job has another size.
    #[error(
        "the job {job:?} was begun with {stated} process(es), by process {pid} on {host}, and this one comes \
         with {found}: start all with the same number, or wait until the others' leases have ended"
    )]
    OtherSize {
        /// The job's name.
        job: String,
        /// The size that this process has.
        found: usize,
        /// The size of the group.
        stated: usize,
        /// The host of a process of the group.
        host: String,
        /// The number of that process.
        pid: u32,
    },
    /// A live process has this rank.
    #[error(
        "the job {job:?} has a process {rank} already, process {pid} on {host}: give each its own rank, end \
         the other, or wait until its lease has ended; processes that start again do so together"
    )]
    SameRank {
        /// The job's name.
        job: String,
        /// The rank.
        rank: usize,
        /// The other's host.
        host: String,
        /// The other's number there.
        pid: u32,
    },
    /// Not all processes came.
    #[error(
        "{} of the {size} processes of the job {job:?} did not come within {waited:.1?}: {}",
        missing.len(),
        ranks(missing)
    )]
    Late {
        /// The job's name.
        job: String,
        /// The ranks of those that did not come.
        missing: Vec<usize>,
        /// The number of processes.
        size: usize,
        /// How long they were waited for.
        waited: Duration,
    },
    /// A record is not what it must be.
    #[error("the record {key:?} is damaged, or of another version: {message}")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// The records cannot be read or changed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// The first ranks of many.
fn ranks(missing: &[usize]) -> String {
    const SHOWN: usize = 16;
    let mut shown: Vec<_> = missing.iter().take(SHOWN).map(usize::to_string).collect();
    if missing.len() > SHOWN {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}
