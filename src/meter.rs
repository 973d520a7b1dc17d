//! Counters that every stage keeps: what passed, and what it waited for.
//!
//! They are bumped once a run or a batch, never once a record, and read by whoever asks for
//! [`Stats`](crate::Stats). `Relaxed` everywhere: a counter orders nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A count of things that have passed.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, things: u64) {
        self.0.fetch_add(things, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The waits at one end of one queue: how many, and how long in all.
#[derive(Debug, Default)]
pub(crate) struct WaitMeter {
    count: Count,
    nanos: Count,
}

impl WaitMeter {
    /// Takes at once what `ready` has, or else counts and times a wait for what `wait` brings.
    pub(crate) fn take<T>(&self, ready: impl FnOnce() -> Option<T>, wait: impl FnOnce() -> T) -> T {
        ready().unwrap_or_else(|| self.time(wait))
    }

    /// Counts and times a wait.
    pub(crate) fn time<T>(&self, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let brought = wait();
        self.add(start.elapsed());
        brought
    }

    pub(crate) fn add(&self, waited: Duration) {
        self.count.add(1);
        self.nanos.add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self) -> Waits {
        Waits { count: self.count.get(), time: Duration::from_nanos(self.nanos.get()) }
    }
}

/// How often, and how long in all, one end of a queue had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waits {
    /// Waits that were not served at once.
    pub count: u64,
    /// Their time together.
    pub time: Duration,
}

impl std::ops::AddAssign for Waits {
    fn add_assign(&mut self, other: Waits) {
        self.count += other.count;
        self.time += other.time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_ready_counts_as_a_wait() {
        let meter = WaitMeter::default();
        assert_eq!(meter.take(|| Some(1), || 2), 1);
        assert_eq!(meter.read().count, 0);
        assert_eq!(meter.take(|| None, || 2), 2);
        meter.add(Duration::from_secs(3));
        assert_eq!(meter.read().count, 2);
        assert!(meter.read().time >= Duration::from_secs(3));
    }
}
