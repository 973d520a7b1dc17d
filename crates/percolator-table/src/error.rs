//! What can be wrong with a table.

use super::footer::{FOOTER_BYTES, MAGIC};

/// Why a table cannot be read. Offsets count from the file's first byte; an entry's counts from its block's.
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
    #[error("the footer at byte {offset} is damaged: it starts with no two block handles")]
    Footer {
        /// Where the footer starts.
        offset: usize,
    },
    /// A block is said to lie where no block can.
    #[error(
        "a block of {bytes} bytes is said to lie at byte {offset}, but blocks of its kind, with {} bytes of \
         type and checksum each, lie in bytes {from} to {to}",
        super::block::TRAILER_BYTES
    )]
    Place {
        /// Where the block is said to start.
        offset: u64,
        /// Its length without type and checksum.
        bytes: u64,
        /// Where the first byte of such a block may lie.
        from: usize,
        /// Where the last one ends.
        to: usize,
    },
    /// A block is not what was written.
    #[error(
        "the block of {bytes} bytes at byte {offset} is damaged: its masked crc32c is {found:#010x}, and \
         {stored:#010x} was written behind it"
    )]
    Checksum {
        /// Where the block starts.
        offset: usize,
        /// Its length without type and checksum.
        bytes: usize,
        /// The masked checksum of what is there.
        found: u32,
        /// The masked checksum that the file has.
        stored: u32,
    },
    /// A block is compressed in a way that is not read.
    #[error(
        "the block at byte {offset} is compressed with {}: what is read is 0 (none) and 1 (snappy){}",
        compression(*found), remedy(*found)
    )]
    Compression {
        /// Where the block starts.
        offset: usize,
        /// Its type.
        found: u8,
    },
    /// A block claims to be longer, uncompressed, than its bytes can yield.
    #[error(
        "the snappy block of {bytes} bytes at byte {offset} claims to hold {found} bytes: so many can yield \
         {allowed} at the most"
    )]
    SnappyLength {
        /// Where the block starts.
        offset: usize,
        /// Its compressed length.
        bytes: usize,
        /// The uncompressed length that it claims.
        found: usize,
        /// The most that so many bytes can yield.
        allowed: usize,
    },
    /// A block is not the snappy stream it is said to be.
    #[error("the snappy block at byte {offset} is damaged: {message}")]
    Snappy {
        /// Where the block starts.
        offset: usize,
        /// What the decompressor said.
        message: String,
    },
    /// A block does not end with its restart points.
    #[error(
        "the block at byte {offset} has {bytes} bytes uncompressed, and no place for {found} restart points"
    )]
    Restarts {
        /// Where the block starts.
        offset: usize,
        /// Its uncompressed length.
        bytes: usize,
        /// How many it says there are; at least 1 is allowed.
        found: u32,
    },
    /// An entry's key is longer than the reader of the table allows.
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
        /// The longest that is read.
        allowed: usize,
    },
    /// An entry of a block is malformed.
    #[error("the entry at byte {entry} of the block at byte {offset} is damaged: {message}")]
    Entry {
        /// Where the block starts.
        offset: usize,
        /// Where in the uncompressed block the entry starts.
        entry: usize,
        /// What was found.
        message: &'static str,
    },
}

impl TableError {
    /// What is wrong with a block that was read alone, and lies there in its file.
    #[must_use]
    pub fn of_block_at(mut self, block: u64) -> Self {
        match &mut self {
            TableError::Checksum { offset, .. }
            | TableError::Compression { offset, .. }
            | TableError::SnappyLength { offset, .. }
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
        2 => "2 (zstd)".to_owned(),
        kind => format!("type {kind}, which is unknown"),
    }
}

/// What to do about it; a type that is unknown is as likely to be damage.
fn remedy(kind: u8) -> &'static str {
    match kind {
        2 => {
            "; copy its records to a new database whose writer has snappy or no compression set \
             (Options::compression), with a program whose LevelDB reads zstd"
        }
        _ => "",
    }
}
