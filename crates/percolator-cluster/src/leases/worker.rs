//! One worker: its lease, and the blocks that it has.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator::Receipt;
use percolator::order::Block;
use percolator::record::StepId;
use tracing::warn;

use super::LeaseOptions;
use super::board::{Asker, Board, Taken, TakenBlock};
use super::error::LeaseError;
use super::keys::{BlockId, Keys};
use super::pace::{Sight, Stopwatch};
use super::patience::{is_same_name, patiently, patiently_while};
use super::records::{OpenRecord, Pace, Progress, WhoRecord, WorkerRecord};
use super::settle::{Change, Settled, Settlement};
use crate::clock::{BootClock, Clock as _};
use crate::metadata::{Lease, LeaseId, MetadataError, Revision};

/// A worker of a job. Its feed's reading thread takes blocks; its consumer says what is done of them.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) board: Board,
    name: String,
    who: WhoRecord,
    pub(super) options: LeaseOptions,
    pub(super) lease: Mutex<Arc<Lease>>,
    pub(super) state: Mutex<State>,
    /// Why the reading thread takes no more blocks: the feed, which ends for it, has only the message.
    pub(super) failed: Mutex<Option<LeaseError>>,
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
    /// How many of those were acknowledged.
    pub(super) acknowledged: u64,
    /// What was handed over and not acknowledged, as far as it was taken out of the feed.
    pub(super) receipt: Option<Receipt>,
    /// Something was said of it, and no answer has come: it may be done.
    pub(super) is_in_doubt: bool,
    /// It is another worker's, or will be.
    pub(super) is_lost: bool,
}

impl HeldBlock {
    pub(super) fn is_handed_over(&self) -> bool {
        self.handed == self.steps.steps
    }
}

impl Worker {
    pub(super) fn join(board: Board, name: String, options: LeaseOptions) -> Result<Self, LeaseError> {
        let who = who();
        let next = Mutex::default();
        // Who died and was started again at once finds its own name, until its former lease has ended.
        let lease = patiently_while(is_same_name, &name, options.patience, &|| false, || {
            register(&board, &name, &who, options.ttl, &mut next.lock())
        })?;
        let (lease, state, failed) = (Mutex::new(Arc::new(lease)), Mutex::default(), Mutex::default());
        Ok(Worker { board, name, who, options, lease, state, failed })
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.board.keys
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Gets another lease in place of one that has ended: what was taken under that is lost.
    pub(super) fn go_on_after(
        &self,
        ended: LeaseId,
        next: &RefCell<&mut Option<Lease>>,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<(), LeaseError> {
        self.lose_under(ended);
        // Metadata that were set back to a copy may have its name under an earlier lease, which ends by
        // itself.
        let lease = patiently_while(is_same_name, &self.name, self.options.patience, is_stopping, || {
            self.board.check_identity()?;
            register(&self.board, &self.name, &self.who, self.options.ttl, &mut next.borrow_mut())
        })?;
        warn!(worker = %self.name, "the worker's lease has ended: it goes on under another");
        *self.lease.lock() = Arc::new(lease);
        Ok(())
    }

    fn lose_under(&self, lease: LeaseId) {
        self.state.lock().lose(|block| block.lease == lease);
    }

    /// If the lease is known to have ended, what was taken under it is lost.
    pub(super) fn look_at_lease(&self) {
        let lease = self.lease.lock().clone();
        if lease.has_ended() {
            self.lose_under(lease.id());
        }
    }

    /// Asks for a block, under this lease. Looks at the other workers as of now.
    pub(super) fn ask(&self, lease: LeaseId, sight: &mut Sight) -> Result<Taken, LeaseError> {
        let known: BTreeSet<BlockId> = {
            let state = self.state.lock();
            let has = |block: &&HeldBlock| !block.is_lost && block.lease == lease;
            state.blocks.iter().filter(has).map(|block| block.id).collect()
        };
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
            acknowledged: 0,
            receipt: None,
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

    /// Says something of a block, for as long as was chosen.
    pub(super) fn settle(&self, settlement: &mut Settlement) -> Result<Settled, LeaseError> {
        let record = self.record();
        let settlement = RefCell::new(settlement);
        self.patiently(&|| false, || self.board.settle(&self.name, &record, &mut settlement.borrow_mut()))
    }

    /// What was said of a block is answered.
    pub(super) fn has_settled(&self, settlement: &Settlement, settled: Settled) -> Result<(), LeaseError> {
        let lease = self.lease.lock().id();
        let mut state = self.state.lock();
        let is_it = |block: &HeldBlock| block.id == settlement.block && block.lease == settlement.lease;
        // Only the consumer removes blocks, and it keeps one that is in doubt.
        let Some(block) = state.blocks.front_mut().filter(|block| is_it(block)) else { return Ok(()) };
        block.is_in_doubt = false;
        match (settled, settlement.change) {
            (Settled::Kept(_), Change::Finish) => {
                state.stats.finished += 1;
                state.blocks.pop_front();
            }
            (Settled::Kept(revision), Change::Acknowledge(steps)) => {
                (block.open, block.acknowledged) = (revision, steps - block.before);
            }
            (Settled::Shared, _) => {
                let mut delivered = settlement.delivered.clone();
                if let Some(since) = &block.receipt {
                    delivered.merge(since)?;
                }
                (block.is_shared, block.receipt) = (true, Some(delivered));
            }
            (Settled::Lost, _) => {
                state.lose(is_it);
                drop(state);
                // Another worker was faster. If this fails, it goes with the lease.
                if let Err(error) = self.board.give_back(&self.name, settlement.lease, settlement.block) {
                    warn!(%error, "a block that another worker has finished could not be given back");
                }
                return Ok(());
            }
        }
        // The worker may have got another lease meanwhile.
        state.lose(|block| is_it(block) && block.lease != lease);
        Ok(())
    }

    /// This worker's record, as of now.
    fn record(&self) -> WorkerRecord {
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
        let held: Vec<BlockId> = {
            let state = self.state.lock();
            let blocks = state.blocks.iter().filter(|block| !block.is_lost && block.lease == lease);
            blocks.map(|block| block.id).collect()
        };
        for block in self.board.finished(&held)? {
            let mut state = self.state.lock();
            let lost = state.lose(|held| held.id == block && held.lease == lease);
            drop(state);
            if lost {
                self.board.give_back(&self.name, lease, block)?;
            }
        }
        Ok(())
    }

    /// Does what asks another process, for as long as was chosen.
    pub(super) fn patiently<T>(
        &self,
        is_stopping: &dyn Fn() -> bool,
        work: impl Fn() -> Result<T, LeaseError>,
    ) -> Result<T, LeaseError> {
        patiently(&self.name, self.options.patience, is_stopping, work)
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
    loop {
        let lease = match next.take().filter(|lease| !lease.has_ended()) {
            Some(lease) => lease,
            None => Lease::keep(board.metadata.clone(), ttl)?,
        };
        match board.register(name, lease.id(), who) {
            Ok(()) => return Ok(lease),
            // The process stood still since it was granted.
            Err(LeaseError::Metadata(MetadataError::LeaseExpired { .. })) => {}
            Err(error) => {
                *next = Some(lease);
                return Err(error);
            }
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
