//! Time as leases count it: only how long something took, never what day it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Says how much time has passed since a moment that is the same for all who use the clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time since that moment. It never goes back.
    fn now(&self) -> Duration;
}

/// The time since the machine was started, which all its processes share. It goes on while the machine
/// sleeps, and nobody can set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        // The kernel counts both from zero up.
        let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
    }
}

/// A clock that is set by hand, for tests. Its clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now: Arc<Mutex<Duration>>,
}

impl ManualClock {
    /// Returns a clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        *self.now.lock() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let first = BootClock.now();
        assert!(!first.is_zero() && BootClock.now() >= first);
        let clock = ManualClock::new();
        clock.clone().advance(Duration::from_secs(3));
        assert_eq!(clock.now(), Duration::from_secs(3));
    }
}
