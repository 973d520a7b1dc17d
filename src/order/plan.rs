//! What each replica of a job gets at each step.
//!
//! A [`Plan`] is a [`Job`] with everything resolved: the shards, and the [`Partition`] of their places. It
//! answers by arithmetic, from the number of the step alone:
//!
//! ```text
//! (epoch, step, replica) -> line of its worker -> places of the step -> ReplicaShare: the records there
//! ```
//!
//! - If all workers share one stream, there is one shard; otherwise there is one for each worker.
//! - Batches end with the epoch, and each epoch counts its steps from its own first place. If batches wrap
//!   ([`LastBatch::Wrap`]), steps are laid through all epochs, and an epoch has those that begin in it.
//! - What another job left of its epoch (`rest`, `second_rest`) comes first in a [`Line`], before the shard's
//!   own places.

use std::ops::Range;

use super::job::{Assignment, Job, LastBatch};
use super::mixture::Mixture;
use super::partition::Partition;
use super::range::StridedRange;
use super::remainder::Remainder;
use super::sharding::{Files, Shard, ShardName};
use super::share::{Line, ReplicaShare};
use super::world::Seat;
use super::{AutoShardPolicy, OrderError, Shuffle, World};
use crate::record::StepId;

/// The most records that are counted, in a run or in a step. Multiplied by the most replicas, they fit 64
/// bits.
pub(crate) const COUNTED_MAX: u64 = 1 << 43;

/// The most shares by which replicas may be apart, including those that they were given. It bounds what
/// snapshots and receipts write about them, and how many epochs a single step may span.
pub(super) const APART_MAX: usize = 1 << 20;

/// Which record goes where, and when. Computed for any step of any replica, without reading anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job that the plan was made from.
    job: Job,
    policy: AutoShardPolicy,
    why: &'static str,
    partition: Partition,
    /// The number of records that all replicas together take at a step, while there are enough.
    step_records: u64,
    /// The number of steps in each epoch, if workers have their own streams.
    own_steps: u64,
    last_batch: LastBatch,
    /// One for all workers, or one each.
    shards: Vec<Shard>,
    /// What another job left of the epoch that it was in.
    rest: Option<Remainder>,
    /// What is left of the epoch in which the run goes on after the rest, if batches end with the epoch.
    second_rest: Option<Remainder>,
    /// The first epoch after the rest's own that it does not have completely; 0 if that is the next one.
    goes_on_in: u64,
}

/// Where the records of one replica are in an epoch: the places of its shares in a line.
struct EpochPlaces<'a> {
    world: World,
    seat: Seat,
    line: Line<'a>,
    partition: Partition,
    /// The number of the epoch's first step, as the line counts steps.
    first_step: u64,
    /// The place where the line ends.
    end: u64,
}

impl EpochPlaces<'_> {
    fn of_step(&self, step: u64) -> StridedRange {
        self.partition.range(self.world, self.first_step + step, self.seat, self.end)
    }

    /// Those of these steps of the epoch, which are not empty, that have records.
    fn steps_with_records(self, steps: Range<u64>) -> impl Iterator<Item = u64> {
        // Each step begins where the previous one ends, so once one is past the end, all are.
        let end = first_not(steps.clone(), |step| self.of_step(step).first < self.end);
        // A short step is divided separately: a replica without records in the other steps may have some in
        // it.
        let last = end.saturating_sub(1).max(steps.start);
        let next = move |from: u64| {
            let number = self.partition.next_busy(self.world, self.first_step + from, self.seat);
            let busy = number.map(|number| number - self.first_step).filter(|&busy| busy < last);
            let at_last = || (from <= last && last < end && self.of_step(last).len > 0).then_some(last);
            busy.or_else(at_last)
        };
        let mut from = steps.start;
        std::iter::from_fn(move || {
            let step = next(from)?;
            from = step + 1;
            Some(step)
        })
    }
}

impl Job {
    /// The number of places in an epoch, if all workers share one stream.
    pub(super) fn records_of_epoch(&self) -> u64 {
        let mixed = Mixture::of(&self.files, &self.mix).map(|mixture| mixture.len());
        if self.is_mixed() { mixed.unwrap_or(0) } else { self.records() }
    }

    /// A shard of the job's data set, which consists of `files`.
    pub(super) fn shard(&self, files: &Files, name: ShardName) -> Result<Shard, OrderError> {
        match self.mix.is_empty() {
            true => Ok(files.shard(name)),
            false => Ok(Shard::mixed(Mixture::of(&self.files, &self.mix)?)),
        }
    }
}

impl Plan {
    pub(super) fn of(job: &Job) -> Result<Self, OrderError> {
        let world = job.world;
        let files = Files::of(&job.files)?;
        let last_batch = job.last_batch_or_default();
        let is_mixed = !job.mix.is_empty();
        let wants_one = job.assignment == Assignment::Caffe || last_batch == LastBatch::Wrap || is_mixed;
        let (policy, why) = job.policy.resolve(job.files.len(), world.workers(), wants_one)?;
        // One worker reads everything, whatever the policy.
        let shares = policy == AutoShardPolicy::Data || world.workers() == 1;
        let (partition, step_records) = Partition::of(job, shares)?;
        if last_batch == LastBatch::Wrap && !shares {
            return Err(OrderError::WrapsOne { policy: policy.name() });
        }
        if is_mixed && !shares {
            return Err(OrderError::MixesOne { policy: policy.name() });
        }
        if last_batch == LastBatch::Wrap && files.records() == 0 {
            return Err(OrderError::NoRecords);
        }
        let workers = world.workers() as u64;
        let shards = match shares {
            true => vec![job.shard(&files, ShardName::ALL)?],
            false => (0..workers).map(|worker| files.shard(ShardName { policy, worker, workers })).collect(),
        };
        let mut plan = Plan {
            // Defaults are made explicit, so that a plan read from text equals the one that was written.
            job: job.clone().last_batch(last_batch),
            policy,
            why,
            partition,
            step_records,
            own_steps: 0,
            last_batch,
            shards,
            rest: None,
            second_rest: None,
            goes_on_in: 0,
        };
        plan.own_steps = plan.count_own_steps();
        Ok(plan)
    }

    /// The job that the plan was made from.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The job's workers and replicas.
    #[must_use]
    pub fn world(&self) -> World {
        self.job.world
    }

    /// The resolved policy, which is never [`AutoShardPolicy::Auto`], and the reason for it.
    #[must_use]
    pub fn policy(&self) -> (AutoShardPolicy, &'static str) {
        (self.policy, self.why)
    }

    /// The most records that a replica gets at a step: the capacity of a padded batch.
    #[must_use]
    pub fn batch_size_max(&self) -> u64 {
        match self.partition {
            Partition::Divided { global } | Partition::Rebatched { global } => {
                global.div_ceil(self.job.world.replicas() as u64)
            }
            Partition::Dealt { each } | Partition::Caffe { each } | Partition::Own { each } => each,
        }
    }

    /// Whether short batches are padded.
    pub(crate) fn pads(&self) -> bool {
        self.last_batch == LastBatch::Pad
    }

    /// Returns whether batches wrap into the next epoch.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.last_batch == LastBatch::Wrap
    }

    /// Whether batches that are not full are left out.
    pub(super) fn drops(&self) -> bool {
        self.last_batch == LastBatch::Drop
    }

    /// The number of streams: one, or one per worker.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn partition(&self) -> Partition {
        self.partition
    }

    /// What another job left of the epoch that it was in, if anything is left.
    pub(super) fn rest(&self) -> Option<&Remainder> {
        self.rest.as_ref()
    }

    /// The plan with what another job left.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooFarApart`] and [`OrderError::TooMany`].
    pub(super) fn with_rest(self, rest: Option<Remainder>) -> Result<Self, OrderError> {
        let place = rest.as_ref().and_then(|rest| Some((rest.epoch, rest.goes_on_at?)));
        let Some((first, place)) = place else {
            return Ok(Plan { rest, second_rest: None, goes_on_in: 0, ..self });
        };
        let all = self.job.shard(&Files::of(&self.job.files)?, ShardName::ALL)?;
        // Not 0: every place is a record's.
        let epoch = place / all.records;
        if epoch.saturating_sub(first) > APART_MAX as u64 {
            let [first, last] = [first, epoch].map(|epoch| StepId { epoch, step: 0 });
            return Err(OrderError::TooFarApart { first, last });
        }
        let mut second = Remainder::of(epoch);
        let end = records_before(epoch + 1, all.records)?;
        second.push(&all, StridedRange::within(place..end, end))?;
        // A whole epoch is as it would have been.
        let second_rest = Some(second).filter(|second| second.len() < all.records && !self.wraps());
        Ok(Plan { rest, second_rest, goes_on_in: epoch, ..self })
    }

    /// How the epochs are shuffled, and the seed.
    pub(super) fn shuffle(&self) -> (Shuffle, u64) {
        (self.job.shuffle, self.job.seed)
    }

    /// Whether the files of an epoch are shuffled, and not their records.
    pub(crate) fn shuffles_files(&self) -> bool {
        self.job.shuffle == Shuffle::Files
    }

    /// The number of records that all replicas together take at a step, while there are enough.
    pub(crate) fn step_records(&self) -> u64 {
        self.step_records
    }

    /// Whether a step's records should be dealt record by record, to the replicas in turn, because they are
    /// stored in that order. Otherwise they are dealt share by share.
    pub(crate) fn deals_in_turn(&self) -> bool {
        matches!(self.partition, Partition::Caffe { .. })
    }

    /// Whether both plans divide the same data set in the same way, however they were configured, and
    /// wherever they resume.
    pub(crate) fn divides_like(&self, other: &Plan) -> bool {
        let of = |plan: &Plan| {
            (plan.job.world, plan.partition, plan.step_records, plan.last_batch, plan.shuffle())
        };
        of(self) == of(other) && self.job.files == other.job.files && self.shards == other.shards
    }

    /// The number of steps in an epoch. If batches [wrap](LastBatch::Wrap), the steps that begin in it. A
    /// plan that [resumes](Self::resumed) another job has none in the epochs before, and none in the epoch in
    /// which it resumes if less than a step is left and [dropped](LastBatch::Drop).
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`] if the records before it are too many to count.
    pub fn steps(&self, epoch: u64) -> Result<u64, OrderError> {
        if self.wraps() {
            return Ok(self.steps_before(epoch.saturating_add(1))? - self.steps_before(epoch)?);
        }
        if self.is_anothers(epoch) {
            return Ok(0);
        }
        if let Some(rest) = self.rest_of(epoch) {
            return Ok(self.shared_steps(rest.len()));
        }
        Ok(if self.partition.is_shared() {
            self.shared_steps(self.shards[0].records)
        } else {
            self.own_steps
        })
    }

    /// The records that a replica gets at a step of an epoch, in the order of their rows in the batch.
    ///
    /// # Errors
    ///
    /// [`OrderError::NoSuchStep`], [`OrderError::NoSuchMember`] and [`OrderError::TooMany`].
    pub fn share(&self, epoch: u64, step: u64, replica: usize) -> Result<ReplicaShare<'_>, OrderError> {
        let places = self.places(epoch, step, replica)?;
        Ok(ReplicaShare::of(self, places.line, places.of_step(step)))
    }

    /// Where the records of a replica are in an epoch that has this step.
    fn places(&self, epoch: u64, step: u64, replica: usize) -> Result<EpochPlaces<'_>, OrderError> {
        let (world, seat) = (self.job.world, self.job.world.seat(replica)?);
        let steps = self.steps(epoch)?;
        if step >= steps {
            return Err(OrderError::NoSuchStep { epoch, step, steps });
        }
        let worker = if self.shards.len() == 1 { 0 } else { seat.worker };
        let line = self.line(epoch, worker)?;
        let (partition, first_step, end) = match (self.last_batch, line.rest) {
            (LastBatch::Wrap, _) => (self.partition, self.steps_before(epoch)?, u64::MAX),
            (_, Some(rest)) => (self.partition.shared(), 0, rest.len()),
            (_, None) => (self.partition, 0, self.end(line.shard)),
        };
        Ok(EpochPlaces { world, seat, line, partition, first_step, end })
    }

    /// Those of these steps in which a replica gets records: no more than the records. Nearly all steps may
    /// lack records, if there are more replicas than records in a step, or if other workers have more.
    ///
    /// # Errors
    ///
    /// As [`share`](Self::share), if the plan lacks one of the steps.
    pub fn steps_with_records(
        &self,
        epoch: u64,
        steps: Range<u64>,
        replica: usize,
    ) -> Result<impl Iterator<Item = u64>, OrderError> {
        let Range { start, end } = steps;
        // The last step, or the first that the plan lacks.
        let last = end.saturating_sub(1).min(self.steps(epoch)?).max(start);
        let places = if start < end { Some(self.places(epoch, last, replica)?) } else { None };
        Ok(places.into_iter().flat_map(move |places| places.steps_with_records(start..end)))
    }

    /// The number of steps in all epochs before this one, if batches [wrap](LastBatch::Wrap).
    pub(super) fn steps_before(&self, epoch: u64) -> Result<u64, OrderError> {
        let (shard, each) = (&self.shards[0], self.step_records);
        let Some(rest) = &self.rest else { return Ok(records_before(epoch, shard.records)?.div_ceil(each)) };
        if epoch <= rest.epoch {
            return Ok(0);
        }
        let behind = records_before(epoch, shard.records)?.saturating_sub(rest.end(shard)?);
        Ok((rest.len() + behind).div_ceil(each))
    }

    /// The number of steps before this one, counted across epochs. If batches do not [wrap](LastBatch::Wrap),
    /// only for a plan that does not [resume](Self::is_resumed) another's epoch.
    pub(crate) fn step_number(&self, id: StepId) -> Result<u64, OrderError> {
        let before = match self.wraps() {
            true => self.steps_before(id.epoch)?,
            false => id.epoch.saturating_mul(self.steps(0)?),
        };
        Ok(before.saturating_add(id.step))
    }

    /// The step with this number.
    pub(crate) fn numbered_step(&self, number: u64) -> Result<StepId, OrderError> {
        if !self.wraps() {
            let steps = self.steps(0)?.max(1);
            return Ok(StepId { epoch: number / steps, step: number % steps });
        }
        let too_many = OrderError::TooMany { what: "records before this step", allowed: COUNTED_MAX };
        let first =
            number.checked_mul(self.step_records).filter(|&first| first <= COUNTED_MAX).ok_or(too_many)?;
        let records = self.shards[0].records;
        let epoch = match &self.rest {
            None => first / records,
            Some(rest) => match first.checked_sub(rest.len()) {
                None => rest.epoch,
                Some(behind) => (rest.end(&self.shards[0])? + behind) / records,
            },
        };
        Ok(StepId { epoch, step: number - self.steps_before(epoch)? })
    }

    /// Whether the plan resumes an epoch of another job.
    pub(crate) fn is_resumed(&self) -> bool {
        self.rest.is_some()
    }

    /// The number of records that a replica gets before a step, for a plan that does not
    /// [resume](Self::is_resumed) another's epoch.
    pub(crate) fn records_given(&self, id: StepId, replica: usize) -> Result<u64, OrderError> {
        let given = |epoch, steps: Range<u64>| {
            self.steps_with_records(epoch, steps, replica)?
                .map(|step| Ok(self.share(epoch, step, replica)?.len() as u64))
                .sum::<Result<u64, OrderError>>()
        };
        if self.wraps() {
            // All batches are full.
            let each = self.partition.range(self.job.world, 0, self.job.world.seat(replica)?, u64::MAX).len;
            return Ok(each.saturating_mul(self.step_number(id)?));
        }
        let of_epochs = id.epoch.saturating_mul(given(0, 0..self.steps(0)?)?);
        Ok(of_epochs.saturating_add(given(id.epoch, 0..id.step)?))
    }

    /// The line that the places of an epoch's steps are counted in: a worker's own, or the one of all
    /// workers.
    pub(super) fn line(&self, epoch: u64, worker: usize) -> Result<Line<'_>, OrderError> {
        let shard = &self.shards[worker];
        Ok(match (self.last_batch, &self.rest) {
            (LastBatch::Wrap, None) => Line { rest: None, shard, begin: 0 },
            (LastBatch::Wrap, Some(rest)) => Line { rest: Some(rest), shard, begin: rest.end(shard)? },
            _ => Line { rest: self.rest_of(epoch), shard, begin: records_before(epoch, shard.records)? },
        })
    }

    /// What another job left of an epoch, if batches end with the epoch.
    pub(super) fn rest_of(&self, epoch: u64) -> Option<&Remainder> {
        self.rests().find(|rest| rest.epoch == epoch)
    }

    /// What another job left: of the epoch that it was in, and of the epoch in which the run goes on.
    pub(super) fn rests(&self) -> impl DoubleEndedIterator<Item = &Remainder> {
        self.rest.iter().chain(&self.second_rest)
    }

    /// Whether all records of an epoch were another job's, or are in what it left of an earlier epoch: if a
    /// job wraps, its step may be larger than an epoch. Not for batches that wrap.
    pub(super) fn is_anothers(&self, epoch: u64) -> bool {
        let later = |rest: &Remainder| epoch > rest.epoch && self.epoch_after(epoch - 1) > epoch;
        self.rest.as_ref().is_some_and(|rest| epoch < rest.epoch || later(rest))
    }

    /// The first epoch after this one of which not all records are [another job's](Self::is_anothers).
    pub(super) fn epoch_after(&self, epoch: u64) -> u64 {
        let next = epoch.saturating_add(1);
        match &self.rest {
            Some(rest) if next <= rest.epoch => rest.epoch,
            _ => next.max(self.goes_on_in),
        }
    }

    /// How often each record comes in an epoch, unless it is [left out](Self::left_out): once, or, with
    /// [`AutoShardPolicy::Off`], once to each worker.
    #[must_use]
    pub fn times_each(&self) -> usize {
        if self.policy == AutoShardPolicy::Off { self.job.world.workers() } else { 1 }
    }

    /// How many records of a shard are used in an epoch.
    fn end(&self, shard: &Shard) -> u64 {
        match (self.last_batch, self.partition) {
            (LastBatch::Drop, Partition::Rebatched { global }) => shard.records / global * global,
            _ => shard.records,
        }
    }

    /// The number of steps for a stream of this many records that all workers share.
    fn shared_steps(&self, records: u64) -> u64 {
        match self.last_batch {
            LastBatch::Drop => records / self.step_records,
            _ => records.div_ceil(self.step_records),
        }
    }

    /// The number of steps if workers have their own streams: until the last stream ends, or, if all batches
    /// are full, until the first does.
    fn count_own_steps(&self) -> u64 {
        let locals = self.job.world.replicas_per_worker() as u64;
        let steps =
            self.shards.iter().enumerate().map(|(worker, shard)| match (self.partition, self.last_batch) {
                (Partition::Rebatched { .. }, _) => self.rebatched_steps(worker, shard),
                (Partition::Own { each }, LastBatch::Drop) => shard.records / each / locals,
                (Partition::Own { each }, _) => shard.records.div_ceil(each).div_ceil(locals),
                (Partition::Divided { .. } | Partition::Dealt { .. } | Partition::Caffe { .. }, _) => 0,
            });
        match self.last_batch {
            LastBatch::Drop => steps.min(),
            _ => steps.max(),
        }
        .unwrap_or(0)
    }

    /// The number of steps for which a worker has records, in sizes that sum to a global batch per step. If
    /// all batches are full, the number of steps for which it has enough.
    fn rebatched_steps(&self, worker: usize, shard: &Shard) -> u64 {
        let end = self.end(shard);
        let begin_of =
            |step| self.partition.range(self.job.world, step, Seat { worker, local: 0 }, u64::MAX).first;
        let has_records = |step| match self.last_batch {
            LastBatch::Drop => begin_of(step + 1) <= end,
            _ => begin_of(step) < end,
        };
        // A worker takes one global batch in as many steps as there are workers.
        first_not(0..(end / self.step_records + 1) * self.job.world.workers() as u64, has_records)
    }
}

/// The number of records in all epochs before this one, of a stream that has as many in each.
pub(super) fn records_before(epoch: u64, records: u64) -> Result<u64, OrderError> {
    let records = epoch.checked_mul(records).filter(|&records| records <= COUNTED_MAX);
    records.ok_or(OrderError::TooMany { what: "records before this epoch", allowed: COUNTED_MAX })
}

/// The first number of a range for which a monotone condition does not hold; the range's end if there is
/// none.
fn first_not(range: Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if holds(middle) { start = middle + 1 } else { end = middle }
    }
    start
}
