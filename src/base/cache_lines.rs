//! Prefetching of cache lines, and writes that bypass the caches.
//!
//! # Who fences
//!
//! When a thread sees an ordinary write, it also sees every earlier ordinary write of the same thread: a send
//! on a channel, or a decrement with `Release`, publishes what was written before it. Writes past the caches
//! are not part of that guarantee. They wait in the processor, `Release` does not order them (on x86_64 it
//! may be a plain write), and they may reach memory after the word that announces them. So:
//!
//! 1. **The thread that writes past the caches fences.** A [`fence`] orders only what its own processor
//!    wrote. No other thread can do it for the writer, and a reader need not do anything.
//! 2. **When:** after the last such write, and before anything that tells another thread or a device that the
//!    bytes are there, or that lets it write there. In this crate that is the end of the writing call:
//!    [`fill_past_caches`] fences before it returns, and a record's `Streamed` (`transform/sink.rs`) when it
//!    is dropped, which is before its transform returns.
//! 3. **Why a reader on another thread sees the bytes:** after the fence they are like any ordinary earlier
//!    write. A batch's bytes are published the usual way: the worker finishes its places, which decrements
//!    the number of writers with `AcqRel` (`batch/mod.rs`, invariant 3). The thread that brings the number to
//!    zero announces it through a channel, from which the prefetcher, the consumer and the device get the
//!    batch.
//!
//! Until then the writer holds the bytes as `&mut`, so that safe code cannot read them too early. The writing
//! thread itself sees them at once.

#![expect(unsafe_code, reason = "the intrinsics for prefetches, streaming stores and fences are unsafe")]

use once_cell::sync::OnceCell;

/// The number of bytes that the processor fetches and writes at a time.
pub(crate) const LINE_BYTES: usize = 64;

/// The size in bytes of this machine's largest cache, or a typical size if Linux does not report it.
pub(crate) fn cache_bytes() -> usize {
    static BYTES: OnceCell<usize> = OnceCell::new();
    *BYTES.get_or_init(|| {
        let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
        let sizes = caches.filter_map(|cache| std::fs::read_to_string(cache.path().join("size")).ok());
        sizes.filter_map(|size| size_of_text(&size)).max().unwrap_or(CACHE_BYTES)
    })
}

/// A typical machine's.
const CACHE_BYTES: usize = 32 << 20;

/// Parses a size as Linux writes it: `32768K`, with another unit, or with none.
fn size_of_text(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// Prefetches bytes that are needed soon.
#[inline(always)]
pub(crate) fn ask_for(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        ask(line);
    }
}

/// Prefetches bytes that are needed soon, and only once: they must evict nothing from the larger caches.
#[inline(always)]
pub(crate) fn ask_for_once(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        ask_once(line);
    }
}

// Miri has no such instruction, no cache, and no stores that go past one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ask(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: a prefetch reads nothing that a program could observe, and cannot fault; every x86_64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ask_once(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_NTA, _mm_prefetch};

    // SAFETY: as in `ask`.
    unsafe { _mm_prefetch::<_MM_HINT_NTA>(line.as_ptr().cast()) };
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn ask(_line: &[u8]) {}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn ask_once(_line: &[u8]) {}

/// Writes whole lines to memory without reading them first and without allocating them in the caches.
///
/// # Safety
///
/// This thread must call [`fence`] before another thread or a device may read or write `to`: nothing else
/// orders these writes. That holds on every exit path, so if a panic may come in between, a drop must fence.
///
/// # Panics
///
/// If the two slices differ in length, if that length is not a multiple of a line, or if either does not
/// start at a line.
pub(crate) unsafe fn write_past_caches(to: &mut [u8], from: &[u8]) {
    let is_whole = |bytes: &[u8]| {
        bytes.len().is_multiple_of(LINE_BYTES) && bytes.as_ptr().addr().is_multiple_of(LINE_BYTES)
    };
    assert!(to.len() == from.len() && is_whole(to) && is_whole(from), "lines are written whole");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; the assertion above has checked that the lines are
        // whole.
        unsafe { x86::write_512(to, from) }
    } else {
        // SAFETY: every x86_64 has the instructions; the assertion above has checked that the lines are
        // whole.
        unsafe { x86::write_128(to, from) }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    to.copy_from_slice(from);
}

/// A source block for [`fill_past_caches`], small enough to stay in the first-level cache.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Page(pub(crate) [u8; PAGE_BYTES]);

/// The size in bytes of a [`Page`]: a small part of the first-level cache.
pub(crate) const PAGE_BYTES: usize = 4096;

impl Page {
    /// Creates a page with this value in every byte.
    pub(crate) fn filled(value: u8) -> Self {
        Page([value; PAGE_BYTES])
    }
}

/// Fills memory that starts at a line with copies of a page, past the caches except for a last partial line.
pub(crate) fn fill_past_caches(to: &mut [u8], page: &Page) {
    for to in to.chunks_mut(PAGE_BYTES) {
        let (lines, rest) = to.split_at_mut(to.len() / LINE_BYTES * LINE_BYTES);
        let (from, last) = page.0.split_at(lines.len());
        // SAFETY: the fence below runs before this call returns, and `to` is borrowed until then.
        unsafe { write_past_caches(lines, from) };
        rest.copy_from_slice(&last[..rest.len()]);
    }
    fence();
}

/// Orders what this thread has [written past the caches](write_past_caches) before whatever it writes next: a
/// thread that sees the later write sees the earlier ones. Does nothing where there are no such writes: on
/// architectures other than x86_64, and under Miri.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: every x86_64 has it, and it only waits.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_load_si128, _mm_stream_si128, _mm512_load_si512, _mm512_stream_si512,
    };

    use super::LINE_BYTES;

    /// # Safety
    ///
    /// Both slices are whole lines, and the same number of them.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn write_512(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.chunks_exact_mut(LINE_BYTES).zip(from.chunks_exact(LINE_BYTES)) {
            // SAFETY: a line is as long as the register and is aligned like one.
            let line: __m512i = unsafe { _mm512_load_si512(from.as_ptr().cast()) };
            // SAFETY: as above.
            unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), line) };
        }
    }

    /// # Safety
    ///
    /// Both slices are whole lines, and the same number of them.
    pub(super) unsafe fn write_128(to: &mut [u8], from: &[u8]) {
        const PART: usize = size_of::<__m128i>();

        for (to, from) in to.chunks_exact_mut(PART).zip(from.chunks_exact(PART)) {
            // SAFETY: a part is as long as the register, and starts at a multiple of its length because lines
            // do.
            let part = unsafe { _mm_load_si128(from.as_ptr().cast()) };
            // SAFETY: as above.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), part) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 5 * LINE_BYTES]);

    #[test]
    fn lines_are_written_whole_and_no_other_is_touched() {
        let from = Lines(std::array::from_fn(|at| at.to_le_bytes()[0]));
        let mut to = Lines([0xee; 5 * LINE_BYTES]);
        // SAFETY: no other thread reads `to`.
        unsafe { write_past_caches(&mut to.0[LINE_BYTES..4 * LINE_BYTES], &from.0[..3 * LINE_BYTES]) };
        fence();
        assert_eq!(to.0[LINE_BYTES..4 * LINE_BYTES], from.0[..3 * LINE_BYTES]);
        assert!(to.0[..LINE_BYTES].iter().chain(&to.0[4 * LINE_BYTES..]).all(|&byte| byte == 0xee));
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let mut narrow = Lines([0; 5 * LINE_BYTES]);
            // SAFETY: both are five whole lines.
            unsafe { x86::write_128(&mut narrow.0, &from.0) };
            fence();
            assert_eq!(narrow.0, from.0);
        }
    }

    #[test]
    fn sizes_of_caches_are_read() {
        let sizes = [("32768K\n", Some(32 << 20)), ("2M", Some(2 << 20)), ("512", Some(512))];
        for (text, size) in sizes.into_iter().chain([("", None), ("K", None), ("1KK", None), ("-1K", None)]) {
            assert_eq!(size_of_text(text), size, "{text:?}");
        }
    }

    #[test]
    fn memory_of_any_length_is_filled() {
        #[repr(C, align(64))]
        struct Memory([u8; 9000]);

        for len in [0, 1, 63, 64, 65, 4095, 4096, 4097, 8999] {
            let mut memory = Memory([0; 9000]);
            fill_past_caches(&mut memory.0[..len], &Page::filled(7));
            let (filled, others) = memory.0.split_at(len);
            assert!(filled.iter().all(|&byte| byte == 7) && others.iter().all(|&byte| byte == 0), "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "lines are written whole")]
    fn a_part_of_a_line_is_refused() {
        let from = Lines([0; 5 * LINE_BYTES]);
        let mut to = Lines([0; 5 * LINE_BYTES]);
        // SAFETY: nothing is written.
        unsafe { write_past_caches(&mut to.0[4..4 + LINE_BYTES], &from.0[..LINE_BYTES]) };
    }
}
