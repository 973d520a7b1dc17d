//! Entries found by their place, without the table's index.

use std::ops::Range;

use super::block::{BlockCursor, TRAILER_BYTES, Value};
use super::deferred::{Unverified, Verify};
use super::error::TableError;
use super::footer::BlockHandle;

/// The place of an entry: its block's handle in the file, and the entry's offset in the uncompressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// Where in the file the entry's block starts.
    pub offset: u64,
    /// The block's length without its type and checksum.
    pub bytes: u64,
    /// Where in the uncompressed block the entry starts.
    pub entry: usize,
}

impl EntryPlace {
    /// Returns the range of the entry's block, with its type and checksum, in a table of `file_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`TableError::Place`] if no block can be there.
    pub fn block(&self, file_bytes: u64) -> Result<Range<u64>, TableError> {
        let EntryPlace { offset, bytes, .. } = *self;
        let end = offset.checked_add(bytes).and_then(|end| end.checked_add(TRAILER_BYTES as u64));
        let end = end.filter(|&end| end <= file_bytes);
        end.map(|end| offset..end).ok_or_else(|| {
            let to = usize::try_from(file_bytes).unwrap_or(usize::MAX);
            TableError::Place { offset, bytes, from: 0, to }
        })
    }

    /// Returns the place of the same entry relative to [its block](Self::block), for a caller that has only
    /// the block.
    #[must_use]
    pub fn in_block(self) -> Self {
        EntryPlace { offset: 0, ..self }
    }
}

/// Goes to entries of a table by place. Places are not trusted. The cursor keeps its current block, so
/// further entries of the same block are found quickly.
#[derive(Debug)]
pub struct PlaceCursor {
    data: BlockCursor,
    /// The offset and length of the current block.
    block: Option<(u64, u64)>,
    /// Whether the cursor is at an entry of that block.
    is_at_entry: bool,
}

impl PlaceCursor {
    /// Returns a cursor at no entry. It refuses keys longer than `key_bytes_max`.
    #[must_use]
    pub fn new(key_bytes_max: usize) -> Self {
        PlaceCursor { data: BlockCursor::new(key_bytes_max), block: None, is_at_entry: false }
    }

    /// Leaves the table.
    pub fn clear(&mut self) {
        self.data.clear();
        (self.block, self.is_at_entry) = (None, false);
    }

    /// Goes to the entry at `place`; returns `false` if no entry starts there. `file` must be the same table
    /// in every call until [`clear`](Self::clear). An uncompressed block is verified when it is entered, or
    /// its checksum is deferred.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no such block, or it is damaged.
    pub fn go_to(&mut self, file: &[u8], place: EntryPlace, verify: Verify) -> Result<bool, TableError> {
        let EntryPlace { offset, bytes, entry } = place;
        if self.block != Some((offset, bytes)) {
            self.clear();
            self.data.load(file, BlockHandle { offset, bytes }, 0..file.len(), verify)?;
            self.block = Some((offset, bytes));
        }
        if self.is_at_entry && self.data.current() > entry {
            self.data.rewind();
            self.is_at_entry = false;
        }
        while !self.is_at_entry || self.data.current() < entry {
            match self.data.advance(file) {
                Ok(true) => self.is_at_entry = true,
                Ok(false) => return Ok(false),
                Err(error) => {
                    let error = self.data.blame(file, error);
                    self.clear();
                    return Err(error);
                }
            }
        }
        Ok(self.data.current() == entry)
    }

    /// Verifies the current block, unless that is done already.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if it is damaged.
    pub fn verify(&mut self, file: &[u8]) -> Result<(), TableError> {
        self.data.verify(file)
    }

    /// Returns the key of the entry.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.data.key()
    }

    /// Returns where its value is stored.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.data.value()
    }

    /// Returns the current block's deferred checksum, as long as the block is unverified.
    #[inline]
    #[must_use]
    pub fn unverified(&self) -> Option<&Unverified> {
        self.data.unverified()
    }
}
