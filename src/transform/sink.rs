//! Where the rows of a record's output go, one after the other.
//!
//! A batch that stays in the caches is written as it is computed. A larger one is written past the caches: an
//! ordinary write makes the processor read the line first, which doubles the memory traffic. A write past the
//! caches must cover whole lines, or it is several times slower than an ordinary one, and a row is seldom a
//! whole number of lines. So rows are assembled in a [`Stage`], which stays in the first-level cache, and are
//! written out in whole lines, across row boundaries. At a record's two ends, which share lines with its
//! neighbours, writes are ordinary.

#![expect(unsafe_code, reason = "writes past the caches are ordered by hand")]

use bytemuck::Pod;

use crate::base::cache_lines::{self, LINE_BYTES, Page};

/// The destination of a record's output, which arrives row by row.
pub(super) trait Sink<E> {
    /// Whether the output is so large that prefetching the input pays off.
    const IS_LARGE: bool;

    /// Returns room for the next elements: `wanted` of them, or as many as fit in one piece, and at least
    /// one.
    ///
    /// # Panics
    ///
    /// If a record's rows are longer than its place, which is a bug of the caller. Nothing beyond the place
    /// is written.
    fn room(&mut self, wanted: usize) -> &mut [E];
}

const TOO_LONG: &str = "a record's rows are longer than its place";

/// Writes directly to the output.
pub(super) struct Direct<'a, E>(pub(super) &'a mut [E]);

impl<E> Sink<E> for Direct<'_, E> {
    const IS_LARGE: bool = false;

    #[inline(always)]
    fn room(&mut self, wanted: usize) -> &mut [E] {
        debug_assert!(wanted <= self.0.len(), "{TOO_LONG}");
        let (room, rest) = std::mem::take(&mut self.0).split_at_mut(wanted);
        self.0 = rest;
        room
    }
}

/// The buffer in which rows are assembled into lines.
pub(super) type Stage = Page;

/// Writes to the output past the caches.
///
/// Invariant: `stage[from..to]` is the next part of `out`, not yet written, and `out` has room for it. Each
/// element has the same offset within a line in the stage as it will have in the output.
pub(super) struct Streamed<'a, E: Pod> {
    stage: &'a mut [E],
    from: usize,
    to: usize,
    out: &'a mut [E],
}

impl<'a, E: Pod> Streamed<'a, E> {
    const LINE: usize = LINE_BYTES / size_of::<E>();

    #[inline(always)]
    pub(super) fn new(stage: &'a mut Stage, out: &'a mut [E]) -> Self {
        let within = out.as_ptr().addr() % LINE_BYTES / size_of::<E>();
        Streamed { stage: bytemuck::cast_slice_mut(&mut stage.0), from: within, to: within, out }
    }

    /// Writes the stage's whole lines, and moves the rest to its beginning.
    #[inline(always)]
    fn flush(&mut self) {
        self.write_plainly(self.from.next_multiple_of(Self::LINE).min(self.to));
        let lines = self.to / Self::LINE * Self::LINE;
        if lines > self.from {
            let (now, later) = std::mem::take(&mut self.out).split_at_mut(lines - self.from);
            let staged = bytemuck::cast_slice(&self.stage[self.from..lines]);
            // SAFETY: `drop` issues the fence, at the end of this record's work. Until then the output is
            // borrowed here, so nothing else reads it. The value is never forgotten: it is a local variable
            // of the functions that fill a record.
            unsafe { cache_lines::write_past_caches(bytemuck::cast_slice_mut(now), staged) };
            self.out = later;
            self.stage.copy_within(lines..self.to, 0);
            (self.from, self.to) = (0, self.to - lines);
        }
    }

    /// Writes the stage up to `end` with ordinary writes.
    #[inline(always)]
    fn write_plainly(&mut self, end: usize) {
        let (now, later) = std::mem::take(&mut self.out).split_at_mut(end - self.from);
        now.copy_from_slice(&self.stage[self.from..end]);
        (self.out, self.from) = (later, end);
    }
}

impl<E: Pod> Sink<E> for Streamed<'_, E> {
    const IS_LARGE: bool = true;

    #[inline(always)]
    fn room(&mut self, wanted: usize) -> &mut [E] {
        if self.to + wanted > self.stage.len() {
            self.flush();
        }
        let from = self.to;
        let to = (from + wanted).min(self.stage.len());
        debug_assert!(to - self.from <= self.out.len(), "{TOO_LONG}");
        self.to = to;
        &mut self.stage[from..to]
    }
}

impl<E: Pod> Drop for Streamed<'_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        // After a panic the record is lost, with its staged elements: these may be the ones that have no
        // room.
        if !std::thread::panicking() {
            self.flush();
            self.write_plainly(self.to);
            debug_assert!(self.out.is_empty(), "a record's rows are shorter than its place");
        }
        cache_lines::fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts rows of 100 into a place of `place` elements within a longer output.
    #[cfg(debug_assertions)]
    fn put_rows(rows: usize, place: usize, is_streamed: bool) {
        let (mut stage, mut out) = (Stage::filled(0), vec![0_u32; 10_000]);
        let place = &mut out[..place];
        let put = |sink: &mut dyn FnMut(usize) -> usize| {
            for _ in 0..rows {
                let mut left = 100;
                while left > 0 {
                    left -= sink(left);
                }
            }
        };
        if is_streamed {
            let mut streamed = Streamed::new(&mut stage, place);
            put(&mut |wanted| streamed.room(wanted).len());
        } else {
            let mut direct = Direct(place);
            put(&mut |wanted| direct.room(wanted).len());
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn rows_that_do_not_fit_their_place_are_found() {
        let panics = |rows, place, is_streamed| {
            std::panic::catch_unwind(|| put_rows(rows, place, is_streamed)).is_err()
        };
        // Far less than a stage holds, and more.
        for rows in [1, 2, 30] {
            for is_streamed in [false, true] {
                assert!(!panics(rows, 100 * rows, is_streamed));
                assert!(panics(rows, 100 * rows - 1, is_streamed), "{rows} rows are one element too long");
            }
            assert!(panics(rows, 100 * rows + 1, true), "{rows} rows are one element too short");
        }
    }

    #[test]
    fn rows_of_any_width_come_out_as_they_were_put_in() {
        let mut stage = Stage::filled(0);
        let (every_width, every_start) = if cfg!(miri) { (15, 13) } else { (1, 1) };
        for width in (1..70).chain([226, 227, 1000, 1023, 1024, 1025, 5000]).step_by(every_width) {
            for start in (0..20).step_by(every_start) {
                let mut out = vec![u32::MAX; start + 7 * width + 40];
                let mut streamed = Streamed::new(&mut stage, &mut out[start..start + 7 * width]);
                let mut next = 0..;
                for _row in 0..7 {
                    let mut left = width;
                    while left > 0 {
                        let room = streamed.room(left);
                        left -= room.len();
                        room.fill_with(|| next.next().unwrap());
                    }
                }
                drop(streamed);
                assert!(
                    out[start..start + 7 * width].iter().copied().eq(0..7 * u32::try_from(width).unwrap())
                );
                let others = out[..start].iter().chain(&out[start + 7 * width..]);
                assert!(others.copied().all(|element| element == u32::MAX));
            }
        }
    }
}
