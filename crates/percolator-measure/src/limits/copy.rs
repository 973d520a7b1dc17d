//! The rate of copies from memory to memory.

use std::hint::black_box;
use std::time::Duration;

use percolator::device::PageMemory;

use super::{buffer, together};

/// Measures the rate at which `threads` threads together copy memory that no cache holds, in bytes written a
/// second.
///
/// They start together, each with its own buffers that it has touched first, in huge pages if the system
/// provides them, and copy for about `time`.
#[must_use]
pub fn copy_bytes_per_second(threads: usize, time: Duration) -> f64 {
    together::per_second(threads, time, |_number| copies(buffer(threads), buffer(threads)))
}

/// Copies repeatedly; does nothing if either buffer is missing.
fn copies(source: Option<PageMemory>, target: Option<PageMemory>) -> impl FnMut() -> usize {
    let mut both = source.zip(target);
    move || {
        let Some((source, target)) = &mut both else { return 0 };
        target.bytes_mut().copy_from_slice(black_box(source.bytes_mut()));
        black_box(target.bytes_mut()).len()
    }
}
