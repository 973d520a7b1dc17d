//! Memory that nobody has touched yet.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use super::together;
use crate::batch::memory::PageMemory;

/// The smallest page there is.
const PAGE_BYTES: usize = 4096;

/// The rate at which so many threads together come by `bytes` bytes of memory that is new to the process, one piece in
/// pages as a batch has them: the system zeroes each when it is first touched, and that is all that is done here. A feed's
/// first batch waits for that, and so does each other batch that a ring is filled with.
///
/// They start together, and each touches its part once. 0 where there is no memory.
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
