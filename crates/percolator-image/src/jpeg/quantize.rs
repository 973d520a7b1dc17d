//! The quantization tables of a JPEG.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::scan::COEFFICIENTS;

/// The coefficients of a block, or their quantization steps, row after row.
pub(super) type Block = [i16; COEFFICIENTS];

/// The index in a block of each coefficient, from the lowest frequency to the highest.
pub(super) const ZIGZAG: [u8; COEFFICIENTS] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The tables that a file has defined so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quantizers([Option<Quantizer>; 4]);

#[derive(Clone, Copy, Debug)]
struct Quantizer(Block);

impl Quantizers {
    /// Adds the tables of a segment. `None` if it is malformed.
    pub(super) fn define(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&class, rest)) = segment.split_first() {
            let mut block = [0; COEFFICIENTS];
            let (steps, rest) = if class >> 4 == 0 {
                let (steps, rest) = rest.split_first_chunk::<COEFFICIENTS>()?;
                (steps.map(u16::from), rest)
            } else {
                let (bytes, rest) = rest.split_at_checked(COEFFICIENTS.saturating_mul(2))?;
                let mut steps = [0; COEFFICIENTS];
                for (step, bytes) in steps.iter_mut().zip(bytes.as_chunks().0) {
                    *step = u16::from_be_bytes(*bytes);
                }
                (steps, rest)
            };
            for (&at, step) in ZIGZAG.iter().zip(steps) {
                *block.get_mut(usize::from(at))? = step.cast_signed();
            }
            *self.0.get_mut(usize::from(class & 15))? = Some(Quantizer(block));
            segment = rest;
        }
        Some(())
    }

    /// Returns a table that was defined.
    pub(super) fn get(&self, at: usize) -> Option<&Block> {
        self.0.get(at)?.as_ref().map(|Quantizer(block)| block)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_coefficient_has_its_place() {
        let mut places = ZIGZAG;
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..64));
        // Each is adjacent to the one before it, along the diagonals.
        for pair in ZIGZAG.windows(2) {
            let [from, to] = [0, 1].map(|at| (pair[at] / 8, pair[at] % 8));
            assert!(from.0.abs_diff(to.0) <= 1 && from.1.abs_diff(to.1) <= 1, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn tables_of_bytes_and_of_words_are_read() {
        let mut tables = Quantizers::default();
        let bytes: Vec<u8> = (0..64).collect();
        let words: Vec<u8> = (0..64u16).flat_map(|step| (step + 300).to_be_bytes()).collect();
        tables.define(&[&[2], &bytes[..], &[0x13], &words].concat()).unwrap();
        assert_eq!(tables.get(2).unwrap()[..9], [0, 1, 5, 6, 14, 15, 27, 28, 2]);
        assert_eq!(tables.get(3).unwrap()[..3], [300, 301, 305]);
        assert!(tables.get(0).is_none() && tables.get(4).is_none());
    }

    #[test]
    fn invalid_tables_are_refused() {
        let table = [&[0], &[1; 64][..]].concat();
        let mut tables = Quantizers::default();
        assert!(tables.define(&table).is_some());
        assert!(tables.define(&table[..64]).is_none(), "cut short");
        assert!(tables.define(&[&table[..], &[1]].concat()).is_none(), "one more that is cut short");
        assert!(tables.define(&[&[4], &[1; 64][..]].concat()).is_none(), "a fifth table");
        assert!(tables.define(&[&[0x10], &[1; 127][..]].concat()).is_none(), "words cut short");
    }
}
