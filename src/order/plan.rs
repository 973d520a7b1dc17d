//! A job, and what each of its replicas gets at each step.

use std::ops::Range;

use super::rebatch::Sizes;
use super::sharding::{Files, Shard};
use super::world::Seat;
use super::{AutoShardPolicy, EpochOrder, OrderError, Shuffle, World};
use crate::record::RecordId;

/// The most records that are counted, of a run or of a step: times the most replicas they fit 64 bits.
pub(super) const COUNTED_MAX: u64 = 1 << 43;

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
/// use percolator::{BatchSize, Job, World};
///
/// let plan = Job::new([13], BatchSize::Global(9), World::new(1, 2)?).plan()?;
/// let positions = |step, replica| plan.share(0, step, replica).map(|share| share.map(|record| record.index).collect());
/// assert_eq!(plan.steps(0)?, 2);
/// assert_eq!(positions(0, 1), Ok(vec![5, 6, 7, 8]));
/// assert_eq!(positions(1, 0), Ok(vec![9, 10]));
/// # Ok::<(), percolator::OrderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    files: Vec<u64>,
    batch: BatchSize,
    world: World,
    policy: AutoShardPolicy,
    assignment: Assignment,
    last_batch: Option<LastBatch>,
    shuffle: Shuffle,
    seed: u64,
}

impl Job {
    /// A job over a data set of files (databases) of so many records each.
    pub fn new(files: impl Into<Vec<u64>>, batch: BatchSize, world: World) -> Self {
        Job {
            files: files.into(),
            batch,
            world,
            policy: AutoShardPolicy::default(),
            assignment: Assignment::default(),
            last_batch: None,
            shuffle: Shuffle::default(),
            seed: 0,
        }
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

    /// Who gets what, and when.
    ///
    /// # Errors
    ///
    /// [`OrderError`] if it cannot be divided as it was asked for.
    pub fn plan(&self) -> Result<Plan, OrderError> {
        Plan::of(self)
    }

    fn last_batch_or_default(&self) -> LastBatch {
        self.last_batch.unwrap_or(match self.assignment {
            Assignment::TensorFlow => LastBatch::Keep,
            Assignment::Caffe => LastBatch::Wrap,
        })
    }
}

/// Which record goes where, and when: computed, step by step, for any step of any replica, and without reading anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    world: World,
    policy: AutoShardPolicy,
    why: &'static str,
    law: Law,
    /// How many records all replicas together take at a step, while there are enough.
    step_records: u64,
    /// The steps of each epoch, where workers have streams of their own.
    own_steps: u64,
    last_batch: LastBatch,
    shuffle: Shuffle,
    seed: u64,
    /// One for all workers, or one each.
    shards: Vec<Shard>,
}

/// How a step's records are found in their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    /// One stream, in batches of so many, each divided contiguously.
    Divided { global: u64 },
    /// One stream, in batches of so many, dealt to workers, and by them to their replicas.
    Dealt { each: u64 },
    /// One stream, dealt record by record, so many to each replica a step.
    Caffe { each: u64 },
    /// A stream a worker, cut into sizes of which a step's make up so many.
    Rebatched { global: u64 },
    /// A stream a worker, in batches of so many, dealt to its replicas.
    Own { each: u64 },
}

/// Places in a stream, in the order in which they are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    first: u64,
    stride: u64,
    len: u64,
}

impl Stretch {
    /// Neighbours, as far as the stream goes.
    fn within(range: Range<u64>, end: u64) -> Self {
        let (first, last) = (range.start.min(end), range.end.min(end));
        Stretch { first, stride: 1, len: last - first }
    }
}

impl Plan {
    fn of(job: &Job) -> Result<Self, OrderError> {
        let world = job.world;
        let files = Files::of(&job.files)?;
        let last_batch = job.last_batch_or_default();
        let wants_one = job.assignment == Assignment::Caffe || last_batch == LastBatch::Wrap;
        let (policy, why) = job.policy.resolve(job.files.len(), world.workers(), wants_one)?;
        // One worker reads everything, by whatever policy.
        let shares = policy == AutoShardPolicy::Data || world.workers() == 1;
        let (law, step_records) = law(job, shares)?;
        if last_batch == LastBatch::Wrap && !shares {
            return Err(OrderError::WrapsOne { policy: policy.name() });
        }
        if last_batch == LastBatch::Wrap && files.records() == 0 {
            return Err(OrderError::NoRecords);
        }
        let workers = world.workers() as u64;
        let shards = match shares {
            true => vec![files.shard(AutoShardPolicy::Data, 0, 1)],
            false => (0..workers).map(|worker| files.shard(policy, worker, workers)).collect(),
        };
        let (shuffle, seed) = (job.shuffle, job.seed);
        let mut plan =
            Plan { world, policy, why, law, step_records, own_steps: 0, last_batch, shuffle, seed, shards };
        plan.own_steps = plan.count_own_steps();
        Ok(plan)
    }

    /// The job's workers and replicas.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// How the data set is sharded, which is never [`AutoShardPolicy::Auto`], and why that was chosen.
    #[must_use]
    pub fn policy(&self) -> (AutoShardPolicy, &'static str) {
        (self.policy, self.why)
    }

    /// The most records that a replica gets at a step: what a padded batch has room for.
    #[must_use]
    pub fn batch_size_max(&self) -> u64 {
        match self.law {
            Law::Divided { global } | Law::Rebatched { global } => {
                global.div_ceil(self.world.replicas() as u64)
            }
            Law::Dealt { each } | Law::Caffe { each } | Law::Own { each } => each,
        }
    }

    /// Whether short batches are padded.
    pub(crate) fn pads(&self) -> bool {
        self.last_batch == LastBatch::Pad
    }

    /// How many records all replicas together take at a step, while there are enough.
    pub(crate) fn step_records(&self) -> u64 {
        self.step_records
    }

    /// Whether a step's records lie in their stream as they are dealt in turn, and not share by share.
    pub(crate) fn deals_in_turn(&self) -> bool {
        matches!(self.law, Law::Caffe { .. })
    }

    /// How many steps an epoch has. Where batches [wrap](LastBatch::Wrap), those that begin in it.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`] if too many records come before it to be counted.
    pub fn steps(&self, epoch: u64) -> Result<u64, OrderError> {
        match self.law {
            Law::Divided { .. } | Law::Dealt { .. } | Law::Caffe { .. } => self.shared_steps(epoch),
            Law::Rebatched { .. } | Law::Own { .. } => Ok(self.own_steps),
        }
    }

    /// What a replica gets at a step of an epoch: its records, in the order of their places in the batch.
    ///
    /// # Errors
    ///
    /// [`OrderError::NoSuchStep`], [`OrderError::NoSuchMember`] and [`OrderError::TooMany`].
    pub fn share(&self, epoch: u64, step: u64, replica: usize) -> Result<ReplicaShare<'_>, OrderError> {
        let seat = self.world.seat(replica)?;
        let steps = self.steps(epoch)?;
        if step >= steps {
            return Err(OrderError::NoSuchStep { epoch, step, steps });
        }
        let stream = if self.shards.len() == 1 { 0 } else { seat.worker };
        let shard = &self.shards[stream];
        let before = records_before(epoch, shard)?;
        let stretch = match self.last_batch {
            LastBatch::Wrap => self.stretch(before.div_ceil(self.step_records) + step, seat, u64::MAX),
            _ => {
                let stretch = self.stretch(step, seat, self.end(shard));
                Stretch { first: before + stretch.first, ..stretch }
            }
        };
        Ok(ReplicaShare { plan: self, shard, stream, stretch, order: None })
    }

    /// How much of a shard is used in an epoch.
    fn end(&self, shard: &Shard) -> u64 {
        match (self.last_batch, self.law) {
            (LastBatch::Drop, Law::Rebatched { global }) => shard.records / global * global,
            _ => shard.records,
        }
    }

    /// The steps of the one stream of all workers.
    fn shared_steps(&self, epoch: u64) -> Result<u64, OrderError> {
        let (shard, each) = (&self.shards[0], self.step_records);
        Ok(match self.last_batch {
            LastBatch::Wrap => {
                let before = |epoch| Ok(records_before(epoch, shard)?.div_ceil(each));
                before(epoch.saturating_add(1))? - before(epoch)?
            }
            LastBatch::Drop => shard.records / each,
            LastBatch::Keep | LastBatch::Pad => shard.records.div_ceil(each),
        })
    }

    /// The steps of workers that have streams of their own: until the last one ends, or, where all batches are full, the first.
    fn count_own_steps(&self) -> u64 {
        let locals = self.world.replicas_per_worker() as u64;
        let steps = self.shards.iter().enumerate().map(|(worker, shard)| match (self.law, self.last_batch) {
            (Law::Rebatched { .. }, _) => self.rebatched_steps(worker, shard),
            (Law::Own { each }, LastBatch::Drop) => shard.records / each / locals,
            (Law::Own { each }, _) => shard.records.div_ceil(each).div_ceil(locals),
            (Law::Divided { .. } | Law::Dealt { .. } | Law::Caffe { .. }, _) => 0,
        });
        match self.last_batch {
            LastBatch::Drop => steps.min(),
            _ => steps.max(),
        }
        .unwrap_or(0)
    }

    /// For how many steps a worker has records, in sizes of which a step's make up a global batch; where all batches are
    /// full, for how many it has enough.
    fn rebatched_steps(&self, worker: usize, shard: &Shard) -> u64 {
        let end = self.end(shard);
        let begin_of = |step| self.stretch(step, Seat { worker, local: 0 }, u64::MAX).first;
        let has_records = |step| match self.last_batch {
            LastBatch::Drop => begin_of(step + 1) <= end,
            _ => begin_of(step) < end,
        };
        // In as many steps as there are workers, a worker takes a global batch.
        first_not(0..(end / self.step_records + 1) * self.world.workers() as u64, has_records)
    }

    /// The places in its stream that a replica visits at a step, of those before `end`.
    fn stretch(&self, step: u64, seat: Seat, end: u64) -> Stretch {
        let (workers, replicas) = (self.world.workers() as u64, self.world.replicas() as u64);
        let (worker, local) = (seat.worker as u64, seat.local as u64);
        let locals = self.world.replicas_per_worker() as u64;
        let (turn, replica) = (step * locals + local, worker * locals + local);
        let batch = |number: u64, each: u64| Stretch::within(number * each..(number + 1) * each, end);
        match self.law {
            Law::Divided { global } => {
                let Stretch { first, len, .. } = batch(step, global);
                let each = len.div_ceil(replicas);
                Stretch::within(first + replica * each..first + (replica + 1) * each, first + len)
            }
            Law::Dealt { each } => batch(turn * workers + worker, each),
            Law::Own { each } => batch(turn, each),
            Law::Rebatched { global } => {
                let sizes = Sizes::of(self.world, global, worker * locals);
                Stretch::within(sizes.before(turn)..sizes.before(turn + 1), end)
            }
            Law::Caffe { each } => {
                let first = step * each * replicas + replica;
                let len = end.saturating_sub(first).div_ceil(replicas).min(each);
                Stretch { first, stride: replicas, len }
            }
        }
    }
}

/// The law that a job is divided by, and the records that a step takes; `shares` says that all workers read one stream.
fn law(job: &Job, shares: bool) -> Result<(Law, u64), OrderError> {
    let replicas = job.world.replicas() as u64;
    let (option, size, times) = match job.batch {
        BatchSize::Global(size) => ("the global batch", size, 1),
        BatchSize::PerReplica(size) => ("the batch of a replica", size, replicas),
    };
    if size == 0 {
        return Err(OrderError::Zero { option });
    }
    let step_records = size.checked_mul(times).filter(|&records| records <= COUNTED_MAX);
    let step_records =
        step_records.ok_or(OrderError::TooMany { what: "records of a step", allowed: COUNTED_MAX })?;
    let law = match (job.assignment, job.batch) {
        (Assignment::Caffe, _) if !shares => {
            return Err(OrderError::CaffeDealsAll { policy: job.policy.name() });
        }
        (Assignment::Caffe, _) if !step_records.is_multiple_of(replicas) => {
            return Err(OrderError::UnevenBatch { records: step_records, replicas: job.world.replicas() });
        }
        (Assignment::Caffe, _) => Law::Caffe { each: step_records / replicas },
        (Assignment::TensorFlow, BatchSize::Global(global)) if shares => Law::Divided { global },
        (Assignment::TensorFlow, BatchSize::Global(global)) => Law::Rebatched { global },
        (Assignment::TensorFlow, BatchSize::PerReplica(each)) if shares => Law::Dealt { each },
        (Assignment::TensorFlow, BatchSize::PerReplica(each)) => Law::Own { each },
    };
    Ok((law, step_records))
}

/// The records of all epochs of a stream before one.
fn records_before(epoch: u64, shard: &Shard) -> Result<u64, OrderError> {
    let records = epoch.checked_mul(shard.records).filter(|&records| records <= COUNTED_MAX);
    records.ok_or(OrderError::TooMany { what: "records before this epoch", allowed: COUNTED_MAX })
}

/// The first number of a range for which something does not hold that holds for all before it; its end if there is none.
fn first_not(range: Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if holds(middle) { start = middle + 1 } else { end = middle }
    }
    start
}

/// The records that a replica gets at a step, in the order of their places in its batch: positions in the whole data set, and their
/// epochs.
#[derive(Clone, Debug)]
pub struct ReplicaShare<'a> {
    plan: &'a Plan,
    shard: &'a Shard,
    /// Which of the plan's streams the shard is.
    stream: usize,
    /// Counted on through the epochs.
    stretch: Stretch,
    /// The order of the epoch that the last record was of.
    order: Option<(u64, EpochOrder)>,
}

impl Iterator for ReplicaShare<'_> {
    type Item = RecordId;

    fn next(&mut self) -> Option<RecordId> {
        let Stretch { first, stride, len } = self.stretch;
        let left = len.checked_sub(1)?;
        self.stretch = Stretch { first: first + stride, stride, len: left };
        let records = self.shard.records;
        let (epoch, place) = (first / records, first % records);
        if self.order.as_ref().is_none_or(|(of, _)| *of != epoch) {
            let Plan { shuffle, seed, .. } = self.plan;
            self.order = Some((epoch, shuffle.order(records, *seed, epoch, self.stream as u64)));
        }
        let number = self.order.as_ref().map_or(place, |(_, order)| order.number_at(place));
        Some(RecordId { epoch, index: self.shard.position(number) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = usize::try_from(self.stretch.len).unwrap_or(usize::MAX);
        (len, Some(len))
    }
}

impl ExactSizeIterator for ReplicaShare<'_> {}
impl std::iter::FusedIterator for ReplicaShare<'_> {}
