//! A job: what is read, and how it is divided.

use super::{AutoShardPolicy, OrderError, Plan, Shuffle, World};

/// How many records make a batch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchSize {
    /// Of all replicas together at each step: what TensorFlow's `experimental_distribute_dataset` is given.
    Global(u64),
    /// Of each replica: the data set is batched already, as in `distribute_datasets_from_function`.
    PerReplica(u64),
}

/// Which of a step's records each replica gets.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Assignment {
    /// Neighbours stay together. A global batch is divided contiguously, in parts of `ceil(records / replicas)`; batches of
    /// replicas are dealt to the workers in turn. Where workers have streams of their own, those are cut into
    /// [`batch_sizes_for_worker`](super::batch_sizes_for_worker).
    #[default]
    TensorFlow,
    /// Record by record: record `g` of the run goes to replica `g mod replicas`.
    Caffe,
}

/// What becomes of an epoch's last records, where they do not fill a batch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LastBatch {
    /// They come in a short batch, and in empty ones for replicas that get none.
    Keep,
    /// They are left out of this epoch: all batches are full.
    Drop,
    /// They come in batches as large as all others, with a mask that says which records are real. None comes twice.
    Pad,
    /// The first records of the next epoch fill their batch, as in Caffe, whose batches know of no epochs.
    Wrap,
}

/// What a job reads, and how that is divided among its replicas.
///
/// ```
/// use percolator::order::{BatchSize, Job, World};
///
/// let plan = Job::new([13], BatchSize::Global(9), World::new(1, 2)?).plan()?;
/// let positions = |step, replica| plan.share(0, step, replica).map(|share| share.map(|record| record.index).collect());
/// assert_eq!(plan.steps(0)?, 2);
/// assert_eq!(positions(0, 1), Ok(vec![5, 6, 7, 8]));
/// assert_eq!(positions(1, 0), Ok(vec![9, 10]));
/// # Ok::<(), percolator::order::OrderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub(super) files: Vec<u64>,
    /// The proportions that files are mixed in; none if they are not.
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
    /// A job over a data set of files (databases) of so many records each.
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

    /// How many records make a batch, in place of what was said.
    #[must_use]
    pub fn batch(mut self, batch: BatchSize) -> Self {
        self.batch = batch;
        self
    }

    /// Who takes part, in place of what was said.
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// How the data set is sharded over the workers; [`AutoShardPolicy::Auto`] if not said.
    #[must_use]
    pub fn policy(mut self, policy: AutoShardPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Which of a step's records each replica gets; TensorFlow's law if not said.
    #[must_use]
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.assignment = assignment;
        self
    }

    /// Mixes the files in these proportions, a number each: by `[3, 1]` three of four records are of the first file, not
    /// on the average, but of each four that follow one another, and spread evenly. If not said, files come one behind
    /// the other, or, shuffled, in proportion to their sizes.
    ///
    /// Each file is then passed over by itself, again and again, shuffled anew each time if it is
    /// [shuffled](Self::shuffle): a record's [`epoch`](crate::record::RecordId::epoch) is the pass over its file. An epoch of the
    /// job is so long that every record comes at least once, in the exact proportions, and the next one goes on where it
    /// ends.
    #[must_use]
    pub fn mix(mut self, weights: impl Into<Vec<u64>>) -> Self {
        self.mix = weights.into();
        self
    }

    /// What becomes of an epoch's last records. If not said, they are [kept](LastBatch::Keep), or, by Caffe's law,
    /// [wrap](LastBatch::Wrap).
    #[must_use]
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.last_batch = Some(last_batch);
        self
    }

    /// How each epoch is shuffled; not at all if not said.
    #[must_use]
    pub fn shuffle(mut self, shuffle: Shuffle) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// What tells one shuffled run from another; 0 if not said.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Records of the data set, all files together.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.files.iter().fold(0, |records, file| records.saturating_add(*file))
    }

    /// Whether its files are mixed.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.mix.is_empty()
    }

    /// What tells its order from others'.
    pub(crate) fn order_seed(&self) -> u64 {
        self.seed
    }

    /// Who gets what, and when.
    ///
    /// # Errors
    ///
    /// [`OrderError`] if it cannot be divided as it was asked for.
    pub fn plan(&self) -> Result<Plan, OrderError> {
        Plan::of(self)
    }

    /// What becomes of an epoch's last records, said or not.
    pub(super) fn last_batch_or_default(&self) -> LastBatch {
        self.last_batch.unwrap_or(match self.assignment {
            Assignment::TensorFlow => LastBatch::Keep,
            Assignment::Caffe => LastBatch::Wrap,
        })
    }
}
