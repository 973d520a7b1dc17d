//! Blocks of an epoch, leased to workers that come and go.
//!
//! An epoch's order, as the plan has it, is divided into blocks of a fixed number of steps. A worker takes a
//! block by a transaction, holds it under its lease, and finishes it by another transaction, which adds what
//! was delivered to the worker's receipt. A worker that dies loses its lease, and its block goes to the next
//! worker that asks. Workers join and leave at any time; their number is not set.
//!
//! Even if steps are delivered twice because a worker died, the receipts have each step once: they are
//! changed in the transactions that decide who has a block. [`Job::verdict`] proves it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use percolator::{Feed, Shuffle};
//! use percolator_cluster::leases::Leases;
//! use percolator_cluster::metadata::FolderMetadata;
//!
//! let metadata = Arc::new(FolderMetadata::open("job")?);
//! let feed = Feed::builder().lmdb("train_lmdb").batch_size(64).shuffle(Shuffle::Global).epochs(90);
//! for step in Leases::of(metadata, "digits").steps_per_block(50).feed(feed)? {
//!     let step = step?;
//!     println!("{} of {}: {} records", step.step, step.block, step.batches[0].records().len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
mod board;
mod error;
mod feed;
mod job;
mod keys;
mod live;
mod pace;
mod proof;
mod records;
mod reporter;
mod reset;
mod settle;
mod taker;
mod worker;

use std::sync::Arc;
use std::time::Duration;

pub use self::error::LeaseError;
pub use self::feed::{Confirmed, LeasedFeed, LeasedStep};
pub use self::job::{Holder, Job, JobStatus, LiveWorker, OpenBlock};
pub use self::keys::BlockId;
pub use self::proof::{EpochUnderWay, JobAccount, JobVerdict};
pub use self::worker::LeaseStats;

use crate::metadata::Metadata;

/// When the steps count that were handed over.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// When the next one is asked for. The records are told beside it, so a step is confirmed at once, and
    /// counts a little later; it counts when the feed has ended, and, if the records can be reached, when the
    /// feed is dropped.
    #[default]
    ByAsking,
    /// When [`LeasedFeed::confirm`] is called: for a trainer whose state is lost with it, after each of its
    /// checkpoints. Such a worker does not wait for the blocks of others: it ends when there is none to take.
    /// If another worker dies after that, its blocks are left, as [`Job::status`] says.
    ByCall,
}

/// How a worker takes part. [`Leases`] has a method for each field, which documents it.
#[derive(Clone, Debug)]
pub(crate) struct LeaseOptions {
    steps_per_block: u64,
    ttl: Duration,
    worker: Option<String>,
    acknowledge_every: Option<u64>,
    confirm: Confirm,
    duplicates_below: Option<f64>,
    patience: Duration,
}

impl LeaseOptions {
    /// The worker's name: the one that was given, or one that no other process has.
    fn name(&self) -> String {
        self.worker.clone().unwrap_or_else(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            // Names of hosts have neither slashes nor control characters, but nothing keeps them from it.
            let host: String = host.chars().filter(|one| !one.is_control() && *one != '/').take(60).collect();
            format!("{host}-{}-{:08x}", std::process::id(), random())
        })
    }

    /// Refuses what cannot be met.
    fn check(&self) -> Result<(), LeaseError> {
        for (option, is_zero) in [
            ("steps_per_block", self.steps_per_block == 0),
            ("ttl", self.ttl.is_zero()),
            ("acknowledge_every", self.acknowledge_every == Some(0)),
        ] {
            if is_zero {
                return Err(LeaseError::Zero { option });
            }
        }
        if let Some(found) = self.duplicates_below.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(LeaseError::Share { found });
        }
        Ok(())
    }
}

/// A number that two workers of one process, or two processes of one number in two containers, seldom share.
fn random() -> u32 {
    uuid::Uuid::new_v4().as_fields().0
}

/// Configures a worker of a job, and joins it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Leases {
    metadata: Arc<dyn Metadata>,
    job: String,
    options: LeaseOptions,
}

impl Leases {
    /// A worker of the job of this name, whose records are in `metadata`.
    pub fn of(metadata: Arc<dyn Metadata>, job: impl Into<String>) -> Self {
        let options = LeaseOptions {
            steps_per_block: 100,
            ttl: Duration::from_secs(10),
            worker: None,
            acknowledge_every: None,
            confirm: Confirm::default(),
            duplicates_below: None,
            patience: Duration::from_secs(60),
        };
        Leases { metadata, job: job.into(), options }
    }

    /// Sets how many steps a block has (default: 100); the last one of an epoch may have fewer. All workers
    /// of a job have the same. When a worker dies, at most its blocks are done again: the one that is trained
    /// on, and those that its feed has prefetched from.
    pub fn steps_per_block(mut self, steps: u64) -> Self {
        self.options.steps_per_block = steps;
        self
    }

    /// Sets how long a worker's blocks stay its own after it was last heard of (default: 10 s).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Sets the worker's name (default: the host, the process and a random number). No two workers that run
    /// at one time have the same: one that finds its name taken waits for the other's lease to end, for as
    /// long as its [patience](Self::patience) lasts.
    pub fn worker(mut self, name: impl Into<String>) -> Self {
        self.options.worker = Some(name.into());
        self
    }

    /// Lets steps count before their block is done, whenever so many new ones are confirmed (default: only
    /// whole blocks count). If the worker dies, the next one goes on after them. Each time is a transaction.
    pub fn acknowledge_every(mut self, steps: u64) -> Self {
        self.options.acknowledge_every = Some(steps);
        self
    }

    /// Sets when steps that were handed over count (default: [`Confirm::ByAsking`]).
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.options.confirm = confirm;
        self
    }

    /// Gives a block to a second worker as well if the rate of the one that has it falls below half of the
    /// median of all workers' rates (default: never). See [`duplicate_below`](Self::duplicate_below).
    pub fn duplicate_slow(self) -> Self {
        self.duplicate_below(0.5)
    }

    /// Gives a block to a second worker as well if the rate of the one that has it, in steps a second, falls
    /// below this share of the median of all workers' rates: above 0, and at most 1 (default: never). All
    /// workers of a job have the same. What slow workers do helps as long as there are other blocks, so only
    /// those are duplicated of whose epoch every block was handed out: the end of the epoch waits for them.
    ///
    /// Both workers deliver the same steps. The first one to finish the block gets it; the other one is told
    /// with its [next step](LeasedStep::lost), or by [`confirm`](LeasedFeed::confirm) if none comes, and its
    /// steps of the block do not count. While two workers have a block, none of its steps is acknowledged
    /// before it is finished.
    ///
    /// Each worker then makes its progress known, and looks whether others have finished its blocks, ten
    /// times in its [ttl](Self::ttl). A worker that asks for a block reads all that the workers have:
    /// a job of hundreds of workers should not be one of small blocks as well.
    pub fn duplicate_below(mut self, share: f64) -> Self {
        self.options.duplicates_below = Some(share);
        self
    }

    /// Sets for how long the worker waits while the records cannot be reached, are full or refuse it
    /// (default: 60 s): when it joins, in [`confirm`](LeasedFeed::confirm), and when the feed has handed over
    /// all that was taken. Until then the feed goes on with the blocks that it has, however long that takes.
    /// The error that it ends the wait with [may pass](LeaseError::may_pass): the feed tries on beside it,
    /// and can be asked again.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }
}
