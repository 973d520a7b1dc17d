//! Pillow's blur, which is a Gaussian's only nearly: three box blurs along rows, then three down columns.
//!
//! ```text
//! level = (inner * sum of 2 r + 1 pixels + outer * the next two + 2^23) >> 24      after each of the six
//! ```
//!
//! The outermost pixels are repeated outside the image. The sum of a box is the difference of two sums along
//! a row, or that of the row above with a pixel more and one less: the time does not grow with the box.

use super::{Picture, Scratch, single};
use crate::simd::{InstructionSet, Kernel};
use crate::{DecodeError, room};

/// The longest radius: that of the longest side.
const RADIUS_MAX: f64 = (1 << 20) as f64;

impl Picture<'_> {
    /// Blurs as Pillow's `ImageFilter.GaussianBlur` of this radius, which is about the standard deviation.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`] if there is no memory for two copies of a plane.
    ///
    /// # Panics
    ///
    /// If the radius is negative or longer than 2^20.
    pub fn pillow_blur(&mut self, radius: f64, scratch: &mut Scratch) -> Result<(), DecodeError> {
        assert!((0.0..=RADIUS_MAX).contains(&radius), "a radius within the longest side");
        let span = Span::of_gaussian(radius);
        if span == Span::ONE {
            return Ok(());
        }
        let (width, pixels) = (self.shape.width, self.pixels());
        let line_len = width + 2 * (span.reach + 1);
        let needed = pixels.saturating_mul(2).saturating_add(line_len);
        let (one, rest) = room(&mut scratch.planes, needed)?.split_at_mut(pixels);
        let (other, line) = rest.split_at_mut(pixels);
        let sums = room(&mut scratch.sums, line_len)?;
        for plane in self.planes_mut() {
            let set = InstructionSet::widest();
            set.run(AlongRows { span, plane, width, line, sums, out: one });
            set.run(DownColumns { span, plane: one, sums: &mut sums[..width], out: other });
            set.run(DownColumns { span, plane: other, sums: &mut sums[..width], out: one });
            set.run(DownColumns { span, plane: one, sums: &mut sums[..width], out: plane });
        }
        Ok(())
    }
}

/// The most bytes of scratch for images of so many rows and columns and radii up to this.
pub(super) fn held_bytes([rows, columns]: [usize; 2], radius: f64) -> usize {
    let line_len = columns.saturating_add(2 * (Span::of_gaussian(radius).reach + 1));
    let planes = rows.saturating_mul(columns).saturating_mul(2);
    planes.saturating_add(line_len.saturating_mul(1 + size_of::<u32>()))
}

/// A box of fractional width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// How many pixels on either side count fully.
    reach: usize,
    /// Their weight, in 24 bits.
    inner: u32,
    /// The weight of the next ones.
    outer: u32,
}

impl Span {
    /// A single pixel, which changes nothing.
    const ONE: Self = Span { reach: 0, inner: 1 << 24, outer: 0 };

    /// The box of which three are nearly a Gaussian.
    fn of_gaussian(radius: f64) -> Self {
        let radius = single(radius);
        let variance = radius * radius / 3.0;
        let length = single((12.0 * f64::from(variance) + 1.0).sqrt());
        let least = single(((f64::from(length) - 1.0) / 2.0).floor());
        let more = (2.0 * least + 1.0) * (least * (least + 1.0) - 3.0 * variance);
        let more = more / (6.0 * (variance - (least + 1.0) * (least + 1.0)));
        let radius = least + more;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is not negative")]
        let (reach, inner) = (radius as u32, ((1 << 24) as f32 / (radius * 2.0 + 1.0)) as u32);
        let outer = (1_u32 << 24).saturating_sub((reach * 2 + 1) * inner) / 2;
        Span { reach: reach as usize, inner, outer }
    }

    /// The level of a box with this sum, and these pixels next to it.
    #[inline(always)]
    fn level(self, sum: u32, first: u8, last: u8) -> u8 {
        let outer = u32::from(first) + u32::from(last);
        ((sum * self.inner + outer * self.outer + (1 << 23)) >> 24) as u8
    }
}

/// Three passes along each row.
struct AlongRows<'a> {
    span: Span,
    plane: &'a [u8],
    width: usize,
    /// Room for a row with its borders, and for the sums of its pixels.
    line: &'a mut [u8],
    sums: &'a mut [u32],
    out: &'a mut [u8],
}

impl Kernel for AlongRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { span, plane, width, line, sums, out } = self;
        let inner = 2 * span.reach + 1;
        let border = span.reach + 1;
        for (row, out) in plane.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            out.copy_from_slice(row);
            for _ in 0..3 {
                line[..border].fill(out[0]);
                line[border..border + width].copy_from_slice(out);
                line[border + width..].fill(out[width - 1]);
                let mut sum = 0;
                for (sum_before, &pixel) in sums.iter_mut().zip(&line[1..]) {
                    *sum_before = sum;
                    sum += u32::from(pixel);
                }
                let (firsts, lasts) = (&line[..width], &line[inner + 1..][..width]);
                let (starts, ends) = (&sums[..width], &sums[inner..][..width]);
                for ((out, outer), sums) in
                    out.iter_mut().zip(firsts.iter().zip(lasts)).zip(starts.iter().zip(ends))
                {
                    *out = span.level(sums.1 - sums.0, *outer.0, *outer.1);
                }
            }
        }
    }
}

/// A pass down the columns.
struct DownColumns<'a> {
    span: Span,
    plane: &'a [u8],
    /// Room for the sums of a row's boxes. It has the width of the plane.
    sums: &'a mut [u32],
    out: &'a mut [u8],
}

impl Kernel for DownColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { span, plane, sums, out } = self;
        let reach = span.reach;
        let width = sums.len();
        let bottom = plane.len() / width - 1;
        // The box of the first row: what is outside the image is the first row, and the last.
        sums.fill(0);
        add(sums, row_of(plane, 0, width), reach + 1);
        let below = reach.min(bottom);
        for row in 1..=below {
            add(sums, row_of(plane, row, width), 1);
        }
        add(sums, row_of(plane, bottom, width), reach - below);
        for (y, out) in out.chunks_exact_mut(width).enumerate() {
            let above = row_of(plane, y.saturating_sub(reach + 1), width);
            let below = row_of(plane, (y + reach + 1).min(bottom), width);
            for (((out, &sum), &above), &below) in out.iter_mut().zip(&*sums).zip(above).zip(below) {
                *out = span.level(sum, above, below);
            }
            let top = row_of(plane, y.saturating_sub(reach), width);
            for ((sum, &top), &below) in sums.iter_mut().zip(top).zip(below) {
                *sum = *sum + u32::from(below) - u32::from(top);
            }
        }
    }
}

#[inline(always)]
fn row_of(plane: &[u8], row: usize, width: usize) -> &[u8] {
    &plane[row * width..][..width]
}

/// Adds a row several times.
#[inline(always)]
fn add(sums: &mut [u32], row: &[u8], times: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "at most the longest radius")]
    let times = times as u32;
    for (sum, &pixel) in sums.iter_mut().zip(row) {
        *sum += times * u32::from(pixel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageShape;

    /// A pass by definition, from pixel to pixel of a line that has this step.
    fn pass(span: Span, plane: &mut [u8], start: usize, step: usize, len: usize) {
        let line: Vec<u64> = (0..len).map(|at| plane[start + at * step].into()).collect();
        let pixel = |at: usize| line[at.saturating_sub(span.reach + 1).min(len - 1)];
        for at in 0..len {
            let inner: u64 = (at + 1..at + 2 * span.reach + 2).map(pixel).sum();
            let outer = pixel(at) + pixel(at + 2 * span.reach + 2);
            let level = inner * u64::from(span.inner) + outer * u64::from(span.outer) + (1 << 23);
            plane[start + at * step] = u8::try_from(level >> 24).unwrap();
        }
    }

    #[test]
    fn boxes_of_any_width_are_as_defined() {
        let mut scratch = Scratch::default();
        for (height, width) in [(1, 1), (1, 40), (40, 1), (7, 5), (37, 50)] {
            for radius in [0.0, 0.3, 1.0, 1.5, 2.0, 4.9, 30.0, 200.0] {
                let span = Span::of_gaussian(radius);
                let level = |at: usize| u8::try_from(at * at * 31 % 256).unwrap();
                let image: Vec<u8> = (0..height * width).map(level).collect();
                let [mut found, mut wanted] = [image.clone(), image];
                for row in 0..height {
                    (0..3).for_each(|_| pass(span, &mut wanted, row * width, 1, width));
                }
                for column in 0..width {
                    (0..3).for_each(|_| pass(span, &mut wanted, column, width, height));
                }
                let shape = ImageShape { channels: 1, height, width };
                Picture::new(shape, &mut found).pillow_blur(radius, &mut scratch).unwrap();
                assert_eq!(found, wanted, "{height} x {width}, {radius}: {span:?}");
            }
        }
    }
}
