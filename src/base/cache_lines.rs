//! Cache lines: asked for ahead of their use, and written past the caches.
//!
//! # Who fences
//!
//! An ordinary write is seen by whoever sees a later write of the same thread: what is sent through a channel, or
//! counted down with `Release`, brings along what was written before. A write past the caches is not part of that
//! promise: it waits in the processor, `Release` does not order it (on x86_64 that may be a plain write), and it may
//! come to memory after the word that says it is there. So:
//!
//! 1. **Who writes past the caches fences**, on the same thread: a [`fence`] orders what this processor wrote, and
//!    says nothing of what others did. Nobody can do it for the writer, and a reader need not do anything.
//! 2. **When:** behind the last such write, and before anything that tells another thread, or a device, that the bytes
//!    are there, or lets it write there. In this crate that is at the end of the call that writes:
//!    [`fill_past_caches`] before it returns, a record's `Streamed` (`transform/sink.rs`) when it is dropped, which is
//!    before its transform returns.
//! 3. **Why a reader on another thread sees the bytes:** behind the fence they are as any that were written before it.
//!    A batch's go the usual way: the worker leaves its places, which counts its writers down with `AcqRel`
//!    (`batch.rs`, invariant 3); who brings that to zero says so through a channel, from which the prefetcher, the
//!    consumer and the device have the batch.
//!
//! The bytes themselves are borrowed to the writer until then (`&mut`), so that nothing in safe code reads them too
//! early. To the thread that writes them they are there at once.

#![expect(unsafe_code, reason = "the instructions that say so to the processor are no safe functions")]

use once_cell::sync::OnceCell;

/// What the processor fetches and writes at a time.
pub(crate) const LINE_BYTES: usize = 64;

/// Bytes of the largest cache that a processor of this machine has, or those of an ordinary one where that is not told.
pub(crate) fn cache_bytes() -> usize {
    static BYTES: OnceCell<usize> = OnceCell::new();
    *BYTES.get_or_init(|| {
        let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
        let sizes = caches.filter_map(|cache| std::fs::read_to_string(cache.path().join("size")).ok());
        sizes.filter_map(|size| size_of_text(&size)).max().unwrap_or(CACHE_BYTES)
    })
}

/// Of an ordinary machine.
const CACHE_BYTES: usize = 32 << 20;

/// Reads what Linux writes: `32768K`, or with another unit, or with none.
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

/// Asks for bytes that are wanted soon.
#[inline(always)]
pub(crate) fn ask_for(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        ask(line);
    }
}

/// Asks for bytes that are wanted soon, and once: they are to push nothing out of the larger caches.
#[inline(always)]
pub(crate) fn ask_for_once(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        ask_once(line);
    }
}

// Miri has no such instruction, and no cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ask(line: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: a prefetch reads nothing that a program could see, and cannot fault; every x86_64 has it.
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

/// Writes whole lines to memory without reading them first, and without a place for them in the caches.
///
/// # Safety
///
/// Before another thread or a device may read or write `to`, this one calls [`fence`]: such writes are ordered by nothing
/// else. That holds on every way out, so where a panic may come between, a drop fences.
///
/// # Panics
///
/// If the two are not of one length, if that is no multiple of a line, or if either does not begin at a line.
pub(crate) unsafe fn write_past_caches(to: &mut [u8], from: &[u8]) {
    let is_whole = |bytes: &[u8]| {
        bytes.len().is_multiple_of(LINE_BYTES) && bytes.as_ptr().addr().is_multiple_of(LINE_BYTES)
    };
    assert!(to.len() == from.len() && is_whole(to) && is_whole(from), "lines are written whole");
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; the lines were seen to be whole.
        unsafe { x86::write_512(to, from) }
    } else {
        // SAFETY: every x86_64 has the instructions; the lines were seen to be whole.
        unsafe { x86::write_128(to, from) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// As much as leaves the first-level cache in one go.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Page(pub(crate) [u8; PAGE_BYTES]);

/// Bytes of a [`Page`]: little of the first-level cache.
pub(crate) const PAGE_BYTES: usize = 4096;

impl Page {
    /// With this value in every byte.
    pub(crate) fn filled(value: u8) -> Self {
        Page([value; PAGE_BYTES])
    }
}

/// Writes a page again and again to memory that begins at a line, past the caches but for what is less than a line.
pub(crate) fn fill_past_caches(to: &mut [u8], page: &Page) {
    for to in to.chunks_mut(PAGE_BYTES) {
        let (lines, rest) = to.split_at_mut(to.len() / LINE_BYTES * LINE_BYTES);
        let (from, last) = page.0.split_at(lines.len());
        // SAFETY: the fence below comes before this call returns, and until then `to` is borrowed.
        unsafe { write_past_caches(lines, from) };
        rest.copy_from_slice(&last[..rest.len()]);
    }
    fence();
}

/// Orders what this thread has [written past the caches](write_past_caches) before whatever it writes next: whoever sees
/// the one sees the other. Where no such write is made (not x86_64) there is nothing to do.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: every x86_64 has it, and it only waits.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_load_si128, _mm_stream_si128, _mm512_load_si512, _mm512_stream_si512,
    };

    use super::LINE_BYTES;

    /// # Safety
    ///
    /// Both are whole lines, and as many.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn write_512(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.chunks_exact_mut(LINE_BYTES).zip(from.chunks_exact(LINE_BYTES)) {
            // SAFETY: a line is as long as the register, and begins where a line does.
            let line: __m512i = unsafe { _mm512_load_si512(from.as_ptr().cast()) };
            // SAFETY: as above.
            unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), line) };
        }
    }

    /// # Safety
    ///
    /// Both are whole lines, and as many.
    pub(super) unsafe fn write_128(to: &mut [u8], from: &[u8]) {
        const PART: usize = size_of::<__m128i>();

        for (to, from) in to.chunks_exact_mut(PART).zip(from.chunks_exact(PART)) {
            // SAFETY: a part is as long as the register, and begins at a multiple of its length, as lines do.
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
        // SAFETY: no other thread reads it.
        unsafe { write_past_caches(&mut to.0[LINE_BYTES..4 * LINE_BYTES], &from.0[..3 * LINE_BYTES]) };
        fence();
        assert_eq!(to.0[LINE_BYTES..4 * LINE_BYTES], from.0[..3 * LINE_BYTES]);
        assert!(to.0[..LINE_BYTES].iter().chain(&to.0[4 * LINE_BYTES..]).all(|&byte| byte == 0xee));
        #[cfg(target_arch = "x86_64")]
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
