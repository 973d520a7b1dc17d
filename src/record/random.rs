//! The random numbers that a decoder draws for a record.

use super::RecordId;
use crate::base::splitmix::{self, SplitMix};

/// Separates a decoder's numbers from those for crops and mirroring.
const OF_DECODERS: u64 = 0x6465_636f_6465_7221;

/// The random numbers of one record: a function of the feed's seed and the record's epoch and position. They
/// are the same on any thread, in any batch and after any resume, and differ in each epoch. The generator is
/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct RecordRandom(SplitMix);

impl RecordRandom {
    pub(crate) fn new(seed: u64, record: RecordId) -> Self {
        RecordRandom(SplitMix(splitmix::fold(seed, &[record.epoch, record.index, OF_DECODERS])))
    }

    /// Returns a separate sequence for each number: for another host, or for another purpose. It continues
    /// neither this one nor another fork.
    #[must_use]
    pub fn fork(&self, word: u64) -> Self {
        RecordRandom(SplitMix(splitmix::fold(self.0.0, &[word])))
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number below `end`, with a bias of at most `end` in 2^64; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and a bias of at most `end` in 2^64.
        let product = u128::from(self.next_u64()) * u128::from(end);
        (product >> 64) as u64
    }

    /// Returns a number in [0, 1), in steps of 2^-53.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64, epoch: u64, index: u64) -> RecordRandom {
        RecordRandom::new(seed, RecordId { epoch, index })
    }

    #[test]
    fn they_are_a_function_of_seed_epoch_and_position() {
        let first = |mut random: RecordRandom| [random.next_u64(), random.next_u64()];
        assert_eq!(first(random(7, 1, 2)), first(random(7, 1, 2)));
        for other in [random(8, 1, 2), random(7, 2, 2), random(7, 1, 3), random(7, 2, 1)] {
            assert_ne!(first(random(7, 1, 2)), first(other));
        }
    }

    /// A release that changed them would change every resumed training run.
    #[test]
    fn they_are_pinned() {
        let mut random = random(1701, 3, 5);
        assert_eq!((random.next_u64(), random.below(1000)), PINNED);
    }
    const PINNED: (u64, u64) = (6_586_293_274_322_817_163, 332);

    #[test]
    fn forks_differ_from_each_other_and_from_their_record() {
        let record = random(7, 1, 2);
        let mut firsts: Vec<_> = (0..50).map(|word| record.fork(word).next_u64()).collect();
        assert_eq!(firsts[3], record.fork(3).next_u64());
        firsts.push(record.clone().next_u64());
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 51);
    }

    #[test]
    #[cfg_attr(miri, ignore = "only many draws show how they are spread")]
    fn they_are_spread_evenly() {
        let mut random = random(0, 0, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        let units: Vec<f64> = (0..1000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        assert_eq!(random.below(0), 0);
    }
}
