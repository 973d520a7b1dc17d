//! The end of the process: the driver takes itself down in a handler of `exit`, and whoever is in a call by
//! then reads what is no longer there.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

// From libc, which std links.
unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static IS_DOWN: AtomicBool = AtomicBool::new(false);

/// A call in progress.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new() -> Inside {
        CALLS.fetch_add(1, Ordering::SeqCst);
        Inside(())
    }
}

/// Whether the driver is down: then a call does nothing, and says so.
pub(crate) fn is_down() -> bool {
    IS_DOWN.load(Ordering::SeqCst)
}

impl Drop for Inside {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers the handler, once: the driver is started again after each reset.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();

    // SAFETY: the handler is a function without arguments, and does not unwind.
    WATCHED.call_once(|| assert_eq!(unsafe { atexit(take_down) }, 0));
}

extern "C" fn take_down() {
    IS_DOWN.store(true, Ordering::SeqCst);
    if CALLS.load(Ordering::SeqCst) > 0 {
        eprintln!("stand-in: the process ends while a thread is in a call of the driver");
        std::process::abort();
    }
}
