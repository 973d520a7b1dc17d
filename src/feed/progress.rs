//! How far a feed's lanes are, and what else a snapshot of it contains.

use std::path::PathBuf;
use std::sync::Arc;

use super::batch::Batch;
use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::resolve::ResolvedFeed;
use super::spec::{Receipts, Seed};
use crate::bad::{BadAction, BadCount};
use crate::base::sync::Mutex;
use crate::order::Plan;
use crate::reader::schedule_slice::ScheduleSlice;
use crate::receipt::{Ledger, Receipt};
use crate::record::StepId;
use crate::snapshot::{DealtBy, DrawnFrom, Snapshot, SnapshotError};
use crate::source::{Identity, Passes};
use percolator_files::checked_text::TextWriter;

/// What all snapshots of a feed have in common.
#[derive(Debug)]
pub(super) struct SnapshotFacts {
    pub(super) source: PathBuf,
    pub(super) identity: Identity,
    pub(super) passes: Passes,
    pub(super) dealt_by: DealtBy,
    pub(super) draws: DrawnFrom,
    /// The step before which the run ends, if it follows a plan that has an end.
    pub(super) end: Option<StepId>,
    /// Whether the steps come in blocks, so that no step says what comes after it.
    pub(super) has_blocks: bool,
    /// What is done with bad records.
    pub(super) on_bad: BadAction,
}

impl SnapshotFacts {
    /// Which record comes when, if the feed follows a plan.
    pub(super) fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.dealt_by {
            DealtBy::Plan(plan) => Some(plan),
            DealtBy::RoundRobin(_) => None,
        }
    }

    /// Whether databases are mixed. A record's epoch is then the number of a pass over its own database.
    fn is_mixed(&self) -> bool {
        self.plan().is_some_and(|plan| plan.job().is_mixed())
    }

    /// Everything that decides which record comes when, and to whom, from a step on.
    pub(super) fn schedule_text(&self, next: StepId) -> String {
        let mut text = TextWriter::new("itinerary", 1);
        self.identity.lines().for_each(|line| text.fact("data", line));
        self.identity.write_samples(&mut text);
        if let Some(plan) = self.plan() {
            plan.write(&mut text);
        }
        if self.on_bad != BadAction::Fail {
            text.fact("bad", self.on_bad);
        }
        text.fact("next", next);
        text.fact("end", self.end.map_or_else(|| "none".to_owned(), |end| end.to_string()));
        text.checksum()
    }

    /// The snapshot of replicas whose next steps are these.
    pub(super) fn snapshot(
        &self,
        next: impl IntoIterator<Item = (usize, StepId)>,
    ) -> Result<Snapshot, SnapshotError> {
        self.snapshot_of(self.draws, next)
    }

    /// The same, with crops and mirroring drawn from something else.
    pub(super) fn snapshot_of(
        &self,
        draws: DrawnFrom,
        next: impl IntoIterator<Item = (usize, StepId)>,
    ) -> Result<Snapshot, SnapshotError> {
        if matches!(self.dealt_by, DealtBy::RoundRobin(_)) && self.passes != Passes::Alike {
            return Err(SnapshotError::PassesDiffer { source_path: self.source.clone() });
        }
        Ok(Snapshot::new(&self.source, self.identity.clone(), self.dealt_by.clone(), draws, next))
    }
}

/// How far a lane is: what its consumer has taken. Its feed can read it as well, wherever the lane is.
#[derive(Debug)]
pub(super) struct LaneProgress {
    facts: Arc<SnapshotFacts>,
    pub(super) replica: usize,
    /// Locked once per batch, by the lane's consumer.
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// The step that comes next.
    next: StepId,
    /// If receipts are on.
    ledger: Option<Ledger>,
    /// Of the epoch that its records are of.
    bad: BadCount,
}

impl LaneProgress {
    pub(super) fn new(
        facts: &Arc<SnapshotFacts>,
        replica: usize,
        next: StepId,
        keeps_receipt: bool,
        bad: BadCount,
    ) -> Arc<Self> {
        let ledger = keeps_receipt.then(|| Ledger::of(replica));
        Arc::new(LaneProgress {
            facts: facts.clone(),
            replica,
            taken: Mutex::new(Taken { next, ledger, bad }),
        })
    }

    /// What the consumer had of an epoch, and how much of it was bad.
    pub(super) fn bad_count(&self) -> BadCount {
        self.taken.lock().bad
    }

    /// Records a batch that the consumer gets.
    pub(super) fn note(&self, batch: &Batch) {
        let Taken { next, ledger, bad } = &mut *self.taken.lock();
        match batch.step() {
            Some(step) => *next = step.next(),
            // The short batch at the end of a single pass, after which nothing comes.
            None if !batch.is_empty() || !batch.bad_records().is_empty() => next.step += 1,
            // An empty batch that stands in for a batch after the end.
            None => {}
        }
        if let Some(ledger) = ledger {
            ledger.fold(batch.step(), batch.records(), batch.contents(), batch.bad_records());
        }
        let mixed = batch.step().filter(|_| self.facts.is_mixed()).map(|step| step.epoch);
        bad.add(batch.records(), batch.bad_records(), mixed, |_, _| {});
    }

    /// Begins again with the first step of the run, and a new receipt.
    pub(super) fn begin_again(&self) {
        let taken = &mut *self.taken.lock();
        let ledger = taken.ledger.is_some().then(|| Ledger::of(self.replica));
        *taken = Taken { next: StepId::default(), ledger, bad: BadCount::default() };
    }

    pub(super) fn next(&self) -> (usize, StepId) {
        (self.replica, self.taken.lock().next)
    }
}

impl FeedBuilder {
    /// What crops and mirroring are drawn from.
    pub(super) fn drawn_from(&self) -> DrawnFrom {
        match self.spec.seed {
            Seed::Indexed(seed) => DrawnFrom::Indexed(seed),
            Seed::Caffe { seed, era } => DrawnFrom::Caffe(seed, era),
        }
    }
}

impl ResolvedFeed {
    /// Returns where the run is before its first batch: what whoever [takes its batches
    /// elsewhere](FeedBuilder::build_supplied) has to know of it.
    ///
    /// # Errors
    ///
    /// [`FeedError::Snapshot`] as [`Feed::snapshot`](super::Feed::snapshot).
    pub fn snapshot(&self) -> Result<Snapshot, FeedError> {
        Ok(snapshot(&self.progress(&Arc::new(self.facts()))?)?)
    }

    /// What all snapshots of the feed have in common.
    pub(super) fn facts(&self) -> SnapshotFacts {
        SnapshotFacts {
            source: self.source.path().to_owned(),
            identity: self.first.identity.clone(),
            passes: self.source.passes(),
            dealt_by: self.dealt_by(),
            draws: self.builder.drawn_from(),
            end: self.schedule_slice.as_ref().and_then(|slice| slice.end),
            has_blocks: self.builder.spec.schedule.blocks,
            on_bad: self.builder.spec.bad_records.action,
        }
    }

    /// What decides which record comes when.
    pub(super) fn dealt_by(&self) -> DealtBy {
        match &self.schedule_slice {
            Some(slice) if !slice.is_round_robin => DealtBy::Plan(slice.plan.clone()),
            _ => DealtBy::RoundRobin(self.builder.round_robin(self.batch_size)),
        }
    }

    /// Where the lanes start.
    pub(super) fn progress(&self, facts: &Arc<SnapshotFacts>) -> Result<Vec<Arc<LaneProgress>>, ConfigError> {
        let first_replica = match &self.schedule_slice {
            Some(slice) => slice.first_replica,
            None => self.builder.ranks_of_job().map_or(0, |ranks| ranks.first),
        };
        let start = |lane: usize| match &self.schedule_slice {
            Some(ScheduleSlice { plan, starts, is_round_robin: true, .. }) => {
                Ok(StepId { epoch: 0, step: plan.step_number(starts[lane])? })
            }
            Some(slice) => Ok(slice.starts[lane]),
            None => Ok::<_, ConfigError>(StepId::default()),
        };
        let keeps_receipts = self.builder.spec.receipts > Receipts::Off;
        let progress = |lane: usize| {
            let (replica, start) = (first_replica + lane, start(lane)?);
            Ok(LaneProgress::new(facts, replica, start, keeps_receipts, self.bad_until(lane, replica)))
        };
        (0..self.devices.len()).map(progress).collect()
    }
}

impl ResolvedFeed {
    /// What a lane's replica had of the epoch, or of the pass in round-robin order, in which it resumes, and
    /// how much of it was bad.
    fn bad_until(&self, lane: usize, replica: usize) -> BadCount {
        let resume = self.builder.attached.resume.as_ref();
        let Some((snapshot, slice)) = resume.zip(self.schedule_slice.as_ref()) else {
            return BadCount::default();
        };
        snapshot.bad_until(replica, &slice.plan, slice.starts[lane].epoch)
    }
}

/// The snapshot of lanes of one feed.
pub(super) fn snapshot<'a>(
    lanes: impl IntoIterator<Item = &'a Arc<LaneProgress>>,
) -> Result<Snapshot, SnapshotError> {
    let mut lanes = lanes.into_iter().peekable();
    let facts = lanes.peek().expect("a feed has a lane").facts.clone();
    if facts.has_blocks {
        return Err(SnapshotError::OfBlocks { source_path: facts.source.clone() });
    }
    let lanes: Vec<_> = lanes.collect();
    let snapshot = facts.snapshot(lanes.iter().map(|lane| lane.next()))?;
    let counts =
        lanes.iter().filter(|_| facts.on_bad != BadAction::Fail).map(|lane| (lane.replica, lane.bad_count()));
    Ok(snapshot.with_bad(counts))
}

/// The receipt of lanes of one feed, if they keep one.
pub(super) fn receipt<'a>(lanes: impl IntoIterator<Item = &'a Arc<LaneProgress>>) -> Option<Receipt> {
    receipt_of(lanes, |ledger| ledger.clone())
}

/// The same; the lanes begin a new one.
pub(super) fn take_receipt<'a>(lanes: impl IntoIterator<Item = &'a Arc<LaneProgress>>) -> Option<Receipt> {
    receipt_of(lanes, Ledger::take)
}

fn receipt_of<'a>(
    lanes: impl IntoIterator<Item = &'a Arc<LaneProgress>>,
    get: impl Fn(&mut Ledger) -> Ledger,
) -> Option<Receipt> {
    let mut lanes = lanes.into_iter().peekable();
    let SnapshotFacts { source, identity, dealt_by, .. } = &*lanes.peek()?.facts;
    let DealtBy::Plan(plan) = dealt_by else { return None };
    let mut receipt = Receipt::new(&source.to_string_lossy(), identity, plan);
    for lane in lanes {
        receipt.add(&get(lane.taken.lock().ledger.as_mut()?));
    }
    Some(receipt)
}
