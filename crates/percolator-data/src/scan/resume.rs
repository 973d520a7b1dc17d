//! Finds where a LevelDB can be read again behind a damaged block.
//!
//! A block holds the keys of one interval, so all keys that lead a search into the damaged block form an
//! interval, too. Its end is found by halving: a search for a key either fails as the scan did, or it does
//! not, and then the end is before it.

use percolator::source::{LevelDb, SourceError};

/// The longest key that is sought. Keys that agree in so many bytes with the first key behind the damage are
/// passed over with it.
const KEY_BYTES_MAX: usize = 64;

/// The smallest key above `bound`, of so many bytes, from which reading does not fail as it did; `None` if
/// there is none up to the end of the database. Whoever resumes from each result in turn gets to an end.
pub(super) fn behind(leveldb: &LevelDb, bound: &[u8], error: &SourceError) -> Option<Vec<u8>> {
    let fails_alike = |start: &[u8]| {
        // Damage within a block fails only where a walk comes to it. So keys up to the bound count as failed.
        if start <= bound {
            return true;
        }
        let first = leveldb.range(Some(start), None).and_then(|mut cursor| cursor.advance().map(|_| ()));
        first.err().as_ref() == Some(error)
    };
    let length = (bound.len() + 1).clamp(8, KEY_BYTES_MAX);
    // Keys above all others of this length are not distinguished.
    (!fails_alike(&vec![0xff; length])).then(|| first_that_not(length, fails_alike))
}

/// The smallest key of so many bytes for which `fails` is false, provided that it is true up to some key and
/// false from there on, and false for the greatest key.
fn first_that_not(length: usize, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut found = vec![0; length];
    for place in 0..length {
        // The bytes before `place` are settled. With 0xff behind it, a key stands for all that begin alike.
        let (mut low, mut high) = (0u8, 0xffu8);
        while low < high {
            let middle = low + (high - low) / 2;
            found[place] = middle;
            found[place + 1..].fill(0xff);
            if fails(&found) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found[place] = low;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn halving_finds_what_counting_finds(end in 0u32..=0xff_ffff) {
            let number = |key: &[u8]| key.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte));
            let found = first_that_not(3, |key| number(key) < end);
            prop_assert_eq!(number(&found), end);
        }
    }
}
