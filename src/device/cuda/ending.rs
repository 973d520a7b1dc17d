//! The end of the process, at which the driver shuts itself down while other threads go on.
//!
//! A lane's thread outlives its feed: it frees memory once the last batch has returned. If `exit` shuts the
//! driver down in the middle of such a call, the call reads freed memory, and the process dies of a signal
//! (seen with NVIDIA's driver 580.159, in `cuDevicePrimaryCtxRelease`). So a handler of `exit` refuses new
//! calls first, and waits for those that are under way, for [`WAIT_MAX`]. Memory that is not freed by then is
//! freed with the process.
//!
//! This does not cover the driver's start; handlers that the driver may register later than that, which run
//! before this one; calls that take longer; and calls of other code.

#![expect(unsafe_code, reason = "only C's library has handlers of exit")]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of [`Call`]s, and [`ENDS`].
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Set in [`CALLS`] once the process ends.
const ENDS: usize = 1 << (usize::BITS - 1);
/// The process that registered the handler. Its children inherit the handler and the count, but not the
/// threads that were counted.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// How long `exit` waits: a call that waits for a kernel may never return.
const WAIT_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(100);

/// A thread's use of the driver. `exit` waits for it, for [`WAIT_MAX`] at most.
#[must_use]
pub(super) struct Call(());

impl Call {
    /// `None` once the process ends: then the driver must not be called any more.
    pub(super) fn begin() -> Option<Call> {
        // Either the handler counts this call, or the call sees that it is late.
        let before = CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Call(());
        (before & ENDS == 0).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the process is ending.
pub(super) fn has_begun() -> bool {
    CALLS.load(Ordering::SeqCst) & ENDS != 0
}

/// Registers the handler. The driver must be started: handlers run in the opposite order of their
/// registration, and this one must run before the driver's.
pub(super) fn watch() {
    PROCESS.store(std::process::id(), Ordering::SeqCst);
    // SAFETY: the handler is a function without arguments, and does not unwind.
    if unsafe { libc::atexit(end) } != 0 {
        tracing::warn!(
            "exit cannot be made to wait for the driver: it may crash while a lane frees its memory"
        );
    }
}

extern "C" fn end() {
    CALLS.fetch_or(ENDS, Ordering::SeqCst);
    if PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    let start = Instant::now();
    while CALLS.load(Ordering::SeqCst) != ENDS && start.elapsed() < WAIT_MAX {
        std::thread::sleep(PAUSE);
    }
}
