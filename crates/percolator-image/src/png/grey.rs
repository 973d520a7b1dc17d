//! Computes grey from a PNG's colours, as libpng's `png_set_rgb_to_gray(0.299, 0.587)` does.
//!
//! ```text
//! if R == G == B:  grey = R
//! without gamma:   grey = (9797 * R + 19234 * G + 3737 * B) / 32768                        rounded down
//! with gamma:      grey = encode((9797 * linear(R) + ... + 3737 * linear(B)) / 32768)      to the nearest
//! ```

use super::gamma::Tables;

const RED: u32 = 9_797;
const GREEN: u32 = 19_234;
const BLUE: u32 = 3_737;

/// Computes the grey of pixels of `step` bytes, R, G and B first.
pub(super) fn from_rgb(pixels: &[u8], step: usize, tables: Option<&Tables>, plane: &mut [u8]) {
    for (pixel, out) in pixels.chunks_exact(step).zip(plane) {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]];
        *out = if red == green && red == blue {
            red
        } else if let Some(Tables { to_linear, from_linear }) = tables {
            let [red, green, blue] = [red, green, blue].map(|level| to_linear[usize::from(level)].into());
            from_linear[weigh(red, green, blue, 1 << 14) as usize]
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "the factors add up to 2^15")]
            let grey = weigh(red.into(), green.into(), blue.into(), 0) as u8;
            grey
        };
    }
}

/// Computes the grey of pixels of `step` bytes with samples of two bytes. Keeps the upper byte of the result.
pub(super) fn from_rgb_16(pixels: &[u8], step: usize, plane: &mut [u8]) {
    for (pixel, out) in pixels.chunks_exact(step).zip(plane) {
        let [red, green, blue] =
            [0, 2, 4].map(|at| u32::from(u16::from_be_bytes([pixel[at], pixel[at + 1]])));
        let grey = if red == green && red == blue { red } else { weigh(red, green, blue, 1 << 14) };
        #[expect(clippy::cast_possible_truncation, reason = "of 16 bits the upper 8")]
        let upper = (grey >> 8) as u8;
        *out = upper;
    }
}

fn weigh(red: u32, green: u32, blue: u32, rounding: u32) -> u32 {
    (RED * red + GREEN * green + BLUE * blue + rounding) >> 15
}
