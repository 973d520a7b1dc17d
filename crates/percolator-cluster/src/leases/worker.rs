//! One worker: its lease, and the blocks that it has.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use percolator::Receipt;
use percolator::order::Block;
use percolator::record::StepId;
use percolator_files::shown;
use tracing::warn;

use super::LeaseOptions;
use super::board::{Asker, Board, Taken, TakenBlock};
use super::error::LeaseError;
use super::keys::BlockId;
use super::pace::{Sight, Stopwatch};
use super::records::{OpenRecord, Pace, Progress, WhoRecord, WorkerRecord};
use super::settle::{Change, Settled, Settlement};
use crate::clock::{BootClock, Clock as _};
use crate::metadata::{Lease, LeaseId, MetadataError, Revision};
use crate::patience::Deadline;

/// A worker of a job. Its feed's reading thread takes blocks; its consumer confirms what is done of them, and
/// its reporter says so to the records. Only the reader and the reporter wait for these.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) board: Board,
    name: String,
    who: WhoRecord,
    pub(super) options: LeaseOptions,
    pub(super) lease: Mutex<Arc<Lease>>,
    pub(super) state: Mutex<State>,
    /// Signalled when something is confirmed or answered, or a block comes or goes.
    pub(super) changed: Condvar,
    /// Why the reading thread takes no more blocks: the feed, which ends for it, has only the message.
    pub(super) take_failed: Mutex<Option<LeaseError>>,
}

/// What a worker has, and has had.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The blocks that were taken and are not done, in the order in which their steps come.
    pub(super) blocks: VecDeque<HeldBlock>,
    pub(super) stats: LeaseStats,
    pub(super) stopwatch: Stopwatch,
    /// Blocks that were lost after steps of them were handed over, and of which the consumer does not know.
    lost: Vec<BlockId>,
    /// The steps that count, and of which the consumer does not know.
    counted: u64,
    /// What has had no answer, for each that asks.
    troubles: [Option<Trouble>; 2],
    /// The last request was not answered.
    is_unheard: bool,
    /// Why nothing more is said to the records, unless the consumer waits for it.
    failed: Option<LeaseError>,
    is_ending: bool,
}

/// The thread that asks the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// The reading thread, for a block.
    Block,
    /// The reporter, that something counts.
    Settlement,
}

/// Why the records give no answer, and since when. The consumer may have taken the last reason.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    error: Option<LeaseError>,
}

/// What the reporter is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Settlement,
    Report,
    End,
}

/// How a worker's blocks have fared.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// The blocks that it has taken.
    pub taken: u64,
    /// Those that it has finished.
    pub finished: u64,
    /// Those that are another worker's: its lease had ended before they were done, or a second worker had
    /// them as well, and was faster.
    pub lost: u64,
    /// The steps that were skipped because their block was lost.
    pub skipped_steps: u64,
}

/// A block that a worker has taken.
#[derive(Debug)]
pub(super) struct HeldBlock {
    pub(super) id: BlockId,
    /// The lease that it was taken under: it is this worker's by no other.
    pub(super) lease: LeaseId,
    /// The steps that come: all of the block, or those after the acknowledged ones.
    pub(super) steps: Block,
    /// How many steps of the block were acknowledged before it was taken.
    pub(super) before: u64,
    /// How often the block was handed out, and when its open record was last changed, as far as is known.
    pub(super) times: u64,
    pub(super) open: Revision,
    /// A second worker has it as well, so its steps are not acknowledged one by one.
    pub(super) is_shared: bool,
    /// How many of `steps` were handed over.
    pub(super) handed: u64,
    /// How many of those are confirmed: they are to count.
    pub(super) confirmed: u64,
    /// How many of those were acknowledged.
    pub(super) acknowledged: u64,
    /// What was handed over and not confirmed, as far as it was taken out of the feed.
    pub(super) receipt: Option<Receipt>,
    /// What is confirmed and was not said to the records.
    pub(super) due: Option<Receipt>,
    /// Something was said of it, and no answer has come: it may be done.
    pub(super) is_in_doubt: bool,
    /// It is another worker's, or will be.
    pub(super) is_lost: bool,
}

impl HeldBlock {
    pub(super) fn is_handed_over(&self) -> bool {
        self.handed == self.steps.steps
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed == self.steps.steps
    }

    /// Whether something can be said of it: while two workers have it, only that it is done.
    pub(super) fn is_to_be_said(&self) -> bool {
        !self.is_lost && !self.is_in_doubt && self.due.is_some() && (self.is_confirmed() || !self.is_shared)
    }

    /// Whether something of it waits for the records' answer.
    fn is_open(&self) -> bool {
        self.is_in_doubt || self.is_to_be_said()
    }

    /// Confirms what was handed over.
    pub(super) fn confirm(&mut self) -> Result<(), LeaseError> {
        if self.handed == self.confirmed {
            return Ok(());
        }
        let Some(receipt) = self.receipt.take() else {
            return Err(LeaseError::Unexpected { last: Some(self.id) });
        };
        keep(&mut self.due, Some(receipt))?;
        self.confirmed = self.handed;
        Ok(())
    }
}

/// Adds to a receipt.
pub(super) fn keep(receipt: &mut Option<Receipt>, more: Option<Receipt>) -> Result<(), LeaseError> {
    match (receipt, more) {
        (Some(kept), Some(more)) => kept.merge(&more)?,
        (kept @ None, more) => *kept = more,
        (Some(_), None) => {}
    }
    Ok(())
}

impl Worker {
    pub(super) fn join(board: Board, name: String, options: LeaseOptions) -> Result<Self, LeaseError> {
        let who = who();
        let next = Mutex::default();
        // Who died and was started again at once finds its own name, until its former lease has ended.
        let register = || register(&board, &name, &who, options.ttl, &mut next.lock());
        let deadline = Deadline::after(options.patience);
        let lease = deadline.patiently_as(Some(&name), LeaseError::may_pass, register)?;
        let (lease, state, take_failed) = (Mutex::new(Arc::new(lease)), Mutex::default(), Mutex::default());
        Ok(Worker { board, name, who, options, lease, state, changed: Condvar::new(), take_failed })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Gets another lease to replace one that has ended: the blocks taken under that one are lost.
    pub(super) fn go_on_after(&self, ended: LeaseId, next: &mut Option<Lease>) -> Result<(), LeaseError> {
        self.lose_under(ended);
        self.board.check_identity()?;
        // Metadata that were set back to a copy may have its name under an earlier lease, which ends by
        // itself.
        let lease = register(&self.board, &self.name, &self.who, self.options.ttl, next)?;
        warn!(worker = %self.name, "the worker's lease has ended: it goes on under another");
        // The old one is not dropped under the lock, since that may wait.
        let old = std::mem::replace(&mut *self.lease.lock(), Arc::new(lease));
        drop(old);
        // Meanwhile, what was in doubt may have been answered.
        self.lose_under(ended);
        Ok(())
    }

    fn lose_under(&self, lease: LeaseId) {
        self.state.lock().lose(|block| block.lease == lease);
        self.changed.notify_all();
    }

    /// If the lease is known to have ended, what was taken under it is lost.
    pub(super) fn look_at_lease(&self) {
        // The consumer must not drop the lease: that may wait.
        let lease = self.lease.lock();
        let ended = lease.has_ended().then(|| lease.id());
        drop(lease);
        if let Some(ended) = ended {
            self.lose_under(ended);
        }
    }

    /// The blocks that it has by this lease.
    fn blocks_under(&self, lease: LeaseId) -> BTreeSet<BlockId> {
        let state = self.state.lock();
        let blocks = state.blocks.iter().filter(|block| !block.is_lost && block.lease == lease);
        blocks.map(|block| block.id).collect()
    }

    /// Asks for a block, under this lease. Looks at the other workers as of now.
    pub(super) fn ask(&self, lease: LeaseId, sight: &mut Sight) -> Result<Taken, LeaseError> {
        let known = self.blocks_under(lease);
        let record = self.options.duplicates_below.map(|_| self.record());
        let asker = Asker { worker: &self.name, lease, who: who(), record, known: &known };
        self.board.take(&asker, sight.at(BootClock.now()))
    }

    /// Adds a block that was taken; returns its steps that come.
    pub(super) fn add(&self, taken: TakenBlock, lease: LeaseId) -> Block {
        let TakenBlock { block: id, open: OpenRecord { times, acknowledged }, revision, is_shared } = taken;
        let job = &self.board.job;
        let first = id.number.saturating_mul(job.steps_per_block).saturating_add(acknowledged);
        let steps = Block {
            first: StepId { epoch: id.epoch, step: first },
            steps: job.steps_of(id).saturating_sub(acknowledged),
        };
        let block = HeldBlock {
            id,
            lease,
            steps,
            before: acknowledged,
            times,
            open: revision,
            is_shared,
            handed: 0,
            confirmed: 0,
            acknowledged: 0,
            receipt: None,
            due: None,
            is_in_doubt: false,
            is_lost: false,
        };
        let State { blocks, stats, stopwatch, .. } = &mut *self.state.lock();
        stats.taken += 1;
        // Until now it had nothing to do.
        if blocks.iter().all(HeldBlock::is_handed_over) {
            stopwatch.begin(BootClock.now());
        }
        blocks.push_back(block);
        steps
    }

    /// What was said of a block is answered.
    pub(super) fn has_settled(&self, settlement: &Settlement, settled: Settled) -> Result<(), LeaseError> {
        let lost = self.has_answered(settlement, settled);
        self.changed.notify_all();
        // Another worker was faster. If this fails, it goes with the lease.
        if lost? && let Err(error) = self.board.give_back(&self.name, settlement.lease, settlement.block) {
            warn!(
                error = %shown::with_sources(&error),
                "a block that another worker has finished could not be given back"
            );
        }
        Ok(())
    }

    /// Returns whether the block is lost.
    fn has_answered(&self, settlement: &Settlement, settled: Settled) -> Result<bool, LeaseError> {
        let state = &mut *self.state.lock();
        // As of now: a worker that gets another lease then loses what is not in doubt.
        let lease = self.lease.lock().id();
        let is_it = |block: &HeldBlock| block.id == settlement.block && block.lease == settlement.lease;
        // No other worker removes one that is in doubt.
        let Some(place) = state.blocks.iter().position(|block| block.is_in_doubt && is_it(block)) else {
            return Ok(false);
        };
        let block = &mut state.blocks[place];
        block.is_in_doubt = false;
        match (settled, settlement.change) {
            (Settled::Kept(_), Change::Finish) => {
                state.stats.finished += 1;
                state.counted += settlement.steps;
                state.blocks.remove(place);
            }
            (Settled::Kept(revision), Change::Acknowledge(steps)) => {
                (block.open, block.acknowledged) = (revision, steps - block.before);
                state.counted += settlement.steps;
            }
            (Settled::Shared, _) => {
                let since = block.due.replace(settlement.delivered.clone());
                block.is_shared = true;
                keep(&mut block.due, since)?;
            }
            (Settled::Lost, _) => {
                state.lose(is_it);
                return Ok(true);
            }
        }
        // The worker may have got another lease meanwhile.
        state.lose(|block| is_it(block) && block.lease != lease);
        Ok(false)
    }

    /// Waits until there is something to say to the records, but not before `settles_at`, or it is time to
    /// report.
    pub(super) fn wait_for_due(&self, settles_at: Instant, reports_at: Option<Instant>) -> Due {
        let mut state = self.state.lock();
        loop {
            if state.is_ending {
                return Due::End;
            }
            let now = Instant::now();
            if reports_at.is_some_and(|at| at <= now) {
                return Due::Report;
            }
            let is_due = state.failed.is_none() && state.blocks.iter().any(HeldBlock::is_open);
            if is_due && settles_at <= now {
                return Due::Settlement;
            }
            match [reports_at, is_due.then_some(settles_at)].into_iter().flatten().min() {
                Some(at) => drop(self.changed.wait_until(&mut state, at)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Whether something is confirmed that has no answer.
    pub(super) fn has_more_to_say(&self) -> bool {
        self.state.lock().blocks.iter().any(HeldBlock::is_open)
    }

    /// The worker leaves: its threads are to end.
    pub(super) fn end(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.state.lock().is_ending
    }

    /// Nothing more is said to the records, until the consumer waits for it; after a panic, nothing ever.
    pub(super) fn fail(&self, error: LeaseError) {
        let state = &mut *self.state.lock();
        (state.failed, state.is_unheard) = (Some(error), false);
        self.changed.notify_all();
    }

    /// The records have answered.
    pub(super) fn has_answer(&self, who: Asks) {
        let state = &mut *self.state.lock();
        (state.troubles[who as usize], state.is_unheard) = (None, false);
    }

    /// They have not: this passes, or does not.
    pub(super) fn has_no_answer(&self, who: Asks, error: LeaseError) {
        let state = &mut *self.state.lock();
        state.is_unheard = matches!(error, LeaseError::Metadata(MetadataError::Unreachable { .. }));
        let trouble = &mut state.troubles[who as usize];
        let since = trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        *trouble = Some(Trouble { since, error: Some(error) });
        self.changed.notify_all();
    }

    /// Whether the last request was not answered.
    pub(super) fn is_unheard(&self) -> bool {
        self.state.lock().is_unheard
    }

    /// Why nothing more is said to the records, if so.
    pub(super) fn failure(&self) -> Option<LeaseError> {
        self.state.lock().failed.clone()
    }

    /// Why a consumer that waits for a step is to wait no longer, if so. As long as steps of the blocks that
    /// it has are to come, it waits for data, and the records are not to blame: its patience begins after
    /// that.
    pub(super) fn reason_to_end(&self, since: &mut Instant) -> Option<LeaseError> {
        let mut state = self.state.lock();
        let is_to_come = |block: &HeldBlock| !block.is_lost && !block.is_handed_over();
        if state.failed.is_none() && state.blocks.iter().any(is_to_come) {
            *since = Instant::now();
            return None;
        }
        state.reason_to_end(*since, self.options.patience)
    }

    /// Waits until all that is confirmed counts, or is known to be lost, for as long as was chosen. What has
    /// failed is tried again, unless the thread that tries has ended. Returns how many steps count now.
    pub(super) fn wait_for_answers(&self) -> Result<u64, LeaseError> {
        let start = Instant::now();
        let mut state = self.state.lock();
        state.failed = state.failed.take().filter(|error| matches!(error, LeaseError::Panicked { .. }));
        self.changed.notify_all();
        while state.blocks.iter().any(HeldBlock::is_open) {
            if let Some(error) = state.reason_to_end(start, self.options.patience) {
                return Err(error);
            }
            // There is no signal when the time is over.
            self.changed.wait_for(&mut state, Duration::from_millis(20));
        }
        Ok(std::mem::take(&mut state.counted))
    }

    /// Waits while this holds, but no longer than this. Returns whether it still does.
    pub(super) fn wait_while(&self, holds: fn(&State) -> bool, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| holds(state), at_most);
        holds(&state)
    }

    /// This worker's record, as of now.
    pub(super) fn record(&self) -> WorkerRecord {
        let State { blocks, stopwatch, .. } = &*self.state.lock();
        let mut pace = stopwatch.pace(BootClock.now());
        if blocks.iter().all(|block| block.is_lost || block.is_handed_over()) {
            pace.under_way = Progress::default();
        }
        WorkerRecord { who: self.who.clone(), pace }
    }

    /// Makes its progress known if that has changed, and looks whether others have finished its blocks.
    pub(super) fn report(&self, reported: &mut Option<(LeaseId, Pace)>) -> Result<(), LeaseError> {
        let lease = self.lease.lock().id();
        let record = self.record();
        let facts = |pace: Pace| (pace.under_way.steps, pace.before);
        if reported.is_none_or(|(under, pace)| (under, facts(pace)) != (lease, facts(record.pace))) {
            self.board.report(&self.name, lease, &record)?;
            *reported = Some((lease, record.pace));
        }
        for block in self.board.finished(&self.blocks_under(lease))? {
            let mut state = self.state.lock();
            let lost = state.lose(|held| held.id == block && held.lease == lease);
            drop(state);
            if lost {
                self.board.give_back(&self.name, lease, block)?;
            }
        }
        Ok(())
    }
}

impl Drop for Worker {
    /// A lease is given back, unless the records do not answer: it then ends by itself.
    fn drop(&mut self) {
        if self.is_unheard() {
            self.lease.get_mut().leave();
        }
    }
}

impl State {
    /// Loses some of the blocks, but none of which it is not known whether it is done. Returns whether there
    /// were any.
    fn lose(&mut self, which: impl Fn(&HeldBlock) -> bool) -> bool {
        let before = self.stats.lost;
        let blocks = self.blocks.iter_mut().filter(|block| !block.is_lost && !block.is_in_doubt);
        for block in blocks.filter(|block| which(block)) {
            block.is_lost = true;
            self.stats.lost += 1;
            if block.handed > block.acknowledged {
                self.lost.push(block.id);
            }
            warn!(block = %block.id, "the block is lost: its lease has ended, or another worker was faster");
        }
        self.stats.lost > before
    }

    /// Whether more blocks are done than the records know of, but for one.
    pub(super) fn is_behind(&self) -> bool {
        let are_done = self.blocks.iter().filter(|block| !block.is_lost && block.is_confirmed());
        are_done.count() > 1
    }

    /// Whether it has blocks that are not done.
    pub(super) fn has_blocks(&self) -> bool {
        self.blocks.iter().any(|block| !block.is_lost)
    }

    fn reason_to_end(&mut self, since: Instant, patience: Duration) -> Option<LeaseError> {
        if let Some(error) = &self.failed {
            return Some(error.clone());
        }
        let mut old = self
            .troubles
            .iter_mut()
            .flatten()
            .filter(|trouble| since.max(trouble.since).elapsed() >= patience);
        old.find_map(|trouble| trouble.error.take())
    }

    /// Returns the blocks that were lost since the last time, of those of which steps were handed over that
    /// do not count.
    pub(super) fn take_lost(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.lost)
    }
}

/// Gets a lease, and makes the worker known under it. If there is no answer, the name may be that lease's
/// already: it is kept in `next` for the next try.
fn register(
    board: &Board,
    name: &str,
    who: &WhoRecord,
    ttl: Duration,
    next: &mut Option<Lease>,
) -> Result<Lease, LeaseError> {
    let lease = match next.take().filter(|lease| !lease.has_ended()) {
        Some(lease) => lease,
        None => Lease::keep(board.metadata.clone(), ttl)?,
    };
    match board.register(name, lease.id(), who) {
        Ok(()) => Ok(lease),
        Err(error) => {
            // It has ended if the process stood still since it was granted.
            match error {
                LeaseError::Metadata(MetadataError::LeaseExpired { .. }) => lease.note_end(),
                _ => *next = Some(lease),
            }
            Err(error)
        }
    }
}

/// This process, for people.
fn who() -> WhoRecord {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    WhoRecord {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        since: since.map_or(0, |since| since.as_secs()),
    }
}
