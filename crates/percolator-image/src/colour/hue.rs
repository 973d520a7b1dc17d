//! Turns hues, as Pillow's way to HSV and back does.
//!
//! ```text
//! there   V = max, S = int(255 * (max - min) / max), H = int(255 * sixths / 6) by the largest colour
//! turn    H = (H + int(255 * factor)) mod 256
//! back    sixths = 6 * H / 255, f = their fraction, s = S / 255
//!         p = round(V (1 - s)), q = round(V (1 - s f)), t = round(V (1 - s (1 - f)))
//! ```
//!
//! All three of HSV are bytes, so that even a turn of 0 changes colours. Which numbers are `f32` and which
//! are `f64` is as in Pillow.

use super::Picture;
use crate::simd::{InstructionSet, Kernel};

impl Picture<'_> {
    /// Turns all hues by a part of the circle: red becomes green with 1/3, blue with -1/3. Grey stays as it
    /// is.
    ///
    /// # Panics
    ///
    /// If the factor is not within -0.5 and 0.5.
    pub fn hue(&mut self, factor: f64) {
        assert!((-0.5..=0.5).contains(&factor), "half a turn at most");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 256")]
        let turn = (factor * 255.0) as i32 as u8;
        if let Some([red, green, blue]) = self.colours() {
            InstructionSet::widest().run(Turn { red, green, blue, turn });
        }
    }
}

struct Turn<'a> {
    red: &'a mut [u8],
    green: &'a mut [u8],
    blue: &'a mut [u8],
    turn: u8,
}

impl Kernel for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((red, green), blue) in self.red.iter_mut().zip(self.green).zip(self.blue) {
            [*red, *green, *blue] = turned(*red, *green, *blue, self.turn);
        }
    }
}

/// One pixel. There are no branches, so that it is vector code.
#[inline(always)]
fn turned(red: u8, green: u8, blue: u8, turn: u8) -> [u8; 3] {
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let spread = f32::from((most - least).max(1));
    let saturation = f64::from(spread / f32::from(most.max(1)));
    let value = f32::from(most);
    let [from_red, from_green, from_blue] = [
        (value - f32::from(red)) / spread,
        (value - f32::from(green)) / spread,
        (value - f32::from(blue)) / spread,
    ];
    let by_red = from_blue - from_green;
    let by_green = narrow(2.0 + f64::from(from_red) - f64::from(from_blue));
    let by_blue = narrow(4.0 + f64::from(from_green) - f64::from(from_red));
    let other = if green == most { by_green } else { by_blue };
    let sixths = if red == most { by_red } else { other };
    // At least 5/6 and less than 2.
    let turns = f64::from(sixths) / 6.0 + 1.0;
    let hue = f64::from(narrow(if turns < 1.0 { turns } else { turns - 1.0 }));
    let is_grey = most == least;
    let hue = if is_grey { 0 } else { whole(hue * 255.0) };
    let saturation = if is_grey { 0 } else { whole(saturation * 255.0) };

    let hue = (hue + i32::from(turn)) & 255;
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let sector = whole(sixths);
    let fraction = f64::from(narrow(sixths - f64::from(sector)));
    let sector = if sector == 6 { 0 } else { sector };
    let strength = f64::from(narrow(f64::from(saturation) / 255.0));
    let value = f64::from(most);
    let p = rounded(value * (1.0 - strength));
    let q = rounded(value * (1.0 - strength * fraction));
    let t = rounded(value * (1.0 - strength * (1.0 - fraction)));
    if saturation == 0 {
        return [most; 3];
    }
    [
        chosen(sector, [most, q, p, p, t, most]),
        chosen(sector, [t, most, most, q, p, p]),
        chosen(sector, [p, p, t, most, most, q]),
    ]
}

#[inline(always)]
fn chosen(sector: i32, levels: [u8; 6]) -> u8 {
    let mut level = levels[0];
    level = if sector == 1 { levels[1] } else { level };
    level = if sector == 2 { levels[2] } else { level };
    level = if sector == 3 { levels[3] } else { level };
    level = if sector == 4 { levels[4] } else { level };
    if sector == 5 { levels[5] } else { level }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded, as Pillow rounds it")]
fn narrow(number: f64) -> f32 {
    number as f32
}

/// A number from 0 to 256 without its fraction.
#[inline(always)]
fn whole(number: f64) -> i32 {
    // A conversion with `as` is not vector code. Of this sum, whole numbers are the lowest bits.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    let rounded = number + WHOLE;
    let bits = (rounded.to_bits() & 511) as i32;
    bits - i32::from(rounded - WHOLE > number)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a byte")]
fn rounded(level: f64) -> u8 {
    whole(level + 0.5) as u8
}
