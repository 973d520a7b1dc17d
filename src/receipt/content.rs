//! The content hash of a record: 128 bits of its position, key, value and companion's value.
//!
//! Each part is hashed separately with XXH3 (128 bits). Then the position, the parts' lengths and their
//! hashes are hashed together. So a byte that moves from the key to the value changes the hash, and so do two
//! records that change places. XXH3 is specified, and gives the same hashes on all machines and in all
//! releases. It has no key: it protects against mistakes, not against an attacker who searches for a
//! collision.

use twox_hash::XxHash3_128;

use crate::source::Record;

/// The hash of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentHash(pub(crate) u128);

/// The length that stands for a missing companion.
const NO_COMPANION: u64 = u64::MAX;

impl ContentHash {
    /// The low half, which is kept if the hash of each record is kept.
    #[expect(clippy::cast_possible_truncation, reason = "the other half is left out")]
    pub(crate) fn low(self) -> u64 {
        self.0 as u64
    }

    /// Hashes a record. The epoch is not part of the hash: each epoch has the same bytes.
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let companion = record.companion.unwrap_or_default();
        let companion_bytes = record.companion.map_or(NO_COMPANION, |companion| companion.len() as u64);
        let mut head = [0; 4 * size_of::<u64>() + 3 * size_of::<u128>()];
        let (numbers, hashes) = head.split_at_mut(4 * size_of::<u64>());
        let lengths = [record.id.index, record.key.len() as u64, record.value.len() as u64, companion_bytes];
        for (place, number) in numbers.as_chunks_mut().0.iter_mut().zip(lengths) {
            *place = number.to_le_bytes();
        }
        for (place, part) in hashes.as_chunks_mut().0.iter_mut().zip([record.key, record.value, companion]) {
            *place = XxHash3_128::oneshot(part).to_le_bytes();
        }
        ContentHash(XxHash3_128::oneshot(&head))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::RecordId;

    fn hash(index: u64, key: &[u8], value: &[u8], companion: Option<&[u8]>) -> u128 {
        ContentHash::of(&Record { id: RecordId { epoch: 3, index }, key, value, companion }).0
    }

    proptest! {
        #[test]
        fn records_that_differ_anywhere_differ(
            index in 0_u64..9, bytes in prop::collection::vec(any::<u8>(), 1..600), cut: prop::sample::Index,
            other_cut: prop::sample::Index, at: prop::sample::Index, bit in 0_u8..8,
        ) {
            let (key, value) = bytes.split_at(cut.index(bytes.len()));
            let whole = hash(index, key, value, None);
            prop_assert_ne!(hash(index + 1, key, value, None), whole);
            let (other_key, other_value) = bytes.split_at(other_cut.index(bytes.len()));
            prop_assert_eq!(hash(index, other_key, other_value, None) == whole, key == other_key);
            let mut flipped = bytes.clone();
            flipped[at.index(bytes.len())] ^= 1_u8 << bit;
            let (key, value) = flipped.split_at(key.len());
            prop_assert_ne!(hash(index, key, value, None), whole);
        }
    }

    #[test]
    fn a_companion_is_told_from_none_and_from_the_value() {
        let all = [
            hash(0, b"k", b"value", None),
            hash(0, b"k", b"value", Some(b"")),
            hash(0, b"k", b"", Some(b"value")),
            hash(0, b"k", b"value", Some(b"value")),
        ];
        for (number, one) in all.iter().enumerate() {
            assert!(all[..number].iter().all(|other| other != one), "{number}");
        }
    }

    /// Receipts and digests of other releases must stay valid, whatever this machine's instruction set. The
    /// hashes were computed with another implementation, the crate xxhash-rust.
    #[test]
    fn what_records_come_to_is_pinned() {
        let long: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(at) >> 7).to_le_bytes()[0]).collect();
        for (found, due) in [
            (XxHash3_128::oneshot(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f),
            (hash(0, b"", b"", None), 0x89fb_8119_c254_2e41_3261_37ed_43c7_1043),
            (hash(7, b"00000007", b"seven", None), 0x6cb5_4fbc_ad1b_ce13_0147_3699_f91c_24dd),
            (hash(1, b"1", &long, Some(b"mask")), 0xf7d6_7ff3_8525_d0ed_2dba_db82_9994_7b30),
        ] {
            assert_eq!(found, due, "{found:032x}");
        }
    }
}
