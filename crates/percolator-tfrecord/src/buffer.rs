//! Buffers for values of any length.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

/// How much is read at a time. A buffer grows as bytes arrive, and never because of a stored length alone.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Makes a buffer at least `end` bytes long, on the way to `whole` bytes. Its capacity doubles, but never
/// grows past `whole`.
pub(crate) fn grow(buffer: &mut Vec<u8>, end: usize, whole: usize) -> io::Result<()> {
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
