//! Entries that are found by where they lie, without the table's index.

use std::ops::Range;

use super::block::{BlockCursor, TRAILER_BYTES, Value};
use super::deferred::{Unverified, Verify};
use super::error::TableError;
use super::footer::BlockHandle;

/// Where an entry lies: in which block, and where that starts in the file; and where in the block, uncompressed, the
/// entry starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// Where in the file its block starts.
    pub offset: u64,
    /// The block's length without type and checksum.
    pub bytes: u64,
    /// Where in the block, uncompressed, it starts.
    pub entry: usize,
}

impl EntryPlace {
    /// Where its block lies in a table of so many bytes, with its type and its checksum.
    ///
    /// # Errors
    ///
    /// [`TableError::Place`] if none can lie there.
    pub fn block(&self, file_bytes: u64) -> Result<Range<u64>, TableError> {
        let EntryPlace { offset, bytes, .. } = *self;
        let end = offset.checked_add(bytes).and_then(|end| end.checked_add(TRAILER_BYTES as u64));
        let end = end.filter(|&end| end <= file_bytes);
        end.map(|end| offset..end).ok_or_else(|| {
            let to = usize::try_from(file_bytes).unwrap_or(usize::MAX);
            TableError::Place { offset, bytes, from: 0, to }
        })
    }

    /// The same entry, for whoever has [its block](Self::block) alone.
    #[must_use]
    pub fn in_block(self) -> Self {
        EntryPlace { offset: 0, ..self }
    }
}

/// Goes to entries of a table by their places, which nobody has vouched for. It keeps the block that it is in, so that
/// what lies in the same one is found soon.
#[derive(Debug)]
pub struct PlaceCursor {
    data: BlockCursor,
    /// The block that it is in.
    block: Option<(u64, u64)>,
    /// Whether it is at an entry of it.
    is_at_entry: bool,
}

impl PlaceCursor {
    /// At no entry; it will refuse a longer key than that.
    #[must_use]
    pub fn new(key_bytes_max: usize) -> Self {
        PlaceCursor { data: BlockCursor::new(key_bytes_max), block: None, is_at_entry: false }
    }

    /// Leaves the table.
    pub fn leave(&mut self) {
        self.data.clear();
        (self.block, self.is_at_entry) = (None, false);
    }

    /// Goes to the entry at a place of a table, which is the same one until [`leave`](Self::leave); `false` if none
    /// starts there. A block that is not compressed is verified when it is entered, or sealed.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no block, or it is damaged.
    pub fn go_to(&mut self, file: &[u8], place: EntryPlace, verify: Verify) -> Result<bool, TableError> {
        let EntryPlace { offset, bytes, entry } = place;
        if self.block != Some((offset, bytes)) {
            self.leave();
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
                    self.leave();
                    return Err(error);
                }
            }
        }
        Ok(self.data.current() == entry)
    }

    /// Verifies the block that it is in, if that is still to be done.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if it is damaged.
    pub fn verify(&mut self, file: &[u8]) -> Result<(), TableError> {
        self.data.verify(file)
    }

    /// The key of the entry.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.data.key()
    }

    /// Where its value lies.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.data.value()
    }

    /// The block's seal, as long as it has not been verified.
    #[inline]
    #[must_use]
    pub fn unverified(&self) -> Option<&Unverified> {
        self.data.unverified()
    }
}
