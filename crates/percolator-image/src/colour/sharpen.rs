//! Sharpness: a blend with a smooth image.
//!
//! ```text
//! smooth = trunc(0.5 + row below + this row + row above), each row a sum of three pixels * weight  in f32
//! weight = 1/13, 5/13 in the middle
//! ```

use super::{LANES, Picture, Scratch, blended, lanes, put, single, truncated};
use crate::simd::{InstructionSet, Kernel};
use crate::{DecodeError, room};

impl Picture<'_> {
    /// Blends with a smooth image: a factor of 0 is smooth, 1 the image as it is, 2 sharper. The outermost
    /// pixels stay as they are.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`] if there is no memory for a copy of a plane.
    pub fn sharpness(&mut self, factor: f64, scratch: &mut Scratch) -> Result<(), DecodeError> {
        let width = self.shape.width;
        if factor == 1.0 || width < 3 || self.shape.height < 3 {
            return Ok(());
        }
        let stride = (width - 2).next_multiple_of(LANES) + 2;
        let copy = room(&mut scratch.planes, self.shape.height.saturating_mul(stride))?;
        for plane in self.planes_mut() {
            for (row, copy) in plane.chunks_exact(width).zip(copy.chunks_exact_mut(stride)) {
                copy[..width].copy_from_slice(row);
            }
            InstructionSet::widest().run(Sharpen { copy, stride, factor: single(factor), width, plane });
        }
        Ok(())
    }
}

struct Sharpen<'a> {
    /// A copy whose rows have room for whole lanes.
    copy: &'a [u8],
    stride: usize,
    factor: f32,
    width: usize,
    plane: &'a mut [u8],
}

impl Kernel for Sharpen<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { copy, stride, factor, width, plane } = self;
        for (above, row) in plane.chunks_exact_mut(width).skip(1).enumerate() {
            let start = above * stride;
            if start + 3 * stride > copy.len() {
                break;
            }
            let row = &mut row[1..width - 1];
            for at in (0..width - 2).step_by(LANES) {
                let start = start + at;
                let mut sums = [0.5; LANES];
                add(&mut sums, copy, start + 2 * stride, 1.0 / 13.0);
                add(&mut sums, copy, start + stride, 5.0 / 13.0);
                add(&mut sums, copy, start, 1.0 / 13.0);
                let mut levels = [0; LANES];
                let pixels = lanes(copy, start + stride + 1);
                for ((level, &pixel), &sum) in levels.iter_mut().zip(pixels).zip(&sums) {
                    *level = blended(f32::from(truncated(sum)), f32::from(pixel), factor);
                }
                put(&levels, row, at);
            }
        }
    }
}

/// Adds three pixels of a row, the middle one with this weight.
#[inline(always)]
fn add(sums: &mut [f32; LANES], copy: &[u8], start: usize, weight: f32) {
    let [left, middle, right] = [lanes(copy, start), lanes(copy, start + 1), lanes(copy, start + 2)];
    for (((sum, &left), &middle), &right) in sums.iter_mut().zip(left).zip(middle).zip(right) {
        *sum += f32::from(left) * (1.0 / 13.0) + f32::from(middle) * weight + f32::from(right) * (1.0 / 13.0);
    }
}
