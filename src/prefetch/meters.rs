//! The counters of a lane.

use std::sync::Arc;

use crate::base::meter::{Count, WaitMeter};
use crate::base::sync::atomic::{AtomicUsize, Ordering};

/// The counters of one lane. Batches, records and bytes count what the consumer has taken.
#[derive(Debug, Default)]
pub(crate) struct LaneMeters {
    /// The number of the feed, for [traces](crate::trace).
    pub(crate) feed: u64,
    pub(crate) batches: Count,
    pub(crate) records: Count,
    pub(crate) pixel_bytes: Count,
    pub(crate) host_bytes: Count,
    /// Waits of the prefetcher for records.
    pub(crate) for_records: WaitMeter,
    /// Waits of the prefetcher for its consumer to drop a batch.
    pub(crate) for_slot: WaitMeter,
    /// Waits of the prefetcher for the device, which still uses what the consumer has dropped.
    pub(crate) for_device: WaitMeter,
    /// Waits of the prefetcher for the workers, with nothing else to do.
    pub(crate) for_workers: WaitMeter,
    /// Waits of the prefetcher for other lanes: its batches, or its end, must come after their batches. A
    /// deeper ring would not shorten them.
    pub(crate) for_lanes: WaitMeter,
    /// Waits of the consumer for a batch, except for those in `for_itself`. The governor watches them.
    pub(crate) for_batch: Arc<WaitMeter>,
    /// Its waits that began while it held all batches of the ring: only it can end them. A wait is counted in
    /// one of the two, so that neither ever falls.
    pub(crate) for_itself: Arc<WaitMeter>,
    /// Bad records of the batches that the consumer has taken.
    pub(crate) bad_records: Count,
    /// How often a buffer grew because a batch was larger than any before it.
    pub(crate) growths: Count,
    /// The number of batches in the ring.
    pub(crate) ring: AtomicUsize,
    /// The number of batches that have their first record, and were not handed over to the consumer.
    pub(crate) filling: AtomicUsize,
    /// The number of complete batches that wait for the consumer.
    pub(crate) ready: AtomicUsize,
    /// The number of batches that the consumer holds.
    pub(crate) held: AtomicUsize,
}

impl LaneMeters {
    /// The number of batches that the consumer holds, if those are all that the ring has: it gets no more
    /// until it drops one.
    pub(crate) fn all_held(&self) -> Option<usize> {
        let held = self.held.load(Ordering::Relaxed);
        (held >= self.ring.load(Ordering::Relaxed)).then_some(held)
    }

    /// The meter of a wait of the consumer that begins now.
    pub(crate) fn of_consumer(&self, is_for_itself: bool) -> &Arc<WaitMeter> {
        if is_for_itself { &self.for_itself } else { &self.for_batch }
    }
}
