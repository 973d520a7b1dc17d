//! Numbers that look random, the same in every process.

/// The generator SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn between_minus_one_and_one(&mut self) -> f32 {
        // The 24 highest bits are a float, exactly.
        #[expect(clippy::cast_precision_loss, reason = "24 bits are a float, exactly")]
        let share = (self.next() >> 40) as f32 / 16_777_216.0;
        share.mul_add(2.0, -1.0)
    }
}
