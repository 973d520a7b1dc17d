//! Compressed blocks: their trailers, and how they are unpacked.

use std::collections::TryReserveError;
use std::ops::Range;

use percolator_files::checksum::AHEAD_BYTES;

use super::block::TRAILER_BYTES;
use super::deferred::DeferredChecksum;
use super::error::TableError;
use crate::coding::fixed32;

pub(super) const UNCOMPRESSED: u8 = 0;
pub(super) const SNAPPY: u8 = 1;

/// Snappy's densest element, a copy of 64 bytes, takes 3 bytes. The others (11 bytes from 2, 64 from 5, 1
/// from each literal byte) yield less per byte. So no stream yields more than 64/3 of its length.
const SNAPPY_COPY_BYTES: usize = 64;
const SNAPPY_COPY_TAKES: usize = 3;

/// What follows a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trailer {
    pub(super) kind: u8,
    /// The masked checksum of the block and its type.
    pub(super) stored: u32,
}

impl Trailer {
    #[inline]
    pub(super) fn read(file: &[u8], block: &Range<usize>) -> Option<Self> {
        let trailer = file.get(block.end..block.end.checked_add(TRAILER_BYTES)?)?;
        Some(Trailer { kind: *trailer.first()?, stored: fixed32(trailer, 1)? })
    }
}

/// Unpacks a verified block to the front of `buffer`, which grows to fit; returns its unpacked length.
pub(super) fn unpack(file: &[u8], block: Range<usize>, buffer: &mut Vec<u8>) -> Result<usize, TableError> {
    let offset = block.start;
    let packed = file.get(block).unwrap_or_default();
    let bytes = unpacked_bytes(packed, offset)?;
    grow(buffer, bytes).map_err(|_| TableError::Memory { offset, bytes })?;
    unpack_to(packed, offset, buffer)
}

/// Verifies a block and unpacks it into `buffer` from `start` on. `buffer` may grow to `bytes_max` bytes.
/// Returns the block's range in it.
///
/// Returns `None` if the block is uncompressed, damaged or too long. The cursor that loads the block reports
/// why.
pub fn unpack_ahead(
    file: &[u8],
    block: &Range<usize>,
    buffer: &mut Vec<u8>,
    start: usize,
    bytes_max: usize,
) -> Option<Range<usize>> {
    let Trailer { kind, stored } = Trailer::read(file, block)?;
    if kind != SNAPPY {
        return None;
    }
    let packed = file.get(block.clone())?;
    let end = start.checked_add(unpacked_bytes(packed, block.start).ok()?)?;
    if end > bytes_max {
        return None;
    }
    DeferredChecksum::new(block, stored).check(file, AHEAD_BYTES).ok()?;
    grow(buffer, end).ok()?;
    unpack_to(packed, block.start, buffer.get_mut(start..end)?).ok()?;
    Some(start..end)
}

/// Returns the unpacked length that a block claims, if its bytes can yield that much.
fn unpacked_bytes(packed: &[u8], offset: usize) -> Result<usize, TableError> {
    let found = snap::raw::decompress_len(packed).map_err(|error| damaged(offset, &error))?;
    let allowed = packed.len().saturating_mul(SNAPPY_COPY_BYTES) / SNAPPY_COPY_TAKES;
    if found > allowed {
        return Err(TableError::SnappyLength { offset, bytes: packed.len(), found, allowed });
    }
    Ok(found)
}

fn unpack_to(packed: &[u8], offset: usize, to: &mut [u8]) -> Result<usize, TableError> {
    snap::raw::Decoder::new().decompress(packed, to).map_err(|error| damaged(offset, &error))
}

fn damaged(offset: usize, error: &snap::Error) -> TableError {
    TableError::Snappy { offset, message: error.to_string() }
}

/// Grows `buffer` to `bytes`. Bytes that are there already are not cleared again.
fn grow(buffer: &mut Vec<u8>, bytes: usize) -> Result<(), TryReserveError> {
    if let Some(more) = bytes.checked_sub(buffer.len()) {
        buffer.try_reserve_exact(more)?;
        buffer.resize(bytes, 0);
    }
    Ok(())
}
