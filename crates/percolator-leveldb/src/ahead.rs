//! What may unpack the blocks of tables ahead of a walk.

use crate::map::KeptTable;
use crate::table::{NoShelf, Shelf};

/// A [`Shelf`] for a walk through one table after the other.
pub trait Ahead: Shelf {
    /// Called when the walk is before the first block of a table; `None` is one that does not stay mapped.
    fn open(&mut self, _table: Option<&KeptTable>) {}

    /// Called when the walk has left its table.
    fn close(&mut self) {}

    /// Called when the walk starts again.
    fn restart(&mut self) {}

    /// Returns whether blocks are unpacked ahead of this walk.
    fn is_packed(&self) -> bool {
        false
    }

    /// Returns whether the walk may [give away](crate::MergeCursor::whole) the buffer that it is in: it has
    /// entered all blocks there.
    fn is_last(&self) -> bool {
        false
    }
}

impl Ahead for NoShelf {}
