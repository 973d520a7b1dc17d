//! Names that were met, and where.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::ops::Range;

/// A larger table is dropped when it is cleared, as clearing takes as long as it is large.
const KEPT_MAX: usize = 1024;

/// Names and a number for each. Adding one allocates only as the whole grows.
#[derive(Debug, Default)]
pub(super) struct TarNames {
    bytes: Vec<u8>,
    /// By the name's hash, or the next number that is free.
    table: HashMap<u64, (Range<usize>, u64)>,
    hasher: RandomState,
}

impl TarNames {
    /// Adds a name with its number, or returns the number that it has.
    pub(super) fn add(&mut self, name: &[u8], number: u64) -> Option<u64> {
        let mut hash = self.hasher.hash_one(name);
        loop {
            match self.table.entry(hash) {
                Entry::Vacant(vacant) => {
                    let begin = self.bytes.len();
                    self.bytes.extend_from_slice(name);
                    vacant.insert((begin..self.bytes.len(), number));
                    return None;
                }
                Entry::Occupied(known) => {
                    let (range, number) = known.get();
                    if self.bytes.get(range.clone()) == Some(name) {
                        return Some(*number);
                    }
                    hash = hash.wrapping_add(1);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        if self.table.capacity() > KEPT_MAX {
            self.table = HashMap::new();
        }
        self.table.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_that_it_was_added_with() {
        let mut names = TarNames::default();
        for round in 0..2 {
            for number in 0..3000_u64 {
                assert_eq!(names.add(&number.to_le_bytes()[..3], number + round), None);
            }
            for number in 0..3000_u64 {
                assert_eq!(names.add(&number.to_le_bytes()[..3], 7), Some(number + round));
            }
            names.clear();
        }
    }
}
