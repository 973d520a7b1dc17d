//! What a parser allocates: an allocator that counts, and the limit that the length of the input sets.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a parser may hold at one time while it reads `n` bytes: `base + per_byte * n`. More means that a
/// file's claims were believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Tables and buffers of a fixed size, in bytes.
    pub(crate) base: usize,
    /// The bytes for each byte of input.
    pub(crate) per_byte: usize,
}

impl Budget {
    /// 1 MiB, and so much for each byte.
    pub(crate) const fn per_byte(per_byte: usize) -> Self {
        Budget { base: 1 << 20, per_byte }
    }

    /// So many MiB, and so much for each byte.
    pub(crate) const fn mebibytes(base: usize, per_byte: usize) -> Self {
        Budget { base: base << 20, per_byte }
    }
}

/// Runs a parser on these bytes.
///
/// # Panics
///
/// If this thread holds more at one time than the budget allows.
pub(crate) fn within<T>(bytes: &[u8], budget: Budget, parse: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = parse();
    let held = usize::try_from(PEAK.get().saturating_sub(before)).unwrap_or(0);
    let allowed = budget.per_byte.saturating_mul(bytes.len()).saturating_add(budget.base);
    assert!(
        held <= allowed,
        "{held} bytes were held for {} bytes of input: {allowed} are allowed",
        bytes.len()
    );
    result
}

/// Runs what keeps a parser's results for a comparison: what it allocates is not the parser's.
pub(crate) fn uncounted<T>(keep: impl FnOnce() -> T) -> T {
    let before = IS_PAUSED.replace(true);
    let result = keep();
    IS_PAUSED.set(before);
    result
}

thread_local! {
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
    /// The bytes that this thread has allocated, less those that it has freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn note(change: isize) {
    // A thread that ends may free when its variables are gone.
    if IS_PAUSED.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    let _ = HELD.try_with(|held| {
        let now = held.get().wrapping_add(change);
        held.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(layout.size().cast_signed().wrapping_neg());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // The system may copy one to the other: for a moment both are held.
        note(bytes.cast_signed());
        note(layout.size().cast_signed().wrapping_neg());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_at_one_time_counts() {
        let few = Budget { base: 0, per_byte: 1000 };
        assert_eq!(within(&[0; 3], few, || (0..100).map(|_| vec![7_u8; 2000].len()).sum::<usize>()), 200_000);
    }

    #[test]
    #[should_panic(expected = "bytes were held for 3 bytes of input: 3000 are allowed")]
    fn what_is_too_much_is_told() {
        within(&[0; 3], Budget { base: 0, per_byte: 1000 }, || vec![7_u8; 3001].len());
    }
}
