//! Who notices that a reading hangs, or that one of its threads panics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Far longer than any reading takes: what has not ended by then hangs.
const HUNG_AFTER: Duration = Duration::from_secs(60);

static PANICS: AtomicUsize = AtomicUsize::new(0);
/// What is being read, and since when.
static READING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// Watches this process from now on: one that hangs is ended, with a message.
pub fn start() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(panic);
    }));
    std::thread::spawn(|| {
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            if let Some((what, since)) = &*READING.lock().unwrap_or_else(PoisonError::into_inner)
                && since.elapsed() > HUNG_AFTER
            {
                eprintln!("hangs: {what}");
                std::process::abort();
            }
        }
    });
}

/// Runs a reading; returns whether a thread of the process panicked meanwhile.
pub fn over<T>(what: &str, read: impl FnOnce() -> T) -> (Option<T>, bool) {
    let set = |reading| *READING.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    set(Some((what.to_owned(), Instant::now())));
    let before = PANICS.load(Ordering::SeqCst);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    set(None);
    (result.ok(), PANICS.load(Ordering::SeqCst) != before)
}
