//! Decides how many workers are active when their number is not configured: as few as keep the consumers from
//! waiting.
//!
//! A surplus worker costs time: it is woken for every run that arrives, on one more processor that the
//! training loop could use, and finds the queue empty the next time. So at intervals the governor checks how
//! much of their time the workers were active, and how many of the runs they took were pressing. A run is
//! pressing if a consumer was waiting, and another run was in the queue without a worker to take it. While
//! fewer workers suffice, the last ones stand by. As soon as they do not suffice, the number doubles. The
//! contents of batches do not depend on the number.
//!
//! ```text
//! some runs were pressing                                                    twice as many workers
//! none was, and one worker fewer would still have little to do, for a while  as many as have enough to do
//! ```
//!
//! It is not enough that a consumer waits: it may be waiting for the reader. Nor is it enough that workers
//! have little to do on average: in a ring of one batch, all work comes at once, with nothing in between.
//! After an undone shrink, the wait before the next doubles; after a long time without changes, it halves.
//!
//! Setting the number while the feed runs ends the choice.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::WorkerMeters;
use crate::base::meter::WaitMeter;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::base::sync::std_locks::{Condvar, Mutex, MutexGuard};

/// How long a window is: the time between two checks.
const WINDOW: Duration = Duration::from_millis(100);
/// The share of runs that may be pressing before it counts.
const PRESSING: f64 = 0.05;
/// The share of its time that a worker should be active. The rest is its reserve.
const EASY: f64 = 0.6;
/// How many windows in a row must have a worker to spare before the number shrinks: at least, and at most.
const PATIENCE: u32 = 10;
const PATIENCE_MAX: u32 = 600;
/// After this many times the patience without a change, the patience is halved.
const LONG: u32 = 10;

/// Keeps the surplus workers waiting.
#[derive(Debug)]
pub(crate) struct Governor {
    /// The number of workers. It only grows.
    threads: AtomicUsize,
    /// When the first workers were started, and by how many nanoseconds in total the others came later.
    start: Instant,
    later: AtomicU64,
    /// The number of active workers: those with the lowest numbers.
    active: AtomicUsize,
    /// Whether the work has ended; then no worker stands by.
    over: Mutex<bool>,
    changed: Condvar,
    /// `None` if the number is configured.
    choice: Option<Choice>,
    /// Whether the number was set while the feed runs. It changes under the lock of `over`.
    is_set: AtomicBool,
}

/// The observations from which the number is chosen.
#[derive(Debug)]
struct Choice {
    meters: Arc<WorkerMeters>,
    /// The waits of each lane's consumer.
    consumers: Vec<Arc<WaitMeter>>,
    start: Instant,
    /// The time of the next check, in nanoseconds from the start.
    next_look: AtomicU64,
    /// Runs that workers took since the last check; `pressing` counts those of them that were pressing.
    taken: AtomicUsize,
    pressing: AtomicUsize,
    last: Mutex<WorkersCheck>,
}

/// The state at the last check.
#[derive(Debug)]
struct WorkersCheck {
    at: Instant,
    idle: Duration,
    lessons: Lessons,
}

impl Governor {
    /// A governor of `threads` workers that are always active.
    pub(crate) fn of(threads: usize) -> Self {
        Governor {
            threads: AtomicUsize::new(threads),
            start: Instant::now(),
            later: AtomicU64::new(0),
            active: AtomicUsize::new(threads),
            over: Mutex::new(false),
            changed: Condvar::new(),
            choice: None,
            is_set: AtomicBool::new(false),
        }
    }

    /// A governor of `threads` workers with these meters, which keeps as few of them active as the consumers
    /// need.
    pub(crate) fn choosing(
        threads: usize,
        meters: &Arc<WorkerMeters>,
        consumers: Vec<Arc<WaitMeter>>,
    ) -> Self {
        let start = Instant::now();
        let choice = Choice {
            meters: meters.clone(),
            consumers,
            start,
            next_look: AtomicU64::new(nanos(WINDOW)),
            taken: AtomicUsize::new(0),
            pressing: AtomicUsize::new(0),
            last: Mutex::new(WorkersCheck { at: start, idle: Duration::ZERO, lessons: Lessons::default() }),
        };
        Governor { choice: Some(choice), ..Governor::of(threads) }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// There are this many workers now.
    pub(crate) fn has_grown(&self, threads: usize) {
        let before = self.threads.fetch_max(threads, Relaxed);
        let added = threads.saturating_sub(before) as u64;
        self.later.fetch_add(nanos(self.start.elapsed()).saturating_mul(added), Relaxed);
    }

    /// The time that all workers together have existed at this moment.
    pub(crate) fn time(&self, until: Instant) -> Duration {
        let threads = u32::try_from(self.threads()).unwrap_or(u32::MAX);
        let since_start = until.saturating_duration_since(self.start).saturating_mul(threads);
        since_start.saturating_sub(Duration::from_nanos(self.later.load(Relaxed)))
    }

    /// Fixes the number of active workers: from now on it is not chosen.
    pub(crate) fn set(&self, workers: usize) {
        let over = lock(&self.over);
        self.is_set.store(true, Relaxed);
        self.change(workers);
        drop(over);
        self.changed.notify_all();
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Returns when the worker with this number should work. `idle` counts the wait.
    pub(crate) fn stand_by(&self, number: usize, idle: &WaitMeter) {
        if number < self.active() {
            return;
        }
        let _wait = idle.begin();
        let mut over = lock(&self.over);
        while number >= self.active() && !*over {
            over = self.changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Called when a worker has taken a run; `left` runs are still in the queue.
    #[inline]
    pub(crate) fn took(&self, left: usize) {
        if let Some(choice) = &self.choice {
            choice.taken.fetch_add(1, Relaxed);
            if left > 0 && choice.consumers.iter().any(|consumer| consumer.is_waiting()) {
                choice.pressing.fetch_add(1, Relaxed);
            }
        }
    }

    /// Called when a worker is lost, which should never happen: perhaps only those on standby are left.
    pub(crate) fn lose_one(&self) {
        self.set_active(self.threads());
    }

    /// Ends the work and wakes all workers on standby.
    pub(crate) fn end(&self) {
        *lock(&self.over) = true;
        self.changed.notify_all();
    }

    /// Checks now and then whether the number of workers is right. Any thread may call it, and often.
    pub(crate) fn look(&self, now: Instant) {
        if let Some(choice) = &self.choice
            && !self.is_set.load(Relaxed)
            && let Some(active) = choice.look(now, self.threads(), self.active())
        {
            let over = lock(&self.over);
            // A number that was set meanwhile takes precedence.
            if !self.is_set.load(Relaxed) {
                self.change(active);
            }
            drop(over);
            self.changed.notify_all();
        }
    }

    fn set_active(&self, workers: usize) {
        let over = lock(&self.over);
        self.change(workers);
        drop(over);
        self.changed.notify_all();
    }

    /// Changes the number of active workers, under the lock of `over`, so that no worker misses it.
    fn change(&self, workers: usize) {
        tracing::debug!(workers, was = self.active(), of = self.threads(), "active workers");
        self.active.store(workers, Relaxed);
    }
}

impl Choice {
    /// The new number of active workers, if it changes.
    fn look(&self, now: Instant, threads: usize, active: usize) -> Option<usize> {
        if nanos(now.saturating_duration_since(self.start)) < self.next_look.load(Relaxed) {
            return None;
        }
        // If a thread does not get the lock, another one is checking.
        let mut last = self.last.try_lock().ok()?;
        let elapsed = now.saturating_duration_since(last.at);
        if elapsed < WINDOW {
            return None;
        }
        self.next_look.store(nanos(now.saturating_duration_since(self.start) + WINDOW), Relaxed);
        let idle = self.meters.idle.read(now).time;
        let idled = idle.saturating_sub(last.idle).as_secs_f64() / elapsed.as_secs_f64();
        (last.at, last.idle) = (now, idle);
        let [taken, pressing] = [&self.taken, &self.pressing].map(|count| count.swap(0, Relaxed) as f64);
        let (worked, is_pressing) = (threads as f64 - idled, pressing > PRESSING * taken);
        let chosen = last.lessons.choose(WindowSample { active, threads, worked, is_pressing });
        (chosen != active).then_some(chosen)
    }
}

/// The observations of one window.
#[derive(Clone, Copy, Debug)]
struct WindowSample {
    /// The number of active workers; `threads` is the number of all workers.
    active: usize,
    threads: usize,
    /// The average number of workers that were busy.
    worked: f64,
    /// Whether a consumer waited for runs that no worker took.
    is_pressing: bool,
}

/// What earlier windows have taught.
#[derive(Clone, Copy, Debug)]
struct Lessons {
    patience: u32,
    /// Windows in a row with a worker to spare.
    calm: u32,
    /// Windows since the last change of the number or the patience.
    unchanged: u32,
    /// Whether the number was reduced, and has not grown since.
    is_try: bool,
}

impl Default for Lessons {
    fn default() -> Self {
        Lessons { patience: PATIENCE, calm: 0, unchanged: 0, is_try: false }
    }
}

impl Lessons {
    fn choose(&mut self, seen: WindowSample) -> usize {
        let WindowSample { active, threads, worked, is_pressing } = seen;
        self.unchanged = self.unchanged.saturating_add(1);
        if self.unchanged >= LONG * self.patience {
            (self.patience, self.unchanged) = ((self.patience / 2).max(PATIENCE), 0);
        }
        if is_pressing {
            self.calm = 0;
            if active == threads {
                return threads;
            }
            if std::mem::take(&mut self.is_try) {
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
            }
            self.unchanged = 0;
            return (active * 2).min(threads);
        }
        if active == 1 || worked >= EASY * (active - 1) as f64 {
            self.calm = 0;
            return active;
        }
        self.calm += 1;
        if self.calm < self.patience {
            return active;
        }
        (self.calm, self.unchanged, self.is_try) = (0, 0, true);
        // By half at most: a moment's rest may not last.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let enough = (worked.max(0.0) / EASY).ceil() as usize;
        enough.max(active / 2).max(1)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Locks a mutex of the standard library: the record path must not allocate when two threads first contend.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    /// Simulates windows of a feed with work for `work` workers, whose consumers wait as soon as there are
    /// fewer.
    fn settle(lessons: &mut Lessons, active: &mut usize, threads: usize, work: f64, windows: usize) {
        for _ in 0..windows {
            let is_pressing = work > *active as f64 * 0.95;
            let worked = work.min(*active as f64);
            *active = lessons.choose(WindowSample { active: *active, threads, worked, is_pressing });
            assert!((1..=threads).contains(active));
        }
    }

    #[test]
    fn as_many_work_as_the_consumers_need_and_some_more() {
        for threads in [1, 2, 3, 16, 128] {
            for work in [0.0, 0.1, 0.9, 1.5, 3.0, 9.7, 60.0, 200.0] {
                let (mut lessons, mut active) = (Lessons::default(), threads);
                settle(&mut lessons, &mut active, threads, work, 1000);
                let whole =
                    |workers: f64| (1..=threads).find(|&all| all as f64 >= workers).unwrap_or(threads);
                let least = whole(work);
                assert!(active >= least, "{threads} threads, work for {work}: {active}");
                let most = (whole(work / EASY) + 1).min(threads);
                assert!(active <= most, "{threads} threads, work for {work}: {active}");
            }
        }
    }

    #[test]
    fn standby_workers_return_in_a_few_windows_when_there_is_more_to_do() {
        let (mut lessons, mut active) = (Lessons::default(), 64);
        settle(&mut lessons, &mut active, 64, 0.5, 1000);
        assert_eq!(active, 1);
        settle(&mut lessons, &mut active, 64, 64.0, 6);
        assert_eq!(active, 64);
    }

    #[test]
    fn a_number_that_was_wrong_is_tried_less_and_less_often_and_that_is_forgotten_again() {
        // Quiet for a while, then work for all.
        let (mut lessons, mut active, mut changes) = (Lessons::default(), 4, 0);
        for _ in 0..1000 {
            let before = active;
            settle(&mut lessons, &mut active, 4, 0.2, 20);
            changes += usize::from(active < before);
            settle(&mut lessons, &mut active, 4, 4.0, 5);
        }
        assert!(changes < 150, "{changes}");
        settle(&mut lessons, &mut active, 4, 0.2, 20_000);
        assert_eq!((active, lessons.patience), (1, PATIENCE));
    }

    #[test]
    fn one_wrong_try_costs_patience_once_however_many_come_back() {
        let (mut lessons, mut active) = (Lessons::default(), 64);
        settle(&mut lessons, &mut active, 64, 0.5, 65);
        assert_eq!((active, lessons.patience), (1, PATIENCE));
        settle(&mut lessons, &mut active, 64, 64.0, 10);
        assert_eq!((active, lessons.patience), (64, 2 * PATIENCE));
    }

    #[test]
    fn consumers_that_wait_for_a_slow_reader_do_not_call_for_workers() {
        let (mut lessons, mut active) = (Lessons::default(), 16);
        for _ in 0..1000 {
            // The queue is always empty.
            active = lessons.choose(WindowSample { active, threads: 16, worked: 1.2, is_pressing: false });
        }
        assert_eq!(active, 2);
    }

    #[test]
    fn a_ring_of_one_batch_has_all_workers_though_they_rest_between_batches() {
        for (threads, work) in [(2, 0.8), (16, 0.8), (16, 4.0), (64, 8.0)] {
            let (mut lessons, mut active) = (Lessons::default(), threads);
            for _ in 0..1000 {
                // A step takes one unit of time; filling the next batch takes one worker `work`.
                let filling = work / active as f64;
                let worked = work / (1.0 + filling);
                active = lessons.choose(WindowSample { active, threads, worked, is_pressing: true });
                assert_eq!(active, threads, "{work}");
            }
        }
    }

    #[test]
    fn a_run_is_pressing_where_another_lies_in_the_queue_and_a_consumer_waits() {
        let (meters, consumer) = (Arc::new(WorkerMeters::default()), Arc::new(WaitMeter::default()));
        let governor = Governor::choosing(4, &meters, vec![Arc::default(), consumer.clone()]);
        let look_at = |governor: &Governor, windows: std::ops::Range<u32>, left: usize| {
            let start = Instant::now();
            for window in windows {
                governor.took(left);
                governor.look(start + WINDOW * 2 * window);
            }
            governor.active()
        };
        let resting: Vec<_> = (0..4).map(|_| meters.idle.begin()).collect();
        assert_eq!(look_at(&governor, 0..100, 9), 1, "nobody waits");
        let waits = consumer.begin();
        assert_eq!(look_at(&governor, 200..205, 0), 1, "the queue is empty");
        assert_eq!(look_at(&governor, 300..303, 1), 4);
        assert_eq!(look_at(&governor, 400..500, 1), 4, "a needed worker is not sent away, whatever its load");
        drop((resting, waits));
    }

    #[test]
    fn a_configured_number_stays() {
        let governor = Governor::of(3);
        for window in 0..100 {
            governor.took(0);
            governor.look(Instant::now() + WINDOW * 2 * window);
        }
        assert_eq!((governor.active(), governor.threads()), (3, 3));
    }

    #[test]
    fn workers_that_come_later_have_existed_for_less_time() {
        let governor = Governor::of(2);
        let later = governor.start + Duration::from_secs(100);
        assert_eq!(governor.time(later), Duration::from_secs(200));
        governor.has_grown(5);
        let since = governor.start.elapsed();
        let time = governor.time(later);
        let [least, most] = [since, Duration::ZERO].map(|late| Duration::from_secs(500) - 3 * late);
        assert!(least <= time && time <= most, "{time:?}");
        governor.has_grown(5);
        assert_eq!(governor.time(later), time, "nobody was added");
    }

    #[test]
    fn a_number_that_is_set_while_the_feed_runs_is_not_chosen_again() {
        let meters = Arc::new(WorkerMeters::default());
        let governor = Governor::choosing(4, &meters, vec![Arc::default()]);
        let resting: Vec<_> = (0..4).map(|_| meters.idle.begin()).collect();
        governor.has_grown(6);
        governor.set(5);
        for window in 0..100 {
            governor.took(0);
            governor.look(Instant::now() + WINDOW * 2 * window);
        }
        assert_eq!((governor.active(), governor.threads()), (5, 6));
        drop(resting);
    }

    #[test]
    fn standby_workers_are_sent_to_work_and_released_at_the_end() {
        let (governor, idle) = (Governor::of(3), WaitMeter::default());
        governor.set_active(1);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| governor.stand_by(1, &idle));
            let third = scope.spawn(|| governor.stand_by(2, &idle));
            governor.stand_by(0, &idle);
            governor.set_active(2);
            second.join().unwrap();
            assert!(!third.is_finished());
            governor.end();
            third.join().unwrap();
        });
        assert!(!idle.is_waiting());
    }

    #[test]
    fn a_worker_that_is_lost_leaves_its_work_to_those_who_stand_by() {
        let (governor, idle) = (Governor::of(2), WaitMeter::default());
        governor.set_active(1);
        std::thread::scope(|scope| {
            scope.spawn(|| governor.stand_by(1, &idle));
            governor.lose_one();
        });
        assert_eq!(governor.active(), 2);
    }
}
