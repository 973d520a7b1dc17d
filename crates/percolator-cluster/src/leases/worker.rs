//! One worker: its lease, and the blocks that it has.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator::Receipt;
use percolator::order::{Block, Blocks, Plan};
use percolator::record::StepId;
use tracing::warn;

use super::board::{Board, Change, Kept, Taken};
use super::error::LeaseError;
use super::keys::BlockId;
use super::records::{JobRecord, WhoRecord};
use super::{Confirm, LeaseOptions};
use crate::metadata::{Lease, LeaseId, MetadataError};

/// A worker of a job. Its feed's reading thread takes blocks; its consumer says what is done of them.
#[derive(Debug)]
pub(super) struct Worker {
    board: Board,
    name: String,
    who: WhoRecord,
    options: LeaseOptions,
    lease: Mutex<Arc<Lease>>,
    /// One that was granted in place of `lease`, and under which the worker may not be registered yet.
    next_lease: Mutex<Option<Lease>>,
    pub(super) state: Mutex<State>,
}

/// What a worker has, and has had.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The blocks that were taken and are not done, in the order in which their steps come.
    pub(super) blocks: VecDeque<HeldBlock>,
    pub(super) stats: LeaseStats,
}

/// How a worker's blocks have fared.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// The blocks that it has taken.
    pub taken: u64,
    /// Those that it has finished.
    pub finished: u64,
    /// Those that were handed out again, because its lease had ended before they were done.
    pub lost: u64,
    /// The steps of lost blocks that were not handed over any more.
    pub skipped_steps: u64,
}

/// A block that a worker has taken.
#[derive(Debug)]
pub(super) struct HeldBlock {
    pub(super) id: BlockId,
    /// The lease that it was taken under: it is this worker's by no other.
    lease: LeaseId,
    /// The steps that come: all of the block, or those after the acknowledged ones.
    pub(super) steps: Block,
    /// How many steps of the block were acknowledged before it was taken.
    before: u64,
    /// How many of `steps` were handed over.
    pub(super) handed: u64,
    /// How many of those were acknowledged.
    pub(super) acknowledged: u64,
    /// What was handed over and not acknowledged, as far as it was taken out of the feed.
    pub(super) receipt: Option<Receipt>,
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
        let go_on = || false;
        let lease = patiently(&name, options.patience, &go_on, || {
            Ok(Lease::keep(board.metadata.clone(), options.ttl)?)
        })?;
        patiently(&name, options.patience, &go_on, || board.register(&name, lease.id(), &who))?;
        let (lease, state) = (Mutex::new(Arc::new(lease)), Mutex::default());
        Ok(Worker { board, name, who, options, lease, next_lease: Mutex::default(), state })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its lease. If that has ended, all blocks are lost, and the worker goes on under another.
    fn lease(&self) -> Result<Arc<Lease>, LeaseError> {
        let lease = self.lease.lock().clone();
        if lease.has_ended() { self.go_on_after(&lease) } else { Ok(lease) }
    }

    /// Gets another lease in place of one that has ended, unless another thread has.
    fn go_on_after(&self, ended: &Lease) -> Result<Arc<Lease>, LeaseError> {
        // Not the lease's own lock: the consumer looks at that at each step.
        let mut next = self.next_lease.lock();
        let lease = self.lease.lock().clone();
        if lease.id() != ended.id() {
            return Ok(lease);
        }
        self.lose_all();
        // If the answer to a registration was lost, the name may be this lease's already: it is tried again.
        let lease = match next.take().filter(|lease| !lease.has_ended()) {
            Some(lease) => lease,
            None => Lease::keep(self.board.metadata.clone(), self.options.ttl)?,
        };
        if let Err(error) = self.board.register(&self.name, lease.id(), &self.who) {
            *next = Some(lease);
            return Err(error);
        }
        warn!(worker = %self.name, "the worker's lease has ended: it goes on under another");
        let lease = Arc::new(lease);
        *self.lease.lock() = lease.clone();
        Ok(lease)
    }

    pub(super) fn lose_all(&self) {
        let State { blocks, stats } = &mut *self.state.lock();
        for block in blocks.iter_mut().filter(|block| !block.is_lost) {
            lose(block, stats);
        }
    }

    /// Whether the lease has ended, as far as it is known here.
    pub(super) fn has_lost_its_lease(&self) -> bool {
        self.lease.lock().has_ended()
    }

    /// Takes the next block. Returns `None` if there is none, or nobody wants it any more.
    fn take(&self, is_stopping: &dyn Fn() -> bool) -> Result<Option<Block>, LeaseError> {
        /// How long a worker waits for others before it looks whether it shall stop.
        const LOOK: Duration = Duration::from_millis(100);
        while !is_stopping() {
            let lease = self.patiently(is_stopping, || self.lease())?;
            let known: BTreeSet<BlockId> = {
                let state = self.state.lock();
                state.blocks.iter().filter(|block| !block.is_lost).map(|block| block.id).collect()
            };
            let taken =
                self.patiently(is_stopping, || self.board.take(&self.name, lease.id(), &self.who, &known));
            match taken {
                Ok(Taken::Block { block, acknowledged }) => {
                    return self.add(block, lease.id(), acknowledged).map(Some);
                }
                // It may be waited for itself: for the blocks that it has and does not confirm.
                Ok(Taken::Wait(_)) if self.options.confirm == Confirm::ByCall => return Ok(None),
                Ok(Taken::Wait(revision)) => {
                    self.patiently(is_stopping, || self.board.wait(revision, LOOK))?;
                }
                Ok(Taken::Over) => return Ok(None),
                Err(LeaseError::Metadata(MetadataError::LeaseExpired { .. })) => {
                    self.patiently(is_stopping, || self.go_on_after(&lease))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Adds a block that was taken; returns its steps that come.
    fn add(&self, id: BlockId, lease: LeaseId, acknowledged: u64) -> Result<Block, LeaseError> {
        let JobRecord { steps, steps_per_block, .. } = self.board.job;
        // The job has the block, so this is a step of its epoch.
        let first = id.number.saturating_mul(steps_per_block);
        let length = steps_per_block.min(steps.saturating_sub(first));
        if acknowledged >= length {
            let message =
                format!("{acknowledged} steps of it are acknowledged, and it has {length}: there is no rest");
            return Err(LeaseError::Record { key: self.board.keys.open(id), message });
        }
        let first = StepId { epoch: id.epoch, step: first + acknowledged };
        let steps = Block { first, steps: length - acknowledged };
        let block = HeldBlock {
            id,
            lease,
            steps,
            before: acknowledged,
            handed: 0,
            acknowledged: 0,
            receipt: None,
            is_lost: false,
        };
        let State { blocks, stats } = &mut *self.state.lock();
        stats.taken += 1;
        blocks.push_back(block);
        Ok(steps)
    }

    /// Says that the steps of the first block that were handed over are done: all of them, or, if the block
    /// goes on, those up to here. Its receipt has them. Returns whether the block was still this worker's.
    pub(super) fn confirm_first(&self) -> Result<Kept, LeaseError> {
        let (id, lease, from, change, receipt, acknowledged) = {
            let state = self.state.lock();
            let Some(block) = state.blocks.front() else { return Ok(Kept::Yes) };
            let Some(receipt) = block.receipt.clone() else {
                return Err(LeaseError::Unexpected { last: Some(block.id) });
            };
            let change = match block.is_handed_over() {
                true => Change::Finish,
                false => Change::Acknowledge(block.before + block.handed),
            };
            let from = block.before + block.acknowledged;
            (block.id, block.lease, from, change, receipt, block.handed)
        };
        let kept =
            self.patiently(&|| false, || self.board.change(&self.name, lease, id, from, change, &receipt))?;
        let State { blocks, stats } = &mut *self.state.lock();
        // Only the consumer removes blocks: it is the same one.
        let Some(block) = blocks.front_mut() else { return Ok(kept) };
        block.receipt = None;
        match (kept, change) {
            (Kept::No, _) if !block.is_lost => lose(block, stats),
            (Kept::No, _) => {}
            (Kept::Yes, Change::Acknowledge(_)) => block.acknowledged = acknowledged,
            (Kept::Yes, Change::Finish) => {
                stats.finished += 1;
                blocks.pop_front();
            }
        }
        Ok(kept)
    }

    /// Does what asks another process, for as long as was chosen.
    fn patiently<T>(
        &self,
        is_stopping: &dyn Fn() -> bool,
        work: impl Fn() -> Result<T, LeaseError>,
    ) -> Result<T, LeaseError> {
        patiently(&self.name, self.options.patience, is_stopping, work)
    }
}

/// Does what asks another process, again and again while nobody answers. It must be such that doing it twice
/// is as good as once: what was asked for may have happened.
pub(super) fn patiently<T>(
    worker: &str,
    patience: Duration,
    is_stopping: &dyn Fn() -> bool,
    work: impl Fn() -> Result<T, LeaseError>,
) -> Result<T, LeaseError> {
    const PAUSE_MIN: Duration = Duration::from_millis(20);
    const PAUSE_MAX: Duration = Duration::from_secs(1);
    let (start, mut pause) = (Instant::now(), PAUSE_MIN);
    loop {
        match work() {
            Err(LeaseError::Metadata(error @ MetadataError::Unreachable { .. }))
                if start.elapsed() + pause < patience && !is_stopping() =>
            {
                warn!(worker, %error, "it is tried again");
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

fn lose(block: &mut HeldBlock, stats: &mut LeaseStats) {
    block.is_lost = true;
    stats.lost += 1;
    warn!(block = %block.id, "the block is lost: its lease has ended, and another worker gets it");
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

/// Takes blocks for a feed's reading thread. The worker joins its job once the feed is resolved, which is
/// before anything is read.
#[derive(Debug)]
pub(super) struct Taker(pub(super) Arc<OnceLock<Arc<Worker>>>);

impl Blocks for Taker {
    fn next(
        &mut self,
        _plan: &Plan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        let worker = self.0.get().ok_or("the feed was started before its worker had joined the job")?;
        Ok(worker.take(is_stopping)?)
    }
}
