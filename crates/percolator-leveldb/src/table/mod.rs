//! Sorted string tables: the file format of LevelDB's tables and of TensorFlow's checkpoint index.
//!
//! ```text
//! data block ... | filters | index block | footer
//! block:  bytes, compressed or not | type: 1 byte | masked crc32c of both: 4 bytes
//! index:  one entry per data block: a key not less than the block's last key, and the block's handle
//! ```
//!
//! The caller defines what a key is made of and how keys are ordered. Reading in file order needs no key
//! order; a seek takes a function that decides whether a key comes before the target.
//!
//! Bytes are not trusted. A block's checksum is verified when the block is entered. For an uncompressed block
//! the cursor may instead defer the verification to the user of the values ([`Verify`]). Every length is
//! checked against the bytes that are there before it is used. Data blocks must follow one another and
//! precede the index, as every writer puts them. A pass therefore takes time linear in what the file can
//! hold, except for keys.
//!
//! A key is stored as its difference from the key before it, so an entry of a few bytes can have a key of any
//! length. The caller therefore sets the longest key allowed; the limit is checked once per entry.
//!
//! Memory: a cursor's buffers grow to its largest index block and its largest data block, uncompressed.
//! Snappy yields at most 64/3 of its input; the claimed length is checked against that before memory is
//! allocated. The blocks of a file do not overlap, so a cursor holds at most 22 times the file's length, also
//! while a buffer grows. On top of that it holds two keys, in buffers that double up to the longest key
//! allowed.
//!
//! ```no_run
//! use percolator_leveldb::table::{TableCursor, Verify};
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
//! [`TableCursor`] reads entries in order; [`PlaceCursor`] goes to an entry whose place is known. Other
//! threads may unpack blocks ahead of a cursor ([`Shelf`], [`unpack_ahead`]) and verify blocks behind it
//! ([`DeferredChecksum`]).
//!
//! [`TableBuilder`] writes a table, byte for byte as TensorFlow does: keys in the order of their bytes. It
//! also writes tables of LevelDB's keys ([`Keys::Tagged`]).

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod block;
mod builder;
mod deferred;
mod error;
mod footer;
mod place;
mod shelf;
mod unpack;

pub use self::block::Value;
pub use self::builder::{BuildError, Compression, Keys, TableBuilder, TableOptions};
pub use self::deferred::{DeferredChecksum, Unverified, Verify};
pub use self::error::TableError;
pub use self::place::{EntryPlace, PlaceCursor};
pub use self::shelf::{Following, NoShelf, Shelf};
pub use self::unpack::unpack_ahead;

use std::ops::Range;

use self::block::BlockCursor;
use self::footer::{BlockHandle, read_footer};
use crate::coding::Coded;

/// Reads a table's entries in file order. A cursor can be moved from table to table and keeps its buffers.
#[derive(Debug)]
pub struct TableCursor<B> {
    /// The bytes of the file; `None` while no table is open.
    file: Option<B>,
    /// Its current entry is the one for the block in `data`.
    index: BlockCursor,
    data: BlockCursor,
    /// Where data blocks end: at the index block.
    data_end: usize,
    /// Where the next data block may start: data blocks follow one another.
    data_next: usize,
    /// The setting of the open table.
    verify: Verify,
    /// The last block the cursor left whose verification someone else took.
    left: Option<DeferredChecksum>,
    /// Why no block after the current one can be entered: a caller that tries again must not get a block
    /// after the damage, as if nothing were missing.
    failed: Option<TableError>,
}

impl<B: AsRef<[u8]>> TableCursor<B> {
    /// Returns a cursor with no table open. It refuses keys longer than `key_bytes_max`, in the index too.
    pub fn new(key_bytes_max: usize) -> Self {
        let (index, data) = (BlockCursor::new(key_bytes_max), BlockCursor::new(key_bytes_max));
        let (file, verify, left, failed) = (None, Verify::AtOnce, None, None);
        TableCursor { file, index, data, data_end: 0, data_next: 0, verify, left, failed }
    }

    /// Opens another table and moves before its first entry.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the bytes are not a table, or its index block is damaged.
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

    /// Closes the table; the cursor is then at its end.
    pub fn close(&mut self) {
        self.index.clear();
        self.data.clear();
        self.data_next = 0;
        self.left = None;
        self.failed = None;
        self.file = None;
    }

    /// Moves to the next entry; returns `false` past the last one.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a block is damaged, and again until the cursor [seeks](Self::seek) or
    /// [opens](Self::open) a table.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, TableError> {
        self.advance_with(&mut NoShelf)
    }

    /// Moves to the next entry, using blocks that `shelf` may have unpacked; returns `false` past the last
    /// one.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    #[inline]
    pub fn advance_with(&mut self, shelf: &mut impl Shelf) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        match self.data.advance(file.as_ref()) {
            Ok(true) => Ok(true),
            Ok(false) => self.advance_block(shelf),
            Err(error) => Err(self.data.blame(file.as_ref(), error)),
        }
    }

    /// Moves to the first entry of the next block that has one.
    fn advance_block(&mut self, shelf: &mut impl Shelf) -> Result<bool, TableError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let entered = self.enter_block(shelf);
        self.failed = entered.as_ref().err().cloned();
        entered
    }

    fn enter_block(&mut self, shelf: &mut impl Shelf) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        let file = file.as_ref();
        loop {
            // If the checksum was not taken, no other thread verifies this block: it has no entry, or its
            // entries were skipped.
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

    /// Verifies the current block, unless that is done already.
    ///
    /// # Errors
    ///
    /// [`TableError::Checksum`] if it is damaged.
    pub fn verify(&mut self) -> Result<(), TableError> {
        let Some(file) = &self.file else { return Ok(()) };
        self.data.verify(file.as_ref())
    }

    /// Verifies the blocks of the current entry and of the one before it, if their verification was deferred.
    /// When two neighbouring keys contradict each other, either block may be the damaged one.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn suspect(&self) -> Result<(), TableError> {
        let Some(file) = &self.file else { return Ok(()) };
        let checksums = [self.left, self.data.unverified().map(Unverified::checksum)];
        checksums.iter().flatten().try_for_each(|checksum| checksum.check(file.as_ref(), 0))
    }

    /// Returns the current block's deferred checksum, as long as the block is unverified.
    #[inline]
    pub fn unverified(&self) -> Option<&Unverified> {
        self.data.unverified()
    }

    /// Returns the index's key for the current block. No key of the block is greater.
    #[inline]
    pub fn index_key(&self) -> &[u8] {
        self.index.key()
    }

    /// Moves to the first entry whose key is not `before` the target; returns `false` if all are. Keys for
    /// which `before` holds must precede those for which it does not.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a block is damaged.
    pub fn seek(&mut self, before: impl Fn(&[u8]) -> bool) -> Result<bool, TableError> {
        self.data.clear();
        self.failed = None;
        let found = self.find(before);
        if let Err(error) = &found {
            self.data.clear();
            self.failed = Some(error.clone());
        }
        found
    }

    fn find(&mut self, before: impl Fn(&[u8]) -> bool) -> Result<bool, TableError> {
        let Some(file) = &self.file else { return Ok(false) };
        let file = file.as_ref();
        if !self.index.seek(file, &before)? {
            return Ok(false);
        }
        let handle = block_handle(&self.index, file)?;
        self.data_next = self.data.load(file, handle, 0..self.data_end, Verify::AtOnce)?;
        if self.data.seek(file, &before)? {
            return Ok(true);
        }
        let is_there = self.advance_block(&mut NoShelf)?;
        // The index says that no key of the next block is before the target. If one is, the index led past
        // some of the entries that were asked for, or not far enough.
        if is_there && before(self.data.key()) {
            return Err(self.index.damaged("its block starts before the key of the block before it"));
        }
        Ok(is_there)
    }

    /// Returns the key of the current entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.data.key()
    }

    /// Returns the value of the current entry.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> &[u8] {
        self.file.as_ref().map_or(&[], |file| self.data.value_bytes(file.as_ref()))
    }

    /// Returns where the value of the current entry is stored.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        self.data.value()
    }

    /// Returns whether the block was compressed, the current value is the last of the block, and the value
    /// fills most of the buffer it is in.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.data.whole_value().is_some()
    }

    /// Returns the key, the buffer and the value's range in it if [`is_whole`](Self::is_whole). The caller
    /// may exchange the buffer for another. The range starts further from the buffer's front than the key is
    /// long.
    pub fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        self.data.whole()
    }

    /// Returns the place of the current entry, for a later visit by [`PlaceCursor`].
    pub fn place(&self) -> Option<EntryPlace> {
        let BlockHandle { offset, bytes } = block_handle(&self.index, self.file.as_ref()?.as_ref()).ok()?;
        Some(EntryPlace { offset, bytes, entry: self.data.current() })
    }

    /// Returns whether the current entry is the only one of its block.
    pub fn is_alone(&self) -> bool {
        self.data.is_alone()
    }

    /// Returns the offset in the file where the current block starts.
    pub fn block_offset(&self) -> usize {
        self.data.offset()
    }

    /// Returns the open table.
    pub fn file(&self) -> Option<&B> {
        self.file.as_ref()
    }
}

/// Returns the handle of the data block that the index's current entry names.
fn block_handle(index: &BlockCursor, file: &[u8]) -> Result<BlockHandle, TableError> {
    // Bytes may follow the handle: the Java port pads each to twenty bytes, and LevelDB itself reads no
    // further.
    let handle = BlockHandle::read(&mut Coded::new(index.value_bytes(file)));
    handle.ok_or_else(|| index.damaged("its value is not a block handle"))
}

#[cfg(test)]
mod tests;
