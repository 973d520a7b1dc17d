//! Time as leases count it: only durations, never dates.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_files::shown;
use rustix::time::{ClockId, clock_gettime};

/// Says how much time has passed since a moment that is the same for all who use the clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time since that moment. It never goes back.
    fn now(&self) -> Duration;
}

/// The time since the machine was started, which all processes of a time namespace share. It goes on while
/// the machine sleeps, and cannot be set.
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
    ///
    /// # Errors
    ///
    /// An error if that cannot be told: a clock that is ahead of the others' would end their leases.
    pub(crate) fn read() -> io::Result<Self> {
        Self::read_below(Path::new("/proc/self"))
    }

    /// What the kernel says of this process is below this folder.
    fn read_below(own: &Path) -> io::Result<Self> {
        let path = own.join("timens_offsets");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A kernel without time namespaces says all else.
                let is_told = own.join("stat").exists() && !own.join("ns/time").exists();
                return is_told.then_some(MachineClock { added: 0 }).ok_or_else(|| {
                    let path = shown::path(&path);
                    io::Error::new(
                        io::ErrorKind::NotFound,
                        format!(
                            "there is no {path}, so it cannot be told what a time namespace adds to the \
                             machine's clock: mount /proc where this process sees it"
                        ),
                    )
                });
            }
            Err(error) => return Err(error),
        };
        // What is read is of the namespace that children get.
        let [here, childrens] =
            ["ns/time", "ns/time_for_children"].map(|name| fs::read_link(own.join(name)).ok());
        if here != childrens {
            return Err(io::Error::other(
                "this process has unshared its time namespace, so it cannot tell what its clock adds to the \
                 machine's: open the records in a child of it",
            ));
        }
        let says = || format!("{} says {text:?}", shown::path(&path));
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, says());
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

    /// A kernel without time namespaces adds nothing. Where there is no /proc, nobody knows.
    #[test]
    fn what_cannot_be_told_of_the_clock_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path();
        let added =
            || MachineClock::read_below(own).map(|clock| clock.added).map_err(|error| error.to_string());
        assert!(added().unwrap_err().contains("mount /proc"), "{:?}", added());
        fs::write(own.join("stat"), "1 (me)").unwrap();
        assert_eq!(added(), Ok(0));
        fs::create_dir(own.join("ns")).unwrap();
        assert_eq!(added(), Ok(0));
        let link = |name: &str, to: &str| std::os::unix::fs::symlink(to, own.join("ns").join(name)).unwrap();
        link("time", "../stat");
        assert!(added().unwrap_err().contains("timens_offsets"), "{:?}", added());
        link("time_for_children", "../stat");
        fs::write(own.join("timens_offsets"), "monotonic 0 0\nboottime 7 0\n").unwrap();
        assert_eq!(added(), Ok(7_000_000_000));
        fs::write(own.join("timens_offsets"), "monotonic 0 0\n").unwrap();
        assert!(added().unwrap_err().contains("says \"monotonic"), "{:?}", added());
        fs::remove_file(own.join("ns/time_for_children")).unwrap();
        link("time_for_children", "time:[1]");
        assert!(added().unwrap_err().contains("unshared its time namespace"), "{:?}", added());
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
