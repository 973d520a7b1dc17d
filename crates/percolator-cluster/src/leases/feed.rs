//! A feed that delivers the blocks of its worker.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use percolator::feed::{ConfigError, Receipts, ResolvedFeed};
use percolator::reader::ReaderError;
use percolator::record::StepId;
use percolator::{Batch, Feed, FeedBuilder, FeedError};
use sha2::{Digest as _, Sha256};

use super::board::Board;
use super::error::LeaseError;
use super::keys::{BlockId, check_name};
use super::pace::{REPORTS, Sight};
use super::records::{JobRecord, VERSION};
use super::reporter::Reporter;
use super::taker::Taker;
use super::worker::{LeaseStats, State, Worker, keep};
use super::{Confirm, LeaseOptions, Leases};
use crate::clock::{BootClock, Clock as _};
use crate::hexadecimal::hexadecimal;
use crate::patience::Deadline;

/// The batches of all devices for one step of a block.
#[non_exhaustive]
#[derive(Debug)]
pub struct LeasedStep {
    /// A batch for each device, in their order.
    pub batches: Vec<Batch>,
    /// The step.
    pub step: StepId,
    /// The block that it is of.
    pub block: BlockId,
    /// The blocks that this worker has lost since the previous step, and of which it was handed steps that do
    /// not count: its lease had ended, or a second worker also had the block and was faster.
    pub lost: Vec<BlockId>,
}

/// How long a consumer waits for a step before it looks whether the records have been silent for too long.
const LOOK: Duration = Duration::from_millis(50);

/// What a confirmation has come to.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The steps that count now, and did not when this was said last.
    pub steps: u64,
    /// The blocks that this worker has lost since the last report, and of which it was handed steps that do
    /// not count. Others get them, or have finished them.
    pub lost: Vec<BlockId>,
}

/// An iterator over the steps that this worker gets, block by block, until all blocks of the job are done.
/// If only blocks of others are left, it waits for them, because one of those workers may die: so two leased
/// feeds of one job do not go together on one thread.
///
/// What is confirmed is said to the records beside the training: asking for a step waits for data alone. If
/// the records cannot be reached, all steps of the blocks that were taken come first, and then, after some
/// [patience](Leases::patience), an error that [may pass](LeaseError::may_pass): the feed can be asked again.
/// After any other error, it has ended. Its [handle](Feed::handle) can end a wait for a step at once.
///
/// A step counts once it is confirmed: by asking for the next one, or, if that was [chosen](Confirm::ByCall),
/// by [`confirm`](Self::confirm). If the worker dies before, another one gets the block. If the worker was
/// only cut off for longer than its lease, its block is lost as well: the steps that are left of it are not
/// handed over, and it goes on with other blocks.
///
/// Dropping it does not wait for an outage's end. Steps that were confirmed but not reported are reported,
/// once. After the first try without an answer, and if the last one had none, nothing more is asked of the
/// records: what they do not know then is lost, and its block is given out again when the worker's lease has
/// ended. The drop waits for the calls to the records that are under way, for each up to its deadline. To
/// wait for the records, call [`settle`](Self::settle) first, or [`confirm`](Self::confirm).
#[derive(Debug)]
pub struct LeasedFeed {
    /// Dropped first: it reports what is left to report while the worker has its lease.
    _reporter: Reporter,
    /// Before the worker: its reading thread takes blocks.
    feed: Feed,
    worker: Arc<Worker>,
    has_ended: bool,
}

impl Leases {
    /// Joins the job with this feed, and starts it. The first worker begins the job; the feeds of all others
    /// must deliver the same records in the same order, with as many devices. Receipts are kept.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the feed cannot be leased or started, or the job is another one. If the records
    /// cannot be reached, are full, or deny the worker access, or another worker has its name, the error
    /// comes when the worker's [patience](Leases::patience) has ended.
    pub fn feed(self, builder: FeedBuilder) -> Result<LeasedFeed, LeaseError> {
        let Leases { metadata, job, options } = self;
        let name = options.name();
        check_name("job", &job)?;
        check_name("worker", &name)?;
        options.check()?;
        let joined = Arc::new(OnceLock::new());
        let taker = Taker { worker: joined.clone(), sight: Sight::new(options.ttl), next_lease: None };
        let receipts = builder.spec().receipts.max(Receipts::Positions);
        let resolved = builder.receipts(receipts).blocks(taker).resolve()?;
        let record = job_of(&resolved, &options)?;
        let deadline = Deadline::after(options.patience);
        let join = || Board::join(metadata.clone(), &job, record.clone());
        let board = deadline.patiently_as(Some(&name), LeaseError::may_pass, join)?;
        let reports = options.duplicates_below.map(|_| options.ttl / REPORTS);
        let worker = Arc::new(Worker::join(board, name, options)?);
        // No other thread has it yet.
        let _ = joined.set(worker.clone());
        let feed = resolved.launch()?;
        let reporter = Reporter::start(worker.clone(), reports);
        let reporter = reporter.map_err(|error| LeaseError::Thread(error.into()))?;
        Ok(LeasedFeed { _reporter: reporter, feed, worker, has_ended: false })
    }
}

/// What the job of such a feed is, if its steps can be leased.
fn job_of(resolved: &ResolvedFeed, options: &LeaseOptions) -> Result<JobRecord, LeaseError> {
    let refused = |message| Err(LeaseError::Feed { message });
    let Some(plan) = resolved.plan() else {
        return refused("follows a plan, and this one deals in round-robin order");
    };
    if plan.wraps() {
        return refused(
            "cannot wrap its last batches into the next epoch, which may be another worker's: keep, drop \
             or pad them",
        );
    }
    let steps = plan.steps(0).map_err(ConfigError::Order).map_err(FeedError::from)?;
    Ok(JobRecord {
        version: VERSION,
        schedule: hexadecimal(Sha256::digest(resolved.schedule_text())),
        source: resolved.source().path().to_string_lossy().into_owned(),
        epochs: resolved.spec().schedule.epochs.unwrap_or(0),
        steps_per_block: options.steps_per_block,
        steps,
        duplicates_below: options.duplicates_below,
        ..JobRecord::default()
    })
}

impl LeasedFeed {
    /// Returns the feed, for its statistics and its layout.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn worker(&self) -> &str {
        self.worker.name()
    }

    /// Returns how its blocks have fared.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.worker.state.lock().stats
    }

    /// Says that all steps that were handed over are trained on, for good: what they have changed is, say, in
    /// a checkpoint. Blocks that were handed over whole are finished; of the block under way, what was handed
    /// over is acknowledged if steps [are](Leases::acknowledge_every). Those steps are not delivered again.
    /// Waits until the records say so, as [`settle`](Self::settle) does, whose result it returns.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub fn confirm(&mut self) -> Result<Confirmed, LeaseError> {
        self.confirm_handed(1)?;
        self.settle()
    }

    /// Waits until all that was confirmed so far counts, or is known to be lost; it confirms nothing itself.
    /// Returns how many steps count now, and which blocks were lost.
    ///
    /// The feed's [handle](Feed::handle) does not end this wait: what a worker has done last is to count as
    /// well.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be reached for as long as was [chosen](Leases::patience). What
    /// was said then may count all the same, and is said again: the next call finds out. After an error that
    /// does not [pass](LeaseError::may_pass), the feed has the same one next, and ends.
    pub fn settle(&mut self) -> Result<Confirmed, LeaseError> {
        let steps = self.worker.wait_for_answers()?;
        Ok(Confirmed { steps, lost: self.worker.state.lock().take_lost() })
    }

    /// Confirms what was handed over; of the block under way only if it has at least this many new steps. The
    /// reporter says so to the records.
    fn confirm_handed(&mut self, steps: u64) -> Result<(), LeaseError> {
        self.worker.look_at_lease();
        let mut state = self.worker.state.lock();
        // Of others that are lost, the rest is skipped as it comes.
        state.blocks.retain(|block| !block.is_lost || !block.is_handed_over());
        for block in state.blocks.iter_mut().take_while(|block| !block.is_lost) {
            if !block.is_handed_over() {
                let new = block.handed - block.confirmed;
                if self.worker.options.acknowledge_every.is_none() || block.is_shared || new < steps.max(1) {
                    break;
                }
                keep(&mut block.receipt, self.feed.steps().take_receipt())?;
            }
            block.confirm()?;
            if !block.is_confirmed() {
                break;
            }
        }
        drop(state);
        self.worker.changed.notify_all();
        Ok(())
    }

    /// Why the feed has ended: of what its reading thread could not take, the whole reason.
    fn failure(&self, error: FeedError) -> LeaseError {
        match error {
            FeedError::Reader(ReaderError::Blocks { .. }) => {
                self.worker.take_failed.lock().take().unwrap_or(error.into())
            }
            _ => error.into(),
        }
    }

    /// The next step of a block that is still this worker's.
    fn next_step(&mut self) -> Result<Option<LeasedStep>, LeaseError> {
        self.worker.state.lock().stopwatch.ask(BootClock.now());
        let LeaseOptions { confirm, acknowledge_every, .. } = self.worker.options;
        if confirm == Confirm::ByAsking {
            self.confirm_handed(acknowledge_every.unwrap_or(1))?;
        }
        // What cannot count is not trained on.
        if let Some(error) = self.worker.failure() {
            return Err(error);
        }
        let mut since = Instant::now();
        loop {
            let mut steps = self.feed.steps();
            while !steps.wait_timeout(LOOK) {
                if let Some(error) = self.worker.reason_to_end(&mut since) {
                    return Err(error);
                }
            }
            let batches = match steps.next().transpose() {
                Ok(Some(batches)) => batches,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.failure(error)),
            };
            self.worker.look_at_lease();
            let mut state = self.worker.state.lock();
            let State { blocks, stats, stopwatch, .. } = &mut *state;
            let last = blocks.back().map(|block| block.id);
            let step = batches.first().and_then(Batch::step).map(|step| step.id());
            let block = blocks.iter_mut().find(|block| !block.is_handed_over());
            let (Some(block), Some(step)) = (block, step) else {
                return Err(LeaseError::Unexpected { last });
            };
            if step.step != block.steps.first.step + block.handed || !block.steps.has(step) {
                return Err(LeaseError::Unexpected { last });
            }
            block.handed += 1;
            if block.is_lost {
                // The delivered steps of it do not count.
                let _ = steps.take_receipt();
                stats.skipped_steps += 1;
                block.receipt = None;
                stopwatch.lose();
                continue;
            }
            stopwatch.hand_over(block.is_handed_over());
            let id = block.id;
            if block.is_handed_over() {
                keep(&mut block.receipt, steps.take_receipt())?;
            }
            return Ok(Some(LeasedStep { batches, step, block: id, lost: state.take_lost() }));
        }
    }
}

impl Iterator for LeasedFeed {
    type Item = Result<LeasedStep, LeaseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let step = self.next_step().transpose();
        self.has_ended = match &step {
            Some(Ok(_)) => false,
            Some(Err(error)) => !error.may_pass(),
            None => true,
        };
        step
    }
}

impl std::iter::FusedIterator for LeasedFeed {}
