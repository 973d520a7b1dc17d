//! A slot of a lane's ring, in the states of its buffer, and its ways to the device and back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::meters::LaneMeters;
use super::tolerance::Tolerance;
use crate::bad::BadAction;
use crate::base::return_queue::ReturnQueue;
use crate::base::slot_account::SlotToken;
use crate::base::sync::atomic::Ordering;
use crate::base::sync::panic_message;
use crate::base::trace;
use crate::batch::memory::NoMemory;
use crate::batch::{Filled, Frame, Pending};
use crate::device::{Capacity, Device, DeviceError, HostBatch, Transfer};
use crate::feed::FeedError;
use crate::record::StepEnd;

/// The part of a slot in a lane's ring that is the same in all states of its buffer.
pub(crate) struct SlotHeader {
    pub(crate) transfer: Box<dyn Transfer>,
    /// The step of its batch, if known.
    pub(crate) step: Option<StepEnd>,
    /// The number of its batch in the lane, for traces.
    pub(crate) batch: u64,
    /// The capacity of the transfer.
    pub(crate) capacity: Capacity,
    pub(crate) token: SlotToken,
}

/// A slot of the ring whose buffer is not in use.
pub(crate) struct Slot {
    /// Before the memory, which the device may still be reading: dropping a transfer waits until the device
    /// no longer reads it.
    pub(crate) header: SlotHeader,
    pub(crate) frame: Frame,
}

/// A slot that returns from the consumer, which has dropped its batch.
pub(crate) struct Returned {
    pub(crate) slot: Slot,
    /// Whether the release by its device succeeded. If not, the slot is not used again.
    pub(crate) released: Result<(), DeviceError>,
}

/// A batch that did not reach its consumer, and why.
pub(crate) struct Unsubmitted {
    pub(crate) error: FeedError,
    /// Memory that its device may be using nevertheless.
    pub(crate) slot: Option<Box<Slot>>,
}

/// A complete batch that is in transfer to the consumer or held by it.
pub(crate) struct Delivered {
    /// Before the memory, as in [`Slot`].
    pub(crate) header: SlotHeader,
    pub(crate) filled: Filled,
}

impl Delivered {
    /// Recycles the slot of a batch that is not wanted.
    pub(crate) fn into_slot(self) -> Slot {
        Slot { header: self.header, frame: self.filled.recycle() }
    }
}

/// Enlarges a slot for a batch larger than any before it. This is one of the few cases in which the record
/// path allocates (docs/design.md, "The memory budget").
pub(super) fn grow(slot: &mut Slot, device: &Device, capacity: Capacity) -> Result<(), FeedError> {
    tracing::info!(
        bytes = capacity.bytes,
        had = slot.header.capacity.bytes,
        "a batch is larger than any before it"
    );
    // The old ones are dropped first, so that there need not be room for both; and the transfer before the
    // memory, which it may be reading until it is dropped.
    slot.header.transfer = Device::nowhere();
    slot.frame.replace_memory(Box::new(NoMemory));
    let (memory, capacity) = device.host_memory(capacity)?;
    slot.header.transfer = device.backend().transfer(capacity)?;
    slot.header.capacity = capacity;
    slot.frame.replace_memory(memory);
    Ok(())
}

/// Submits a complete batch to its device, after `mix` has changed it. A batch without a record needs no
/// tolerance.
pub(crate) fn submit(
    header: SlotHeader,
    pending: Pending,
    tolerance: Option<&mut Tolerance>,
    mix: impl FnOnce(&mut Filled),
) -> Result<Delivered, Unsubmitted> {
    if let Some(error) = pending.failure() {
        header.token.close_account();
        // Parameters are dropped in reverse order, and the transfer must go before the memory.
        drop(header);
        return Err(Unsubmitted { error: error.into(), slot: None });
    }
    // Together from here on, so that on every path the transfer is dropped before the memory that it may be
    // reading.
    let action = tolerance.as_ref().map_or(BadAction::Fail, |tolerance| tolerance.policy.action);
    let mut delivered = Delivered { header, filled: pending.filled(action) };
    let step = delivered.header.step;
    if let Some(Err(error)) = tolerance.map(|tolerance| tolerance.count(&delivered.filled, step)) {
        delivered.header.token.close_account();
        return Err(Unsubmitted { error, slot: Some(Box::new(delivered.into_slot())) });
    }
    let Delivered { header, filled } = &mut delivered;
    mix(filled);
    let batch = HostBatch::new(filled);
    if let Err(error) = header.transfer.submit(batch) {
        header.token.close_account();
        return Err(Unsubmitted { error: error.into(), slot: Some(Box::new(delivered.into_slot())) });
    }
    Ok(delivered)
}

/// Returns a batch that the consumer of a lane drops. Never panics: a framework may call it from C.
pub(crate) fn give_back(
    mut delivered: Delivered,
    lane: usize,
    queue: &ReturnQueue<Returned>,
    meters: &LaneMeters,
) {
    meters.held.fetch_sub(1, Ordering::Relaxed);
    let SlotHeader { transfer, batch, .. } = &mut delivered.header;
    let release = || {
        trace::moment!("returned", meters.feed, lane, *batch);
        transfer.release()
    };
    let released = catch_unwind(AssertUnwindSafe(release)).unwrap_or_else(|panic| {
        // The slot must not be used again, and the lane, which would wait for it, ends.
        let message = format!("it panicked: {}", panic_message(&*panic));
        Err(DeviceError::Call { device: format!("the device of lane {lane}"), call: "release", message })
    });
    if released.is_err() {
        delivered.header.token.close_account();
    }
    // If the lane has gone and does not take it any more, it is dropped here: its device makes nothing wait.
    let _ = queue.send(Returned { slot: delivered.into_slot(), released });
}
