//! How a cursor gets blocks that were unpacked before it reached them.
//!
//! Unpacking a block takes longer than reading its entries. It needs nothing from the cursor except the
//! block's location, and the index has the locations of all of a table's blocks. So other threads can unpack
//! the blocks ahead, and the cursor takes them as it reaches them. A block that was not supplied, or could
//! not be unpacked, is loaded by the cursor itself. So the cursor reports every fault of a block, when it
//! reaches that block.

use std::ops::Range;

use super::block::{self, BlockCursor};
use super::footer::BlockHandle;
use crate::coding::Coded;

/// Supplies unpacked blocks.
pub trait Shelf {
    /// Called when the cursor is about to enter a block; `following` are the blocks after it.
    fn come_to(&mut self, following: &Following<'_>);

    /// Returns the range in `buffer` of the verified, unpacked bytes of the block at `block` in the file. The
    /// shelf may exchange `buffer` for another. Returns `None` if the cursor is to load the block itself.
    fn take(&mut self, block: &Range<usize>, buffer: &mut Vec<u8>) -> Option<Range<usize>>;

    /// Called when the block last asked for has been entered, with its unpacked length, or `None` if it is
    /// uncompressed.
    fn entered(&mut self, unpacked_bytes: Option<usize>);
}

/// Supplies no blocks.
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

/// Supplies blocks if it is `Some`.
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

/// The blocks after the one that a cursor enters, as the table's index lists them.
#[derive(Debug)]
pub struct Following<'a> {
    pub(super) index: &'a BlockCursor,
    pub(super) file: &'a [u8],
    /// Where data blocks end: at the index.
    pub(super) data_end: usize,
}

impl Following<'_> {
    /// Returns the place in the index that names the first of them.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        self.index.next()
    }

    /// Returns the range of the block named at `place` in the index, and the next place. The block must not
    /// start before `from`. Returns `None` past the last block, and if the index is malformed: the cursor
    /// reports that when it gets there.
    #[inline]
    #[must_use]
    pub fn block_at(&self, place: usize, from: usize) -> Option<(Range<usize>, usize)> {
        let (value, next) = self.index.value_at(self.file, place)?;
        let handle = BlockHandle::read(&mut Coded::new(value))?;
        let (block, _) = block::locate(handle, &(from..self.data_end))?;
        Some((block, next))
    }
}
