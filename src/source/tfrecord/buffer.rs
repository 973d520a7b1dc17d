//! Buffers for values of any length.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use super::frame::FOOT_BYTES;
use super::key::KEY_BYTES;

/// How much is read at a time. A buffer grows as bytes arrive, and never because of a stored length alone.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// The length of a buffer for a key, a value and the value's foot.
pub(super) fn room_for(value_bytes: usize) -> usize {
    KEY_BYTES.saturating_add(value_bytes).saturating_add(FOOT_BYTES)
}

/// Makes a buffer at least `end` bytes long, on the way to `whole` bytes. Its capacity doubles, but never
/// grows past `whole`.
pub(super) fn grow(buffer: &mut Vec<u8>, end: usize, whole: usize) -> io::Result<()> {
    if buffer.len() >= end {
        return Ok(());
    }
    if buffer.capacity() < end {
        let wanted = buffer.capacity().saturating_mul(2).min(whole).max(end);
        let more = wanted.saturating_sub(buffer.len());
        buffer.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    buffer.resize(end, 0);
    Ok(())
}
