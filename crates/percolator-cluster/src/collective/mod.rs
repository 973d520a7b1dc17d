//! How the processes of a job agree without MPI: through records in etcd, or in a folder of one machine.
//!
//! A [`MetadataCollective`] is a [`Collective`](percolator_distribute::Collective), which
//! [`distribute`](percolator_distribute::distribute) and its reductions need. Each round is a record of each
//! process, under its lease. A process that dies loses its lease, and the others get an error that names it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use percolator_distribute::{InputOptions, InputWorkers, Process, ReduceOp, distribute};
//! use percolator::{Device, Feed, Shuffle};
//! use percolator_cluster::collective::Group;
//! use percolator_cluster::etcd::EtcdOptions;
//! use percolator_cluster::metadata::EtcdMetadata;
//!
//! let process = Process::from_environment(None, None)?.ok_or("no launcher set which process this is")?;
//! let metadata = EtcdMetadata::connect(&EtcdOptions::new(["http://etcd-0:2379"]))?;
//! let group = Group::of(Arc::new(metadata), "digits").join(process.rank, process.processes)?;
//! let workers = InputWorkers::of_process(&process, [Device::host(0)])?.collective(group);
//! let records = Feed::builder().lmdb("train_lmdb").shuffle(Shuffle::Global).epochs(90);
//! for step in distribute(records, 256, &workers, InputOptions::new())? {
//!     let step = step?;
//!     let losses = step.batches.map(|batch| batch.len() as f32);
//!     println!("{}", step.weights.reduce(ReduceOp::Sum, &losses)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a round costs
//!
//! Each process makes one transaction, one read and one wait for each time that it is woken, and, if the
//! processes bring more than 64 words each, one more read. More than 512 KiB take another transaction for
//! each 512 KiB. etcd syncs each transaction to its disk, and that determines the duration of a round.
//! Measured with one etcd 3.4 beside the processes on a busy machine of two processors
//! (`cargo bench -p percolator-cluster --bench collective`), in ms a round:
//!
//! | processes | words of each | etcd | a folder | memory |
//! |---|---|---|---|---|
//! | 2 | 5 | 15 | 14 | 0.1 |
//! | 4 | 5 | 19 | 14 | 0.2 |
//! | 8 | 5 | 28 | 42 | 0.5 |
//! | 4 | 700 | 22 | 18 | 0.6 |
//! | 4 | 12,500 (100 KB) | 37 | 20 | 0.5 |
//! | 4 | 100,000 (800 KB) | 88 | 38 | 4 |
//!
//! A process made 1 transaction (2 for 100,000 words), 1.1 to 2.3 reads and 0.1 to 0.4 waits a round on etcd.
//!
//! # How it works
//!
//! All agreement is by transactions. The first process of a job makes the group's record, and each one that
//! joins changes it; it says who is in which generation. When all are there, the generation begins, and no
//! process can join it any more: a process that restarts is refused until the maker of the group has ended,
//! and its record with it. A group that is made after that has its own generation: rounds of two generations
//! never mix.
//!
//! # Invariants
//!
//! 1. A process puts its record of a round once, under the condition that it has its rank's record under its
//!    own lease. So a process that was cut off for longer than its lease takes part in no further round.
//! 2. A process that enters round `n` has read round `n - 1`. So when a process enters round `n`, all have
//!    read round `n - 2`, and it removes what it brought there: each has the records of two rounds at most.
//! 3. A process that leaves keeps its part of the last round for as long as a round may take, and at least
//!    for a minute, under a lease that is not kept alive, so that slower processes can read it.

mod error;
mod generation;
mod join;
mod keys;
mod records;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

pub use self::error::GroupError;
pub use self::rounds::MetadataCollective;

use self::join::Joining;
use self::keys::GroupKeys;
use crate::metadata::{Metadata, MetadataError};
use crate::patience::Deadline;

/// The most processes of a group: the group's record names each.
const SIZE_MAX: usize = 2048;

impl Deadline {
    /// Repeats a request to the records while they do not answer.
    fn patiently<T>(&self, work: impl Fn() -> Result<T, MetadataError>) -> Result<T, MetadataError> {
        self.patiently_as(None, |error| matches!(error, MetadataError::Unreachable { .. }), work)
    }
}

/// Configures how a process takes part in a group, and joins it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Group {
    metadata: Arc<dyn Metadata>,
    job: String,
    ttl: Duration,
    timeout: Duration,
}

impl Group {
    /// The group of the job of this name, whose records are in `metadata`.
    pub fn of(metadata: Arc<dyn Metadata>, job: impl Into<String>) -> Self {
        let (ttl, timeout) = (Duration::from_secs(10), Duration::from_secs(600));
        Group { metadata, job: job.into(), ttl, timeout }
    }

    /// Sets how long a process may be cut off, or stopped, before the others count it as dead (default:
    /// 10 s). A process that starts again waits for up to twice as long until its predecessor has gone.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long this process waits for the others, to join and in each round (default: 10 minutes). It
    /// must be longer than what one of them does between two rounds. What this process brought to its last
    /// round stays for as long after it has left, but for a day at the most.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Joins as process `rank` of `size`, and waits until all are there.
    ///
    /// # Errors
    ///
    /// [`GroupError`]: [`SameRank`](GroupError::SameRank) if a live process has this rank,
    /// [`OtherSize`](GroupError::OtherSize) if the group has another size, [`Late`](GroupError::Late) if not
    /// all come within the timeout.
    pub fn join(self, rank: usize, size: usize) -> Result<MetadataCollective, GroupError> {
        if rank >= size || size > SIZE_MAX {
            return Err(GroupError::NoSuchRank { rank, size, allowed: SIZE_MAX });
        }
        let keys = GroupKeys::new(&self.job)?;
        let Group { metadata, ttl, timeout, .. } = self;
        let joining = Joining { metadata, keys, rank, size, ttl, timeout };
        Ok(MetadataCollective::new(joining.join()?, timeout))
    }
}
