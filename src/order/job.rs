//! A job: what is read, and how it is divided.

use super::{AutoShardPolicy, OrderError, Plan, Shuffle, World};

/// The number of records in a batch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum BatchSize {
    /// Of all replicas together at each step, as for TensorFlow's `experimental_distribute_dataset`.
    Global(u64),
    /// Of each replica: the data set is already batched, as in `distribute_datasets_from_function`.
    PerReplica(u64),
}

/// A batch of each replica.
impl From<usize> for BatchSize {
    fn from(records: usize) -> Self {
        BatchSize::PerReplica(records as u64)
    }
}

/// Which of a step's records each replica gets.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Assignment {
    /// Neighbours stay together. A global batch is divided contiguously, in parts of
    /// `ceil(records / replicas)`. Per-replica batches are dealt to the workers in turn. Workers with their
    /// own streams divide them into [`batch_sizes_for_worker`](super::batch_sizes_for_worker).
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "tensorflow"))]
    TensorFlow,
    /// Record by record: record `g` of the run goes to replica `g mod replicas`.
    Caffe,
}

/// What happens to the last records of an epoch if they do not fill a batch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum LastBatch {
    /// They come in a short batch, and replicas without records get an empty one.
    Keep,
    /// They are left out of this epoch: all batches are full.
    Drop,
    /// They come in batches padded to full size, with a mask of the real records. No record comes twice.
    Pad,
    /// The first records of the next epoch fill their batch, as in Caffe, whose batches ignore epochs.
    Wrap,
}

/// What a job reads, and how that is divided among its replicas.
///
/// ```
/// use percolator::order::{BatchSize, Job, World};
///
/// let plan = Job::new([13], BatchSize::Global(9), World::new(1, 2)?).plan()?;
/// let positions = |step, replica| {
///     plan.share(0, step, replica).map(|share| share.map(|record| record.index).collect())
/// };
/// assert_eq!(plan.steps(0)?, 2);
/// assert_eq!(positions(0, 1), Ok(vec![5, 6, 7, 8]));
/// assert_eq!(positions(1, 0), Ok(vec![9, 10]));
/// # Ok::<(), percolator::order::OrderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub(super) files: Vec<u64>,
    /// The proportions in which files are mixed; empty if they are not.
    pub(super) mix: Vec<u64>,
    pub(super) batch: BatchSize,
    pub(super) world: World,
    pub(super) policy: AutoShardPolicy,
    pub(super) assignment: Assignment,
    last_batch: Option<LastBatch>,
    pub(super) shuffle: Shuffle,
    pub(super) seed: u64,
}

impl Job {
    /// Creates a job over a data set of files (databases) with these numbers of records.
    pub fn new(files: impl Into<Vec<u64>>, batch: BatchSize, world: World) -> Self {
        Job {
            files: files.into(),
            mix: Vec::new(),
            batch,
            world,
            policy: AutoShardPolicy::default(),
            assignment: Assignment::default(),
            last_batch: None,
            shuffle: Shuffle::default(),
            seed: 0,
        }
    }

    /// Replaces the batch size.
    #[must_use]
    pub fn batch(mut self, batch: BatchSize) -> Self {
        self.batch = batch;
        self
    }

    /// Replaces the world.
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// Sets how the data set is sharded over the workers (default: [`AutoShardPolicy::Auto`]).
    #[must_use]
    pub fn policy(mut self, policy: AutoShardPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets which of a step's records each replica gets (default: TensorFlow's rule).
    #[must_use]
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.assignment = assignment;
        self
    }

    /// Mixes the files in these proportions, one number each. With `[3, 1]`, three of four records are from
    /// the first file: evenly spread, so of any four consecutive records, and not only on average. By default
    /// files follow one another, or, if shuffled, are mixed in proportion to their sizes.
    ///
    /// Each file then has its own passes, one after another, each with a new order if the job is
    /// [shuffled](Self::shuffle). A record's [`epoch`](crate::record::RecordId::epoch) is the pass over its
    /// file. An epoch of the job is long enough that every record comes at least once, in the exact
    /// proportions; the next epoch continues where it ends.
    #[must_use]
    pub fn mix(mut self, weights: impl Into<Vec<u64>>) -> Self {
        self.mix = weights.into();
        self
    }

    /// Sets what happens to the last records of an epoch. By default they are [kept](LastBatch::Keep), or,
    /// with Caffe's assignment, [wrap](LastBatch::Wrap).
    #[must_use]
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.last_batch = Some(last_batch);
        self
    }

    /// Sets how each epoch is shuffled (default: not at all).
    #[must_use]
    pub fn shuffle(mut self, shuffle: Shuffle) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Sets the seed, which gives each shuffled run its own order (default: 0).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The number of records in all files of the data set.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.files.iter().fold(0, |records, file| records.saturating_add(*file))
    }

    /// The position at which each file ends.
    pub(crate) fn file_ends(&self) -> Vec<u64> {
        let next = |end: &mut u64, records: &u64| {
            *end = end.saturating_add(*records);
            Some(*end)
        };
        self.files.iter().scan(0, next).collect()
    }

    /// Whether the files are mixed.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.mix.is_empty()
    }

    /// The seed of the order.
    pub(crate) fn order_seed(&self) -> u64 {
        self.seed
    }

    /// Resolves who gets which record, and when.
    ///
    /// # Errors
    ///
    /// [`OrderError`] if the data set cannot be divided as configured.
    pub fn plan(&self) -> Result<Plan, OrderError> {
        Plan::of(self)
    }

    /// What happens to the last records of an epoch, as set or by default.
    pub(super) fn last_batch_or_default(&self) -> LastBatch {
        self.last_batch.unwrap_or(match self.assignment {
            Assignment::TensorFlow => LastBatch::Keep,
            Assignment::Caffe => LastBatch::Wrap,
        })
    }
}
