//! Upsamples a component to the image's number of pixels.
//!
//! ```text
//! two pixels per sample     the nearer sample has weight 3/4, the one beyond 1/4; at the edge the nearer one
//!                           is also the one beyond
//!     across                (3 * nearer + beyond + [1, 2][x % 2]) / 4
//!     down                  (3 * nearer + beyond + [1, 2][y % 2]) / 4
//!     both                  sums of rows: s = 3 * nearer + beyond
//!                           of those: (3 * nearer + beyond + [8, 7][x % 2]) / 16
//! otherwise                 the sample that contains the pixel
//! ```
//!
//! That is libjpeg-turbo's "fancy upsampling" to the last bit. It does not interpolate along rows of two
//! samples or fewer, nor if a block becomes one pixel.

#![expect(clippy::cast_possible_truncation, reason = "a mean of bytes is a byte")]

use super::part::{Axis, Part};

/// Rows of at most this many samples are not interpolated horizontally.
const PLAIN_SAMPLES_MAX: usize = 2;

/// A component's samples: those of the blocks of its part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'a> {
    pub(super) samples: &'a [u8],
    pub(super) part: &'a Part,
    pub(super) down: Axis,
    pub(super) across: Axis,
}

/// Buffers for a row of one component.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The sums of two rows, with one more element at each end.
    sums: Vec<i16>,
    pixels: Vec<u8>,
}

impl Samples<'_> {
    /// The needed samples of a row.
    #[inline(always)]
    fn row(&self, y: usize) -> &[u8] {
        let start = (y - self.part.side * self.part.rows.start) * self.part.stride();
        let left = self.part.side * self.part.columns.start;
        &self.samples[start + self.across.start - left..start + self.across.end - left]
    }

    /// Returns `width` pixels of row `y`, from the column `left` on.
    #[inline(always)]
    pub(super) fn pixels<'r>(&'r self, y: usize, left: usize, width: usize, room: &'r mut Row) -> &'r [u8] {
        let (own, across) = (y / self.down.step, self.across);
        let start = left - across.step * across.start;
        let nearer = self.row(own);
        let interpolated = across.interpolates && across.samples > PLAIN_SAMPLES_MAX;
        let beyond =
            if y.is_multiple_of(2) { own.saturating_sub(1) } else { (own + 1).min(self.down.samples - 1) };
        let len = across.step * nearer.len();
        room.pixels.resize(len.max(room.pixels.len()), 0);
        match (self.down.step, across.step) {
            (1, 1) => return &nearer[start..start + width],
            (2, 1) if self.down.interpolates => between(nearer, self.row(beyond), y, &mut room.pixels),
            (down @ 1..=2, 2) if interpolated => {
                room.sums.resize((nearer.len() + 2).max(room.sums.len()), 0);
                let sums = &mut room.sums[..nearer.len() + 2];
                if down == 2 {
                    sum(nearer, self.row(beyond), sums);
                    along::<8, 7, 4>(sums, &mut room.pixels);
                } else {
                    widen(nearer, sums);
                    along::<1, 2, 2>(sums, &mut room.pixels);
                }
            }
            (_, step) => {
                for (out, &sample) in room.pixels.chunks_exact_mut(step).zip(nearer) {
                    out.fill(sample);
                }
            }
        }
        &room.pixels[start..start + width]
    }
}

/// Interpolates between two rows.
#[inline(always)]
fn between(nearer: &[u8], beyond: &[u8], y: usize, out: &mut [u8]) {
    let rounding = if y.is_multiple_of(2) { 1 } else { 2 };
    for ((out, &nearer), &beyond) in out.iter_mut().zip(nearer).zip(beyond) {
        *out = ((3 * u16::from(nearer) + u16::from(beyond) + rounding) >> 2) as u8;
    }
}

/// The weighted sum of two rows, with the first and the last element repeated.
#[inline(always)]
fn sum(nearer: &[u8], beyond: &[u8], sums: &mut [i16]) {
    for ((sum, &nearer), &beyond) in sums[1..].iter_mut().zip(nearer).zip(beyond) {
        *sum = 3 * i16::from(nearer) + i16::from(beyond);
    }
    double_ends(sums);
}

/// A row, with the first and the last element repeated.
#[inline(always)]
fn widen(nearer: &[u8], sums: &mut [i16]) {
    for (sum, &nearer) in sums[1..].iter_mut().zip(nearer) {
        *sum = nearer.into();
    }
    double_ends(sums);
}

#[inline(always)]
fn double_ends(sums: &mut [i16]) {
    let last = sums.len() - 1;
    (sums[0], sums[last]) = (sums[1], sums[last - 1]);
}

/// Computes two pixels for each sum, with the rounding terms `LEFT` and `RIGHT`, and drops `BITS` fractional
/// bits.
#[inline(always)]
fn along<const LEFT: i16, const RIGHT: i16, const BITS: u32>(sums: &[i16], out: &mut [u8]) {
    let len = sums.len() - 2;
    let (before, own, after) = (&sums[..len], &sums[1..=len], &sums[2..]);
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (((pair, &before), &own), &after) in pairs.iter_mut().zip(before).zip(own).zip(after) {
        *pair = [((3 * own + before + LEFT) >> BITS) as u8, ((3 * own + after + RIGHT) >> BITS) as u8];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;
    use crate::jpeg::frame::Frame;
    use crate::jpeg::part::axes;
    use proptest::prelude::*;

    /// A pixel of the whole component, by the formulas.
    fn naive(
        samples: &dyn Fn(usize, usize) -> u8,
        [down, across]: [Axis; 2],
        fancy: bool,
        y: usize,
        x: usize,
    ) -> u8 {
        let other = |at: usize, axis: Axis| {
            let own = at / axis.step;
            if at.is_multiple_of(2) { own.max(1) - 1 } else { (own + 1).min(axis.samples - 1) }
        };
        let (own_y, own_x) = (y / down.step, x / across.step);
        let sum = |x: usize| 3 * u16::from(samples(own_y, x)) + u16::from(samples(other(y, down), x));
        let wide = across.samples > 2;
        let number = match (down.step, across.step) {
            (2, 1) if fancy => (sum(x) + [1, 2][y % 2]) >> 2,
            (2, 2) if fancy && wide => (3 * sum(own_x) + sum(other(x, across)) + [8, 7][x % 2]) >> 4,
            (1, 2) if fancy && wide => {
                let beyond = u16::from(samples(y, other(x, across)));
                (3 * u16::from(samples(y, own_x)) + beyond + [1, 2][x % 2]) >> 2
            }
            _ => samples(own_y, own_x).into(),
        };
        u8::try_from(number).unwrap()
    }

    proptest! {
        #[test]
        fn matches_naive(
            height in 1..40usize,
            width in 1..60usize,
            factors in (1..5u8, 1..5u8, 0..2usize),
            seed in any::<u32>(),
            side in prop::sample::select(vec![8, 4, 2, 1usize]),
            window in (0..40usize, 0..60usize, 1..40usize, 1..60usize),
        ) {
            let size = |side: usize| u8::try_from(side).unwrap();
            let luma = factors.0 << 4 | factors.1;
            let segment = [8, 0, size(height), 0, size(width), 3, 1, luma, 0, 2, 0x11, 0, 3, luma, 0];
            let frame = Frame::parse(0xc0, 0, &segment).unwrap().reduced(side);
            let [height, width] = frame.pixels();
            let (top, left) = (window.0 % height, window.1 % width);
            let (height, width) = (1 + window.2 % (height - top), 1 + window.3 % (width - left));
            let window = Window { top, left, height, width };
            let component = &frame.components()[factors.2];
            let sample = |y: usize, x: usize| {
                let (y, x) = ((y as u32).wrapping_mul(0x9e37_79b9), (x as u32).wrapping_mul(0x85eb_ca6b));
                let number = y ^ x ^ seed;
                (number.wrapping_mul(0xc2b2_ae35) >> 24) as u8
            };
            let [down, across] = axes(&frame, component, window);
            let part = Part::new([down, across], component.side);
            let corner = [part.side * part.rows.start, part.side * part.columns.start];
            let samples: Vec<u8> = (0..part.samples())
                .map(|at| sample(corner[0] + at / part.stride(), corner[1] + at % part.stride()))
                .collect();
            let samples = Samples { samples: &samples, part: &part, down, across };
            let mut room = Row::default();
            for y in top..top + window.height {
                let found = samples.pixels(y, left, window.width, &mut room);
                let columns = left..left + window.width;
                let wanted: Vec<u8> =
                    columns.map(|x| naive(&sample, [down, across], side > 1, y, x)).collect();
                prop_assert_eq!(found, &wanted[..], "row {}", y);
            }
        }
    }
}
