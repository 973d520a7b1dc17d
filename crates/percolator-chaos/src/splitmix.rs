//! `SplitMix64` (Steele, Lea and Flood): what is drawn is a function of a seed and of numbers that name it.

/// The odd constant of the generator: 2^64 over the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser: a bijection in which every input bit affects every output bit.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Derives a key from a seed and a few words, with one step of the generator for each word.
pub(crate) fn fold(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(mix(seed.wrapping_add(GAMMA)), |key, word| mix((key ^ word).wrapping_add(GAMMA)))
}

/// The generator, seeded with a key.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// The next output.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }
}
