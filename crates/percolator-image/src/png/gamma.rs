//! The gamma of a PNG, and tables to linear light and back, as in libpng.
//!
//! Gamma is in units of 1/100000. Two values that differ by less than a twentieth count as equal.

use std::ops::RangeInclusive;

use super::ONE;
use super::chroma::Chromaticities;
use super::profile::Profile;

/// A gamma that differs from one by at most this counts as one.
const INSIGNIFICANT: u32 = 5_000;
/// The gammas that libpng accepts.
const ALLOWED: RangeInclusive<u32> = 16..=625_000_000;
const SRGB: u32 = 45_455;
/// The number of rendering intents that an sRGB chunk may give.
const INTENTS: u8 = 4;

/// What a file's chunks say about its gamma, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gamma {
    known: Option<u32>,
    /// Whether it is from a gAMA chunk.
    given: bool,
    /// Whether there was an sRGB chunk, or a profile that is recognised as sRGB.
    srgb: bool,
    /// Those of a cHRM chunk.
    chromaticities: Option<Chromaticities>,
    /// After an invalid chunk no other counts.
    invalid: bool,
}

impl Gamma {
    /// Takes a gAMA chunk. One that contradicts an sRGB chunk does not count.
    pub(super) fn give(&mut self, gamma: u32) {
        if !ALLOWED.contains(&gamma) || self.given {
            self.invalid = true;
        } else if !self.invalid && self.known.is_none_or(|known| !is_significant(quotient(known, gamma))) {
            self.known = Some(gamma);
            self.given = true;
        }
    }

    /// Takes an sRGB chunk.
    pub(super) fn give_srgb(&mut self, intent: u8) {
        if intent >= INTENTS || self.srgb {
            self.invalid = true;
        } else if !self.invalid {
            self.known = Some(SRGB);
            self.srgb = true;
        }
    }

    /// Takes an iCCP chunk.
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

    /// Takes a cHRM chunk. It is not used here, but it may be invalid.
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

/// Tables from gamma-encoded samples to linear light, and back.
pub(super) struct Tables {
    pub(super) to_linear: [u8; 256],
    pub(super) from_linear: [u8; 256],
}

impl Tables {
    /// Creates the tables for a file's gamma. `None` if it makes no difference.
    pub(super) fn new(gamma: u32) -> Option<Self> {
        // libpng assumes a screen gamma that undoes the file's, and then inverts that: it rounds twice.
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
