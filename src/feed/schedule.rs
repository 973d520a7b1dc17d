//! The course of a feed: epochs by a plan, where one was asked for, and not the ring.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use super::builder::{FeedBuilder, Seed};
use crate::config::ConfigError;
use crate::error::FeedError;
use crate::order::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, OrderError, Shuffle, World};
use crate::reader::schedule_slice::ScheduleSlice;
use crate::record::StepId;
use crate::snapshot::{Resumed, Ring, Snapshot, SnapshotError};
use crate::source::{Identity, IndexPlace, Passes, Source, SourceError};

/// What was said of the epochs and the job.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    pub(super) epochs: Option<u64>,
    pub(super) shuffle: Option<Order>,
    /// The proportions that databases are mixed in; none if they are not.
    pub(super) mix: Vec<u64>,
    pub(super) last_batch: Option<LastBatch>,
    pub(super) assignment: Option<Assignment>,
    pub(super) policy: Option<AutoShardPolicy>,
    /// The job, and which of its workers this feed is.
    pub(super) worker: Option<(World, usize)>,
    /// Where the index lies of a database that is not read from one end to the other.
    pub(super) index: IndexPlace,
}

/// How epochs are shuffled, as far as it is known before the first record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Said(Shuffle),
    /// In windows of so many bytes.
    WindowsOfBytes(u64),
}

impl Order {
    /// The same, now that it is known how many bytes a record has.
    fn of_records(self, record_bytes: usize) -> Shuffle {
        match self {
            Order::Said(shuffle) => shuffle,
            Order::WindowsOfBytes(bytes) => {
                let records = bytes / (record_bytes as u64).max(1);
                Shuffle::Window { records: NonZeroU64::new(records).unwrap_or(NonZeroU64::MIN) }
            }
        }
    }
}

impl Schedule {
    /// Whether anything was said that the ring has not.
    pub(super) fn is_planned(&self) -> bool {
        let Schedule { epochs, shuffle, mix, last_batch, assignment, policy, worker, index: _ } = self;
        epochs.is_some()
            || shuffle.is_some()
            || !mix.is_empty()
            || last_batch.is_some()
            || assignment.is_some()
            || policy.is_some()
            || worker.is_some()
    }
}

/// Which of a job's replicas the lanes of a feed are: the first, and those that follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaSpan {
    pub(super) world: World,
    pub(super) first_replica: usize,
}

impl FeedBuilder {
    /// The job, and which of its workers this feed is: the only one, if nothing else was said.
    fn place_in_job(&self) -> Result<(World, usize), ConfigError> {
        let devices = self.devices.len();
        let (world, number) = match self.schedule.worker {
            Some(worker) => worker,
            None => (World::new(1, devices.max(1))?, 0),
        };
        if let Some(share) = self.share {
            return Err(ConfigError::RanksInPlan { first: share.first, of: share.of });
        }
        if number >= world.workers() {
            return Err(
                OrderError::NoSuchMember { kind: "worker", found: number, of: world.workers() }.into()
            );
        }
        if devices == 0 {
            return Err(ConfigError::NoDevice);
        }
        if devices != world.replicas_per_worker() {
            return Err(ConfigError::Replicas { devices, replicas: world.replicas_per_worker() });
        }
        Ok((world, number))
    }

    /// Which of a job's replicas the lanes are.
    pub(super) fn replica_span(&self) -> Result<ReplicaSpan, ConfigError> {
        if let Some((world, first_replica)) = self.alone {
            return Ok(ReplicaSpan { world, first_replica });
        }
        if !self.schedule.is_planned() {
            let first_replica = self.ranks_of_job().map_or(0, |share| share.first);
            return Ok(ReplicaSpan { world: World::new(1, self.ring().ranks)?, first_replica });
        }
        let (world, worker) = self.place_in_job()?;
        Ok(ReplicaSpan { world, first_replica: world.replicas_of(worker)?.start })
    }

    /// The ring, by which the feed goes if it has no plan.
    pub(super) fn ring(&self) -> Ring {
        let ranks = self.ranks_of_job().map_or(self.devices.len(), |share| share.of);
        Ring { batch_size: self.batch_size as u64, ranks, passes: self.passes }
    }

    /// Where the index of the source lies.
    fn index_place(&self) -> IndexPlace {
        match &self.schedule.index {
            IndexPlace::Folder(folder) => IndexPlace::Folder(self.root.join(folder)),
            place => place.clone(),
        }
    }

    /// The most records that a lane gets at a step of its plan.
    pub(super) fn planned_batch_size(&self) -> Result<usize, ConfigError> {
        let ReplicaSpan { world, .. } = self.replica_span()?;
        Ok(match self.global_batch_size {
            Some(0) => return Err(ConfigError::Zero { option: "global_batch_size" }),
            Some(records) => records.div_ceil(world.replicas()),
            None => self.batch_size,
        })
    }

    /// Whether the feed goes by positions: by a plan of its own, or because it goes on.
    fn goes_by_positions(&self) -> bool {
        self.schedule.is_planned() || self.resume.is_some()
    }

    /// Makes the source ready for what it is to be asked, before the first look at it: a walk without an index would have it
    /// read on.
    pub(super) fn make_ready(&self, source: &dyn Source) -> Result<(), FeedError> {
        if !self.goes_by_positions() {
            return Ok(());
        }
        if source.passes() == Passes::Shuffled {
            return Err(ConfigError::ShufflesItself.into());
        }
        let is_shuffled =
            self.schedule.shuffle.is_some_and(|order| !matches!(order, Order::Said(Shuffle::No)));
        let is_mixed = !self.schedule.mix.is_empty();
        let jumps =
            is_shuffled || is_mixed || self.replica_span()?.world.workers() > 1 || self.resume.is_some();
        if jumps || source.records().is_none() {
            source.index(&self.index_place())?;
            if jumps && !source.is_seekable() {
                tracing::warn!(
                    source = %source.path().display(),
                    "the source has no index: it is walked to each record that does not follow the one before"
                );
            }
        }
        Ok(())
    }

    /// The steps of this feed, where it goes by a plan, or goes on from a snapshot. It may have to count the records; the
    /// first has so many bytes.
    pub(super) fn schedule_slice(
        &self,
        source: &dyn Source,
        identity: &Identity,
        record_bytes: usize,
    ) -> Result<Option<ScheduleSlice>, FeedError> {
        if !self.goes_by_positions() {
            return Ok(None);
        }
        if let Some(snapshot) = &self.resume {
            snapshot.check_data(source.path(), identity)?;
        }
        let replica_span = self.replica_span()?;
        let files = count(source)?;
        let records = files.iter().fold(0, |sum: u64, &records| sum.saturating_add(records));
        if records == 0 {
            return Err(SourceError::Empty { path: source.path().to_owned() }.into());
        }
        let job = match self.schedule.is_planned() {
            true => self.job(files.clone(), record_bytes, replica_span.world),
            false => self.ring().job(&files, self.order_seed()).map_err(ConfigError::Order)?,
        };
        let plan = job.plan().map_err(ConfigError::Order)?;
        if plan.steps(0).map_err(ConfigError::Order)? == 0 {
            return Err(ConfigError::NoSteps { records, step_records: plan.step_records() }.into());
        }
        let lanes = replica_span.first_replica..replica_span.first_replica + self.devices.len();
        let Resumed { plan, next, is_ring, .. } = match &self.resume {
            Some(snapshot) => self.go_on(snapshot, &job, &files, lanes.clone())?,
            None => Resumed::begun(plan),
        };
        let end = self.schedule.epochs.filter(|&epochs| epochs > 0).or(self.passes.map(Into::into));
        let end = end.map(|epoch| StepId { epoch, step: 0 });
        let starts = next.get(lanes).expect("a lane is one of the replicas that were asked for").to_vec();
        if let Some((start, end)) = starts.iter().min().zip(end).filter(|(start, end)| *start > end) {
            tracing::warn!(%start, %end, "the run is behind the end that was asked for: nothing comes; epochs count from its beginning");
        }
        Ok(Some(ScheduleSlice {
            plan: Arc::new(plan),
            first_replica: replica_span.first_replica,
            starts,
            end,
            is_ring,
        }))
    }

    /// How a run goes on as this job.
    fn go_on(
        &self,
        snapshot: &Snapshot,
        job: &Job,
        files: &[u64],
        lanes: Range<usize>,
    ) -> Result<Resumed, SnapshotError> {
        let resumed = snapshot.resumed(job, files, lanes, !self.schedule.is_planned())?;
        let draws = self.transform.takes(self.phase).any();
        if matches!(self.seed, Seed::Caffe(..)) && draws && !resumed.keeps_lanes {
            return Err(SnapshotError::CaffeRandom);
        }
        snapshot.check_draws(self.drawn_from())?;
        Ok(resumed)
    }

    /// What the plan of the feed is made of.
    fn job(&self, files: Vec<u64>, record_bytes: usize, world: World) -> Job {
        let batch = match self.global_batch_size {
            Some(records) => BatchSize::Global(records as u64),
            None => BatchSize::PerReplica(self.batch_size as u64),
        };
        let job = Job::new(files, batch, world)
            .seed(self.order_seed())
            .shuffle(self.schedule.shuffle.map_or(Shuffle::No, |order| order.of_records(record_bytes)))
            .mix(&*self.schedule.mix)
            .assignment(self.schedule.assignment.unwrap_or_default())
            .policy(self.schedule.policy.unwrap_or_default());
        match self.schedule.last_batch {
            Some(last_batch) => job.last_batch(last_batch),
            None => job,
        }
    }

    /// What tells one shuffled run from another.
    pub(super) fn order_seed(&self) -> u64 {
        match self.seed {
            Seed::Indexed(seed) => seed,
            Seed::Caffe(seed, _) => u64::from(seed),
        }
    }
}

/// How many records each file of a source has; where it does not say, they are counted.
fn count(source: &dyn Source) -> Result<Vec<u64>, SourceError> {
    if let Some(files) = source.file_records() {
        return Ok(files);
    }
    tracing::info!(source = %source.path().display(), "counting the records");
    let mut cursor = source.cursor()?;
    let mut records = 0;
    while cursor.skip()? {
        records += 1;
    }
    // One that consists of several has come to know where they end.
    Ok(source.file_records().unwrap_or_else(|| vec![records]))
}
