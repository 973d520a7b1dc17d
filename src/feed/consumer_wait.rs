//! How long a consumer has waited for one batch, and whether a warning or an error is due.

use std::time::{Duration, Instant};

/// The shortest time between two warnings of one wait.
const WARNING_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The longest time between two warnings of one wait.
const WARNING_INTERVAL_MAX: Duration = Duration::from_secs(300);

/// One wait of a consumer for a batch. It may be interrupted and go on.
#[derive(Debug)]
pub(super) struct ConsumerWait {
    start: Instant,
    /// The time between the last warning and the next.
    interval: Duration,
    /// When the next warning is due, and when the wait may become an error, from the start of the wait.
    warns_at: Option<Duration>,
    gives_up_at: Option<Duration>,
}

impl ConsumerWait {
    pub(super) fn new(warn_after: Duration, give_up_after: Option<Duration>) -> Self {
        let (interval, warns_at) = (warn_after, Some(warn_after));
        ConsumerWait { start: Instant::now(), interval, warns_at, gives_up_at: give_up_after }
    }

    pub(super) fn waited(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time until something is due.
    pub(super) fn left(&self) -> Duration {
        let next = [self.warns_at, self.gives_up_at].into_iter().flatten().min();
        next.map_or(Duration::MAX, |at| at.saturating_sub(self.waited()))
    }

    /// Whether the wait is long enough for an error. Says so once: while a consumer waits, the number of
    /// batches it holds only falls, so if it holds too few for this error now, it does from now on.
    pub(super) fn is_at_its_end(&mut self) -> bool {
        self.gives_up_at.take_if(|at| *at <= self.start.elapsed()).is_some()
    }

    /// Whether a warning is due. The next one is then due after twice the time.
    pub(super) fn warns(&mut self) -> bool {
        let waited = self.waited();
        let is_due = self.warns_at.is_some_and(|at| at <= waited);
        if is_due {
            let interval = self.interval.saturating_mul(2).clamp(WARNING_INTERVAL_MIN, WARNING_INTERVAL_MAX);
            (self.interval, self.warns_at) = (interval, waited.checked_add(interval));
        }
        is_due
    }
}
