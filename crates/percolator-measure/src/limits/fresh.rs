//! The rate of memory that has not been touched yet.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use percolator::device::PageMemory;

use super::together;

/// The smallest page size.
const PAGE_BYTES: usize = 4096;

/// Measures the rate at which `threads` threads together obtain `bytes` bytes of memory that is new to the
/// process, in the pages that a batch has. The kernel zeroes each page when it is first touched; nothing else
/// is done here. A feed waits for that at its first batch, and at every other batch that uses memory of a
/// ring for the first time.
///
/// The threads start together, and each touches its part once. Returns 0 if there is not enough memory.
#[must_use]
pub fn fresh_bytes_per_second(threads: usize, bytes: usize) -> f64 {
    let threads = threads.max(1);
    let each = bytes.div_ceil(threads).max(1).next_multiple_of(PAGE_BYTES);
    let Some(mut memory) = each.checked_mul(threads).and_then(|bytes| PageMemory::new(bytes).ok()) else {
        return 0.0;
    };
    let parts: Vec<_> = memory.bytes_mut().chunks_mut(each).map(|part| Mutex::new(Some(part))).collect();
    together::per_second(threads, Duration::ZERO, |number| {
        let mut part = parts[number].lock().ok().and_then(|mut part| part.take());
        move || {
            let Some(part) = &mut part else { return 0 };
            part.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
            black_box(part).len()
        }
    })
}
