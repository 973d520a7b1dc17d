//! The grey of a colour, as libjpeg and Pillow compute it: `0.299 R + 0.587 G + 0.114 B`, in 16 fractional
//! bits, rounded half up.

/// The grey of red, green and blue.
#[inline(always)]
pub(crate) fn grey(red: u8, green: u8, blue: u8) -> u8 {
    let sum = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue) + (1 << 15);
    #[expect(clippy::cast_possible_truncation, reason = "the factors add up to 2^16")]
    let grey = (sum >> 16) as u8;
    grey
}
