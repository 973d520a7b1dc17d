//! Batches without records, for a lane that has ended while others of its job continue.
//!
//! They go through a transfer of the lane's own device, like any batch, so that the consumer finds everything
//! where it expects it. They are not part of the lane's ring, which ended with the lane. The first one
//! allocates memory for one record (or for one batch, if batches are padded), and is reused when it is
//! dropped.
//!
//! As with the ring's batches, dropping one never waits for its device: when the lane is dropped, its
//! prefetch thread waits for them (`return_queue.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use super::error::FeedError;
use crate::base::return_queue::ReturnQueue;
use crate::base::slot_account::SlotAccount;
use crate::base::sync::atomic::Ordering;
use crate::base::sync::{Receiver, bounded, unbounded};
use crate::batch::{BatchLayout, Frame};
use crate::device::Device;
use crate::prefetch::{LaneMeters, Returned, RingKeeper, Slot, SlotHeader, Unsubmitted, submit};

/// Makes the empty batches of one lane.
pub(super) struct EmptyBatches {
    /// Declared, hence dropped, before everything that holds slots.
    account: RingKeeper,
    device: Device,
    /// The layout of one record, or of a whole batch if batches are padded.
    layout: Arc<BatchLayout>,
    pads: bool,
    lane: usize,
    /// Separate meters: the lane's count what came through it.
    meters: Arc<LaneMeters>,
    /// Has as many slots as its consumer has held at once.
    free: Receiver<Returned>,
    returns: ReturnQueue<Returned>,
    /// Free, except that a device may still be using them.
    resting: VecDeque<Slot>,
    /// Their device has failed: they are dropped with the lane.
    failed: Vec<Slot>,
}

impl EmptyBatches {
    pub(super) fn new(device: &Device, layout: &Arc<BatchLayout>, pads: bool, lane: usize) -> Self {
        let (free_sender, free) = unbounded();
        let account = RingKeeper(SlotAccount::open());
        EmptyBatches {
            returns: ReturnQueue::new(free_sender, &account.0),
            account,
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

    /// Ends their reuse. The receiver yields the slots that are here, and later those that are still held; it
    /// is for a thread that may wait for their device
    /// ([`await_returned`](crate::base::return_queue::await_returned)).
    pub(super) fn close(&mut self) -> Receiver<Returned> {
        self.account.0.close();
        // Those whose device has failed come first, as in a ring.
        for slot in self.failed.drain(..).chain(self.resting.drain(..)) {
            let _ = self.returns.send(Returned { slot, released: Ok(()) });
        }
        // From here on only batches that are held keep the queue open.
        self.returns = ReturnQueue::nowhere();
        self.free.clone()
    }

    /// Whether one is still held.
    pub(super) fn are_held(&self) -> bool {
        self.returns.has_slots_out()
    }

    /// Returns a batch without records, on its way to the device.
    pub(super) fn make(&mut self) -> Result<Batch, FeedError> {
        let Slot { header, frame } = self.slot()?;
        let filling = frame.begin(&self.layout);
        let pending = if self.pads { filling.finish_padded() } else { filling.finish() };
        let delivered = submit(header, pending, None, |_| {}).map_err(|Unsubmitted { error, slot }| {
            self.failed.extend(slot.map(|slot| *slot));
            error
        })?;
        self.meters.held.fetch_add(1, Ordering::Relaxed);
        Ok(Batch::new(delivered, self.lane, &self.returns, &self.meters))
    }

    /// Returns a slot that is no longer used, or a new one.
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
        let mut transfers = self.resting.iter().map(|slot| &*slot.header.transfer);
        if let Some((place, is_unused)) = self.device.backend().first_unused(&mut transfers) {
            let slot = self.resting.remove(place).expect("it was just found");
            if let Err(error) = is_unused {
                self.failed.push(slot);
                return Err(error.into());
            }
            return Ok(slot);
        }
        let (memory, capacity) = self.device.host_memory(self.layout.capacity())?;
        let transfer = self.device.backend().transfer(capacity)?;
        // It is not waited for: it has no writers, or they are done before it is pending.
        let (done, _) = bounded(1);
        let frame = Frame::new(memory, self.layout.rows(), done);
        Ok(Slot {
            header: SlotHeader { transfer, step: None, batch: 0, capacity, token: self.account.0.token() },
            frame,
        })
    }
}

impl fmt::Debug for EmptyBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmptyBatches").field("device", &self.device).field("lane", &self.lane).finish()
    }
}
