//! How the readers of several files share their buffers.

use std::cell::RefCell;

/// The buffers of a reader that copies records.
#[derive(Debug, Default)]
pub struct Buffers {
    /// For several small records.
    pub window: Vec<u8>,
    /// For one value.
    pub value: Vec<u8>,
}

/// Buffers that no reader uses at the moment. The readers of several files share them: one that is set aside,
/// or is at its end, puts its buffers here, and the next one takes them. Otherwise their memory would grow
/// with the number of files.
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
