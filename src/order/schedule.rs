//! The configured order of a training run: its epochs, how each is shuffled, and who gets what.

use std::num::NonZeroU64;

use super::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, Shuffle, World};

/// The configured order of a feed. With nothing set, the feed deals in Caffe's round-robin order, for ever.
/// Any field but [`once`](Self::once) and [`ranks`](Self::ranks) makes it follow a [`Plan`](super::Plan).
///
/// [`FeedBuilder`](crate::FeedBuilder) has a method for each field, which documents it.
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
    /// Whether the feed ends after [one exact pass](crate::FeedBuilder::once).
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
    /// The job, and which of its [workers](crate::FeedBuilder::worker) the feed is.
    pub worker: Option<JobWorker>,
    /// Whether the steps come in [blocks](crate::FeedBuilder::blocks), which a program attaches.
    pub blocks: bool,
    /// Which [ranks](crate::FeedBuilder::ranks) of a job in round-robin order the lanes are.
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
        let &Schedule { ref epochs, ref shuffle, ref mix, ref last_batch, blocks, .. } = self;
        let Schedule { assignment, policy, worker, .. } = self;
        epochs.is_some()
            || blocks
            || shuffle.is_some()
            || !mix.is_empty()
            || last_batch.is_some()
            || assignment.is_some()
            || policy.is_some()
            || worker.is_some()
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
