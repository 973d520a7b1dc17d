//! CPython's `random`.

use rand_mt::Mt;

/// CPython's `random.Random`, seeded with an integer.
#[derive(Clone, Debug)]
pub struct PythonRandom {
    twister: Mt,
}

impl PythonRandom {
    /// The state after `random.seed(seed)`. As in Python, the sign of the seed is ignored.
    #[must_use]
    pub fn new(seed: i64) -> Self {
        let seed = seed.unsigned_abs();
        #[expect(clippy::cast_possible_truncation, reason = "the number is split into its 32-bit halves")]
        let words = [seed as u32, (seed >> 32) as u32];
        // Python leaves out leading zero words, except that 0 is one word.
        let count = if words[1] == 0 { 1 } else { 2 };
        PythonRandom { twister: Mt::new_with_key(words[..count].iter().copied()) }
    }

    /// `random.random()`: a number in [0, 1).
    pub fn random(&mut self) -> f64 {
        super::unit(&mut self.twister)
    }

    /// `random.choice` of a sequence of this length, as an index. It draws even if there is only one choice.
    ///
    /// # Panics
    ///
    /// If the sequence is empty.
    pub fn choice(&mut self, count: usize) -> usize {
        assert!(count > 0, "there is nothing to choose from");
        self.below(count)
    }

    /// `random.randint(low, high)`: a number from `low` to `high`, both inclusive.
    ///
    /// # Panics
    ///
    /// If `high` is less than `low`.
    pub fn randint(&mut self, low: usize, high: usize) -> usize {
        assert!(low <= high, "the range from {low} to {high} is empty");
        low + self.below(high - low + 1)
    }

    /// `random._randbelow_with_getrandbits`: draws as many bits as `bound` has, until they are below it.
    fn below(&mut self, bound: usize) -> usize {
        let bits = usize::BITS - bound.leading_zeros();
        loop {
            let drawn = self.bits(bits);
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// `random.getrandbits`, for 1 to 64 bits: one word for each 32 bits, the lowest first; of the last word,
    /// the high bits are used.
    fn bits(&mut self, bits: u32) -> usize {
        let mut drawn = 0;
        let mut have = 0;
        while have < bits {
            let take = (bits - have).min(32);
            drawn |= ((self.twister.next_u32() >> (32 - take)) as usize) << have;
            have += take;
        }
        drawn
    }
}
