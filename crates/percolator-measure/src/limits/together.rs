//! Threads that do the same work at the same time.

use std::sync::{Condvar, Mutex, PoisonError};
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
    let line = Line::default();
    std::thread::scope(|scope| {
        let (line, set_up) = (&line, &set_up);
        // None starts if this thread returns or panics before it starts them.
        let starter = Starter(line);
        let one = move |number| {
            let ready = Ready(line);
            let mut pass = set_up(number);
            drop(ready);
            if line.is_started() { rate_of(time, &mut pass) } else { 0.0 }
        };
        let mut started = Vec::with_capacity(others);
        for number in 0..others {
            match Builder::new().spawn_scoped(scope, move || one(number)) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    tracing::warn!(%error, threads, "a measuring thread cannot be started");
                    return 0.0;
                }
            }
        }
        let mut pass = set_up(others);
        line.wait_for(others);
        starter.start();
        let own = rate_of(time, &mut pass);
        let rates = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        own + rates.sum::<f64>()
    })
}

/// Where threads wait until all of them are ready.
#[derive(Default)]
struct Line {
    state: Mutex<LineState>,
    changed: Condvar,
}

#[derive(Default)]
struct LineState {
    ready: usize,
    /// Whether they start or give up; `None` while they wait.
    start: Option<bool>,
}

/// A thread that gets ready. When this is dropped, even in a panic, the thread counts as ready and is no
/// longer waited for.
struct Ready<'a>(&'a Line);

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.ready += 1);
    }
}

/// The thread that starts the others. If this is dropped before, they give up.
struct Starter<'a>(&'a Line);

impl Starter<'_> {
    fn start(self) {
        self.0.change(|state| state.start = Some(true));
    }
}

impl Drop for Starter<'_> {
    fn drop(&mut self) {
        self.0.change(|state| _ = state.start.get_or_insert(false));
    }
}

impl Line {
    /// Waits for the start; returns whether there is one.
    fn is_started(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.changed.wait_while(state, |state| state.start.is_none());
        wait.unwrap_or_else(PoisonError::into_inner).start.unwrap_or(false)
    }

    fn wait_for(&self, threads: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.ready < threads));
    }

    fn change(&self, change: impl FnOnce(&mut LineState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
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
