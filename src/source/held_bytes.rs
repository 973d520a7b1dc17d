//! The memory that cursors keep.

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
