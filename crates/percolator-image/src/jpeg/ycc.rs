//! Colour conversion of a JPEG's samples, in libjpeg's integer arithmetic.
//!
//! ```text
//! R = Y + (1.40200 * Cr)                       Cb, Cr about 128, products to 16 fractional bits,
//! G = Y - (0.34414 * Cb) - (0.71414 * Cr)      rounded half up, sums clamped to 0..=255
//! B = Y + (1.77200 * Cb)
//! grey = that of luma.rs
//! ```

use crate::luma;

const HALF: i32 = 1 << 15;
const CR_TO_RED: i32 = 91_881;
const CB_TO_GREEN: i32 = -22_554;
const CR_TO_GREEN: i32 = -46_802;
const CB_TO_BLUE: i32 = 116_130;

/// Converts a row of Y, Cb, Cr to rows of B, G, R.
#[inline(always)]
pub(super) fn to_bgr([luma, cb, cr]: [&[u8]; 3], [blue, green, red]: [&mut [u8]; 3]) {
    let outs = blue.iter_mut().zip(green).zip(red);
    for (((&luma, &cb), &cr), ((blue, green), red)) in luma.iter().zip(cb).zip(cr).zip(outs) {
        let [luma, cb, cr] = [i32::from(luma), i32::from(cb) - 128, i32::from(cr) - 128];
        *red = clamp(luma + ((CR_TO_RED * cr + HALF) >> 16));
        *green = clamp(luma + ((CB_TO_GREEN * cb + CR_TO_GREEN * cr + HALF) >> 16));
        *blue = clamp(luma + ((CB_TO_BLUE * cb + HALF) >> 16));
    }
}

/// Converts a row of R, G, B to a row of grey.
#[inline(always)]
pub(super) fn to_grey([red, green, blue]: [&[u8]; 3], grey: &mut [u8]) {
    for (((&red, &green), &blue), grey) in red.iter().zip(green).zip(blue).zip(grey) {
        *grey = luma::grey(red, green, blue);
    }
}

#[inline(always)]
fn clamp(level: i32) -> u8 {
    level.clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the whole cube, in steps, with the formulas in floating point.
    #[test]
    fn the_formulas_hold_to_half_a_level() {
        // Rounding the factors adds 0.0021 at most.
        const ALLOWED: f64 = 0.5021;
        let steps = || (0..=255u8).step_by(if cfg!(miri) { 51 } else { 5 });
        for (y, cb, cr) in
            steps().flat_map(|y| steps().flat_map(move |cb| steps().map(move |cr| (y, cb, cr))))
        {
            let (mut blue, mut green, mut red) = ([0], [0], [0]);
            to_bgr([&[y], &[cb], &[cr]], [&mut blue, &mut green, &mut red]);
            let [luma, b, r] = [f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0];
            let wanted = [luma + 1.772 * b, luma - 0.344_136_3 * b - 0.714_136_3 * r, luma + 1.402 * r];
            for (found, wanted) in [blue, green, red].into_iter().zip(wanted) {
                assert!((f64::from(found[0]) - wanted.clamp(0.0, 255.0)).abs() < ALLOWED, "{y} {cb} {cr}");
            }
            let mut grey = [0];
            to_grey([&[y], &[cb], &[cr]], &mut grey);
            let wanted = 0.299 * f64::from(y) + 0.587 * f64::from(cb) + 0.114 * f64::from(cr);
            assert!((f64::from(grey[0]) - wanted).abs() < ALLOWED);
        }
    }
}
