//! `cv::resize` of OpenCV 4.6 with `INTER_LINEAR`, bit for bit, on planes of bytes.
//!
//! ```text
//! position(i) = (i + 0.5) * (from / to) - 0.5             in f64, then rounded to f32
//! near, part  = floor(position), position - near          in f32
//! weights     = round((1 - part) * 2048), round(part * 2048)      ties to even
//!
//! along a row:    sum = pixels[near] * weights[0] + pixels[near + 1] * weights[1]
//! down a column:  term(row, weight) = weight * (sum[row] >> 4) >> 16
//!                 out = term(near, weights[0]) + term(near + 1, weights[1]) + 2 >> 2
//! ```
//!
//! Both terms are truncated before they are added. A row position outside the image keeps
//! its weights; a column position outside does not: a row above the first uses the first row with both
//! weights. If both sides are exactly halved, OpenCV takes another path, the rounded mean of four pixels,
//! with the same result.

use crate::ImageShape;
use crate::simd::{InstructionSet, Kernel};

/// The sum of the weights of two pixels.
const ONE: i32 = 2048;
/// The bits by which a sum is shifted, so that it fits an `i16`; the columns do not need them.
const SUM_SHIFT: u32 = 4;

/// The input of one row or column of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tap {
    /// The first of two neighbours; -1 before the first one.
    near: isize,
    weights: [i16; 2],
}

impl Tap {
    fn new(index: usize, from: usize, to: usize) -> Self {
        // The reciprocal of the quotient, not the inverse quotient: they differ in the last bit.
        let scale = 1.0 / (to as f64 / from as f64);
        #[expect(clippy::cast_possible_truncation, reason = "positions are single floats in OpenCV")]
        let position = ((index as f64 + 0.5) * scale - 0.5) as f32;
        let floor = position.floor();
        let part = position - floor;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a position is within the image, or one before it"
        )]
        let near = floor as isize;
        Self { near, weights: [weight(1.0 - part), weight(part)] }
    }

    /// The same as a column: outside the image, only the pixel at its edge counts.
    fn within(self, from: usize) -> Column {
        let last = from - 1;
        match usize::try_from(self.near) {
            Err(_) => Column { near: 0, next: last.min(1), weights: [weight(1.0), 0] },
            Ok(near) if near >= last => Column { near: last, next: last, weights: [weight(1.0), 0] },
            Ok(near) => Column { near, next: near + 1, weights: self.weights },
        }
    }
}

fn weight(part: f32) -> i16 {
    #[expect(clippy::cast_possible_truncation, reason = "a part of 2048")]
    let weight = (part * ONE as f32).round_ties_even() as i16;
    weight
}

/// The two pixels of a row from which a column of the result is computed.
#[derive(Clone, Copy, Debug)]
struct Column {
    near: usize,
    next: usize,
    weights: [i16; 2],
}

/// Resizes image after image. It keeps its tables, and recomputes them only if the widths change.
#[derive(Debug, Default)]
pub(super) struct Resizer {
    /// The widths that the columns are for.
    widths: (usize, usize),
    columns: Vec<Column>,
    /// Two rows of sums.
    sums: [Vec<i16>; 2],
}

impl Resizer {
    /// Resizes the planes of an image to another height and width. No side is zero.
    pub(super) fn resize(&mut self, planes: &[u8], from: ImageShape, out: &mut [u8], to: ImageShape) {
        let planes = planes.chunks_exact(from.height * from.width);
        let outs = out.chunks_exact_mut(to.height * to.width);
        self.prepare(from.width, to.width);
        for (plane, out) in planes.zip(outs) {
            self.resize_plane(plane, from, out, to);
        }
    }

    fn prepare(&mut self, from: usize, to: usize) {
        if self.widths != (from, to) {
            self.columns.clear();
            self.columns.extend((0..to).map(|index| Tap::new(index, from, to).within(from)));
            self.sums.iter_mut().for_each(|sums| sums.resize(to, 0));
            self.widths = (from, to);
        }
    }

    fn resize_plane(&mut self, plane: &[u8], from: ImageShape, out: &mut [u8], to: ImageShape) {
        // The rows of the result go down the plane, and consecutive ones often share an input row.
        let mut held = [None; 2];
        for (index, out) in out.chunks_exact_mut(to.width).enumerate() {
            let tap = Tap::new(index, from.height, to.height);
            let wanted = [tap.near, tap.near + 1].map(|row| row.clamp(0, from.height as isize - 1) as usize);
            if held[1] == Some(wanted[0]) {
                self.sums.swap(0, 1);
                held.swap(0, 1);
            }
            for ((sums, held), row) in self.sums.iter_mut().zip(&mut held).zip(wanted) {
                if *held != Some(row) {
                    along_row(&plane[row * from.width..][..from.width], &self.columns, sums);
                    *held = Some(row);
                }
            }
            InstructionSet::widest().run(DownColumns { sums: &self.sums, weights: tap.weights, out });
        }
    }
}

fn along_row(row: &[u8], columns: &[Column], sums: &mut [i16]) {
    for (sum, column) in sums.iter_mut().zip(columns) {
        let [near, next] = [column.near, column.next].map(|at| i32::from(row[at]));
        let [first, second] = column.weights.map(i32::from);
        // At most 255 * 2048 / 16.
        #[expect(clippy::cast_possible_truncation, reason = "fits 15 bits")]
        let shifted = ((near * first + next * second) >> SUM_SHIFT) as i16;
        *sum = shifted;
    }
}

struct DownColumns<'a> {
    sums: &'a [Vec<i16>; 2],
    weights: [i16; 2],
    out: &'a mut [u8],
}

impl Kernel for DownColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let [upper, lower] = self.sums;
        let [first, second] = self.weights.map(i32::from);
        for ((out, &upper), &lower) in self.out.iter_mut().zip(upper).zip(lower) {
            let [upper, lower] = [(i32::from(upper) * first) >> 16, (i32::from(lower) * second) >> 16];
            #[expect(clippy::cast_possible_truncation, reason = "a mean of bytes")]
            let pixel = ((upper + lower + 2) >> 2) as u8;
            *out = pixel;
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The pseudocode above, pixel by pixel.
    fn naive(plane: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
        let at = |y: usize, x: usize| i32::from(plane[y * from.1 + x]);
        if from.0 == 2 * to.0 && from.1 == 2 * to.1 {
            let four = |y, x| at(y, x) + at(y, x + 1) + at(y + 1, x) + at(y + 1, x + 1);
            let means = (0..to.0).flat_map(|y| (0..to.1).map(move |x| (y, x)));
            return means.map(|(y, x)| ((four(2 * y, 2 * x) + 2) >> 2) as u8).collect();
        }
        let tap = |index: usize, from: usize, to: usize| {
            let position = ((index as f64 + 0.5) * (1.0 / (to as f64 / from as f64)) - 0.5) as f32;
            let part = position - position.floor();
            let weights = [1.0 - part, part].map(|part| (part * 2048.0).round_ties_even() as i32);
            (position.floor() as i64, weights)
        };
        let sum = |y: usize, x: usize| {
            let (near, weights) = tap(x, from.1, to.1);
            if near < 0 || near + 1 >= from.1 as i64 {
                return at(y, near.clamp(0, from.1 as i64 - 1) as usize) * 2048;
            }
            at(y, near as usize) * weights[0] + at(y, near as usize + 1) * weights[1]
        };
        let pixel = |y: usize, x: usize| {
            let (near, weights) = tap(y, from.0, to.0);
            let row = |near: i64| sum(near.clamp(0, from.0 as i64 - 1) as usize, x) >> 4;
            ((((weights[0] * row(near)) >> 16) + ((weights[1] * row(near + 1)) >> 16) + 2) >> 2) as u8
        };
        (0..to.0).flat_map(|y| (0..to.1).map(move |x| (y, x))).map(|(y, x)| pixel(y, x)).collect()
    }

    fn size() -> impl Strategy<Value = (usize, usize)> {
        (1..40usize, 1..40usize)
    }

    proptest! {
        #[test]
        fn matches_naive(
            from in size(),
            to in size(),
            halved: bool,
            bytes in proptest::collection::vec(any::<u8>(), 4 * 40 * 40 * 2),
        ) {
            let from = if halved { (2 * to.0, 2 * to.1) } else { from };
            let shape = |(height, width)| ImageShape { channels: 2, height, width };
            let planes = &bytes[..2 * from.0 * from.1];
            let mut out = vec![0; 2 * to.0 * to.1];
            let mut resizer = Resizer::default();
            // Tables of another width are not reused.
            let other = ImageShape { channels: 1, height: 1, width: 3 };
            resizer.resize(&[1, 2, 3], other, &mut [0; 50], shape((1, 25)));
            resizer.resize(planes, shape(from), &mut out, shape(to));
            let wanted: Vec<u8> =
                planes.chunks_exact(from.0 * from.1).flat_map(|plane| naive(plane, from, to)).collect();
            prop_assert!(out == wanted, "{:?} to {:?}", from, to);
        }
    }
}
