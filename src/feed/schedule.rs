//! From a feed's schedule to the steps that its reader deals, if the feed follows a plan and not round-robin
//! order.

use std::ops::Range;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::spec::Seed;
use crate::base::shape::Phase;
use crate::order::{
    BatchSize, Epochs, Job, JobWorker, OrderError, Ranks, Schedule, Shuffle, ShuffleSpec, World,
};
use crate::reader::schedule_slice::ScheduleSlice;
use crate::record::StepId;
use crate::snapshot::{Resumed, RoundRobin, Snapshot, SnapshotError};
use crate::source::tfrecord::TfRecordError;
use crate::source::{Identity, IndexPlace, Passes, Source, SourceError};
use percolator_files::caller::words;
use percolator_files::shown;

/// The option that makes a feed a worker of a job, in Rust and in Python.
const SHARE_OF_WORKER: &str = ".share(JobWorker { .. })";
const WORLD: &str = "rank with world_size (or environment=True)";

/// Which of a job's replicas the lanes of a feed are: the first, and those that follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaSpan {
    pub(super) world: World,
    pub(super) first_replica: usize,
}

impl FeedBuilder {
    /// The job, and which of its workers this feed is: the only one, unless another is set.
    fn place_in_job(&self) -> Result<(World, usize), ConfigError> {
        let devices = self.spec.devices.len();
        let (world, number) = match self.spec.schedule.worker {
            Some(JobWorker { world, number }) => (world, number),
            None => (World::new(1, devices.max(1))?, 0),
        };
        if let Some(Ranks { first, of }) = self.spec.schedule.ranks {
            return Err(ConfigError::RanksInPlan { first, of });
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

    /// Refuses what needs epochs, for a feed that has none.
    pub(super) fn check_order(&self) -> Result<(), ConfigError> {
        let schedule = &self.spec.schedule;
        if schedule.is_planned() {
            return Ok(());
        }
        let Schedule { shuffle, mix, last_batch, assignment, policy, worker, .. } = schedule;
        let refused = [
            (
                words(".shuffle(...)", "--shuffle", "shuffle"),
                shuffle.is_some_and(|by| by != ShuffleSpec::By(Shuffle::No)),
            ),
            (words(".mix(...)", "--mix", "mix"), !mix.is_empty()),
            (words(".last_batch(...)", "--last-batch", "last_batch"), last_batch.is_some()),
            (words(".assignment(...)", "--assignment", "assignment"), assignment.is_some()),
            (words(".policy(...)", "--policy", "policy"), policy.is_some()),
            (words(SHARE_OF_WORKER, "--workers (or --job-from-environment)", WORLD), worker.is_some()),
        ];
        let order = if schedule.once { Epochs::OnePass } else { Epochs::RoundRobin };
        match refused.into_iter().find(|(_, is_set)| *is_set) {
            Some((option, _)) => Err(ConfigError::NeedsEpochs { option, order }),
            None => Ok(()),
        }
    }

    /// Refuses what a feed whose steps come in blocks cannot do.
    pub(super) fn check_blocks(&self) -> Result<(), ConfigError> {
        let schedule = &self.spec.schedule;
        if !schedule.blocks {
            return Ok(());
        }
        if self.attached.blocks.is_none() {
            let (what, method) = ("list of blocks", ".blocks(...)");
            return Err(ConfigError::NotAttached { what, name: None, method });
        }
        let draws = self.spec.transform.takes(self.spec.phase).any();
        let refused = [
            ("Epochs::OnePass", schedule.once),
            (SHARE_OF_WORKER, schedule.worker.is_some()),
            ("resume", self.attached.resume.is_some()),
            ("Seed::Caffe", matches!(self.spec.seed, Seed::Caffe { .. }) && draws),
        ];
        match refused.into_iter().find(|(_, is_set)| *is_set) {
            Some((option, _)) => Err(ConfigError::WithBlocks { option }),
            None => Ok(()),
        }
    }

    /// Which of a job's replicas the lanes are.
    pub(super) fn replica_span(&self) -> Result<ReplicaSpan, ConfigError> {
        if let Some((world, first_replica)) = self.attached.alone {
            return Ok(ReplicaSpan { world, first_replica });
        }
        if !self.spec.schedule.is_planned() {
            let first_replica = self.ranks_of_job().map_or(0, |ranks| ranks.first);
            return Ok(ReplicaSpan { world: World::new(1, self.ranks_in_all())?, first_replica });
        }
        let (world, worker) = self.place_in_job()?;
        Ok(ReplicaSpan { world, first_replica: world.replicas_of(worker)?.start })
    }

    /// The round-robin order that the feed deals in if it has no plan.
    pub(super) fn round_robin(&self, batch_size: usize) -> RoundRobin {
        RoundRobin {
            batch_size: batch_size as u64,
            ranks: self.ranks_in_all(),
            passes: self.spec.schedule.passes(),
        }
    }

    /// Where the index of the source is kept.
    fn index_place(&self) -> IndexPlace {
        match &self.spec.index {
            IndexPlace::Folder(folder) => IndexPlace::Folder(self.spec.root.join(folder)),
            place => place.clone(),
        }
    }

    /// Which ranks of a larger job the lanes are. Caffe deals by rank in TRAIN; in TEST, each rank has every
    /// record.
    pub(super) fn ranks_of_job(&self) -> Option<Ranks> {
        let is_test_layer = self.spec.net.is_some() && self.spec.phase == Phase::Test;
        self.spec.schedule.ranks.filter(|_| !is_test_layer)
    }

    fn ranks_in_all(&self) -> usize {
        self.ranks_of_job().map_or(self.spec.devices.len(), |ranks| ranks.of)
    }

    /// The most records that a lane gets in one step.
    pub(super) fn lane_batch_size(&self) -> Result<usize, ConfigError> {
        // First: an impossible place in a job is an error for any batch.
        let world = match self.spec.schedule.is_planned() {
            true => Some(self.replica_span()?.world),
            false => None,
        };
        let count = |records: u64| usize::try_from(records).unwrap_or(usize::MAX);
        let records = match self.spec.batch_size {
            BatchSize::PerReplica(records) => return Ok(count(records)),
            BatchSize::Global(records) => count(records),
        };
        if let Some(world) = world {
            return match records {
                0 => Err(ConfigError::Zero {
                    option: words("BatchSize::Global", "global_batch_size", "global_batch_size"),
                }),
                _ => Ok(records.div_ceil(world.replicas())),
            };
        }
        let ranks = self.spec.schedule.ranks.map_or(self.spec.devices.len(), |ranks| ranks.of);
        match records.checked_div(ranks) {
            Some(each) if each * ranks == records => Ok(each),
            // A job without ranks is another error, found elsewhere.
            None => Ok(1),
            Some(_) => Err(ConfigError::GlobalBatch { records, ranks }),
        }
    }

    /// Whether the feed reads by position: because it follows a plan, or because it resumes.
    fn reads_by_position(&self) -> bool {
        self.spec.schedule.is_planned() || self.attached.resume.is_some()
    }

    /// Prepares the source before its first record is read: a scan without an index would read on. Returns
    /// the source's commit before anything was counted or indexed.
    pub(super) fn make_ready(&self, source: &dyn Source) -> Result<Option<u64>, FeedError> {
        if !self.reads_by_position() {
            return Ok(None);
        }
        let commit = source.commit()?;
        if source.passes() == Passes::Shuffled {
            return Err(ConfigError::ShufflesItself.into());
        }
        let schedule = &self.spec.schedule;
        let is_mixed = !schedule.mix.is_empty();
        let is_shared = self.replica_span()?.world.workers() > 1;
        let is_resumed = self.attached.resume.is_some();
        let jumps = schedule.shuffles_records() || is_mixed || schedule.blocks;
        let is_in_order_alone = |made: &Result<(), SourceError>| {
            matches!(made, Err(SourceError::TfRecord(TfRecordError::InOrderAlone { .. }))) && !jumps
        };
        let place = self.index_place();
        // Then records that are another worker's, or were delivered before, are skipped. A caller's own
        // source over such a file cannot count its records either, so the feed does.
        let count = || match source.count(&place) {
            counted if is_in_order_alone(&counted) => Ok(()),
            counted => counted,
        };
        if !jumps && !is_shared && !is_resumed {
            if source.records().is_none() {
                count()?;
            }
        } else {
            match source.index(&place) {
                indexed if is_in_order_alone(&indexed) => count()?,
                indexed => indexed?,
            }
            if !source.is_seekable() {
                tracing::warn!(
                    source = %shown::path(source.path()),
                    "the source has no index: it is scanned up to each record that does not follow \
                     the one before"
                );
            }
        }
        Ok(commit)
    }

    /// The steps of this feed, if it follows a plan or resumes from a snapshot. The records may have to be
    /// counted for this. The first record has `record_bytes` bytes. `commit` is the source's before it was
    /// made ready.
    pub(super) fn schedule_slice(
        &self,
        source: &dyn Source,
        commit: Option<u64>,
        identity: &Identity,
        record_bytes: usize,
        batch_size: usize,
    ) -> Result<Option<ScheduleSlice>, FeedError> {
        if !self.reads_by_position() {
            return Ok(None);
        }
        if let Some(snapshot) = &self.attached.resume {
            snapshot.check_data(source.path(), identity)?;
        }
        let replica_span = self.replica_span()?;
        let files = count(source)?;
        let records = files.iter().fold(0, |sum: u64, &records| sum.saturating_add(records));
        if records == 0 {
            return Err(SourceError::Empty { path: source.path().to_owned() }.into());
        }
        let (schedule, seed) = (&self.spec.schedule, self.spec.seed.of_order());
        let job = match schedule.is_planned() {
            true => {
                schedule.job(files.clone(), self.spec.batch_size, replica_span.world, record_bytes).seed(seed)
            }
            false => self.round_robin(batch_size).job(&files, seed).map_err(ConfigError::Order)?,
        };
        let plan = job.plan().map_err(ConfigError::Order)?;
        if plan.steps(0).map_err(ConfigError::Order)? == 0 {
            return Err(ConfigError::NoSteps { records, step_records: plan.step_records() }.into());
        }
        let lanes = replica_span.first_replica..replica_span.first_replica + self.spec.devices.len();
        let Resumed { plan, next, is_round_robin, .. } = match &self.attached.resume {
            Some(snapshot) => self.resume_as(snapshot, &job, &files, lanes.clone())?,
            None => Resumed::begun(plan),
        };
        let end = schedule.epochs.filter(|&epochs| epochs > 0).or(schedule.passes().map(Into::into));
        let end = end.map(|epoch| StepId { epoch, step: 0 });
        let starts = next.get(lanes).expect("each lane is one of the requested replicas").to_vec();
        // A run that has ended is at the next step that the plan has.
        let ended_at = end.map(|end| plan.normalized(end).unwrap_or(end));
        if let Some((start, end)) = starts.iter().min().zip(ended_at).filter(|(start, end)| *start > end) {
            tracing::warn!(
                %start, %end,
                "the run resumes past its last epoch: nothing comes; epochs count from the run's beginning"
            );
        }
        Ok(Some(ScheduleSlice {
            plan: Arc::new(plan),
            first_replica: replica_span.first_replica,
            starts,
            end,
            blocks: self.attached.blocks.clone(),
            commit,
            is_round_robin,
        }))
    }

    /// How a run resumes as this job.
    fn resume_as(
        &self,
        snapshot: &Snapshot,
        job: &Job,
        files: &[u64],
        lanes: Range<usize>,
    ) -> Result<Resumed, SnapshotError> {
        let resumed = snapshot.resumed(job, files, lanes, !self.spec.schedule.is_planned())?;
        let draws = self.spec.transform.takes(self.spec.phase).any();
        if matches!(self.spec.seed, Seed::Caffe { .. }) && draws && !resumed.keeps_lanes {
            return Err(SnapshotError::CaffeRandom);
        }
        snapshot.check_draws(self.drawn_from())?;
        Ok(resumed)
    }
}

/// The number of records in each file of a source. If the source does not know, they are counted.
fn count(source: &dyn Source) -> Result<Vec<u64>, SourceError> {
    if let Some(files) = source.file_records() {
        return Ok(files);
    }
    tracing::info!(source = %shown::path(source.path()), "counting the records");
    let mut cursor = source.cursor()?;
    let mut records = 0;
    while cursor.skip()? {
        records += 1;
    }
    // A source of several databases now knows where each ends.
    Ok(source.file_records().unwrap_or_else(|| vec![records]))
}
