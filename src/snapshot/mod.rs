//! The state of a training run, from which it can resume.
//!
//! The order of a training run is a function of its job, so a place in it is a step. A snapshot records the
//! job, what identifies its data, and the next step of each replica. Batches that were prefetched but not
//! delivered are delivered after resuming.

mod error;
mod file;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::error::SnapshotError;

use crate::bad::BadCount;
use crate::order::{Assignment, BatchSize, Job, LastBatch, OrderError, Plan, World};
use crate::record::StepId;
use crate::source::Identity;
use crate::transform::CaffeEra;

/// The state of a training run: its job, its data, and the next step of each replica. A
/// [feed](crate::Feed::snapshot) or a [lane](crate::Lane::snapshot) can take one after any batch, and a feed
/// [built with it](crate::FeedBuilder::resume) resumes from there: bit for bit, and without reading what came
/// before.
///
/// It is a small, readable text ([`Display`](std::fmt::Display), [`FromStr`](std::str::FromStr),
/// [`save`](Self::save), [`load`](Self::load)), best kept in one file with the model it belongs to:
///
/// ```text
/// percolator snapshot 2
/// source /data/ilsvrc12_train_lmdb
/// data kind LMDB
/// data records 1281167
/// ...
/// clue last "01281166_n15075141_99": 196651 bytes, checksum 1f0a88e3
/// ...
/// shuffle global
/// seed 7
/// next epoch 3 step 117 replicas 0 to 7
/// checksum 5c1e0f6b
/// ```
///
/// It contains neither the model nor the transform: crops and mirroring are drawn from the seed, the epoch
/// and the record, so a feed built with the same transform delivers the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The source's path, for messages.
    source: PathBuf,
    identity: Identity,
    dealt_by: DealtBy,
    draws: DrawnFrom,
    next: BTreeMap<usize, StepId>,
    /// How many bad records each replica had of its epoch, if the run goes on after them.
    bad: BTreeMap<usize, BadCount>,
}

/// What crops and mirroring are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawnFrom {
    /// A seed, the epoch and the record.
    Indexed(u64),
    /// Caffe's sequence, from the seed of the first of these lanes.
    Caffe(u32, CaffeEra),
}

impl fmt::Display for DrawnFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrawnFrom::Indexed(seed) => write!(f, "seed {seed}"),
            DrawnFrom::Caffe(seed, CaffeEra::Today) => write!(f, "caffe {seed}"),
            DrawnFrom::Caffe(seed, CaffeEra::DataReader) => write!(f, "caffe-2015 {seed}"),
        }
    }
}

/// The dealing rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DealtBy {
    /// Caffe's round-robin order, which has no epochs: its steps are counted from the start.
    RoundRobin(RoundRobin),
    Plan(Arc<Plan>),
}

impl DealtBy {
    /// The first fact in which it differs from another one.
    fn difference(&self, other: &Self) -> Option<(String, String)> {
        match (self, other) {
            (DealtBy::Plan(one), DealtBy::Plan(other)) => one.difference(other, |_| true),
            _ if self == other => None,
            _ => Some((self.to_string(), other.to_string())),
        }
    }
}

impl fmt::Display for DealtBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DealtBy::Plan(plan) => write!(f, "a plan for {} replicas", plan.world().replicas()),
            DealtBy::RoundRobin(RoundRobin { batch_size, ranks, passes }) => {
                let passes =
                    passes.map_or_else(|| "without end".to_owned(), |passes| format!("{passes} pass"));
                write!(f, "round-robin order: {batch_size} records, {ranks} ranks, {passes}")
            }
        }
    }
}

/// Caffe's round-robin order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundRobin {
    /// The number of records each rank takes per step.
    pub(crate) batch_size: u64,
    pub(crate) ranks: usize,
    /// The number of passes after which the run ends, if it does.
    pub(crate) passes: Option<NonZeroU64>,
}

impl RoundRobin {
    /// The equivalent job, once the number of records is known.
    pub(crate) fn job(self, files: &[u64], seed: u64) -> Result<Job, OrderError> {
        let job =
            Job::new(files, BatchSize::PerReplica(self.batch_size), World::new(1, self.ranks)?).seed(seed);
        // A run that ends has a short last batch. Otherwise each pass begins in the batch in which the
        // previous one ends.
        let last_batch = if self.passes.is_some() { LastBatch::Keep } else { LastBatch::Wrap };
        Ok(job.assignment(Assignment::Caffe).last_batch(last_batch))
    }
}

fn is_alike(one: &Identity, other: &Identity) -> bool {
    one.difference(other.as_bytes()).is_none() && one.contradiction(other).is_none()
}

fn draws_alike(one: DrawnFrom, other: DrawnFrom) -> bool {
    one == other || matches!((one, other), (DrawnFrom::Caffe(..), DrawnFrom::Caffe(..)))
}

/// How a run resumes.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    pub(crate) plan: Plan,
    /// The first step of each replica.
    pub(crate) next: Vec<StepId>,
    /// Whether the run was and stays in round-robin order, with its count of steps.
    pub(crate) is_round_robin: bool,
    /// Whether each replica gets what it would have got.
    pub(crate) keeps_lanes: bool,
}

impl Resumed {
    /// A run from its start.
    pub(crate) fn begun(plan: Plan) -> Self {
        let next = vec![StepId::default(); plan.world().replicas()];
        Resumed { plan, next, is_round_robin: false, keeps_lanes: true }
    }
}

impl Snapshot {
    pub(crate) fn new(
        source: &Path,
        identity: Identity,
        dealt_by: DealtBy,
        draws: DrawnFrom,
        next: impl IntoIterator<Item = (usize, StepId)>,
    ) -> Self {
        let (source, next) = (source.to_owned(), next.into_iter().collect());
        Snapshot { source, identity, dealt_by, draws, next, bad: BTreeMap::new() }
    }

    /// The same, with how many bad records these replicas had.
    pub(crate) fn with_bad(mut self, counts: impl IntoIterator<Item = (usize, BadCount)>) -> Self {
        self.bad.extend(counts);
        self
    }

    /// What a replica of a plan had of an epoch before it resumes in it.
    ///
    /// The snapshot may not know, because it is another process's, or of another world, or the replica was in
    /// a later epoch and takes over what others had not reached. Then it is the mean of those known to be in
    /// the epoch.
    pub(crate) fn bad_until(&self, replica: usize, plan: &Plan, epoch: u64) -> BadCount {
        // The rest that another job left may have records of the next epoch, which count to that epoch.
        let goes_on = matches!(&self.dealt_by, DealtBy::Plan(own) if **own == *plan);
        let is_own = |own: &&BadCount| plan.world().replicas() == self.replicas() && own.epoch <= epoch;
        let own = self.bad.get(&replica).filter(|own| goes_on || is_own(own));
        own.copied().unwrap_or_else(|| BadCount::mean(self.bad.values(), epoch))
    }

    /// The known number of bad records that the replicas had in the epoch of their last batch: those that a
    /// feed [went on after](crate::FeedBuilder::bad_records).
    #[must_use]
    pub fn bad_records(&self) -> u64 {
        let latest = self.bad.values().map(|count| count.epoch).max();
        let counts = self.bad.values().filter(|count| Some(count.epoch) == latest);
        counts.fold(0, |sum, count| sum.saturating_add(count.bad))
    }

    /// The next step of a replica of the job, if known. A worker's snapshot knows it for the worker's own
    /// replicas, and for others only when all are at the same step. In round-robin order, steps are counted
    /// from the start.
    #[must_use]
    pub fn next(&self, replica: usize) -> Option<StepId> {
        self.next.get(&replica).copied().or_else(|| self.common().filter(|_| replica < self.replicas()))
    }

    /// The number of replicas of the job.
    #[must_use]
    pub fn replicas(&self) -> usize {
        match &self.dealt_by {
            DealtBy::RoundRobin(round_robin) => round_robin.ranks,
            DealtBy::Plan(plan) => plan.world().replicas(),
        }
    }

    /// The run's plan; `None` for Caffe's round-robin order.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match &self.dealt_by {
            DealtBy::RoundRobin(_) => None,
            DealtBy::Plan(plan) => Some(plan),
        }
    }

    /// Joins the snapshots taken by a job's workers into the job's snapshot. Needed only if the workers took
    /// them after different steps.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::None`] if there are none; [`SnapshotError::NotOfOne`] if they are of different runs,
    /// or two of them disagree on a replica's step.
    pub fn join<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Result<Snapshot, SnapshotError> {
        let mut snapshots = snapshots.into_iter();
        let Some(first) = snapshots.next() else {
            return Err(SnapshotError::None);
        };
        let mut joined = first.clone();
        for other in snapshots {
            let facts = [
                ("their data", is_alike(&other.identity, &joined.identity)),
                ("their jobs", other.dealt_by == joined.dealt_by),
                // Caffe's seeds may differ from worker to worker.
                ("their random numbers", draws_alike(other.draws, joined.draws)),
            ];
            if let Some((what, _)) = facts.into_iter().find(|(_, is_same)| !is_same) {
                return Err(SnapshotError::NotOfOne { what });
            }
            joined.identity.merge(&other.identity);
            for (&replica, &id) in &other.next {
                if *joined.next.entry(replica).or_insert(id) != id {
                    let what = "the steps of one replica";
                    return Err(SnapshotError::NotOfOne { what });
                }
            }
            joined.bad.extend(&other.bad);
        }
        Ok(joined)
    }

    /// Checks that crops and mirroring are still drawn from the same seed or sequence.
    pub(crate) fn check_draws(&self, draws: DrawnFrom) -> Result<(), SnapshotError> {
        match self.draws == draws {
            true => Ok(()),
            false => Err(SnapshotError::OtherDraws { was: self.draws.to_string(), is: draws.to_string() }),
        }
    }

    /// The step of all replicas whose step is known, if they are at one step.
    fn common(&self) -> Option<StepId> {
        let mut steps = self.next.values();
        let first = steps.next()?;
        steps.all(|step| step == first).then_some(*first)
    }

    /// Checks that the snapshot was taken of this data.
    pub(crate) fn check_data(&self, source: &Path, identity: &Identity) -> Result<(), SnapshotError> {
        let difference = self.identity.difference(identity.as_bytes());
        match difference.or_else(|| self.identity.contradiction(identity)) {
            None => Ok(()),
            Some((was, is)) => Err(SnapshotError::OtherData {
                source_path: source.to_owned(),
                taken_of: self.source.clone(),
                was,
                is,
            }),
        }
    }

    /// The next step of every replica. Only those of `lanes` must be known; other replicas resume in other
    /// feeds.
    fn next_of_all(&self, lanes: Option<Range<usize>>) -> Result<Vec<StepId>, SnapshotError> {
        let (common, replicas) = (self.common(), self.replicas());
        let is_asked = |replica: &usize| lanes.as_ref().is_none_or(|lanes| lanes.contains(replica));
        let known = |replica: usize| self.next.get(&replica).copied().or(common);
        if !(0..replicas).filter(is_asked).all(|replica| known(replica).is_some()) {
            return Err(SnapshotError::Unknown { known: self.next.len(), replicas });
        }
        Ok((0..replicas).map(|replica| known(replica).unwrap_or_default()).collect())
    }

    /// The next step of each of these replicas, for a feed of the same job, whose run starts with `start`.
    pub(crate) fn next_in(
        &self,
        start: &Snapshot,
        lanes: Range<usize>,
    ) -> Result<Vec<StepId>, SnapshotError> {
        self.check_data(&start.source, &start.identity)?;
        if let Some((was, is)) = self.dealt_by.difference(&start.dealt_by) {
            return Err(SnapshotError::AnotherJob { was, is });
        }
        self.check_draws(start.draws)?;
        Ok(self.next_of_all(Some(lanes.clone()))?.drain(lanes).collect())
    }

    /// The path of the data, as the feed that took it was configured.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn dealt_by(&self) -> &DealtBy {
        &self.dealt_by
    }

    pub(crate) fn draws(&self) -> DrawnFrom {
        self.draws
    }

    /// How the run resumes as `job`, over files of these numbers of records, as far as these lanes of it need
    /// to know. `is_round_robin`: the resumed job is in round-robin order, too.
    pub(crate) fn resumed(
        &self,
        job: &Job,
        files: &[u64],
        lanes: Range<usize>,
        is_round_robin: bool,
    ) -> Result<Resumed, SnapshotError> {
        let (was, was_round_robin) = match &self.dealt_by {
            DealtBy::Plan(plan) => (plan.clone(), false),
            DealtBy::RoundRobin(round_robin) => {
                (Arc::new(round_robin.job(files, job.order_seed())?.plan()?), true)
            }
        };
        let is_same = was.divides_like(&job.plan()?);
        let mut next = self.next_of_all(is_same.then_some(lanes))?;
        if was_round_robin {
            for id in &mut next {
                *id = was.numbered_step(id.step)?;
            }
        }
        let has_given = next.iter().any(|id| *id != StepId::default());
        let (plan, next) = was.resumed(job, &next)?;
        let keeps_lanes = !plan.is_resumed() && (is_same || !has_given);
        Ok(Resumed {
            is_round_robin: is_round_robin && was_round_robin && !plan.is_resumed(),
            keeps_lanes,
            plan,
            next,
        })
    }
}
