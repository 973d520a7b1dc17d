//! Grey, and blends with a plain image: brightness, contrast and saturation.

use super::{Picture, blended, single};
use crate::ImageShape;
use crate::luma::grey;
use crate::simd::{InstructionSet, Kernel};

impl<'a> Picture<'a> {
    /// Blends with black: a factor of 0 is black, 1 the image as it is, 2 twice as bright.
    pub fn brightness(&mut self, factor: f64) {
        self.blend(0, factor);
    }

    /// Blends with the mean of the image's grey: a factor of 0 is plain grey, 1 the image as it is.
    pub fn contrast(&mut self, factor: f64) {
        let pixels = self.pixels();
        let sum = match self.colours() {
            Some([red, green, blue]) => InstructionSet::widest().run(GreySum { red, green, blue }),
            None => InstructionSet::widest().run(Sum(self.bytes)),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of bytes")]
        let mean = (sum as f64 / pixels as f64 + 0.5) as u8;
        self.blend(mean, factor);
    }

    /// Blends with the image's grey: a factor of 0 is grey, 1 the image as it is. Grey stays as it is.
    pub fn saturation(&mut self, factor: f64) {
        if factor == 1.0 {
            return;
        }
        if let Some([red, green, blue]) = self.colours() {
            InstructionSet::widest().run(Saturate { red, green, blue, factor: single(factor) });
        }
    }

    /// Makes colours grey, in three planes that are the same.
    pub fn grey(&mut self) {
        if let Some([red, green, blue]) = self.colours() {
            InstructionSet::widest().run(ToGrey { red, green, blue });
            green.copy_from_slice(red);
            blue.copy_from_slice(red);
        }
    }

    /// The image as a single plane of grey, which is in the first of its planes. The content of the others is
    /// unspecified.
    #[must_use]
    pub fn into_grey(mut self) -> Picture<'a> {
        if let Some([red, green, blue]) = self.colours() {
            InstructionSet::widest().run(ToGrey { red, green, blue });
        }
        let pixels = self.pixels();
        Picture { shape: ImageShape { channels: 1, ..self.shape }, bytes: &mut self.bytes[..pixels] }
    }

    fn blend(&mut self, plain: u8, factor: f64) {
        if factor == 1.0 {
            return;
        }
        let (plain, factor) = (plain.into(), single(factor));
        InstructionSet::widest().run(Blend { plain, factor, levels: self.bytes });
    }
}

/// Blends all levels with one.
struct Blend<'a> {
    plain: f32,
    factor: f32,
    levels: &'a mut [u8],
}

impl Kernel for Blend<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for level in self.levels {
            *level = blended(self.plain, f32::from(*level), self.factor);
        }
    }
}

/// Blends colours with their grey.
struct Saturate<'a> {
    red: &'a mut [u8],
    green: &'a mut [u8],
    blue: &'a mut [u8],
    factor: f32,
}

impl Kernel for Saturate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { red, green, blue, factor } = self;
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let plain = f32::from(grey(*red, *green, *blue));
            *red = blended(plain, f32::from(*red), factor);
            *green = blended(plain, f32::from(*green), factor);
            *blue = blended(plain, f32::from(*blue), factor);
        }
    }
}

/// Puts grey in the place of red.
struct ToGrey<'a> {
    red: &'a mut [u8],
    green: &'a [u8],
    blue: &'a [u8],
}

impl Kernel for ToGrey<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((red, green), blue) in self.red.iter_mut().zip(self.green).zip(self.blue) {
            *red = grey(*red, *green, *blue);
        }
    }
}

/// How many levels are added in 32 bits.
const SUMMED: usize = 1 << 16;

/// The sum of the grey of all pixels.
struct GreySum<'a> {
    red: &'a [u8],
    green: &'a [u8],
    blue: &'a [u8],
}

impl Kernel for GreySum<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let Self { red, green, blue } = self;
        let mut sum = 0;
        for ((red, green), blue) in red.chunks(SUMMED).zip(green.chunks(SUMMED)).zip(blue.chunks(SUMMED)) {
            let mut part = 0_u32;
            for ((&red, &green), &blue) in red.iter().zip(green).zip(blue) {
                part += u32::from(grey(red, green, blue));
            }
            sum += u64::from(part);
        }
        sum
    }
}

/// The sum of all levels.
struct Sum<'a>(&'a [u8]);

impl Kernel for Sum<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let mut sum = 0;
        for levels in self.0.chunks(SUMMED) {
            let mut part = 0_u32;
            for &level in levels {
                part += u32::from(level);
            }
            sum += u64::from(part);
        }
        sum
    }
}
