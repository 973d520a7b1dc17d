//! The rate of copies from memory to memory.

use std::hint::black_box;
use std::time::Duration;

use super::{Buffer, together};

/// Measures the rate at which `threads` threads together copy memory that no cache holds, in bytes written a
/// second.
///
/// They start together, each with its own buffers that it has touched first, in huge pages if the system
/// provides them, and copy for about `time`.
#[must_use]
pub fn copy_bytes_per_second(threads: usize, time: Duration) -> f64 {
    together::per_second(threads, time, |_number| copies(Buffer::new(threads), Buffer::new(threads)))
}

/// Measures the rate at which this thread copies `bytes` bytes of memory, in bytes written a second, as
/// [`copy_bytes_per_second`] does. It allocates twice that many bytes, and returns 0 if it cannot.
#[must_use]
pub fn copy_bytes_per_second_of(bytes: usize, time: Duration) -> f64 {
    together::per_second(1, time, |_number| copies(Buffer::of(bytes), Buffer::of(bytes)))
}

/// Copies repeatedly; does nothing if either buffer is missing.
fn copies(source: Option<Buffer>, target: Option<Buffer>) -> impl FnMut() -> usize {
    let mut both = source.zip(target);
    move || {
        let Some((source, target)) = &mut both else { return 0 };
        target.bytes().copy_from_slice(black_box(source.bytes()));
        black_box(target.bytes()).len()
    }
}
