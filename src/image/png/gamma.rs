//! The gamma of a PNG, and tables to linear light and back, as libpng has them.
//!
//! Gamma is in hundred thousandths. Two that differ by less than a twentieth are held to be the same.

use std::ops::RangeInclusive;

use super::ONE;
use super::chroma::Chromaticities;
use super::profile::Profile;

/// A gamma that differs from one by no more is taken to be one.
const INSIGNIFICANT: u32 = 5_000;
/// What libpng takes for a gamma.
const ALLOWED: RangeInclusive<u32> = 16..=625_000_000;
const SRGB: u32 = 45_455;
/// The rendering intents that an sRGB chunk may give.
const INTENTS: u8 = 4;

/// What the chunks of a file say of its gamma, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gamma {
    known: Option<u32>,
    /// Whether it is from a gAMA chunk.
    given: bool,
    /// Whether an sRGB chunk, or a profile that is held to be sRGB, was there.
    srgb: bool,
    /// Of a cHRM chunk.
    chromaticities: Option<Chromaticities>,
    /// After a chunk that is wrong no other counts.
    invalid: bool,
}

impl Gamma {
    /// A gAMA chunk. One that contradicts an sRGB chunk does not count.
    pub(super) fn give(&mut self, gamma: u32) {
        if !ALLOWED.contains(&gamma) || self.given {
            self.invalid = true;
        } else if !self.invalid && self.known.is_none_or(|known| !is_significant(quotient(known, gamma))) {
            self.known = Some(gamma);
            self.given = true;
        }
    }

    /// An sRGB chunk.
    pub(super) fn give_srgb(&mut self, intent: u8) {
        if intent >= INTENTS || self.srgb {
            self.invalid = true;
        } else if !self.invalid {
            self.known = Some(SRGB);
            self.srgb = true;
        }
    }

    /// An iCCP chunk.
    pub(super) fn give_profile(&mut self, profile: impl FnOnce() -> Profile) {
        if self.srgb {
            self.invalid = true;
        }
        if self.invalid {
            return;
        }
        match profile() {
            Profile::Srgb => self.give_srgb(0),
            Profile::Invalid => self.invalid = true,
            Profile::Other => {}
        }
    }

    /// A cHRM chunk. It is of no use here, but may be wrong.
    pub(super) fn give_chromaticities(&mut self, chunk: &[u8; 32]) {
        let Some(found) = Chromaticities::parse(chunk) else { return };
        let contradicts_srgb = self.srgb && !found.is_near(&Chromaticities::SRGB, 100);
        self.invalid |= self.chromaticities.is_some() || contradicts_srgb || !found.are_possible();
        self.chromaticities = Some(found);
    }

    pub(super) fn known(self) -> Option<u32> {
        self.known
    }
}

/// From samples in light as the eye has it to linear ones, and back.
pub(super) struct Tables {
    pub(super) to_linear: [u8; 256],
    pub(super) from_linear: [u8; 256],
}

impl Tables {
    /// For a file's gamma. `None` where it makes no difference.
    pub(super) fn new(gamma: u32) -> Option<Self> {
        // libpng assumes a screen that undoes the file's gamma, and then undoes that: it rounds twice.
        let screen = quotient(ONE, gamma);
        (is_significant(gamma) || is_significant(screen))
            .then(|| Self { to_linear: table(screen), from_linear: table(quotient(ONE, screen)) })
    }
}

fn is_significant(gamma: u32) -> bool {
    gamma.abs_diff(ONE) > INSIGNIFICANT
}

/// `ONE * a / b`, rounded.
fn quotient(a: u32, b: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and too large saturates"
    )]
    let quotient = (f64::from(a) * f64::from(ONE) / f64::from(b) + 0.5).floor() as u32;
    quotient
}

fn table(gamma: u32) -> [u8; 256] {
    let power = f64::from(gamma) * 0.00001;
    std::array::from_fn(|level| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 to 255")]
        let corrected = (255.0 * (level as f64 / 255.0).powf(power) + 0.5).floor() as u8;
        #[expect(clippy::cast_possible_truncation, reason = "the index of an array of 256")]
        let level = level as u8;
        if is_significant(gamma) { corrected } else { level }
    })
}
