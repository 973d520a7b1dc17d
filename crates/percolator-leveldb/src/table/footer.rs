//! The end of a table, where reading starts.

use super::error::TableError;
use crate::coding::{Coded, fixed64, put_varint};

/// Two block handles in forty bytes, then the magic number of a table.
pub(crate) const FOOTER_BYTES: usize = 48;
pub(crate) const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const MAGIC_BYTES: usize = size_of::<u64>();

/// The location of a block, as the file states it. The length excludes the block's type and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl BlockHandle {
    #[inline]
    pub(crate) fn read(coded: &mut Coded<'_>) -> Option<Self> {
        Some(BlockHandle { offset: coded.varint64()?, bytes: coded.varint64()? })
    }

    /// Appends the handle: at most twenty bytes.
    pub(crate) fn write(self, bytes: &mut Vec<u8>) {
        put_varint(bytes, self.offset);
        put_varint(bytes, self.bytes);
    }
}

/// Returns the footer of a table: the handles, zeros up to their room, the magic number.
pub(crate) fn write_footer(filters: BlockHandle, index: BlockHandle) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    filters.write(&mut footer);
    index.write(&mut footer);
    footer.resize(FOOTER_BYTES - MAGIC_BYTES, 0);
    footer.extend(MAGIC.to_le_bytes());
    footer
}

/// Returns where the footer starts, and the handle of the index block. The handle before it, of the filter
/// blocks, is not used: no read needs a filter.
pub(crate) fn read_footer(file: &[u8]) -> Result<(usize, BlockHandle), TableError> {
    let too_short = TableError::TooShort { found: file.len() };
    let offset = file.len().checked_sub(FOOTER_BYTES).ok_or(too_short.clone())?;
    let (handles, magic) = file
        .split_last_chunk::<MAGIC_BYTES>()
        .map(|(head, magic)| (head.get(offset..), magic))
        .ok_or(too_short)?;
    match fixed64(magic, 0) {
        Some(MAGIC) => {}
        found => return Err(TableError::Magic { found: found.unwrap_or_default() }),
    }
    let mut coded = Coded::new(handles.unwrap_or_default());
    let index = BlockHandle::read(&mut coded).and_then(|_filters| BlockHandle::read(&mut coded));
    index.map(|index| (offset, index)).ok_or(TableError::Footer { offset })
}
