//! Time as leases count it: only how long something took, never what day it is.

use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Says how much time has passed since a moment that is the same for all who use the clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time since that moment. It never goes back.
    fn now(&self) -> Duration;
}

/// The time since the machine was started, which all processes of a time namespace share. It goes on while
/// the machine sleeps, and nobody can set it.
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

/// The time since the machine was started, which all its processes share: without what the time namespace of
/// this process adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    /// In nanoseconds.
    added: i128,
}

impl MachineClock {
    /// Finds out what is added here. It is the same as long as the process lives.
    pub(crate) fn read() -> io::Result<Self> {
        const PATH: &str = "/proc/self/timens_offsets";
        let text = match fs::read_to_string(PATH) {
            Ok(text) => text,
            // This kernel has no time namespaces.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MachineClock { added: 0 }),
            Err(error) => return Err(error),
        };
        // What is read is of the namespace that children get.
        let [own, childrens] =
            ["time", "time_for_children"].map(|name| fs::read_link(format!("/proc/self/ns/{name}")).ok());
        if own != childrens {
            return Err(io::Error::other(
                "this process has unshared its time namespace, so it cannot tell what its clock adds to the \
                 machine's: open the records in a child of it",
            ));
        }
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{PATH} says {text:?}"));
        Ok(MachineClock { added: Self::parsed(&text).ok_or_else(invalid)? })
    }

    fn parsed(text: &str) -> Option<i128> {
        let mut words = text.lines().find_map(|line| line.strip_prefix("boottime"))?.split_whitespace();
        let [seconds, nanoseconds] = [words.next()?, words.next()?].map(|word| word.parse::<i64>().ok());
        Some(i128::from(seconds?) * 1_000_000_000 + i128::from(nanoseconds?))
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        let here = i128::try_from(BootClock.now().as_nanos()).unwrap_or(i128::MAX);
        // A machine is not started before its own beginning.
        Duration::from_nanos(u64::try_from(here.saturating_sub(self.added)).unwrap_or(0))
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
    fn what_a_time_namespace_adds_is_taken_off() {
        let offsets = |text| MachineClock::parsed(text);
        assert_eq!(
            offsets("monotonic           0         0\nboottime      100000         5\n"),
            Some(100_000_000_000_005)
        );
        assert_eq!(
            offsets("monotonic           0         0\nboottime         -10         0\n"),
            Some(-10_000_000_000)
        );
        assert_eq!(offsets("monotonic           0         0\n"), None);
        assert_eq!(offsets("boottime x 0"), None);
        let added = MachineClock { added: 1_000_000_000 };
        let before = BootClock.now();
        let seen = added.now() + Duration::from_secs(1);
        assert!(before <= seen && seen <= BootClock.now());
    }

    #[test]
    fn clocks_go_forward() {
        let first = BootClock.now();
        assert!(!first.is_zero() && BootClock.now() >= first);
        let clock = ManualClock::new();
        clock.clone().advance(Duration::from_secs(3));
        assert_eq!(clock.now(), Duration::from_secs(3));
    }
}
