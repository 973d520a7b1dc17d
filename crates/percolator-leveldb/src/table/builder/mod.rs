//! Writes a table.

mod block;

use std::cmp::Reverse;
use std::io::{self, Write};

use self::block::{BlockBuilder, shown};
use super::block::TRAILER_BYTES;
use super::footer::{BlockHandle, write_footer};
use percolator_files::checksum::Crc32c;

/// How a block's bytes are stored.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// Compressed with Snappy, if that saves more than an eighth of a block; as they are if not.
    Snappy,
}

/// What a table's keys are, and how they are ordered.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Bytes, in their order.
    #[default]
    Bytes,
    /// LevelDB's: a user's key and eight bytes of tag, a little-endian number. They are in the order of the
    /// user's keys, and those with one user's key from the largest tag to the smallest. The index has whole
    /// keys, for a shortened one would lose its tag.
    Tagged,
}

/// How a table is written. The defaults are those of TensorFlow's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// A block ends once it has this many bytes, uncompressed. 262,144 by default.
    pub block_bytes: u32,
    /// The number of entries from one whole key of a data block to the next. 16 by default; 0 counts as 1.
    pub restart_interval: usize,
    /// How blocks are stored.
    pub compression: Compression,
    /// What the keys are. Bytes by default.
    pub keys: Keys,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 256 << 10,
            restart_interval: 16,
            compression: Compression::None,
            keys: Keys::Bytes,
        }
    }
}

/// Why a table cannot be written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A key does not come after the one before it.
    #[error("the key {key} does not come after {before}: add each key once, in their order")]
    Order {
        /// The front of the key, quoted.
        key: String,
        /// The front of the one before it, quoted.
        before: String,
    },
    /// A key or a value is longer than the format allows.
    #[error("the {what} of {found} bytes of the key {key} is too long: {} are allowed", u32::MAX)]
    EntryLength {
        /// `key` or `value`.
        what: &'static str,
        /// The front of the key, quoted.
        key: String,
        /// Its length.
        found: usize,
    },
    /// The index is longer than the format allows.
    #[error(
        "a block has grown to {found} bytes, and one of its entries would start past byte {}: write blocks \
         of more bytes, or several tables",
        u32::MAX
    )]
    BlockLength {
        /// Its length.
        found: usize,
    },
    /// The bytes cannot be written.
    #[error("the table cannot be written")]
    Io(#[from] io::Error),
    /// An earlier entry could not be written.
    #[error("the table is not whole: an earlier entry could not be written")]
    Failed,
}

/// Writes a table: entries in the order of their keys, each key once.
///
/// With the same options, the bytes are those of TensorFlow's `table::TableBuilder`, except that another
/// Snappy may compress otherwise. Memory: a block, and the index.
///
/// ```
/// use percolator_leveldb::table::{TableBuilder, TableCursor, TableOptions, Verify};
///
/// let mut builder = TableBuilder::new(Vec::new(), TableOptions::default());
/// builder.add(b"layer1/W", b"first")?;
/// builder.add(b"layer2/W", b"second")?;
/// let table = builder.finish()?;
///
/// let mut cursor = TableCursor::new(100);
/// cursor.open(&table[..], Verify::AtOnce)?;
/// assert!(cursor.advance()? && cursor.key() == b"layer1/W");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a table is whole once it is finished"]
pub struct TableBuilder<W> {
    out: W,
    options: TableOptions,
    /// Where the next block starts.
    offset: u64,
    data: BlockBuilder,
    index: BlockBuilder,
    /// The key of the last entry; `None` before the first.
    last_key: Option<Vec<u8>>,
    /// A block that the index does not have yet: its key there may be shorter if the next block's first key
    /// is known.
    ///
    /// Invariant: while there is one, `data` is empty.
    pending: Option<BlockHandle>,
    /// Whether an entry could not be written.
    has_failed: bool,
}

impl<W: Write> TableBuilder<W> {
    /// Returns a builder of a table that begins at the front of `out`. Blocks are written whole.
    pub fn new(out: W, options: TableOptions) -> Self {
        let data = BlockBuilder::new(options.restart_interval);
        let index = BlockBuilder::new(1);
        let (last_key, pending, has_failed) = (None, None, false);
        TableBuilder { out, options, offset: 0, data, index, last_key, pending, has_failed }
    }

    /// Appends an entry.
    ///
    /// # Errors
    ///
    /// [`BuildError::Order`] if the key does not come after the one before it; the table is as before.
    /// [`BuildError`] if the entry cannot be written; the table cannot be finished then.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        let is_before = |last_key: &&[u8]| !self.options.keys.is_order(last_key, key);
        if let Some(last_key) = self.last_key.as_deref().filter(is_before) {
            return Err(BuildError::Order { key: shown(key), before: shown(last_key) });
        }
        self.guarded(|builder| builder.add_next(key, value))
    }

    fn add_next(&mut self, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        let block_bytes = self.options.block_bytes as usize;
        // A large entry gets a block of its own.
        if key.len().saturating_add(value.len()) >= block_bytes.saturating_mul(2) {
            self.end_block()?;
        }
        if let Some(handle) = self.pending.take() {
            let last_key = self.last_key.take().unwrap_or_default();
            self.add_to_index(&self.options.keys.separator(last_key, key), handle)?;
        }
        self.data.add(key, value)?;
        let last_key = self.last_key.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        if self.data.len() >= block_bytes {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes the rest, and returns where everything was written to. Nothing is flushed.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if it cannot be written, or an entry could not be.
    pub fn finish(mut self) -> Result<W, BuildError> {
        self.guarded(Self::write_end)?;
        Ok(self.out)
    }

    fn write_end(&mut self) -> Result<(), BuildError> {
        self.end_block()?;
        let mut filters = BlockBuilder::new(self.options.restart_interval);
        let filters = self.write_block(filters.finish())?;
        if let Some(handle) = self.pending.take() {
            let last_key = self.last_key.take().unwrap_or_default();
            self.add_to_index(&self.options.keys.successor(last_key), handle)?;
        }
        let mut index = std::mem::replace(&mut self.index, BlockBuilder::new(1));
        let index = self.write_block(index.finish())?;
        self.out.write_all(&write_footer(filters, index))?;
        Ok(())
    }

    /// Runs a step, unless an earlier one failed.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<(), BuildError>) -> Result<(), BuildError> {
        if self.has_failed {
            return Err(BuildError::Failed);
        }
        let done = step(self);
        self.has_failed = done.is_err();
        done
    }

    fn add_to_index(&mut self, key: &[u8], handle: BlockHandle) -> Result<(), BuildError> {
        let mut value = Vec::new();
        handle.write(&mut value);
        self.index.add(key, &value)
    }

    /// Writes the data block, if it has an entry.
    fn end_block(&mut self) -> Result<(), BuildError> {
        if self.data.is_empty() {
            return Ok(());
        }
        let mut data = std::mem::replace(&mut self.data, BlockBuilder::new(self.options.restart_interval));
        self.pending = Some(self.write_block(data.finish())?);
        // Its buffers are kept.
        data.clear();
        self.data = data;
        Ok(())
    }

    /// Writes a block with its type and its checksum.
    fn write_block(&mut self, block: &mut Vec<u8>) -> Result<BlockHandle, BuildError> {
        let packed = match self.options.compression {
            Compression::None => None,
            Compression::Snappy => packed(block),
        };
        let (kind, bytes) = match &packed {
            Some(packed) => (1_u8, packed),
            None => (0, &*block),
        };
        let mut checksum = Crc32c::new();
        checksum.update(bytes);
        checksum.update(&[kind]);
        let mut trailer = [kind; TRAILER_BYTES];
        if let Some(stored) = trailer.last_chunk_mut() {
            *stored = checksum.masked().to_le_bytes();
        }
        self.out.write_all(bytes)?;
        self.out.write_all(&trailer)?;
        let handle = BlockHandle { offset: self.offset, bytes: bytes.len() as u64 };
        let length = handle.bytes.saturating_add(TRAILER_BYTES as u64);
        self.offset = self.offset.saturating_add(length);
        Ok(handle)
    }
}

impl Keys {
    /// Whether `key` comes after `last`.
    fn is_order<'k>(self, last: &'k [u8], key: &'k [u8]) -> bool {
        let split = |key: &'k [u8]| {
            let (user, tag) = key.split_last_chunk()?;
            Some((user, Reverse(u64::from_le_bytes(*tag))))
        };
        match self {
            Keys::Bytes => last < key,
            Keys::Tagged => split(last).zip(split(key)).is_some_and(|(last, key)| last < key),
        }
    }

    /// Returns a key for the index that is at least `last` and less than `next`.
    fn separator(self, last: Vec<u8>, next: &[u8]) -> Vec<u8> {
        if self == Keys::Bytes { separator(last, next) } else { last }
    }

    /// Returns a key for the index that is at least `last`.
    fn successor(self, last: Vec<u8>) -> Vec<u8> {
        if self == Keys::Bytes { successor(last) } else { last }
    }
}

/// Compresses a block, if that is worth it.
fn packed(block: &[u8]) -> Option<Vec<u8>> {
    // It refuses blocks of 4 GiB and more.
    let packed = snap::raw::Encoder::new().compress_vec(block).ok()?;
    let allowed = block.len().saturating_sub(block.len() / 8);
    (packed.len() < allowed).then_some(packed)
}

/// Returns a short key that is at least `last` and less than `next`, for the index. One that is the other's
/// front is not shortened.
fn separator(mut last: Vec<u8>, next: &[u8]) -> Vec<u8> {
    let shared = last.iter().zip(next).take_while(|(one, other)| one == other).count();
    if let (Some(byte), Some(&limit)) = (last.get_mut(shared), next.get(shared))
        && let Some(raised) = byte.checked_add(1).filter(|raised| *raised < limit)
    {
        *byte = raised;
        last.truncate(shared.saturating_add(1));
    }
    last
}

/// Returns a short key that is at least `last`.
fn successor(mut last: Vec<u8>) -> Vec<u8> {
    let raised = last.iter_mut().enumerate().find_map(|(place, byte)| {
        *byte = byte.checked_add(1)?;
        Some(place)
    });
    if let Some(place) = raised {
        last.truncate(place.saturating_add(1));
    }
    last
}

#[cfg(test)]
mod tests;
