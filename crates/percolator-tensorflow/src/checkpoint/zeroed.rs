//! Zeroed memory whose size a file states: an error if there is not enough.

#![expect(unsafe_code, reason = "the allocator is asked itself, because `vec!` ends the process")]

use std::alloc::{Layout, alloc_zeroed};
use std::io;

/// Returns this many zero bytes, or an error if there is no memory for them. Large memory is taken from the
/// kernel without being written to: the threads that load it touch its pages first.
pub(super) fn zeroed(bytes: u64) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the layout has at least one byte.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: the global allocator gave this memory for an array of `bytes` bytes, all of which are zero, and
    // nobody else has it. `Layout::array` bounds their number by `isize::MAX`.
    Ok(unsafe { Vec::from_raw_parts(memory, bytes, bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_or_an_error() {
        for bytes in [0_usize, 1, 4096, 3 << 20] {
            assert_eq!(zeroed(bytes as u64).unwrap(), vec![0; bytes]);
        }
        for bytes in [u64::MAX, i64::MAX.cast_unsigned(), 1 << 60] {
            assert_eq!(zeroed(bytes).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }
}
