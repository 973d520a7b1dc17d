//! Sorted string tables: the file format of LevelDB's tables and of TensorFlow's checkpoint index.
//!
//! ```text
//! data block ... | filters | index block | footer
//! block:  bytes, compressed or not | type: 1 byte | masked crc32c of both: 4 bytes
//! index:  an entry a data block: a key not before its last key, and where the block lies
//! ```
//!
//! What a key is made of, and what order keys have, is the caller's: a walk needs no order, and a search is
//! given a function that tells what lies before the sought key.
//!
//! Bytes are not trusted. A checksum is verified whenever a block is entered, or, of one that is not compressed,
//! by whoever uses its values, where a walk was told so ([`Verify`]); and every length is checked against what is
//! there before it is used. Data blocks must follow one another and precede the index, as
//! every writer puts them, so that a walk takes time linear in what the file can hold, but for keys.
//!
//! Keys are stored by what they share with the key before them, so that an entry of a few bytes can have a key
//! of any length: it is the caller who says how long one may be, and compares it, once an entry.
//!
//! Memory: the buffers of a walk grow to its largest index block and data block, uncompressed; snappy yields
//! at most 64/3 of what it is given, which is checked before memory is asked for. The blocks of a file lie
//! apart, so a walk holds at most 22 times the file's length, also while a buffer grows, and beside that two
//! keys, in buffers that double up to the longest key allowed.
//!
//! ```no_run
//! use percolator_table::{TableCursor, Verify};
//!
//! let table = std::fs::read("000005.ldb")?;
//! let mut cursor = TableCursor::new(8 << 10); // no key is longer
//! cursor.open(&table[..], Verify::AtOnce)?;
//! while cursor.advance()? {
//!     println!("{:?} has {} bytes", cursor.key(), cursor.value_bytes().len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Beside the walk ([`TableCursor`]) there is a way to an entry whose place is known ([`PlaceCursor`]). Blocks may be
//! unpacked by others ahead of a walk ([`Shelf`], [`unpack_ahead`]), and be verified by others behind it ([`DeferredChecksum`]).

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod block;
pub mod checksum;
pub mod coding;
mod deferred;
mod error;
mod footer;
mod lines;
mod place;
mod shelf;
mod unpack;

pub use self::block::Value;
pub use self::deferred::{DeferredChecksum, Unverified, Verify};
pub use self::error::TableError;
pub use self::place::{EntryPlace, PlaceCursor};
pub use self::shelf::{Following, NoShelf, Shelf};
pub use self::unpack::unpack_ahead;

use std::ops::Range;

use self::block::BlockCursor;
use self::coding::Coded;
use self::footer::{BlockHandle, read_footer};

/// A walk over a table's entries, in the order of the file. It can be moved from table to table and keeps
/// its buffers.
#[derive(Debug)]
pub struct TableCursor<B> {
    /// The bytes of the file; `None` before the first.
    file: Option<B>,
    /// Its current entry is that of the block in `data`.
    index: BlockCursor,
    data: BlockCursor,
    /// Where data blocks end: at the index block.
    data_end: usize,
    /// Where the next data block may start: data blocks follow one another.
    data_next: usize,
    /// Of the table that is open.
    verify: Verify,
    /// The last block that was left while its verifying was another's.
    left: Option<DeferredChecksum>,
}

impl<B: AsRef<[u8]>> TableCursor<B> {
    /// A walk over nothing, which will refuse a longer key than that, in an index as well.
    pub fn new(key_bytes_max: usize) -> Self {
        let (index, data) = (BlockCursor::new(key_bytes_max), BlockCursor::new(key_bytes_max));
        let (file, verify, left) = (None, Verify::AtOnce, None);
        TableCursor { file, index, data, data_end: 0, data_next: 0, verify, left }
    }

    /// Goes before the first entry of another table.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the bytes are no table, or its index block is damaged.
    pub fn open(&mut self, file: B, verify: Verify) -> Result<(), TableError> {
        self.close();
        self.verify = verify;
        let bytes = file.as_ref();
        let (footer, index) = read_footer(bytes)?;
        self.index.load(bytes, index, 0..footer, Verify::AtOnce)?;
        self.data_end = self.index.offset();
        self.file = Some(file);
        Ok(())
    }

    /// Lets go of the table: the walk is at its end.
    pub fn close(&mut self) {
        self.index.clear();
        self.data.clear();
        self.data_next = 0;
        self.left = None;
        self.file = None;
    }

    /// Steps to the next entry; `false` past the last one.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a block is damaged.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, TableError> {
        self.advance_with(&mut NoShelf)
    }

    /// Steps to the next entry, by blocks that somebody may have unpacked; `false` past the last one.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a block is damaged.
    #[inline]
    pub fn advance_with(&mut self, shelf: &mut impl Shelf) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        match self.data.advance(file.as_ref()) {
            Ok(true) => Ok(true),
            Ok(false) => self.advance_block(shelf),
            Err(error) => Err(self.data.blame(file.as_ref(), error)),
        }
    }

    /// Steps to the first entry of the next block that has one.
    fn advance_block(&mut self, shelf: &mut impl Shelf) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        let file = file.as_ref();
        loop {
            // Nobody else may know of a block that had no entry, or whose entries were passed over.
            match self.data.unverified() {
                Some(unverified) if unverified.is_taken() => self.left = Some(unverified.checksum()),
                _ => self.data.verify(file)?,
            }
            if !self.index.advance(file)? {
                return Ok(false);
            }
            shelf.come_to(&Following { index: &self.index, file, data_end: self.data_end });
            let handle = block_handle(&self.index, file)?;
            let allowed = self.data_next..self.data_end;
            self.data_next = self.data.load_from(shelf, file, handle, allowed, self.verify)?;
            match self.data.advance(file) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => return Err(self.data.blame(file, error)),
            }
        }
    }

    /// Verifies the current block, if that is still to be done.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if it is damaged.
    pub fn verify(&mut self) -> Result<(), TableError> {
        let Some(file) = &self.file else { return Ok(()) };
        self.data.verify(file.as_ref())
    }

    /// Verifies the blocks that the current entry and the one before it lie in, where that was left to others:
    /// what seems wrong about an entry's key may be the other's fault.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn suspect(&self) -> Result<(), TableError> {
        let Some(file) = &self.file else { return Ok(()) };
        let checksums = [self.left, self.data.unverified().map(Unverified::checksum)];
        checksums.iter().flatten().try_for_each(|checksum| checksum.check(file.as_ref(), 0))
    }

    /// The current block's seal, as long as it has not been verified.
    #[inline]
    pub fn unverified(&self) -> Option<&Unverified> {
        self.data.unverified()
    }

    /// The key that the index has for the current block: none of the block's is behind it.
    #[inline]
    pub fn index_key(&self) -> &[u8] {
        self.index.key()
    }

    /// Steps to the first entry whose key is not `before` the one that is sought; `false` if all are. Keys
    /// that are before it must precede those that are not.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a block is damaged.
    pub fn seek(&mut self, before: impl Fn(&[u8]) -> bool) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        let file = file.as_ref();
        self.data.clear();
        if !self.index.seek(file, &before)? {
            return Ok(false);
        }
        let handle = block_handle(&self.index, file)?;
        self.data_next = self.data.load(file, handle, 0..self.data_end, Verify::AtOnce)?;
        if self.data.seek(file, &before)? {
            return Ok(true);
        }
        self.advance_block(&mut NoShelf)
    }

    /// The key of the current entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.data.key()
    }

    /// The value of the current entry.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> &[u8] {
        self.file.as_ref().map_or(&[], |file| self.data.value_bytes(file.as_ref()))
    }

    /// Where the value of the current entry lies.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.data.value()
    }

    /// Whether the value of the current entry is the last of its block, which was compressed, and most of the buffer
    /// that it lies in.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.data.whole_value().is_some()
    }

    /// The key of such an entry, the buffer, which may be exchanged for another, and where in it the value lies: further
    /// from its front than the key is long.
    pub fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        self.data.whole()
    }

    /// Where the current entry lies, for whoever comes back to it ([`PlaceCursor`]).
    pub fn place(&self) -> Option<EntryPlace> {
        let BlockHandle { offset, bytes } = block_handle(&self.index, self.file.as_ref()?.as_ref()).ok()?;
        Some(EntryPlace { offset, bytes, entry: self.data.current() })
    }

    /// Whether the current entry is the only one of its block.
    pub fn is_alone(&self) -> bool {
        self.data.is_alone()
    }

    /// Where in the file the current block starts.
    pub fn block_offset(&self) -> usize {
        self.data.offset()
    }

    /// The table that is open.
    pub fn file(&self) -> Option<&B> {
        self.file.as_ref()
    }
}

/// Where the data block lies that the current entry of an index names.
fn block_handle(index: &BlockCursor, file: &[u8]) -> Result<BlockHandle, TableError> {
    let mut coded = Coded::new(index.value_bytes(file));
    let handle = BlockHandle::read(&mut coded).filter(|_| coded.is_empty());
    handle.ok_or_else(|| index.damaged("its value is no block handle"))
}

#[cfg(test)]
mod tests;
