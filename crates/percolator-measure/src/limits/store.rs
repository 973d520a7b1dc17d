//! The rate of memory that is only written.

use std::hint::black_box;
use std::time::Duration;

use super::{buffer, together};

/// Measures the rate at which `threads` threads together write memory that they do not read, in bytes a
/// second: past the caches if the processor can (x86-64), and otherwise with an ordinary copy from the
/// caches.
///
/// No program writes memory faster. The threads start together, each with its own buffer that it has touched
/// first, in huge pages if the system provides them, and write for about `time`.
#[must_use]
pub fn store_bytes_per_second(threads: usize, time: Duration) -> f64 {
    together::per_second(threads, time, |_number| {
        let mut memory = buffer(threads);
        move || {
            let Some(memory) = &mut memory else { return 0 };
            memory.fill_past_caches(1);
            black_box(memory.bytes_mut()).len()
        }
    })
}
