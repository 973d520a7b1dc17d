//! What cursors keep in memory, and how the cursors of joined sources share it.

use std::cell::RefCell;

/// The buffers of a cursor that copies its records.
#[derive(Debug, Default)]
pub struct Buffers {
    /// For several small records.
    pub window: Vec<u8>,
    /// For one value.
    pub value: Vec<u8>,
}

/// Buffers that no cursor uses at the moment. The cursors over joined sources share them: one that is set
/// aside, or is at its end, puts its buffers here, and the next one takes them. Otherwise their memory would
/// grow with the number of sources.
#[derive(Debug, Default)]
pub struct SpareBuffers(RefCell<Buffers>);

impl SpareBuffers {
    /// Keeps buffers; of two, the larger one.
    pub fn put(&self, buffers: Buffers) {
        let Buffers { window, value } = &mut *self.0.borrow_mut();
        for (kept, new) in [(window, buffers.window), (value, buffers.value)] {
            if kept.capacity() < new.capacity() {
                *kept = new;
            }
        }
    }

    /// Takes the buffers that were put there; empty ones if there are none.
    #[must_use]
    pub fn take(&self) -> Buffers {
        self.0.take()
    }
}

/// The memory that a cursor keeps, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBytes {
    /// It keeps this also while another source is read.
    pub own: usize,
    /// The cursors of joined sources [share](super::Cursor::share_buffers) this: each counts all of it.
    pub shared: usize,
}

impl HeldBytes {
    /// Both together.
    #[must_use]
    pub fn total(self) -> usize {
        self.own.saturating_add(self.shared)
    }
}
