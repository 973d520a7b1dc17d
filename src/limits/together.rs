//! Threads that do the same work at the same time.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What `threads` threads do together in a second.
///
/// `set_up` runs on each thread, which it tells its number, and is not timed; what it returns is then called again and
/// again for `time`, at least once, and says how much it has done: 0 once there is nothing left to do. The threads
/// start together, and each is timed by itself: none waits for the slowest.
pub(super) fn per_second<Pass: FnMut() -> usize>(
    threads: usize,
    time: Duration,
    set_up: impl Fn(usize) -> Pass + Sync,
) -> f64 {
    let threads = threads.max(1);
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let (barrier, set_up) = (&barrier, &set_up);
        let one = move |number| {
            let mut pass = set_up(number);
            barrier.wait();
            rate_of(time, &mut pass)
        };
        let started: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    })
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn rate_of(time: Duration, pass: &mut impl FnMut() -> usize) -> f64 {
    let (start, mut done) = (Instant::now(), 0);
    loop {
        let more = pass();
        done += more;
        let elapsed = start.elapsed();
        if more == 0 || elapsed >= time {
            return done as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_thread_works_until_nothing_is_left() {
        let (set_up, passes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let rate = per_second(3, Duration::MAX, |number| {
            set_up.fetch_add(number, Ordering::Relaxed);
            let mut left = 4;
            let passes = &passes;
            move || {
                passes.fetch_add(1, Ordering::Relaxed);
                left -= 1;
                left
            }
        });
        assert!(rate > 0.0);
        assert_eq!(set_up.into_inner(), 3, "0, 1 and 2");
        assert_eq!(passes.into_inner(), 12, "the last of each says that it was the last");
    }
}
