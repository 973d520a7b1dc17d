//! Batches without records, for a lane that has ended while others of its job go on.
//!
//! They go the way of all others, through a passage of the lane's own device, so that whoever consumes them finds everything
//! in its place there. They are no part of the lane's ring, which ended with it: the first one reserves memory, for one
//! record (or, where batches are padded, for a batch), and it goes round again when it is dropped.
//!
//! As with the ring's, nobody who lets go of one waits for its device: when their lane goes, its prefetch thread
//! sees them home (`way_home.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, unbounded};

use super::batch::Batch;
use crate::batch::{BatchLayout, Frame};
use crate::device::Device;
use crate::error::FeedError;
use crate::prefetch::{Berth, LaneMeters, Returned, RingKeeper, Slot, Unsubmitted, submit};
use crate::round::Round;
use crate::way_home::WayHome;

/// Makes the empty batches of one lane.
pub(super) struct EmptyBatches {
    /// Before everything that holds slots.
    round: RingKeeper,
    device: Device,
    /// Of one record, or, where batches are padded, of as many as a batch has.
    layout: Arc<BatchLayout>,
    pads: bool,
    lane: usize,
    /// Of their own: the lane's tell what came through it.
    meters: Arc<LaneMeters>,
    /// Has as many as its consumer has held at once.
    free: Receiver<Returned>,
    home: WayHome<Returned>,
    /// Free, but for a device that may still be using them.
    resting: VecDeque<Slot>,
    /// Their device has failed: they go with the lane.
    failed: Vec<Slot>,
}

impl EmptyBatches {
    pub(super) fn new(device: &Device, layout: &Arc<BatchLayout>, pads: bool, lane: usize) -> Self {
        let (free_sender, free) = unbounded();
        let round = RingKeeper(Round::open());
        EmptyBatches {
            home: WayHome::new(free_sender, &round.0),
            round,
            device: device.clone(),
            layout: match layout.with_rows(1).filter(|_| !pads) {
                Some(layout) => Arc::new(layout),
                None => layout.clone(),
            },
            pads,
            lane,
            meters: Arc::default(),
            free,
            resting: VecDeque::new(),
            failed: Vec::new(),
        }
    }

    /// Ends their round. What is returned brings home those that are here, and later those that are still held; it
    /// is for a thread that may wait for their device ([`see_home`](crate::way_home::see_home)).
    pub(super) fn leave(&mut self) -> Receiver<Returned> {
        self.round.0.close();
        // Those whose device has failed first, as in a ring.
        for slot in self.failed.drain(..).chain(self.resting.drain(..)) {
            let _ = self.home.send(Returned { slot, released: Ok(()) });
        }
        // Only those that are held keep the way open.
        self.home = WayHome::nowhere();
        self.free.clone()
    }

    /// Whether somebody still holds one.
    pub(super) fn are_held(&self) -> bool {
        self.home.has_slots_out()
    }

    /// A batch without records, on its way to the device.
    pub(super) fn make(&mut self) -> Result<Batch, FeedError> {
        let Slot { berth, frame } = self.slot()?;
        let filling = frame.begin(&self.layout);
        let pending = if self.pads { filling.finish_padded() } else { filling.finish() };
        let delivered = submit(berth, pending).map_err(|Unsubmitted { error, slot }| {
            self.failed.extend(slot.map(|slot| *slot));
            error
        })?;
        self.meters.held.fetch_add(1, Ordering::Relaxed);
        Ok(Batch::new(delivered, self.lane, &self.home, &self.meters))
    }

    /// One that is used no more, or a new one.
    fn slot(&mut self) -> Result<Slot, FeedError> {
        for Returned { slot, released } in self.free.try_iter() {
            match released {
                Ok(()) => self.resting.push_back(slot),
                Err(error) => {
                    self.failed.push(slot);
                    return Err(error.into());
                }
            }
        }
        let mut passages = self.resting.iter().map(|slot| &*slot.berth.passage);
        if let Some((place, is_unused)) = self.device.backend().first_unused(&mut passages) {
            is_unused?;
            return Ok(self.resting.remove(place).expect("it was just looked at"));
        }
        let (memory, room) = self.device.host_memory(self.layout.room())?;
        let passage = self.device.backend().passage(room)?;
        // Nobody waits for its writers: there are none, or they are done before it is pending.
        let (done, _) = crossbeam_channel::bounded(1);
        let frame = Frame::new(memory, self.layout.rows(), done);
        Ok(Slot { berth: Berth { passage, step: None, room, token: self.round.0.token() }, frame })
    }
}

impl fmt::Debug for EmptyBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmptyBatches").field("device", &self.device).field("lane", &self.lane).finish()
    }
}
