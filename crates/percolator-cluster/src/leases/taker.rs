//! Takes blocks, on the feed's reading thread.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use percolator::order::{Block, Blocks, Plan};
use percolator_files::shown;
use tracing::warn;

use super::Confirm;
use super::board::Taken;
use super::error::LeaseError;
use super::pace::Sight;
use super::worker::{Asks, State, Worker};
use crate::metadata::{Lease, MetadataError, Revision};
use crate::patience::Pauses;

/// How long it waits before it looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(100);

/// Takes blocks for a feed. The worker joins its job once the feed is resolved, which is before anything is
/// read.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) worker: Arc<OnceLock<Arc<Worker>>>,
    /// What it has seen of the other workers.
    pub(super) sight: Sight,
    /// A lease that replaces one that has ended, and under which the worker may not be registered yet.
    pub(super) next_lease: Option<Lease>,
}

impl Blocks for Taker {
    fn next(
        &mut self,
        _plan: &Plan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        let none = "the feed was started before its worker had joined the job";
        let worker = self.worker.get().cloned().ok_or(none)?;
        let is_stopping = || is_stopping() || worker.is_ending();
        self.take(&worker, &is_stopping).map_err(|error| {
            let message = shown::with_sources(&error);
            *worker.take_failed.lock() = Some(error);
            message.into()
        })
    }
}

impl Drop for Taker {
    /// As that of the worker.
    fn drop(&mut self) {
        if let (Some(lease), Some(worker)) = (&self.next_lease, self.worker.get())
            && worker.is_unheard()
        {
            lease.leave();
        }
    }
}

impl Taker {
    /// Takes the next block. Returns `None` if there is none, or if it is no longer wanted. An error that may
    /// pass is told to the consumer once it has nothing left, and ends nothing.
    fn take(&mut self, worker: &Worker, is_stopping: &dyn Fn() -> bool) -> Result<Option<Block>, LeaseError> {
        let mut pauses = Pauses::default();
        // A worker that dies should leave as little as possible unreported: finished blocks are reported
        // first.
        while !is_stopping() && worker.wait_while(State::is_behind, LOOK) {}
        while !is_stopping() {
            let tried = match self.try_to_take(worker, is_stopping) {
                Err(error) if error.may_pass() => {
                    warn!(
                        worker = worker.name(), error = %shown::with_sources(&error),
                        "it did not succeed: trying again"
                    );
                    worker.has_no_answer(Asks::Block, error);
                    let end = Instant::now() + pauses.next();
                    while !is_stopping() && Instant::now() < end {
                        thread::sleep(end.saturating_duration_since(Instant::now()).min(LOOK / 4));
                    }
                    continue;
                }
                tried => tried?,
            };
            worker.has_answer(Asks::Block);
            match tried {
                Tried::Taken(block) => return Ok(Some(block)),
                Tried::Over => break,
                Tried::Again => pauses = Pauses::default(),
            }
        }
        // The feed does not end before what was confirmed by asking counts, or is known to be lost.
        let waits = worker.options.confirm == Confirm::ByAsking;
        while waits && !is_stopping() && worker.wait_while(State::has_blocks, LOOK) {}
        Ok(None)
    }

    fn try_to_take(&mut self, worker: &Worker, is_stopping: &dyn Fn() -> bool) -> Result<Tried, LeaseError> {
        let lease = worker.lease.lock().clone();
        if lease.has_ended() {
            return worker.go_on_after(lease.id(), &mut self.next_lease).map(|()| Tried::Again);
        }
        match worker.ask(lease.id(), &mut self.sight) {
            Ok(Taken::Block(taken)) => Ok(Tried::Taken(worker.add(taken, lease.id()))),
            // It may be waited for itself: for the blocks that it has and does not confirm.
            Ok(Taken::Wait(_)) if worker.options.confirm == Confirm::ByCall => Ok(Tried::Over),
            Ok(Taken::Wait(revision)) => {
                worker.has_answer(Asks::Block);
                wait(worker, revision, is_stopping).map(|()| Tried::Again)
            }
            Ok(Taken::Over) => Ok(Tried::Over),
            Err(LeaseError::Metadata(MetadataError::LeaseExpired { .. })) => {
                // If it gets no other one now, it asks for one the next time.
                lease.note_end();
                worker.go_on_after(lease.id(), &mut self.next_lease).map(|()| Tried::Again)
            }
            Err(error) => Err(error),
        }
    }
}

/// What a try has come to.
enum Tried {
    Taken(Block),
    /// Something has changed, or has been waited for.
    Again,
    Over,
}

/// Waits until it is worth asking again: something has changed, or, if slow blocks are duplicated, some time
/// has passed.
fn wait(worker: &Worker, revision: Revision, is_stopping: &dyn Fn() -> bool) -> Result<(), LeaseError> {
    let start = Instant::now();
    while !is_stopping() {
        let has_changed = worker.board.wait(revision, LOOK)?;
        // Metadata that were set back to a copy may not come to this revision for long: the worker asks again
        // now and then, whatever it hears.
        let is_late = start.elapsed() >= worker.options.ttl || worker.lease.lock().has_ended();
        if has_changed || is_late || worker.options.duplicates_below.is_some() {
            break;
        }
    }
    Ok(())
}
