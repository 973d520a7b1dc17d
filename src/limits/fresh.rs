//! Memory that nobody has touched yet.

use std::hint::black_box;
use std::time::Duration;

use super::together;
use crate::memory::PageMemory;

/// The smallest page there is.
const PAGE_BYTES: usize = 4096;

/// The rate at which so many threads together come by `bytes` bytes of memory that is new to the process, in pages as a
/// batch has them: the system zeroes each when it is first touched, and that is all that is done here. A feed's first
/// batch waits for that, and each other batch that a ring is filled with.
///
/// They start together, and each touches its part once. 0 where there is no memory.
#[must_use]
pub fn fresh_bytes_per_second(threads: usize, bytes: usize) -> f64 {
    let each = bytes.div_ceil(threads.max(1)).max(PAGE_BYTES);
    together::per_second(threads, Duration::ZERO, |_number| {
        let mut memory = PageMemory::new(each).ok();
        move || {
            let Some(memory) = &mut memory else { return 0 };
            memory.bytes_mut().iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
            black_box(memory.bytes_mut()).len()
        }
    })
}
