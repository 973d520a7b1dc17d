//! Operations that give each level a new one, whatever its neighbours are.
//!
//! ```text
//! posterize     x & (0xFF00 >> bits)
//! solarize      x < threshold ? x : 255 - x             solarize_add  x < threshold ? min(x + add, 255) : x
//! gamma         int(255.999 * gain * (x / 255)^gamma)                                           in f64
//! autocontrast  int(x * s - lo * s), s = 255 / (hi - lo)                                        in f64
//! equalize      (step / 2 + pixels below x) / step, step = (all pixels - those of the highest level) / 255
//! ```

use super::Picture;
use crate::simd::{InstructionSet, Kernel};

impl Picture<'_> {
    /// Keeps this many upper bits of each level. None makes the image black, as in PyTorch; Pillow 13 refuses
    /// that.
    ///
    /// # Panics
    ///
    /// If there are more than 8 bits.
    pub fn posterize(&mut self, bits: u32) {
        assert!(bits <= 8, "the bits of a byte");
        let [_, mask] = (0xFF00_u16 >> bits).to_be_bytes();
        if mask != u8::MAX {
            InstructionSet::widest().run(Mask { mask, levels: self.bytes });
        }
    }

    /// Inverts the levels from a threshold on.
    pub fn solarize(&mut self, threshold: f64) {
        if let Some(least) = first_level(threshold) {
            InstructionSet::widest().run(Solarize { least, levels: self.bytes });
        }
    }

    /// Adds to the levels below a threshold, up to 255: timm's operation.
    pub fn solarize_add(&mut self, add: u8, threshold: f64) {
        match first_level(threshold) {
            Some(least) => InstructionSet::widest().run(SolarizeAdd { add, least, levels: self.bytes }),
            None => InstructionSet::widest().run(Add { add, levels: self.bytes }),
        }
    }

    /// Inverts all levels.
    pub fn invert(&mut self) {
        InstructionSet::widest().run(Solarize { least: 0, levels: self.bytes });
    }

    /// Raises levels, as parts of the highest one, to a power: below 1 shadows become lighter.
    pub fn gamma(&mut self, gamma: f64, gain: f64) {
        let mut table = [0; 256];
        for (level, new) in (0..=u8::MAX).zip(&mut table) {
            *new = whole((255.0 + 1.0 - 1e-3) * gain * (f64::from(level) / 255.0).powf(gamma));
        }
        look_up(&table, self.bytes);
    }

    /// Stretches the levels of each plane to the whole range. A plane of one level stays as it is.
    pub fn autocontrast(&mut self) {
        for plane in self.planes_mut() {
            let [low, high] = InstructionSet::widest().run(Range(plane));
            if low >= high || (low, high) == (0, u8::MAX) {
                continue;
            }
            let scale = 255.0 / f64::from(high - low);
            let offset = -f64::from(low) * scale;
            let mut table = [0; 256];
            for (level, new) in (0..=u8::MAX).zip(&mut table) {
                *new = whole(f64::from(level) * scale + offset);
            }
            look_up(&table, plane);
        }
    }

    /// Spreads the levels of each plane so that each range of levels has about as many pixels.
    pub fn equalize(&mut self) {
        for plane in self.planes_mut() {
            let counts = histogram(plane);
            let highest = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or_default();
            let step = (plane.len() - highest) / 255;
            if step == 0 {
                continue;
            }
            let (mut below, mut table) = (step / 2, [0; 256]);
            for (count, new) in counts.iter().zip(&mut table) {
                *new = u8::try_from(below / step).unwrap_or(u8::MAX);
                below += count;
            }
            look_up(&table, plane);
        }
    }
}

/// The first level that is not below a threshold, if any is.
fn first_level(threshold: f64) -> Option<u8> {
    (0..=u8::MAX).find(|level| f64::from(*level) >= threshold)
}

/// A level without its fraction, clamped to a byte.
fn whole(level: f64) -> u8 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, as Pillow does")]
    let byte = level as u8;
    byte
}

fn look_up(table: &[u8; 256], levels: &mut [u8]) {
    for level in levels {
        *level = table[usize::from(*level)];
    }
}

/// How many pixels have each level.
fn histogram(plane: &[u8]) -> [usize; 256] {
    // Neighbours are often equal: a count that changes every time is slower than four that take turns.
    let mut counts = [[0; 256]; 4];
    let mut fours = plane.chunks_exact(4);
    for four in &mut fours {
        for (counts, &level) in counts.iter_mut().zip(four) {
            counts[usize::from(level)] += 1;
        }
    }
    for &level in fours.remainder() {
        counts[0][usize::from(level)] += 1;
    }
    std::array::from_fn(|level| counts.iter().map(|counts| counts[level]).sum())
}

struct Mask<'a> {
    mask: u8,
    levels: &'a mut [u8],
}

impl Kernel for Mask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for level in self.levels {
            *level &= self.mask;
        }
    }
}

struct Solarize<'a> {
    least: u8,
    levels: &'a mut [u8],
}

impl Kernel for Solarize<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for level in self.levels {
            *level = if *level < self.least { *level } else { !*level };
        }
    }
}

struct SolarizeAdd<'a> {
    add: u8,
    least: u8,
    levels: &'a mut [u8],
}

impl Kernel for SolarizeAdd<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for level in self.levels {
            *level = if *level < self.least { level.saturating_add(self.add) } else { *level };
        }
    }
}

struct Add<'a> {
    add: u8,
    levels: &'a mut [u8],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for level in self.levels {
            *level = level.saturating_add(self.add);
        }
    }
}

/// The lowest and the highest level.
struct Range<'a>(&'a [u8]);

impl Kernel for Range<'_> {
    type Output = [u8; 2];

    #[inline(always)]
    fn run(self) -> [u8; 2] {
        let [mut low, mut high] = [u8::MAX, 0];
        for &level in self.0 {
            low = low.min(level);
            high = high.max(level);
        }
        [low, high]
    }
}
