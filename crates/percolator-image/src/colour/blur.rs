//! torchvision's blur with a Gaussian, whose 2-d kernel is the product of a column and a row.
//!
//! ```text
//! weight[i] = exp(-(x / sigma)^2) / sum of all, x = (i - (k - 1) / 2) / sqrt(2)                     in f32
//! exact     = sum of (down[j] * across[i]) * pixel, in the order of rows, then columns              in f32
//! level     = exact, rounded, a half to even; neighbours outside the image are reflected
//! ```
//!
//! Two passes, down columns and along rows, take far fewer steps than the sum of the 2-d kernel, but round
//! otherwise. So they are computed first. How far they and the exact sum may be apart has a bound
//! ([`margin`]). Only where a half is that near, which is at about one pixel of a hundred or fewer, is the
//! exact sum computed too.

use super::{LANES, Picture, Scratch, lanes, single};
use crate::simd::{InstructionSet, Kernel};
use crate::{DecodeError, room};

impl Picture<'_> {
    /// Blurs with torchvision's Gaussian of this many columns and rows, and of a standard deviation along
    /// rows and down columns.
    ///
    /// torchvision refuses an image with a side of at most half the kernel. Here it is reflected more than
    /// once.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`] if there is no memory for a copy of a plane.
    ///
    /// # Panics
    ///
    /// If a side of the kernel is even, or a standard deviation is not positive.
    pub fn gaussian_blur(
        &mut self,
        kernel: [usize; 2],
        sigma: [f64; 2],
        scratch: &mut Scratch,
    ) -> Result<(), DecodeError> {
        assert!(kernel.iter().all(|side| side % 2 == 1), "an odd kernel");
        assert!(sigma.iter().all(|sigma| single(*sigma) > 0.0), "a positive standard deviation");
        let Scratch { planes, row, weights: [across, down], .. } = scratch;
        fill(across, kernel[0], sigma[0]);
        fill(down, kernel[1], sigma[1]);
        let least = 0.5 - single(margin(across, down));
        let borders = [kernel[0] / 2, kernel[1] / 2];
        let (width, height) = (self.shape.width, self.shape.height);
        let stride = (width.next_multiple_of(LANES) + 2 * borders[0]).next_multiple_of(LANES);
        let padded = room(planes, stride.saturating_mul(height + 2 * borders[1]))?;
        let row = room(row, stride)?;
        for plane in self.planes_mut() {
            reflect(plane, width, borders, padded, stride);
            InstructionSet::widest().run(Blur {
                padded,
                stride,
                across,
                down,
                least,
                row,
                width,
                out: plane,
            });
        }
        Ok(())
    }
}

/// Computes the weights of one direction.
fn fill(weights: &mut Vec<f32>, len: usize, sigma: f64) {
    let end = single((len - 1) as f64 / (2.0 * std::f64::consts::SQRT_2));
    weights.clear();
    for at in 0..len {
        let place = super::linspace(-end, end, len, at);
        let part = place / single(sigma);
        weights.push(single(f64::from(-(part * part)).exp()));
    }
    let sum = single(weights.iter().copied().map(f64::from).sum());
    for weight in weights {
        *weight /= sum;
    }
}

/// How far apart the two passes and the exact sum may be at most, in levels.
fn margin(across: &[f32], down: &[f32]) -> f64 {
    let products =
        down.iter().flat_map(|down| across.iter().map(|across| f64::from(*down) * f64::from(*across)));
    let passes = [across, down].map(|weights| rounding(weights.iter().copied().map(f64::from)));
    // A hundredth covers the roundings of what is computed here, and those of roundings.
    255.0 * 1.01 * (rounding(products) + passes[0] + passes[1])
}

/// How far a sum in `f32` of pixels with these weights may be off, for pixels of at most 1.
fn rounding(weights: impl Iterator<Item = f64>) -> f64 {
    const UNIT: f64 = 0.5 * f32::EPSILON as f64;
    let (mut sum, mut off) = (0.0, 0.0);
    for weight in weights {
        sum += weight;
        // An addition is rounded by half a unit at most, and never by more than what it adds.
        off += weight.min(UNIT * sum);
    }
    // A weight is rounded, and its product with the pixel.
    off + 2.0 * UNIT * sum
}

/// Copies a plane into the middle of a larger one, and reflects its pixels around, without repeating the
/// outermost.
fn reflect(plane: &[u8], width: usize, [left, top]: [usize; 2], padded: &mut [u8], stride: usize) {
    let height = plane.len() / width;
    for (at, padded) in padded.chunks_exact_mut(stride).enumerate() {
        let row = &plane[reflected(at, top, height) * width..][..width];
        padded[left..left + width].copy_from_slice(row);
        for at in (0..left).chain(left + width..width + 2 * left) {
            padded[at] = row[reflected(at, left, width)];
        }
    }
}

/// The place within a side that is reflected to this place, which counts from the start of the border.
fn reflected(at: usize, border: usize, side: usize) -> usize {
    let period = (2 * (side - 1)).max(1);
    // The border is at most a whole number of periods.
    let place = (at + border.next_multiple_of(period) - border) % period;
    place.min(period - place).min(side - 1)
}

struct Blur<'a> {
    /// The plane with its borders. Its rows have room for whole lanes.
    padded: &'a [u8],
    stride: usize,
    across: &'a [f32],
    down: &'a [f32],
    /// From this difference to the nearest level on, the exact sum is computed.
    least: f32,
    /// Room for a row of what the columns add up to.
    row: &'a mut [f32],
    width: usize,
    out: &'a mut [u8],
}

impl Kernel for Blur<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { padded, stride, across, down, least, row, width, out } = self;
        for (y, out) in out.chunks_exact_mut(width).enumerate() {
            let top = y * stride;
            for at in (0..stride).step_by(LANES) {
                let mut sums = [0.0; LANES];
                for (j, &weight) in down.iter().enumerate() {
                    let pixels = lanes(padded, top + j * stride + at);
                    for (sum, &pixel) in sums.iter_mut().zip(pixels) {
                        *sum += f32::from(pixel) * weight;
                    }
                }
                row[at..at + LANES].copy_from_slice(&sums);
            }
            for at in (0..width).step_by(LANES) {
                let mut sums = [0.0; LANES];
                for (i, &weight) in across.iter().enumerate() {
                    for (sum, &part) in sums.iter_mut().zip(lanes(row, at + i)) {
                        *sum += part * weight;
                    }
                }
                // Later sums do not need what was here.
                row[at..at + LANES].copy_from_slice(&sums);
            }
            for (part, (levels, sums)) in out.chunks_mut(LANES).zip(row.chunks_exact(LANES)).enumerate() {
                let mut unsure = 0;
                for (level, &sum) in levels.iter_mut().zip(sums) {
                    *level = rounded(sum);
                    unsure |= u32::from(is_unsure(sum, *level, least));
                }
                if unsure != 0 {
                    let start = top + part * LANES;
                    for (column, (level, &sum)) in levels.iter_mut().zip(sums).enumerate() {
                        if is_unsure(sum, *level, least) {
                            *level = rounded(exact(padded, stride, start + column, across, down));
                        }
                    }
                }
            }
        }
    }
}

/// Whether a half is so near that the exact sum may round to another level.
#[inline(always)]
fn is_unsure(sum: f32, level: u8, least: f32) -> bool {
    (sum - f32::from(level)).abs() > least
}

/// The sum of a pixel's neighbours with the 2-d kernel.
#[inline(always)]
fn exact(padded: &[u8], stride: usize, start: usize, across: &[f32], down: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (j, &down) in down.iter().enumerate() {
        for (&pixel, &across) in padded[start + j * stride..].iter().zip(across) {
            sum += down * across * f32::from(pixel);
        }
    }
    sum
}

/// Rounds a level, a half to even.
#[inline(always)]
fn rounded(level: f32) -> u8 {
    // Of this sum, whole numbers are the lowest bits.
    const WHOLE: f32 = (1 << 23) as f32;
    let [byte, ..] = (level + WHOLE).to_bits().to_le_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use super::reflected;

    #[test]
    fn places_are_reflected_without_the_outermost() {
        let places = |side| (0..11).map(|at| reflected(at, 3, side)).collect::<Vec<_>>();
        assert_eq!(places(5), [3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1]);
        assert_eq!(places(2), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(places(1), [0; 11]);
    }
}
