//! A digest of records that does not depend on their order, nor on which lane or rank added which.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use crate::base::splitmix::{self, GAMMA};
use crate::receipt::content::ContentHash;
use crate::record::RecordId;

/// An order-free digest of records: the sum of their marks, and their number. A record's mark is a hash of
/// its epoch and position or, in a digest of contents, of its content. Digests of lanes and of ranks add up
/// to the digest of all their records.
///
/// Two different multisets of records have the same digest with a probability of about 2^-64. This protects
/// against mistakes, not against an attacker who searches for such records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest {
    sum: u128,
    records: u64,
}

impl Digest {
    /// Adds a record.
    pub fn add_record(&mut self, record: RecordId) {
        self.add_marked(EpochKey::of(record.epoch).mark(record.index), 1);
    }

    /// The number of records added.
    #[must_use]
    pub fn records(self) -> u64 {
        self.records
    }

    /// Adds a record `times` times; if negative, takes it out.
    #[inline]
    pub(super) fn add_marked(&mut self, mark: Mark, times: i64) {
        let wide = u128::from(mark.high) << 64 | u128::from(mark.low);
        self.sum = self.sum.wrapping_add(wide.wrapping_mul(i128::from(times).cast_unsigned()));
        self.records = self.records.wrapping_add_signed(times);
    }

    /// Adds a record's content hash.
    #[inline]
    pub(super) fn add_content(&mut self, hash: ContentHash) {
        self.sum = self.sum.wrapping_add(hash.0);
        self.records = self.records.wrapping_add(1);
    }

    /// The low half of the sum, which is the sum of the records' low halves.
    pub(super) fn low(self) -> u64 {
        ContentHash(self.sum).low()
    }

    /// The digest with only the low half of the sum: what a [`DataDigest`](super::DataDigest) knows of some
    /// of its records.
    #[must_use]
    pub fn low_half(self) -> Self {
        Digest { sum: self.low().into(), ..self }
    }

    /// The digest of these records, each `times` times as often. With a negative number, it takes them
    /// out of a digest to which it is added.
    #[must_use]
    pub fn times(self, times: i64) -> Self {
        Digest {
            sum: self.sum.wrapping_mul(i128::from(times).cast_unsigned()),
            records: self.records.wrapping_mul(times.cast_unsigned()),
        }
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.records = self.records.wrapping_add(other.records);
    }
}

impl Add for Digest {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// The sum and the number of records: `0123456789abcdef0123456789abcdef of 60000`.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x} of {}", self.sum, self.records)
    }
}

/// The error needs no details: its caller has the line.
impl FromStr for Digest {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (sum, records) = text.split_once(" of ").unwrap_or_default();
        Ok(Digest { sum: u128::from_str_radix(sum, 16)?, records: records.parse()? })
    }
}

/// The key of an epoch, from which the marks of its records are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochKey(u64);

/// A record's mark: 128 bits that are a function of only the epoch and the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl EpochKey {
    #[inline]
    pub(super) fn of(epoch: u64) -> Self {
        EpochKey(splitmix::mix(epoch.wrapping_add(GAMMA)))
    }

    #[inline]
    pub(super) fn mark(self, index: u64) -> Mark {
        let low = splitmix::mix((self.0 ^ index).wrapping_add(GAMMA));
        Mark { low, high: splitmix::mix(low.wrapping_add(GAMMA)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(records: &[(u64, u64)]) -> Digest {
        let mut digest = Digest::default();
        for &(epoch, index) in records {
            digest.add_record(RecordId { epoch, index });
        }
        digest
    }

    proptest! {
        #[test]
        fn the_order_and_the_division_do_not_matter(mut records: Vec<(u64, u64)>, cut: prop::sample::Index) {
            let whole = digest(&records);
            let (front, back) = records.split_at(cut.index(records.len() + 1));
            prop_assert_eq!(digest(front) + digest(back), whole);
            records.reverse();
            prop_assert_eq!(digest(&records), whole);
            prop_assert_eq!(whole.records(), records.len() as u64);
            prop_assert_eq!(whole.to_string().parse(), Ok(whole));
        }

        #[test]
        fn other_records_come_to_another_digest(mut records: Vec<(u8, u8)>, mut others: Vec<(u8, u8)>) {
            let of = |records: &[(u8, u8)]| {
                let wide = records.iter().map(|&(epoch, index)| (epoch.into(), index.into()));
                digest(&wide.collect::<Vec<_>>())
            };
            let same = of(&records) == of(&others);
            records.sort_unstable();
            others.sort_unstable();
            prop_assert_eq!(same, records == others);
        }
    }

    #[test]
    fn epoch_and_index_are_not_exchanged() {
        assert_ne!(digest(&[(1, 2)]), digest(&[(2, 1)]));
        assert_ne!(digest(&[(0, 1), (1, 0)]), digest(&[(0, 0), (1, 1)]));
        assert_ne!(digest(&[(0, 3)]), digest(&[(0, 3), (0, 3)]));
    }

    /// Receipts of other releases must stay valid.
    #[test]
    fn what_records_come_to_is_pinned() {
        let text = digest(&[(0, 0), (3, 117)]).to_string();
        assert_eq!(text, "a21e78e15e5219ccbc49e80644a40131 of 2");
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for text in ["", "12", "xy of 3", "12 of ", "12 of -1", "123456789012345678901234567890123 of 1"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
