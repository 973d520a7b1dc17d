//! The counters that every stage keeps: what passed, and what it waited for.
//!
//! They are updated once per run or batch, never once per record, and read for [`Stats`](crate::Stats). All
//! accesses are `Relaxed`: a counter orders nothing.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use once_cell::sync::Lazy;

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

/// The waits at one end of one queue: how many, and their total time.
#[derive(Debug, Default)]
pub(crate) struct WaitMeter {
    count: Count,
    nanos: Count,
    /// Waits in progress, so that a stall shows while it lasts.
    ongoing: Mutex<Ongoing>,
}

#[derive(Debug, Default)]
struct Ongoing {
    waits: u64,
    /// The sum of their start times, relative to the process's [`ZERO`].
    starts: Duration,
    /// The longest time that was reported.
    reported: Duration,
}

/// The origin of start times.
static ZERO: Lazy<Instant> = Lazy::new(Instant::now);

impl WaitMeter {
    /// Returns what `ready` has, or else counts and times a wait for `wait`.
    pub(crate) fn take<T>(&self, ready: impl FnOnce() -> Option<T>, wait: impl FnOnce() -> T) -> T {
        ready().unwrap_or_else(|| self.time(wait))
    }

    /// Counts and times a wait.
    pub(crate) fn time<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _wait = self.begin();
        wait()
    }

    /// Starts a wait. It lasts until the guard is dropped, even by a panic.
    pub(crate) fn begin(&self) -> Wait<&Self> {
        Wait { start: self.note_begin(), meter: self }
    }

    /// Like [`begin`](Self::begin), with a guard that borrows nothing.
    pub(crate) fn begin_owned(self: &Arc<Self>) -> Wait<Arc<Self>> {
        Wait { start: self.note_begin(), meter: self.clone() }
    }

    fn note_begin(&self) -> Duration {
        let start = ZERO.elapsed();
        let mut ongoing = self.lock();
        ongoing.waits += 1;
        ongoing.starts += start;
        start
    }

    /// Whether a wait is in progress.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().waits > 0
    }

    /// Starts a wait for a thread with nothing more to do. Only [`end_rest`](Self::end_rest) ends it.
    pub(crate) fn rest(&self) -> Rest {
        Rest(self.note_begin())
    }

    /// Ends a rest. Only the time before `until` counts as waited.
    pub(crate) fn end_rest(&self, Rest(start): Rest, until: Instant) {
        self.end(start, until.saturating_duration_since(*ZERO));
    }

    fn end(&self, start: Duration, until: Duration) {
        let mut ongoing = self.lock();
        ongoing.waits -= 1;
        ongoing.starts -= start;
        self.count.add(1);
        self.nanos.add(u64::try_from(until.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a finished wait of a given length.
    #[cfg(test)]
    pub(crate) fn add_past(&self, waited: Duration) {
        self.count.add(1);
        self.nanos.add(u64::try_from(waited.as_nanos()).unwrap());
    }

    /// The waits up to a moment, including those in progress.
    pub(crate) fn read(&self, until: Instant) -> Waits {
        self.read_locked(&self.lock(), until)
    }

    /// Like [`read`](Self::read), for a counter that is published: its time never falls from one report to
    /// the next. What is read may fall: a wait that begins after the moment counts against the others, and a
    /// report may be of an earlier moment than the one before it.
    pub(crate) fn report(&self, until: Instant) -> Waits {
        let mut ongoing = self.lock();
        let Waits { count, time } = self.read_locked(&ongoing, until);
        ongoing.reported = ongoing.reported.max(time);
        Waits { count, time: ongoing.reported }
    }

    fn read_locked(&self, ongoing: &Ongoing, until: Instant) -> Waits {
        let now = until.saturating_duration_since(*ZERO) * u32::try_from(ongoing.waits).unwrap_or(u32::MAX);
        let past = Duration::from_nanos(self.nanos.get());
        Waits { count: self.count.get() + ongoing.waits, time: past + now.saturating_sub(ongoing.starts) }
    }

    /// Uses the standard library's lock, which does not allocate when two threads first contend for it.
    fn lock(&self) -> MutexGuard<'_, Ongoing> {
        self.ongoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait that ends by request, not with a guard.
#[derive(Debug)]
pub(crate) struct Rest(Duration);

/// A wait in progress.
#[derive(Debug)]
#[must_use = "the wait is over when this is dropped"]
pub(crate) struct Wait<M: Deref<Target = WaitMeter>> {
    meter: M,
    start: Duration,
}

impl<M: Deref<Target = WaitMeter>> Drop for Wait<M> {
    fn drop(&mut self) {
        self.meter.end(self.start, ZERO.elapsed());
    }
}

/// How often, and how long in total, one end of a queue had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waits {
    /// The number of waits that were not served at once.
    pub count: u64,
    /// Their total time.
    pub time: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_ready_counts_as_a_wait() {
        let meter = WaitMeter::default();
        assert_eq!(meter.take(|| Some(1), || 2), 1);
        assert_eq!(meter.read(Instant::now()).count, 0);
        assert_eq!(meter.take(|| None, || 2), 2);
        assert_eq!(meter.read(Instant::now()).count, 1);
    }

    #[test]
    fn a_wait_under_way_is_seen_and_grows() {
        let meter = WaitMeter::default();
        let wait = meter.begin();
        let start = Instant::now();
        let [sooner, later] = [1, 3].map(|seconds| meter.read(start + Duration::from_secs(seconds)));
        assert_eq!((sooner.count, later.count), (1, 1));
        assert_eq!(later.time - sooner.time, Duration::from_secs(2));
        drop(wait);
        assert!(meter.read(start + Duration::from_secs(9)).time < Duration::from_secs(1));
        let rest = meter.rest();
        assert!(meter.read(start + Duration::from_secs(9)).time > Duration::from_secs(8));
        meter.end_rest(rest, start);
        assert!(meter.read(start + Duration::from_secs(9)).time < Duration::from_secs(1));
    }

    #[test]
    fn what_is_reported_never_falls() {
        let meter = WaitMeter::default();
        let wait = meter.begin();
        let later = Instant::now() + Duration::from_secs(5);
        let before = meter.report(later);
        // A wait that begins after the moment counts against the one that is under way.
        let late = Wait { start: later.duration_since(*ZERO) + Duration::from_secs(1), meter: &meter };
        {
            let mut ongoing = meter.lock();
            (ongoing.waits, ongoing.starts) = (ongoing.waits + 1, ongoing.starts + late.start);
        }
        assert!(meter.read(later).time < before.time);
        assert_eq!(meter.report(later), Waits { count: 2, time: before.time });
        drop((wait, late));
        assert_eq!(meter.report(later), Waits { count: 2, time: before.time }, "they were shorter than that");
    }
}
