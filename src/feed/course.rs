//! The course of a feed: epochs by a plan, where one was asked for, and not the ring.

use std::sync::Arc;

use super::builder::{FeedBuilder, Seed};
use super::origin::Origin;
use crate::config::ConfigError;
use crate::error::FeedError;
use crate::order::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, OrderError, Shuffle, World};
use crate::reader::itinerary::Itinerary;
use crate::source::{IndexPlace, Source, SourceError};

/// What was said of the epochs and the job.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    pub(super) epochs: Option<u64>,
    pub(super) shuffle: Option<Shuffle>,
    pub(super) last_batch: Option<LastBatch>,
    pub(super) assignment: Option<Assignment>,
    pub(super) policy: Option<AutoShardPolicy>,
    /// The job, and which of its workers this feed is.
    pub(super) worker: Option<(World, usize)>,
    /// Where the index lies of a database that is not read from one end to the other.
    pub(super) index: IndexPlace,
}

impl Course {
    /// Whether anything was said that the ring has not.
    pub(super) fn is_planned(&self) -> bool {
        let Course { epochs, shuffle, last_batch, assignment, policy, worker, index: _ } = self;
        epochs.is_some()
            || shuffle.is_some()
            || last_batch.is_some()
            || assignment.is_some()
            || policy.is_some()
            || worker.is_some()
    }
}

impl FeedBuilder {
    /// The job, and which of its workers this feed is: the only one, if nothing else was said.
    fn place_in_job(&self) -> Result<(World, usize), ConfigError> {
        let devices = self.devices.len();
        let (world, number) = match self.course.worker {
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

    /// Where the index of the source lies.
    fn index_place(&self) -> IndexPlace {
        match &self.course.index {
            IndexPlace::Folder(folder) => IndexPlace::Folder(self.root.join(folder)),
            place => place.clone(),
        }
    }

    /// The most records that a lane gets at a step of its plan.
    pub(super) fn planned_batch_size(&self) -> Result<usize, ConfigError> {
        let (world, _) = self.place_in_job()?;
        Ok(match self.global_batch_size {
            Some(0) => return Err(ConfigError::Zero { option: "global_batch_size" }),
            Some(records) => records.div_ceil(world.replicas()),
            None => self.batch_size,
        })
    }

    /// The steps of this feed, where it is planned. It may have to count the records.
    pub(super) fn itinerary(&self, source: &dyn Source) -> Result<Option<Itinerary>, FeedError> {
        if !self.course.is_planned() {
            return Ok(None);
        }
        let (world, worker) = self.place_in_job()?;
        if self.source.as_ref().and_then(Origin::order).is_some_and(|order| order.shuffle) {
            return Err(ConfigError::ShufflesItself.into());
        }
        let is_shuffled = self.course.shuffle.is_some_and(|shuffle| shuffle != Shuffle::No);
        let jumps = is_shuffled || world.workers() > 1;
        if jumps || source.records().is_none() {
            source.index(&self.index_place())?;
            if jumps && !source.is_seekable() {
                tracing::warn!(
                    source = %source.path().display(),
                    "the source has no index: it is walked to each record that does not follow the one before"
                );
            }
        }
        let records = count(source)?;
        if records == 0 {
            return Err(SourceError::Empty { path: source.path().to_owned() }.into());
        }
        let batch = match self.global_batch_size {
            Some(records) => BatchSize::Global(records as u64),
            None => BatchSize::PerReplica(self.batch_size as u64),
        };
        let seed = match self.seed {
            Seed::Indexed(seed) => seed,
            Seed::Caffe(seed, _) => u64::from(seed),
        };
        let mut job = Job::new([records], batch, world)
            .seed(seed)
            .shuffle(self.course.shuffle.unwrap_or_default())
            .assignment(self.course.assignment.unwrap_or_default())
            .policy(self.course.policy.unwrap_or_default());
        if let Some(last_batch) = self.course.last_batch {
            job = job.last_batch(last_batch);
        }
        let plan = job.plan().map_err(ConfigError::Order)?;
        if plan.steps(0).map_err(ConfigError::Order)? == 0 {
            return Err(ConfigError::NoSteps { records, step_records: plan.step_records() }.into());
        }
        let first_replica = world.replicas_of(worker).map_err(ConfigError::Order)?.start;
        let end = self.course.epochs.filter(|&epochs| epochs > 0).or(self.passes.map(Into::into));
        Ok(Some(Itinerary { plan: Arc::new(plan), first_replica, start: (0, 0), end }))
    }
}

/// How many records a source has; where it does not say, they are counted.
fn count(source: &dyn Source) -> Result<u64, SourceError> {
    if let Some(records) = source.records() {
        return Ok(records);
    }
    tracing::info!(source = %source.path().display(), "counting the records");
    let mut cursor = source.cursor()?;
    let mut records = 0;
    while cursor.skip()? {
        records += 1;
    }
    Ok(records)
}
