//! The memory of a wrapped device's batches: it is counted, and watched while the device still uses a batch.

#![expect(
    unsafe_code,
    reason = "a device reads a batch's memory behind the feed's back, and so does its watch"
)]

use std::sync::Arc;

use percolator::batch::HostMemory;
use percolator::device::HostBatch;
use twox_hash::XxHash3_128;

use crate::state::State;

/// Memory of the inner device.
#[derive(Debug)]
pub(crate) struct CountedMemory {
    inner: Box<dyn HostMemory>,
    state: Arc<State>,
}

impl CountedMemory {
    pub(crate) fn new(inner: Box<dyn HostMemory>, state: &Arc<State>) -> Self {
        state.note_living(|living| living.memories += 1);
        CountedMemory { inner, state: state.clone() }
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.state.note_living(|living| living.memories -= 1);
    }
}

// SAFETY: the inner memory keeps every promise of the trait, and lives as long as this does.
unsafe impl HostMemory for CountedMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.inner.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }
}

/// The memory of a batch that was submitted, and from its release on a hash of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The address as a number: a transfer is moved among threads.
    address: usize,
    bytes: usize,
    hash: Option<u128>,
}

impl Watch {
    /// Notes where a submitted batch is.
    pub(crate) fn of(batch: HostBatch<'_>) -> Self {
        let memory = batch.memory();
        Watch { address: memory.as_ptr() as usize, bytes: memory.len(), hash: None }
    }

    /// From here on, the batch must not be written to until its last use is over.
    pub(crate) fn begin(&mut self) {
        self.hash = Some(self.read());
    }

    /// Whether it was written to. Ends the watch.
    pub(crate) fn is_overwritten(&mut self) -> bool {
        self.hash.take().is_some_and(|hash| hash != self.read())
    }

    fn read(&self) -> u128 {
        // SAFETY: a transfer is dropped before the memory of its batches (`Transfer`), which has these bytes.
        // It reads them only between a submission and the end of the last use. They are not written in
        // between: a write is the bug that this looks for.
        let bytes = unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) };
        XxHash3_128::oneshot(bytes)
    }
}
