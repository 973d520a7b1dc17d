//! Erases a part of a record's elements: to a number, to a colour, or to noise.
//!
//! ```text
//! for each channel, and each row of the part in it: the row's elements become
//!     value                      zeros, a number for each channel, or one that is drawn for it
//!     normal(word), ...          noise: of as many whole groups of 32 words as the row needs
//! ```
//!
//! The noise is the same in every layout, and in every type but for its rounding.

use bytemuck::Pod;
use half::{bf16, f16};

use super::ErasedValue;
use super::chain::Erased;
use super::narrow::Float;
use super::transformer::Transformer;
use crate::base::shape::{Dtype, Layout};
use crate::base::splitmix::{self, SplitMix};
use crate::record::distributions::normal;
use percolator_image::Window;
use percolator_image::simd::Kernel;

/// How many words are drawn at a time. Of other groups, noise would be other noise.
const GROUP: usize = 32;

impl Transformer {
    /// Erases a part of a record's elements, of rows of this width.
    pub(super) fn erase(&self, erased: Erased<'_>, channels: usize, width: usize, out: &mut [u8]) {
        match self.dtype {
            Dtype::F32 => self.erase_floats::<f32>(erased, channels, width, out),
            Dtype::F16 => self.erase_floats::<f16>(erased, channels, width, out),
            Dtype::Bf16 => self.erase_floats::<bf16>(erased, channels, width, out),
            // `new` refuses whatever is not 0.
            _ => self.rows_of(erased.window, channels, width, out, |_, row: &mut [u8], step| {
                row.iter_mut().step_by(step).for_each(|element| *element = 0);
            }),
        }
    }

    fn erase_floats<F: Float>(&self, erased: Erased<'_>, channels: usize, width: usize, out: &mut [u8]) {
        let Erased { window, value, seed } = erased;
        let mut random = SplitMix(seed);
        self.rows_of(window, channels, width, out, |channel, row: &mut [F], step| {
            let level = match value {
                ErasedValue::Random => {
                    return self.instructions.run(Noise { row, step, random: &mut random });
                }
                ErasedValue::RandomColor => {
                    let number = splitmix::fold(seed, &[channel as u64]);
                    normal(halves(number)[0])
                }
                ErasedValue::Constant(values) => {
                    values.get(channel).or(values.first()).copied().unwrap_or_default()
                }
            };
            row.iter_mut().step_by(step).for_each(|element| *element = F::round(level));
        });
    }

    /// Calls something with each row of a part, channel by channel: its channel, and a slice in which each
    /// `step`th element from the first one on is the row's.
    fn rows_of<E: Pod>(
        &self,
        Window { top, left, height, width: across }: Window,
        channels: usize,
        width: usize,
        out: &mut [u8],
        mut each: impl FnMut(usize, &mut [E], usize),
    ) {
        let elements: &mut [E] = bytemuck::cast_slice_mut(out);
        let (step, plane) = match self.layout {
            Layout::Nchw => (1, elements.len() / channels),
            Layout::Nhwc => (channels, 1),
        };
        if across == 0 {
            return;
        }
        for channel in 0..channels {
            for row in top..top + height {
                let start = channel * plane + (row * width + left) * step;
                each(channel, &mut elements[start..=start + (across - 1) * step], step);
            }
        }
    }
}

/// The two words of a random number.
#[inline(always)]
fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Noise for a row, of which each `step`th element is written.
struct Noise<'a, F> {
    row: &'a mut [F],
    step: usize,
    random: &'a mut SplitMix,
}

impl<F: Float> Kernel for Noise<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { row, step, random } = self;
        let len = row.len().div_ceil(step);
        for from in (0..len).step_by(GROUP) {
            let (mut words, mut numbers) = ([0; GROUP], [0.0; GROUP]);
            for pair in words.chunks_exact_mut(2) {
                pair.copy_from_slice(&halves(random.next()));
            }
            for (number, word) in numbers.iter_mut().zip(words) {
                *number = normal(word);
            }
            let numbers = F::round_all(numbers);
            for (at, number) in (from..len).zip(numbers) {
                row[at * step] = number;
            }
        }
    }
}
