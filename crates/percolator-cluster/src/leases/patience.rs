//! Trying again while the records cannot be reached.

use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::error::LeaseError;

/// The pauses between tries, each twice as long as the one before, up to a second. What ends an outage ends
/// it for all workers at once: so that not all of them ask in the same moment, a pause is cut at random, to
/// half of its length at the most.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    const MIN: Duration = Duration::from_millis(20);
    const MAX: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Pauses(Self::MIN)
    }

    pub(super) fn next(&mut self) -> Duration {
        let half = self.0 / 2;
        self.0 = (self.0 * 2).min(Self::MAX);
        half + half.mul_f64(f64::from(super::random()) / f64::from(u32::MAX))
    }
}

/// Does what asks another process, again and again while an error [may pass](LeaseError::may_pass). It must
/// be such that doing it twice is as good as once: what was asked for may have happened.
pub(super) fn patiently<T>(
    worker: &str,
    patience: Duration,
    work: impl Fn() -> Result<T, LeaseError>,
) -> Result<T, LeaseError> {
    let (start, mut pauses) = (Instant::now(), Pauses::new());
    loop {
        let error = match work() {
            Err(error) if error.may_pass() => error,
            done => return done,
        };
        let pause = pauses.next();
        if start.elapsed() + pause >= patience {
            return Err(error);
        }
        warn!(worker, %error, "it did not succeed: trying again");
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let first: BTreeSet<_> = (0..64).map(|_| Pauses::new().next()).collect();
        assert!(first.len() > 1, "{first:?}");
        assert!(first.iter().all(|pause| (Pauses::MIN / 2..=Pauses::MIN).contains(pause)), "{first:?}");
        let mut pauses = Pauses::new();
        let all: Vec<_> = (0..12).map(|_| pauses.next()).collect();
        assert!(all[11] >= Pauses::MAX / 2 && all.iter().all(|pause| *pause <= Pauses::MAX), "{all:?}");
    }
}
