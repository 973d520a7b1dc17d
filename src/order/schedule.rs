//! The configured order of a training run: its epochs, how each is shuffled, and who gets what.

use std::num::NonZeroU64;

use super::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, Shuffle, World};

/// How long a feed lasts, and in which of two orders it deals its records.
///
/// A number becomes [`Number`](Self::Number): `FeedBuilder::epochs(10)`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Epochs {
    /// Caffe's round-robin order, for ever: batches continue from the last record to the first.
    #[default]
    RoundRobin,
    /// Caffe's round-robin order, for one exact pass. Each record comes once, and each lane's last batch may
    /// be short.
    OnePass,
    /// So many epochs of a [`Plan`](super::Plan), counted from the beginning of the training run; 0 has no
    /// end.
    Number(u64),
}

impl From<u64> for Epochs {
    fn from(epochs: u64) -> Self {
        Epochs::Number(epochs)
    }
}

/// The configured order of a feed. With nothing set, the feed deals in Caffe's round-robin order, for ever.
/// [`epochs`](Self::epochs) or [`blocks`](Self::blocks) makes it follow a [`Plan`](super::Plan). The fields
/// that configure the plan need one of the two: `shuffle`, `mix`, `last_batch`, `assignment`, `policy`,
/// `worker`.
///
/// The methods of [`FeedBuilder`](crate::FeedBuilder) document the fields. Its
/// [`epochs`](crate::FeedBuilder::epochs) sets both `epochs` and `once`, and its
/// [`share`](crate::FeedBuilder::share) sets `worker` or `ranks`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Schedule {
    /// The number of [epochs](crate::FeedBuilder::epochs) from the start of the training run; 0 for no end.
    pub epochs: Option<u64>,
    /// Whether the feed ends after [one exact pass](Epochs::OnePass).
    pub once: bool,
    /// How each epoch is [shuffled](crate::FeedBuilder::shuffle).
    pub shuffle: Option<ShuffleSpec>,
    /// The proportions in which databases are [mixed](crate::FeedBuilder::mix); empty if they are not.
    pub mix: Vec<u64>,
    /// What happens to an epoch's [last records](crate::FeedBuilder::last_batch) if they do not fill a batch.
    pub last_batch: Option<LastBatch>,
    /// Which of a step's records each replica [gets](crate::FeedBuilder::assignment).
    pub assignment: Option<Assignment>,
    /// How the data set is [sharded](crate::FeedBuilder::policy) over the workers of a job.
    pub policy: Option<AutoShardPolicy>,
    /// The job, and which of its [workers](crate::FeedBuilder::share) the feed is.
    pub worker: Option<JobWorker>,
    /// Whether the steps come in [blocks](crate::FeedBuilder::blocks), which a program attaches.
    pub blocks: bool,
    /// Which [ranks](crate::FeedBuilder::share) of a job in round-robin order the lanes are.
    pub ranks: Option<Ranks>,
}

/// How each epoch of a feed is shuffled, before the size of a record is known.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ShuffleSpec {
    /// As a plan shuffles.
    By(Shuffle),
    /// In windows of about this many bytes: as many records as fill them if all are as large as the first,
    /// and at least 1.
    WindowsOfBytes(u64),
}

/// One worker of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct JobWorker {
    /// All workers and replicas.
    pub world: World,
    /// The number of this one, from 0.
    pub number: usize,
}

/// Some of the ranks of a job: `first` and those that follow it, one for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Ranks {
    /// The first lane's rank.
    pub first: usize,
    /// The number of ranks of the whole job.
    pub of: usize,
}

/// Which part of a job a feed is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobShare {
    /// One worker of a job that follows a plan.
    Worker(JobWorker),
    /// Some of the ranks of a job in Caffe's round-robin order.
    Ranks(Ranks),
}

impl From<JobWorker> for JobShare {
    fn from(worker: JobWorker) -> Self {
        JobShare::Worker(worker)
    }
}

impl From<Ranks> for JobShare {
    fn from(ranks: Ranks) -> Self {
        JobShare::Ranks(ranks)
    }
}

impl ShuffleSpec {
    /// The shuffle, given the size of the first record.
    fn of_records(self, record_bytes: usize) -> Shuffle {
        match self {
            ShuffleSpec::By(shuffle) => shuffle,
            ShuffleSpec::WindowsOfBytes(bytes) => {
                let records = bytes / (record_bytes as u64).max(1);
                Shuffle::Window { records: NonZeroU64::new(records).unwrap_or(NonZeroU64::MIN) }
            }
        }
    }
}

impl From<Shuffle> for ShuffleSpec {
    fn from(shuffle: Shuffle) -> Self {
        ShuffleSpec::By(shuffle)
    }
}

impl Schedule {
    /// Whether the feed follows a plan, and not Caffe's round-robin order.
    #[must_use]
    pub fn is_planned(&self) -> bool {
        self.epochs.is_some() || self.blocks
    }

    /// Whether the records of a file come in another order than the file's.
    pub(crate) fn shuffles_records(&self) -> bool {
        let in_order = [Shuffle::No, Shuffle::Files].map(ShuffleSpec::By);
        self.shuffle.is_some_and(|shuffle| !in_order.contains(&shuffle))
    }

    /// The number of passes after which round-robin order ends.
    pub(crate) fn passes(&self) -> Option<NonZeroU64> {
        self.once.then_some(NonZeroU64::MIN)
    }

    /// The job of these files, given the size of the first record.
    pub(crate) fn job(&self, files: Vec<u64>, batch: BatchSize, world: World, record_bytes: usize) -> Job {
        let job = Job::new(files, batch, world)
            .shuffle(self.shuffle.map_or(Shuffle::No, |shuffle| shuffle.of_records(record_bytes)))
            .mix(&*self.mix)
            .assignment(self.assignment.unwrap_or_default())
            .policy(self.policy.unwrap_or_default());
        match self.last_batch {
            Some(last_batch) => job.last_batch(last_batch),
            None => job,
        }
    }
}
