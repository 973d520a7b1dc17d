//! Memory that is only written.

use std::hint::black_box;
use std::time::Duration;

use super::{Buffer, together};
use crate::base::cache_lines;

/// The rate at which so many threads together write memory that they do not read, in bytes a second: past the caches
/// where the processor can (x86-64), and else as a copy from the caches does.
///
/// No program that writes memory writes it faster. They start together, each with a buffer of its own that it has
/// touched first, in huge pages where the system gives them, and write for about `time`.
#[must_use]
pub fn store_bytes_per_second(threads: usize, time: Duration) -> f64 {
    together::per_second(threads, time, |_number| {
        let mut buffer = Buffer::new(threads);
        let value = cache_lines::Page::filled(1);
        move || {
            let Some(buffer) = &mut buffer else { return 0 };
            cache_lines::fill_past_caches(buffer.bytes(), &value);
            black_box(buffer.bytes()).len()
        }
    })
}
