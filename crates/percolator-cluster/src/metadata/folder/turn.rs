//! Whose turn it is: many may read at one time, or one may write.
//!
//! LMDB's own locks wait without a limit, so a process that was stopped inside a change would stop all others
//! for ever. Here the data file itself is locked (`flock`), by trying again and again until a deadline. The
//! kernel unlocks the file when a process dies, however it dies.
//!
//! Whoever tries again and again may always come too late. So only one of those who wait tries to lock the
//! data file: the one that has locked a second file, the line. Nobody else can start a turn meanwhile,
//! so it comes next. The line decides nothing else; if somebody removes its file, turns are only less fair.

use std::fs::{File, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::fault::Fault;

const FIRST_PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// What is done in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
}

/// Until when somebody waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    start: Instant,
    patience: Duration,
}

impl Deadline {
    pub(super) fn after(patience: Duration) -> Self {
        Deadline { start: Instant::now(), patience }
    }

    pub(super) fn left(&self) -> Duration {
        self.patience.saturating_sub(self.start.elapsed())
    }

    /// The fault of somebody who waited in vain.
    pub(super) fn passed(&self) -> Fault {
        Fault::Occupied(self.start.elapsed())
    }
}

/// A turn. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    locked: &'a File,
}

impl<'a> Turn<'a> {
    /// Waits for a turn with the data file.
    pub(super) fn take(
        data: &'a File,
        line: &'a File,
        work: Work,
        deadline: Deadline,
    ) -> Result<Self, Fault> {
        let _next = Turn::alone(line, deadline)?;
        match work {
            Work::Read => Turn::lock(data, deadline, File::try_lock_shared),
            Work::Write => Turn::alone(data, deadline),
        }
    }

    /// Waits until nobody else has locked this file.
    pub(super) fn alone(file: &'a File, deadline: Deadline) -> Result<Self, Fault> {
        Turn::lock(file, deadline, File::try_lock)
    }

    fn lock(
        file: &'a File,
        deadline: Deadline,
        try_lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, Fault> {
        let mut pause = FIRST_PAUSE;
        loop {
            match try_lock(file) {
                Ok(()) => return Ok(Turn { locked: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            let left = deadline.left();
            if left.is_zero() {
                return Err(deadline.passed());
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If that fails, the file is unlocked when it is closed.
        let _ = self.locked.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn readers_share_a_turn_and_a_writer_has_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name| File::create(folder.path().join(name)).unwrap();
        let (line, other_line) = (open("line"), open("line"));
        let (data, other_data) = (open("data"), open("data"));
        let take = |work| Turn::take(&data, &line, work, Deadline::after(LONG));
        let take_other =
            |work, patience| Turn::take(&other_data, &other_line, work, Deadline::after(patience));

        let reads = take(Work::Read).unwrap();
        drop(take_other(Work::Read, LONG).unwrap());
        assert!(matches!(take_other(Work::Write, SHORT), Err(Fault::Occupied(waited)) if waited >= SHORT));
        drop(reads);
        let writes = take_other(Work::Write, LONG).unwrap();
        assert!(matches!(
            Turn::take(&data, &line, Work::Read, Deadline::after(SHORT)),
            Err(Fault::Occupied(_))
        ));
        drop(writes);
        drop(take(Work::Write).unwrap());
    }

    #[test]
    fn a_turn_that_ends_is_taken_by_who_waits() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name| File::create(folder.path().join(name)).unwrap();
        let (line, data, other_line, other_data) = (open("line"), open("data"), open("line"), open("data"));
        let writes = Turn::take(&data, &line, Work::Write, Deadline::after(LONG)).unwrap();
        thread::scope(|scope| {
            let waits = scope
                .spawn(|| Turn::take(&other_data, &other_line, Work::Write, Deadline::after(LONG)).map(drop));
            drop(writes);
            waits.join().unwrap().unwrap();
        });
    }
}
