//! What can be wrong with a table.

use super::footer::{FOOTER_BYTES, MAGIC};

/// Why a table cannot be read. Offsets count from the start of the file; an entry's counts from the start of
/// its block.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The file is shorter than a footer.
    #[error("not a table: the file has {found} bytes, and the footer of a table has {FOOTER_BYTES}")]
    TooShort {
        /// The length of the file.
        found: usize,
    },
    /// The file does not end as a table does.
    #[error("not a table, or cut short: the file ends with {found:#018x}, where a table has {MAGIC:#018x}")]
    Magic {
        /// Its last eight bytes, as a little-endian number.
        found: u64,
    },
    /// The footer does not say where the index is.
    #[error("the footer at byte {offset} is damaged: it does not start with two block handles")]
    Footer {
        /// Where the footer starts.
        offset: usize,
    },
    /// A handle puts a block where no block can be.
    #[error(
        "a handle puts a block of {bytes} bytes at byte {offset}, but blocks of its kind, with {} bytes of \
         type and checksum each, are in bytes {from} to {to}",
        super::block::TRAILER_BYTES
    )]
    Place {
        /// Where the handle says the block starts.
        offset: u64,
        /// Its length without type and checksum.
        bytes: u64,
        /// Where the first such block may start.
        from: usize,
        /// Where the last such block must end.
        to: usize,
    },
    /// A block differs from what was written.
    #[error(
        "the block of {bytes} bytes at byte {offset} is damaged: its masked crc32c is {found:#010x}, but \
         {stored:#010x} is stored after it"
    )]
    Checksum {
        /// Where the block starts.
        offset: usize,
        /// Its length without type and checksum.
        bytes: usize,
        /// The masked checksum of the bytes found.
        found: u32,
        /// The masked checksum stored in the file.
        stored: u32,
    },
    /// A block is compressed with a type that is not supported.
    #[error(
        "the block at byte {offset} is compressed with {}: supported are 0 (none) and 1 (snappy){}",
        compression(*found), remedy()
    )]
    Compression {
        /// Where the block starts.
        offset: usize,
        /// Its type.
        found: u8,
    },
    /// A block claims an uncompressed length that its bytes cannot yield.
    #[error(
        "the snappy block of {bytes} bytes at byte {offset} claims to hold {found} bytes, but its bytes can \
         yield {allowed} at most"
    )]
    SnappyLength {
        /// Where the block starts.
        offset: usize,
        /// Its compressed length.
        bytes: usize,
        /// The uncompressed length it claims.
        found: usize,
        /// The most that `bytes` bytes can yield.
        allowed: usize,
    },
    /// There is no memory for a block.
    #[error("the snappy block at byte {offset} holds {bytes} bytes, for which there is no memory")]
    Memory {
        /// Where the block starts.
        offset: usize,
        /// Its uncompressed length.
        bytes: usize,
    },
    /// A block of the snappy type is not a snappy stream.
    #[error("the snappy block at byte {offset} is damaged: {message}")]
    Snappy {
        /// Where the block starts.
        offset: usize,
        /// The decompressor's message.
        message: String,
    },
    /// A block does not end with its restart points.
    #[error("the block at byte {offset} has {bytes} bytes uncompressed, no room for {found} restart points")]
    Restarts {
        /// Where the block starts.
        offset: usize,
        /// Its uncompressed length.
        bytes: usize,
        /// How many restart points it claims; a block with entries has at least 1.
        found: u32,
    },
    /// An entry's key is longer than the caller allows.
    #[error(
        "the entry at byte {entry} of the block at byte {offset} has a key of {found} bytes: {allowed} are \
         allowed"
    )]
    KeyLength {
        /// Where the block starts.
        offset: usize,
        /// Where in the uncompressed block the entry starts.
        entry: usize,
        /// The length of the key.
        found: usize,
        /// The longest key allowed.
        allowed: usize,
    },
    /// An entry of a block is malformed.
    #[error("the entry at byte {entry} of the block at byte {offset} is damaged: {message}")]
    Entry {
        /// Where the block starts.
        offset: usize,
        /// Where in the uncompressed block the entry starts.
        entry: usize,
        /// What is wrong.
        message: &'static str,
    },
}

impl TableError {
    /// Converts an error about a block that was read alone into one about its file, where the block is at
    /// `block`.
    #[must_use]
    pub fn of_block_at(mut self, block: u64) -> Self {
        match &mut self {
            TableError::Checksum { offset, .. }
            | TableError::Compression { offset, .. }
            | TableError::SnappyLength { offset, .. }
            | TableError::Memory { offset, .. }
            | TableError::Snappy { offset, .. }
            | TableError::Restarts { offset, .. }
            | TableError::KeyLength { offset, .. }
            | TableError::Entry { offset, .. } => {
                *offset = offset.saturating_add(usize::try_from(block).unwrap_or(usize::MAX));
            }
            TableError::Place { offset, .. } => *offset = offset.saturating_add(block),
            TableError::TooShort { .. } | TableError::Magic { .. } | TableError::Footer { .. } => {}
        }
        self
    }
}

fn compression(kind: u8) -> String {
    match kind {
        2 => "2 (zstd, or in Minecraft's LevelDB zlib)".to_owned(),
        4 => "4 (deflate, of Minecraft's LevelDB)".to_owned(),
        kind => format!("type {kind}, an unknown type"),
    }
}

/// Returns the remedy. The type is not damaged: the checksum covers it.
fn remedy() -> &'static str {
    "; copy its records to a new database whose writer has snappy or no compression set \
     (Options::compression), with a program whose LevelDB reads this type"
}
