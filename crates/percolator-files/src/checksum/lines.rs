//! Prefetches of cache lines.

#![expect(unsafe_code, reason = "the prefetch instruction is an unsafe function")]

/// Prefetches bytes that are needed soon.
#[inline(always)]
pub(crate) fn ask_for(bytes: &[u8]) {
    const LINE_BYTES: usize = 64;

    for line in bytes.chunks(LINE_BYTES) {
        ask(line);
    }
}

// Miri has no prefetch instruction, and no cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ask(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: a prefetch has no effect that a program can observe, and cannot fault; every x86_64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn ask(_line: &[u8]) {}
