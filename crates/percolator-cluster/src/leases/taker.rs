//! Takes blocks, on the feed's reading thread.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use percolator::order::{Block, Blocks, Plan};

use super::Confirm;
use super::board::Taken;
use super::error::LeaseError;
use super::pace::Sight;
use super::worker::Worker;
use crate::metadata::{Lease, MetadataError, Revision};

/// Takes blocks for a feed. The worker joins its job once the feed is resolved, which is before anything is
/// read.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) worker: Arc<OnceLock<Arc<Worker>>>,
    /// What it has seen of the other workers.
    pub(super) sight: Sight,
    /// A lease that was granted in place of one that has ended, and under which the worker may not be
    /// registered yet.
    pub(super) next_lease: Option<Lease>,
}

impl Blocks for Taker {
    fn next(
        &mut self,
        _plan: &Plan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        let worker = self.worker.get().ok_or("the feed was started before its worker had joined the job")?;
        take(worker, &mut self.sight, &mut self.next_lease, is_stopping).map_err(|error| {
            let message = error.to_string();
            *worker.failed.lock() = Some(error);
            message.into()
        })
    }
}

/// Takes the next block. Returns `None` if there is none, or nobody wants it any more.
fn take(
    worker: &Worker,
    sight: &mut Sight,
    next_lease: &mut Option<Lease>,
    is_stopping: &dyn Fn() -> bool,
) -> Result<Option<Block>, LeaseError> {
    // The work of `patiently` may be done many times.
    let (sight, next_lease) = (std::cell::RefCell::new(sight), std::cell::RefCell::new(next_lease));
    while !is_stopping() {
        let lease = worker.lease.lock().clone();
        let go_on = || worker.go_on_after(lease.id(), &next_lease, is_stopping);
        if lease.has_ended() {
            go_on()?;
            continue;
        }
        match worker.patiently(is_stopping, || worker.ask(lease.id(), &mut sight.borrow_mut())) {
            Ok(Taken::Block(taken)) => return Ok(Some(worker.add(taken, lease.id()))),
            // It may be waited for itself: for the blocks that it has and does not confirm.
            Ok(Taken::Wait(_)) if worker.options.confirm == Confirm::ByCall => return Ok(None),
            Ok(Taken::Wait(revision)) => wait(worker, revision, is_stopping)?,
            Ok(Taken::Over) => return Ok(None),
            Err(LeaseError::Metadata(MetadataError::LeaseExpired { .. })) => go_on()?,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits until it is worth asking again: something has changed, or, if slow blocks are duplicated, some time
/// has passed.
fn wait(worker: &Worker, revision: Revision, is_stopping: &dyn Fn() -> bool) -> Result<(), LeaseError> {
    /// How long a worker waits for others before it looks whether it shall stop.
    const LOOK: Duration = Duration::from_millis(100);
    let start = Instant::now();
    while !is_stopping() {
        let has_changed = worker.patiently(is_stopping, || worker.board.wait(revision, LOOK))?;
        // Metadata that were set back to a copy may not come to this revision for long: the worker asks again
        // now and then, whatever it hears.
        let is_late = start.elapsed() >= worker.options.ttl || worker.lease.lock().has_ended();
        if has_changed || is_late || worker.options.duplicates_below.is_some() {
            break;
        }
    }
    Ok(())
}
