//! What fills the batches of a lane: a reader and the workers, or a supplier of whole batches.
//!
//! A supplier has a thread of its own, because a fill may wait for long: the prefetcher gives it batches to
//! fill, in the order of the ring, and gets them back in that order. While it fills, the prefetcher hands
//! over, takes back, and notices the end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::ending::Start;
use super::slot::SlotHeader;
use super::tolerance::Tolerance;
use crate::base::sync::thread::{self, JoinHandle};
use crate::base::sync::{Condvar, Mutex, Receiver, Sender, bounded, panic_message};
use crate::batch::{Filling, Pending};
use crate::feed::{BatchRoom, FeedError, LaneSupplier};
use crate::reader::DataReader;
use crate::record::StepEnd;
use crate::transform::Draws;
use crate::workers::processor::Processor;
use crate::workers::{Governor, Task};

/// The most batches that a supplier has at one time: the one that it fills, and the next.
pub(super) const GIVEN_MAX: usize = 2;

/// What fills a lane's batches.
pub(crate) enum BatchInput {
    /// A reader, whose records the workers write.
    Dealt(Box<Dealt>),
    /// A supplier of whole batches.
    Supplied(SupplyLine),
}

/// Records, and what becomes of them.
pub(crate) struct Dealt {
    pub(crate) reader: DataReader,
    pub(crate) processor: Arc<Processor>,
    /// Drawn in the order of the lane's records; the workers handle them in any order.
    pub(crate) draws: Draws,
    pub(crate) governor: Arc<Governor>,
    pub(crate) tasks: Sender<Task>,
    /// How many bad records there may be, and how many there were.
    pub(crate) tolerance: Tolerance,
    /// If the lane's records can be dealt again: where they begin.
    pub(crate) start: Option<Start>,
}

/// Pauses the suppliers of a feed.
#[derive(Debug, Default)]
pub(crate) struct SupplyGate {
    is_paused: Mutex<bool>,
    changed: Condvar,
}

/// The prefetcher's end of a supplier. Dropping it ends the supplier's thread, and waits for that.
pub(crate) struct SupplyLine {
    /// Dropped when nothing more is wanted.
    rooms: Option<Sender<Filling>>,
    supplied: Receiver<Supplied>,
    /// What belongs to the batches that the supplier has, in their order.
    given: VecDeque<SlotHeader>,
    close: Box<dyn Fn() + Send>,
    thread: Option<JoinHandle<()>>,
}

/// What comes from a supplier.
pub(super) enum Supplied {
    Batch(Option<StepEnd>, Pending),
    Ended,
    Failed(FeedError),
}

impl SupplyGate {
    pub(crate) fn set_paused(&self, is_paused: bool) {
        *self.is_paused.lock() = is_paused;
        self.changed.notify_all();
    }

    /// Waits while the feed is paused, as long as more is `wanted`.
    fn wait(&self, wanted: &Mutex<bool>) {
        let mut is_paused = self.is_paused.lock();
        while *is_paused && *wanted.lock() {
            self.changed.wait(&mut is_paused);
        }
    }
}

impl SupplyLine {
    /// Starts the thread `name`.
    pub(crate) fn start(
        name: String,
        supplier: Box<dyn LaneSupplier>,
        gate: &Arc<SupplyGate>,
    ) -> Result<Self, FeedError> {
        let (rooms, rooms_receiver) = bounded(GIVEN_MAX);
        // Room for what was filled, and the end.
        let (sender, supplied) = bounded(GIVEN_MAX + 1);
        let wanted = Arc::new(Mutex::new(true));
        let closer = supplier.closer();
        let close = {
            let (wanted, gate) = (wanted.clone(), gate.clone());
            move || {
                *wanted.lock() = false;
                closer();
                // Under its lock, so that a supplier that is about to wait sees it.
                drop(gate.is_paused.lock());
                gate.changed.notify_all();
            }
        };
        let (of_thread, gated) = (name.clone(), gate.clone());
        let run = move || {
            let supply = || supply(supplier, &rooms_receiver, &sender, || gated.wait(&wanted));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(supply)) {
                let error = FeedError::Panicked { name: of_thread, message: panic_message(&*panic) };
                let _ = sender.send(Supplied::Failed(error));
            }
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(run);
        let thread = thread.map_err(|error| FeedError::Thread { name, source: error.into() })?;
        Ok(SupplyLine {
            rooms: Some(rooms),
            supplied,
            given: VecDeque::with_capacity(GIVEN_MAX),
            close: Box::new(close),
            thread: Some(thread),
        })
    }

    pub(super) fn supplied(&self) -> &Receiver<Supplied> {
        &self.supplied
    }

    /// How many batches the supplier has.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    /// Gives the supplier a batch to fill.
    pub(super) fn give(&mut self, header: SlotHeader, filling: Filling) {
        self.given.push_back(header);
        if let Some(rooms) = &self.rooms {
            // If its thread has ended, it has said why.
            let _ = rooms.send(filling);
        }
    }

    /// What belongs to the batch that came.
    pub(super) fn taken(&mut self) -> Option<SlotHeader> {
        self.given.pop_front()
    }

    /// Wants nothing more. Returns what belongs to the batches that the supplier has and will not fill.
    pub(super) fn close(&mut self) -> VecDeque<SlotHeader> {
        self.rooms = None;
        (self.close)();
        std::mem::take(&mut self.given)
    }
}

impl Drop for SupplyLine {
    fn drop(&mut self) {
        let given = self.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a supplier's thread panicked; this is a bug");
        }
        drop(given);
    }
}

/// Fills batches as long as there are any.
fn supply(
    mut supplier: Box<dyn LaneSupplier>,
    rooms: &Receiver<Filling>,
    supplied: &Sender<Supplied>,
    wait_while_paused: impl Fn(),
) {
    while let Ok(mut filling) = rooms.recv() {
        wait_while_paused();
        let given = filling.memory_mut().as_ptr();
        let filled = supplier.fill(BatchRoom::of(filling));
        let filled = filled.and_then(|filled| filled.map(|filled| filled.finish(given)).transpose());
        let next = match filled {
            Ok(Some((step, pending))) => Supplied::Batch(step, pending),
            Ok(None) => Supplied::Ended,
            Err(error) => Supplied::Failed(error.into()),
        };
        let goes_on = matches!(next, Supplied::Batch(..));
        if supplied.send(next).is_err() || !goes_on {
            return;
        }
    }
}
