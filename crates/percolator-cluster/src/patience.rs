//! Waiting for what may come yet: until when, and how long between two tries.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use percolator_files::shown;
use tracing::warn;
use uuid::Uuid;

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    start: Instant,
    /// How long is waited at the most.
    pub(crate) patience: Duration,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        Deadline { start: Instant::now(), patience }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn left(&self) -> Duration {
        self.patience.saturating_sub(self.elapsed())
    }

    /// Repeats what may succeed later, as long as its error may pass. It must be such that doing it twice is
    /// as good as once: what was asked for may have happened. Warnings name the worker, if one is given.
    pub(crate) fn patiently_as<T, E: Error + 'static>(
        &self,
        worker: Option<&str>,
        may_pass: impl Fn(&E) -> bool,
        work: impl Fn() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut pauses = Pauses::default();
        loop {
            let error = match work() {
                Err(error) if may_pass(&error) => error,
                done => return done,
            };
            let pause = pauses.next();
            if self.left() <= pause {
                return Err(error);
            }
            warn!(worker, error = %shown::with_sources(&error), "it did not succeed: trying again");
            thread::sleep(pause);
        }
    }
}

/// The pauses between tries: twice as long each time, and up to half as long again by chance, so that many
/// processes that lost the same server do not come back at one moment.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    max: Duration,
}

impl Pauses {
    pub(crate) fn between(min: Duration, max: Duration) -> Self {
        Pauses { next: min, max }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.max);
        let chance = u32::from(Uuid::new_v4().as_bytes()[0]);
        pause.saturating_add(pause / 2 / u32::from(u8::MAX) * chance)
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses::between(Duration::from_millis(20), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(1));
        let first: BTreeSet<_> = (0..64).map(|_| Pauses::default().next()).collect();
        assert!(first.len() > 1, "{first:?}");
        assert!(first.iter().all(|pause| (min..=min * 3 / 2).contains(pause)), "{first:?}");
        let mut pauses = Pauses::default();
        let all: Vec<_> = (0..12).map(|_| pauses.next()).collect();
        assert!(all[11] >= max && all.iter().all(|pause| *pause <= max * 3 / 2), "{all:?}");
    }

    #[test]
    fn the_longest_pauses_have_no_end() {
        let mut pauses = Pauses::between(Duration::MAX, Duration::MAX);
        assert_eq!([pauses.next(), pauses.next()], [Duration::MAX; 2]);
    }
}
