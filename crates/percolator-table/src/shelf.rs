//! Where a walk finds blocks that were unpacked before it came to them.
//!
//! To unpack a block takes longer than to walk it, and needs nothing of the walk but where the block lies, which the
//! index says of all of a table's blocks. So whoever walks may have others unpack the blocks ahead, and bring them in as
//! the walk comes to them. What is not brought, or cannot be unpacked, the walk loads itself: whatever is wrong with a
//! block, it is the walk that finds it, in its place.

use std::ops::Range;

use super::block::{self, BlockCursor};
use super::coding::Coded;
use super::footer::BlockHandle;

/// Who brings unpacked blocks.
pub trait Shelf {
    /// The walk is about to enter a block, behind which `following` come.
    fn come_to(&mut self, following: &Following<'_>);

    /// Where in `buffer`, for which another may have been put, the bytes of the block are that lies at `block`;
    /// verified. `None` if the walk is to load it.
    fn take(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) -> Option<Range<usize>>;

    /// The block that was asked for last has been entered: it came to so many bytes, unless it is not compressed.
    fn entered(&mut self, unpacked_bytes: Option<usize>);
}

/// Nobody does.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoShelf;

impl Shelf for NoShelf {
    #[inline]
    fn come_to(&mut self, _following: &Following<'_>) {}

    #[inline]
    fn take(&mut self, _block: &Range<usize>, _buffer: &mut Vec<u8>) -> Option<Range<usize>> {
        None
    }

    #[inline]
    fn entered(&mut self, _unpacked_bytes: Option<usize>) {}
}

/// Somebody may.
impl<S: Shelf> Shelf for Option<S> {
    fn come_to(&mut self, following: &Following<'_>) {
        if let Some(shelf) = self {
            shelf.come_to(following);
        }
    }

    fn take(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) -> Option<Range<usize>> {
        self.as_mut()?.take(block, buffer)
    }

    fn entered(&mut self, unpacked_bytes: Option<usize>) {
        if let Some(shelf) = self {
            shelf.entered(unpacked_bytes);
        }
    }
}

/// The blocks behind the one that a walk enters, by the table's index.
#[derive(Debug)]
pub struct Following<'a> {
    pub(super) index: &'a BlockCursor,
    pub(super) file: &'a [u8],
    /// Where blocks end: at the index.
    pub(super) data_end: usize,
}

impl Following<'_> {
    /// Where the first of them is named: a place in the index.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        self.index.next()
    }

    /// Where the block lies that is named at a place in the index, not before `from`, and the next place. `None` behind
    /// the last, and where the index is not as it should be: the walk says so when it comes there.
    #[inline]
    #[must_use]
    pub fn block_at(&self, place: usize, from: usize) -> Option<(Range<usize>, usize)> {
        let (value, next) = self.index.value_at(self.file, place)?;
        let handle = BlockHandle::read(&mut Coded::new(value))?;
        let (block, _) = block::locate(handle, &(from..self.data_end))?;
        Some((block, next))
    }
}
