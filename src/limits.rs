//! What this machine can do at best, measured beside what a feed does: a rate without its limit says
//! little.

use std::time::{Duration, Instant};

/// How much is copied in one go: several times what a last-level cache holds.
const COPY_BYTES: usize = 128 << 20;

/// The rate at which one thread copies memory that no cache holds, in bytes written a second.
///
/// The median of `rounds` copies of 128 MiB, after one that faults the pages in.
#[must_use]
pub fn memcpy_bytes_per_second(rounds: usize) -> f64 {
    let source = vec![1_u8; COPY_BYTES];
    let mut target = vec![0_u8; COPY_BYTES];
    target.copy_from_slice(&source);
    let mut times: Vec<Duration> = (0..rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            target.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&target);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "2^27 is exact")]
    let bytes = COPY_BYTES as f64;
    bytes / times[times.len() / 2].as_secs_f64()
}
