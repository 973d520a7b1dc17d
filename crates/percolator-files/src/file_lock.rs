//! Waits for the lock of a file (`flock`), as long as its holders make progress.

use std::fs::{File, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The first pause between two tries, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(20)];

/// Locks a file. Returns `false` if others have had the lock for as long as `patience`, and `progress` has
/// not changed.
///
/// # Errors
///
/// [`io::Error`] if the file cannot be locked.
pub fn lock<P: PartialEq>(file: &File, patience: Duration, progress: impl Fn() -> P) -> io::Result<bool> {
    let [mut pause, longest] = PAUSES;
    let (mut start, mut known) = (Instant::now(), None);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {
                if known.is_none() || start.elapsed() >= patience {
                    let found = Some(progress());
                    if found == known {
                        return Ok(false);
                    }
                    (start, known) = (Instant::now(), found);
                }
                thread::sleep(pause);
                pause = longest.min(2 * pause);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_lock_is_waited_for_while_its_holder_goes_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(file.path()).unwrap());
        assert!(lock(&first, Duration::ZERO, || ()).unwrap());
        // It stays what it was after three looks.
        let looks = Cell::new(0);
        let progress = || {
            looks.set(looks.get() + 1);
            looks.get().min(3)
        };
        assert!(!lock(&second, Duration::ZERO, progress).unwrap());
        assert_eq!(looks.get(), 4);
        // The holder ends at the third look.
        let looks = Cell::new(0);
        let progress = || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                first.unlock().unwrap();
            }
            looks.get()
        };
        assert!(lock(&second, Duration::ZERO, progress).unwrap());
    }
}
