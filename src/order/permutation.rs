//! A permutation of `0..len` that is computed, not stored. Any place in it, or the place of any number, takes
//! a few nanoseconds and no memory, so a shuffled epoch can be entered anywhere.
//!
//! It is a Feistel network over the smallest power of two that holds `len` and is no smaller than
//! [`BITS_MIN`] allows. The bits of a number are split into two halves, and each half in turn is changed by a
//! keyed function of the other, which the other can undo. A number that comes out beyond `len` goes through
//! again until it is within (cycle walking): removing the numbers from `len` on leaves a permutation of
//! `0..len`. Fewer than half of all numbers are beyond, so two passes through the network suffice on average,
//! except for the shortest permutations.
//!
//! It is for shuffling, not for cryptography.

use crate::base::splitmix::SplitMix;

/// How often each half is changed. Fewer rounds leave patterns in short permutations, which the tests of this
/// file detect.
const ROUNDS: usize = 8;
/// With fewer bits, a network reaches only some of the permutations of so short a range.
const BITS_MIN: u32 = 6;

/// One permutation of `0..len`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permutation {
    len: u64,
    /// Bits of the lower half: the same number as in the upper half, or one fewer.
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    keys: [Key; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..len` for this key.
    pub(crate) fn new(len: u64, key: u64) -> Self {
        let bits = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(BITS_MIN);
        let low_bits = bits / 2;
        let mask = |bits: u32| (1_u64 << bits) - 1;
        let mut generator = SplitMix(key);
        let keys = std::array::from_fn(|_| Key { factor: generator.next() | 1, addend: generator.next() });
        Permutation { len, low_bits, low_mask: mask(low_bits), high_mask: mask(bits - low_bits), keys }
    }

    /// The number at a place.
    ///
    /// # Panics
    ///
    /// If there is no such place. Cycle walking from outside `0..len` might never end.
    #[inline]
    pub(crate) fn number_at(&self, place: u64) -> u64 {
        self.number_at_with(place, 0)
    }

    /// The number at a place in the permutation that `tweak` makes of this one: for many permutations of one
    /// length.
    #[inline]
    pub(crate) fn number_at_with(&self, place: u64, tweak: u64) -> u64 {
        assert!(place < self.len, "a permutation of {} has no place {place}", self.len);
        let mut number = self.forward(place, tweak);
        while number >= self.len {
            number = self.forward(number, tweak);
        }
        number
    }

    /// The place of a number: the inverse of [`number_at`](Self::number_at).
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub(crate) fn place_of(&self, number: u64) -> u64 {
        assert!(number < self.len, "a permutation of {} has no number {number}", self.len);
        let mut place = self.backward(number);
        while place >= self.len {
            place = self.backward(place);
        }
        place
    }

    #[inline]
    fn forward(&self, number: u64, tweak: u64) -> u64 {
        let (mut high, mut low) = (number >> self.low_bits & self.high_mask, number & self.low_mask);
        for keys in self.keys.chunks_exact(2) {
            high ^= keys[0].scramble(low, tweak) & self.high_mask;
            low ^= keys[1].scramble(high, tweak) & self.low_mask;
        }
        high << self.low_bits | low
    }

    fn backward(&self, number: u64) -> u64 {
        let (mut high, mut low) = (number >> self.low_bits & self.high_mask, number & self.low_mask);
        for keys in self.keys.chunks_exact(2).rev() {
            low ^= keys[1].scramble(high, 0) & self.low_mask;
            high ^= keys[0].scramble(low, 0) & self.high_mask;
        }
        high << self.low_bits | low
    }
}

/// Parameters of the keyed function of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// Odd.
    factor: u64,
    addend: u64,
}

impl Key {
    /// Maps a half of up to 32 bits to 32 bits. A multiplication, an addition and a shift are a universal
    /// hash: over all keys, any two halves map to any two results about equally often.
    #[inline]
    fn scramble(self, half: u64, tweak: u64) -> u64 {
        half.wrapping_mul(self.factor).wrapping_add(self.addend ^ tweak) >> 32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(len: u64, key: u64) -> Vec<u64> {
        let permutation = Permutation::new(len, key);
        (0..len).map(|place| permutation.number_at(place)).collect()
    }

    proptest! {
        #[test]
        fn it_has_every_number_once_and_finds_its_place(len in 0_u64..3000, key: u64, tweak: u64) {
            let permutation = Permutation::new(len, key);
            let none_seen = vec![false; usize::try_from(len).unwrap()];
            let mut is_seen = [none_seen.clone(), none_seen];
            for place in 0..len {
                let number = permutation.number_at(place);
                prop_assert_eq!(permutation.place_of(number), place);
                let numbers = [number, permutation.number_at_with(place, tweak)];
                for (seen, number) in is_seen.iter_mut().zip(numbers) {
                    prop_assert!(!std::mem::replace(&mut seen[usize::try_from(number).unwrap()], true));
                }
            }
        }

        #[test]
        fn the_longest_ones_are_entered_anywhere(len in (1_u64 << 40)..=1 << 62, place: u64, key: u64) {
            let permutation = Permutation::new(len, key);
            let number = permutation.number_at(place % len);
            prop_assert!(number < len);
            prop_assert_eq!(permutation.place_of(number), place % len);
        }
    }

    /// The deviation of counts from uniform ones.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it counts millions of numbers")]
    fn all_orders_of_a_few_numbers_are_as_likely() {
        // For 5, 23 and 119 degrees of freedom, one good permutation in ten thousand exceeds these.
        for (len, orders, most) in [(3, 6, 25.7), (4, 24, 57.0), (5, 120, 184.0)] {
            for tweak in [0, 1, u64::MAX] {
                let mut counts = std::collections::BTreeMap::new();
                for key in 0..60_000 {
                    let permutation = Permutation::new(len, key);
                    let order: Vec<_> =
                        (0..len).map(|place| permutation.number_at_with(place, tweak)).collect();
                    *counts.entry(order).or_insert(0) += 1;
                }
                let counts: Vec<u32> = counts.into_values().collect();
                assert_eq!(counts.len(), orders);
                assert!(chi_square(&counts) < most, "{len}, {tweak}: {counts:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it counts millions of numbers")]
    fn a_number_is_as_likely_at_any_place_and_its_neighbours_go_elsewhere() {
        for len in [100, 1000, 5000] {
            let (mut places, mut steps, mut lowest) = ([0; 100], [0; 100], [0; 10]);
            let part = |number: u64, of: u64| usize::try_from(number * of / len).unwrap();
            for key in 0..10_000_000 / len {
                let permutation = Permutation::new(len, key);
                let first = permutation.number_at(key % len);
                let second = permutation.number_at((key + 1) % len);
                places[part(first, 100)] += 1;
                steps[part((second + len - first) % len, 100)] += 1;
                lowest[usize::try_from(first % 10).unwrap()] += 1;
            }
            assert!(chi_square(&places) < 161.0, "{len}: {places:?}");
            // A number is never its own neighbour: one step of `len` has no count.
            if len > 100 {
                assert!(chi_square(&steps[1..]) < 161.0, "{len}: {steps:?}");
            }
            assert!(chi_square(&lowest) < 34.0, "{len}: {lowest:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it counts millions of numbers")]
    fn within_one_permutation_neighbours_go_apart() {
        for key in 0..5 {
            let numbers = listed(1_000_000, key);
            let mut joint = [0; 100];
            for pair in numbers.windows(2) {
                let [a, b] = [pair[0], pair[1]].map(|number| usize::try_from(number / 100_000).unwrap());
                joint[a * 10 + b] += 1;
            }
            assert!(chi_square(&joint) < 161.0, "{joint:?}");
        }
    }

    #[test]
    fn an_order_stays_what_it_is_from_release_to_release() {
        assert_eq!(listed(10, 1701), PINNED);
        assert_eq!(Permutation::new(1_281_167, 1701).number_at(1_000_000), PINNED_FAR);
    }

    const PINNED: [u64; 10] = [1, 4, 7, 5, 3, 8, 0, 9, 6, 2];
    const PINNED_FAR: u64 = 397_670;
}
