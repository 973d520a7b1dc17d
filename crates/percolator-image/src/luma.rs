//! The grey of a colour, `0.299 R + 0.587 G + 0.114 B`, as each library computes it.

/// The grey of red, green and blue as libjpeg and Pillow compute it: in 16 fractional bits, rounded half up.
#[inline(always)]
pub(crate) fn grey(red: u8, green: u8, blue: u8) -> u8 {
    weigh([19_595, 38_470, 7_471], 16, [red, green, blue])
}

/// How OpenCV makes grey of the colours of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Luma {
    /// As its readers of files do, in 14 fractional bits: BMP, PNM, TIFF.
    Readers,
    /// As `cv::cvtColor` does, in 15 bits: GIF, WebP.
    #[cfg_attr(not(any(feature = "gif", feature = "webp")), expect(dead_code, reason = "of other formats"))]
    CvtColor,
    /// In floats, rounded down: BMP whose channels are told by masks.
    Masks,
}

impl Luma {
    /// Makes grey of pixels of `step` samples, red, green and blue first.
    pub(crate) fn plane(self, pixels: &[u8], step: usize, plane: &mut [u8]) {
        let one = match self {
            Luma::Readers => |colour| weigh([4_899, 9_617, 1_868], 14, colour),
            Luma::CvtColor => |colour| weigh([9_798, 19_235, 3_735], 15, colour),
            Luma::Masks => in_floats,
        };
        for (pixel, out) in pixels.chunks_exact(step).zip(plane) {
            *out = one([pixel[0], pixel[1], pixel[2]]);
        }
    }
}

/// The weighted sum, rounded half up. The weights add up to one, in so many fractional bits.
#[inline(always)]
fn weigh(weights: [u32; 3], bits: u32, colour: [u8; 3]) -> u8 {
    let products = weights.iter().zip(colour).map(|(weight, level)| weight * u32::from(level));
    #[expect(clippy::cast_possible_truncation, reason = "the weights add up to one")]
    let grey = ((products.sum::<u32>() + (1 << (bits - 1))) >> bits) as u8;
    grey
}

fn in_floats([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 0.299 * f32::from(red) + 0.587 * f32::from(green) + 0.114 * f32::from(blue);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded down, of numbers up to 255"
    )]
    let grey = sum as u8;
    grey
}
