//! Colours from a JPEG's inks, cyan, magenta, yellow and black, as OpenCV and as Pillow compute them.
//!
//! ```text
//! ink   = 255 - stored; where Y, Cb, Cr are stored: the level that they stand for
//! OpenCV   level = K - (ink * K >> 8)
//! Pillow   level = K - round(ink * K / 255)
//! ```
//!
//! Both take inks as stored inverted, with K = 255 for no black, whether or not the file says so.

use super::ycc;

/// Converts a row of inks to rows of B, G, R.
#[inline(always)]
pub(super) fn to_bgr(
    [cyan, magenta, yellow]: [&[u8]; 3],
    black: &[u8],
    is_ycc: bool,
    is_pillows: bool,
    [blue, green, red]: [&mut [u8]; 3],
) {
    if is_ycc {
        ycc::to_bgr([cyan, magenta, yellow], [&mut *blue, &mut *green, &mut *red]);
    } else {
        invert(cyan, red);
        invert(magenta, green);
        invert(yellow, blue);
    }
    for levels in [blue, green, red] {
        for (level, &black) in levels.iter_mut().zip(black) {
            *level = if is_pillows { pillows(*level, black) } else { opencvs(*level, black) };
        }
    }
}

/// Converts a row of inks to a row of grey, as OpenCV does.
#[inline(always)]
pub(super) fn to_grey(inks: [&[u8]; 3], black: &[u8], is_ycc: bool, grey: &mut [u8]) {
    for (at, grey) in grey.iter_mut().enumerate() {
        let (mut blue, mut green, mut red) = ([0], [0], [0]);
        let inks = inks.map(|ink| &ink[at..=at]);
        to_bgr(inks, &black[at..=at], is_ycc, false, [&mut blue, &mut green, &mut red]);
        let [blue, green, red] = [blue, green, red].map(|level| u32::from(level[0]));
        // OpenCV's own weights, of 14 bits.
        let sum = 1868 * blue + 9617 * green + 4899 * red;
        #[expect(clippy::cast_possible_truncation, reason = "the weights add up to 2^14")]
        let level = ((sum + (1 << 13)) >> 14) as u8;
        *grey = level;
    }
}

#[inline(always)]
fn invert(stored: &[u8], inks: &mut [u8]) {
    for (ink, &stored) in inks.iter_mut().zip(stored) {
        *ink = 255 - stored;
    }
}

#[inline(always)]
fn opencvs(ink: u8, black: u8) -> u8 {
    black - ((u16::from(ink) * u16::from(black)) >> 8) as u8
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most K")]
fn pillows(ink: u8, black: u8) -> u8 {
    let product = u32::from(ink) * u32::from(black) + 128;
    black - (((product >> 8) + product) >> 8) as u8
}
