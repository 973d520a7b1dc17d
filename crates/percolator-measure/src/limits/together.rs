//! Threads that do the same work at the same time.

use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Returns how much `threads` threads together do per second; 0 if not all of them can be started.
///
/// `set_up` runs untimed on each thread, with the thread's number. What it returns is then called repeatedly
/// for `time`, at least once; it returns how much it has done, or 0 once nothing is left to do. The threads
/// start together, and each is timed by itself: none waits for the slowest. The calling thread is one of
/// them.
pub(super) fn per_second<Pass: FnMut() -> usize>(
    threads: usize,
    time: Duration,
    set_up: impl Fn(usize) -> Pass + Sync,
) -> f64 {
    let others = threads.max(1) - 1;
    std::thread::scope(|scope| {
        let set_up = &set_up;
        // A thread drops its sender when it is ready, or has panicked.
        let (ready, are_ready) = channel::<()>();
        // None starts if this thread returns or panics before it starts them: that drops their senders.
        let (mut starts, mut started) = (Vec::with_capacity(others), Vec::with_capacity(others));
        for number in 0..others {
            let (start, is_started) = channel();
            let ready = ready.clone();
            let one = move || {
                let mut pass = set_up(number);
                drop(ready);
                if is_started.recv().is_ok() { rate_of(time, &mut pass) } else { 0.0 }
            };
            match Builder::new().spawn_scoped(scope, one) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    tracing::warn!(%error, threads, "a measuring thread cannot be started");
                    return 0.0;
                }
            }
            starts.push(start);
        }
        let mut pass = set_up(others);
        drop(ready);
        // Nothing is sent: this ends with the last sender.
        let _ = are_ready.recv();
        for start in starts {
            let _ = start.send(());
        }
        let own = rate_of(time, &mut pass);
        let rates = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        own + rates.sum::<f64>()
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
        assert_eq!(passes.into_inner(), 12, "the last of each returns 0");
    }

    #[test]
    fn a_panic_before_the_start_is_passed_on_and_keeps_nobody() {
        for struck in 0..3 {
            let caught = std::panic::catch_unwind(|| {
                per_second(3, Duration::MAX, |number| {
                    assert_ne!(number, struck, "a panic of the test");
                    || 0
                })
            });
            assert!(caught.is_err(), "thread {struck}");
        }
    }
}
