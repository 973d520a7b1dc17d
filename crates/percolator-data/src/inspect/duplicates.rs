//! Records that occur more than once, by a hash of 128 bits of their contents.
//!
//! The hash is the front of a SHA-256, so that two records cannot be made to agree in it on purpose. Memory:
//! 32 bytes a record and hash, and no more than 2^23 records are compared, so 256 MiB for each hash.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The most records that are compared.
const COMPARED_MAX: usize = 1 << 23;
/// The most groups that are listed.
const LISTED_MAX: usize = 20;
/// The most records that are listed of a group.
const MEMBERS_MAX: usize = 20;

/// 128 bits that stand for contents.
pub(super) type Hash = [u8; 16];

/// Contents that occur more than once.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// How many records were compared: the first ones, if there are more.
    pub compared: u64,
    /// How many different contents occur more than once.
    pub groups: u64,
    /// How many records could be left out.
    pub superfluous: u64,
    /// How many of the groups have different labels.
    pub groups_with_labels_that_differ: u64,
    /// The first groups.
    pub listed: Vec<DuplicateGroup>,
}

/// Records with the same contents.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateGroup {
    /// The numbers of the first of them.
    pub records: Vec<u64>,
    /// How many they are.
    pub count: u64,
    /// Whether their labels differ.
    pub labels_differ: bool,
}

/// Hashes, seen one after the other.
#[derive(Debug, Default)]
pub(super) struct DuplicateTally {
    seen: Vec<(Hash, u64, i64)>,
}

/// The hash of some pieces, which are distinguished.
pub(super) fn hash(pieces: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    let mut front = Hash::default();
    let length = front.len();
    front.copy_from_slice(&hash.finalize()[..length]);
    front
}

impl DuplicateTally {
    pub(super) fn add(&mut self, hash: Hash, number: u64, label: i64) {
        if self.seen.len() < COMPARED_MAX {
            self.seen.push((hash, number, label));
        }
    }

    pub(super) fn finish(mut self) -> Duplicates {
        let compared = self.seen.len() as u64;
        self.seen.sort_unstable();
        let mut groups: Vec<&[(Hash, u64, i64)]> =
            self.seen.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1).collect();
        // Within a group the records are in order, so this puts the groups in the order of the data set.
        groups.sort_unstable_by_key(|group| group[0].1);
        let differ = |group: &[(Hash, u64, i64)]| group.iter().any(|member| member.2 != group[0].2);
        let listed = groups.iter().take(LISTED_MAX).map(|group| DuplicateGroup {
            records: group.iter().take(MEMBERS_MAX).map(|member| member.1).collect(),
            count: group.len() as u64,
            labels_differ: differ(group),
        });
        Duplicates {
            compared,
            groups: groups.len() as u64,
            superfluous: groups.iter().map(|group| group.len() as u64 - 1).sum(),
            groups_with_labels_that_differ: groups.iter().filter(|group| differ(group)).count() as u64,
            listed: listed.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_are_told_apart() {
        assert_eq!(hash(&[b"ab", b"c"]), hash(&[b"ab", b"c"]));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"abc"]), hash(&[b"ab", b"c"]));
    }

    proptest! {
        #[test]
        fn groups_are_those_of_a_map(contents in proptest::collection::vec((0u8..20, 0i64..2), 0..100)) {
            let mut tally = DuplicateTally::default();
            let mut map: BTreeMap<u8, Vec<(u64, i64)>> = BTreeMap::new();
            for (number, &(content, label)) in (0..).zip(&contents) {
                tally.add(hash(&[&[content]]), number, label);
                map.entry(content).or_default().push((number, label));
            }
            let found = tally.finish();
            let groups: Vec<_> = map.values().filter(|group| group.len() > 1).collect();
            prop_assert_eq!(found.compared, contents.len() as u64);
            prop_assert_eq!(found.groups, groups.len() as u64);
            let superfluous = groups.iter().map(|group| group.len() as u64 - 1).sum::<u64>();
            prop_assert_eq!(found.superfluous, superfluous);
            let differ = |group: &&&Vec<(u64, i64)>| group.iter().any(|member| member.1 != group[0].1);
            let differ = groups.iter().filter(differ).count();
            prop_assert_eq!(found.groups_with_labels_that_differ, differ as u64);
            prop_assert!(found.listed.windows(2).all(|pair| pair[0].records[0] < pair[1].records[0]));
            for group in &found.listed {
                let content = contents[usize::try_from(group.records[0]).unwrap()].0;
                let numbers = map[&content].iter().map(|member| member.0);
                let numbers: Vec<u64> = numbers.take(MEMBERS_MAX).collect();
                prop_assert_eq!(&group.records, &numbers);
            }
        }
    }
}
