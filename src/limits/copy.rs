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
    together::per_second(threads, time, |_number| copies(Buffer::new(threads), Buffer::new(threads)))
}

/// The rate at which this thread copies `bytes` bytes of memory, in bytes written a second, and about as
/// [`copy_bytes_per_second`] does it. It takes up twice as many bytes; 0 where they are not to be had.
#[must_use]
pub fn copy_bytes_per_second_of(bytes: usize, time: Duration) -> f64 {
    together::per_second(1, time, |_number| copies(Buffer::of(bytes), Buffer::of(bytes)))
}

/// Copies again and again; nothing, where one of the two is not there.
fn copies(source: Option<Buffer>, target: Option<Buffer>) -> impl FnMut() -> usize {
    let mut both = source.zip(target);
    move || {
        let Some((source, target)) = &mut both else { return 0 };
        target.bytes().copy_from_slice(black_box(source.bytes()));
        black_box(target.bytes()).len()
    }
}
