//! Memory to memory.

use std::hint::black_box;
use std::time::Duration;

use super::{Buffer, together};

/// The rate at which so many threads together copy memory that no cache holds, in bytes written a second.
///
/// They start together, each with buffers of its own that it has touched first, in huge pages where the system gives
/// them, and copy for about `time`.
#[must_use]
pub fn copy_bytes_per_second(threads: usize, time: Duration) -> f64 {
    together::per_second(threads, time, |_number| {
        let (mut source, mut target) = (Buffer::new(threads), Buffer::new(threads));
        move || {
            target.bytes().copy_from_slice(black_box(source.bytes()));
            black_box(target.bytes()).len()
        }
    })
}
