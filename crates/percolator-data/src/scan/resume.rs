//! Finds where a LevelDB can be read again after a damaged block.
//!
//! A block holds the keys of one interval, so all keys that lead a search into the damaged block form an
//! interval, too. Its end is found by halving: a search for a key either fails as the scan did, or it does
//! not, and then the end is before it.

use percolator::source::SourceError;

use super::feeder::ends_scan;

/// The longest key that is sought. Keys that agree in this many bytes with the first key after the damage are
/// skipped with it.
const KEY_BYTES_MAX: usize = 64;

/// The smallest key above `bound`, of so many bytes, from which reading does not fail as it did; `None` if
/// there is none up to the end of the database. Resuming from each result in turn reaches an end.
/// `read_first` reads the first record from a key.
///
/// # Errors
///
/// An error of `read_first` that [ends a scan](ends_scan): it tells nothing of the block.
pub(super) fn behind(
    bound: &[u8],
    error: &SourceError,
    read_first: impl Fn(&[u8]) -> Result<(), SourceError>,
) -> Result<Option<Vec<u8>>, SourceError> {
    let fails_alike = |start: &[u8]| {
        // Damage within a block fails only where a walk comes to it. So keys up to the bound count as failed.
        if start <= bound {
            return Ok(true);
        }
        match read_first(start) {
            Err(found) if ends_scan(&found) => Err(found),
            found => Ok(found.err().as_ref() == Some(error)),
        }
    };
    let length = (bound.len() + 1).clamp(8, KEY_BYTES_MAX);
    // Keys above all others of this length are not distinguished.
    match fails_alike(&vec![0xff; length])? {
        true => Ok(None),
        false => first_that_not(length, fails_alike).map(Some),
    }
}

/// The smallest key of so many bytes for which `fails` is false, provided that it is true up to some key and
/// false from there on, and false for the greatest key. An error of `fails` ends the search.
fn first_that_not<E>(length: usize, fails: impl Fn(&[u8]) -> Result<bool, E>) -> Result<Vec<u8>, E> {
    let mut found = vec![0; length];
    for place in 0..length {
        // The bytes before `place` are settled. With 0xff after it, a key stands for all keys with the same
        // beginning.
        let (mut low, mut high) = (0u8, 0xffu8);
        while low < high {
            let middle = low + (high - low) / 2;
            found[place] = middle;
            found[place + 1..].fill(0xff);
            if fails(&found)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found[place] = low;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::super::tests::system_error;
    use super::*;

    #[test]
    fn a_search_ends_where_nothing_is_known_of_a_block() {
        let damage = SourceError::other("database", "a block is damaged");
        let reads = Cell::new(0);
        // The damaged block has the keys below "m"; one of the reads fails for another reason.
        let search = |failing: usize, other: Errno| {
            reads.set(0);
            behind(b"a", &damage, |start| {
                reads.set(reads.get() + 1);
                match start < &b"m"[..] {
                    _ if reads.get() == failing => Err(system_error(other)),
                    true => Err(damage.clone()),
                    false => Ok(()),
                }
            })
        };
        let due = [b"m", &[0; 7][..]].concat();
        assert_eq!(search(0, Errno::MFILE), Ok(Some(due)));
        let all = reads.get();
        assert!(all > 8, "{all}");
        for failing in 1..=all {
            for error in [Errno::MFILE, Errno::STALE] {
                assert_eq!(search(failing, error), Err(system_error(error)), "{failing}");
            }
        }
        // Another block may be damaged, too.
        assert!(matches!(search(1, Errno::IO), Ok(Some(_))));
    }

    proptest! {
        #[test]
        fn halving_finds_what_counting_finds(end in 0u32..=0xff_ffff) {
            let number = |key: &[u8]| key.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte));
            let found = first_that_not(3, |key| Ok::<_, ()>(number(key) < end));
            prop_assert_eq!(found.map(|found| number(&found)), Ok(end));
        }
    }
}
