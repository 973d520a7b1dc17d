//! The allocator of every binary that includes this file. It counts the calls and bytes of all threads while
//! [`count`] runs, the calls of each thread, and the bytes that are held.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature")]
#![allow(dead_code, unreachable_pub, reason = "every binary uses its own part of this")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static WATCHED: AtomicBool = AtomicBool::new(false);
static TRACED: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static TRACING: Cell<bool> = const { Cell::new(false) };
    static CALLS_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Makes the other tests of this binary wait until the guard is dropped. A test that must count 0 on all
/// threads also needs a process of its own, because libtest allocates when another test ends.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of the allocator, and the bytes they requested, on all threads while `run` runs. With
/// `ALLOCATION_TRACE` set, prints where the first ones come from.
pub fn count(run: impl FnOnce()) -> (usize, usize) {
    TRACED.store(std::env::var_os("ALLOCATION_TRACE").is_some(), Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    WATCHED.store(true, Ordering::SeqCst);
    run();
    WATCHED.store(false, Ordering::SeqCst);
    (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// What `run` returns, and the most bytes that were held at a time beyond those held before it.
pub fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = run();
    (result, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}

/// The bytes that are held now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Calls of the allocator on this thread so far.
pub fn calls_here() -> usize {
    CALLS_HERE.get()
}

fn note(bytes: usize) {
    CALLS_HERE.set(CALLS_HERE.get() + 1);
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
    if !WATCHED.load(Ordering::Relaxed) {
        return;
    }
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    if TRACED.load(Ordering::Relaxed) && calls < 20 && !TRACING.replace(true) {
        WATCHED.store(false, Ordering::Relaxed);
        eprintln!("{bytes} bytes on {:?}:\n{}", std::thread::current().name(), Backtrace::force_capture());
        TRACING.set(false);
        WATCHED.store(true, Ordering::Relaxed);
    }
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// Counts the old memory and the new as held together: the system may copy one to the other.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
