//! How many records of an epoch were bad, and how many may be.

use std::collections::BTreeMap;

use super::{BadRecord, BadRecords};
use crate::record::RecordId;

/// The fewest records to which a rate applies: one bad record among the first ten says little about an epoch.
const RATE_OF_MIN: u64 = 1000;

/// How many records, and how many bad ones, a lane has had in an epoch so far. A snapshot that is read states
/// at most 2^43 records for each replica; other sums saturate at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadCount {
    pub(crate) epoch: u64,
    /// All of its records, including bad ones.
    pub(crate) records: u64,
    pub(crate) bad: u64,
}

impl BadCount {
    /// Counts a batch: the ids of its rows, and its bad records. A later epoch starts the count again, and an
    /// earlier one counts as this one. In a mixture, where an id's epoch is the number of a pass over its own
    /// database, `of` is the epoch of all. `look` gets the count of each epoch that has bad records here,
    /// with the last of these.
    pub(crate) fn add(
        &mut self,
        ids: &[RecordId],
        bad: &[BadRecord],
        of: Option<u64>,
        mut look: impl FnMut(&BadCount, &BadRecord),
    ) {
        let epoch_of = |id: &RecordId| of.unwrap_or(id.epoch);
        if bad.is_empty() {
            // Most batches are of this kind; nothing is allocated for them.
            let latest = ids.iter().map(epoch_of).max().filter(|latest| *latest > self.epoch);
            match latest {
                None => self.records = self.records.saturating_add(ids.len() as u64),
                Some(epoch) => {
                    let records = ids.iter().filter(|id| epoch_of(id) == epoch).count() as u64;
                    *self = BadCount { epoch, records, bad: 0 };
                }
            }
            return;
        }
        let mut epochs: BTreeMap<u64, (u64, Vec<&BadRecord>)> = BTreeMap::new();
        for id in good(ids, bad) {
            epochs.entry(epoch_of(&id).max(self.epoch)).or_default().0 += 1;
        }
        for bad in bad {
            epochs.entry(epoch_of(&bad.id).max(self.epoch)).or_default().1.push(bad);
        }
        for (epoch, (good, bad)) in epochs {
            if epoch > self.epoch {
                *self = BadCount { epoch, ..BadCount::default() };
            }
            self.bad = self.bad.saturating_add(bad.len() as u64);
            self.records = self.records.saturating_add(good + bad.len() as u64);
            if let Some(last) = bad.last() {
                look(self, last);
            }
        }
    }

    /// How many of these records may be bad.
    pub(crate) fn allowed(&self, policy: &BadRecords) -> u64 {
        let of = self.records.max(RATE_OF_MIN);
        #[expect(clippy::cast_possible_truncation, reason = "a part of a number of records is one")]
        #[expect(clippy::cast_sign_loss, reason = "a rate is from 0 to 1")]
        #[expect(clippy::cast_precision_loss, reason = "a limit need not be exact past 2^53 records")]
        let by_rate = (of as f64 * policy.at_most_rate) as u64;
        let by_rate = if policy.at_most_rate < 1.0 { by_rate } else { u64::MAX };
        by_rate.min(policy.at_most.unwrap_or(u64::MAX))
    }

    /// How many records and bad ones a replica had in an epoch for which only others are known: the mean of
    /// theirs.
    pub(crate) fn mean<'a>(known: impl IntoIterator<Item = &'a BadCount>, epoch: u64) -> BadCount {
        let known: Vec<_> = known.into_iter().filter(|count| count.epoch == epoch).collect();
        let mean = |of: fn(&BadCount) -> u64| {
            let sum = known.iter().fold(0_u64, |sum, count| sum.saturating_add(of(count)));
            sum.div_ceil(known.len().max(1) as u64)
        };
        BadCount { epoch, records: mean(|count| count.records), bad: mean(|count| count.bad) }
    }
}

/// What the rows of a batch have, without those that are copies in the places of bad records.
pub(crate) fn good<'a, T: Copy>(rows: &'a [T], bad: &'a [BadRecord]) -> impl Iterator<Item = T> + 'a {
    let mut copies = bad.iter().filter(|bad| bad.replaced_by.is_some()).map(|bad| bad.row).peekable();
    let is_good = move |&(row, _): &(usize, T)| copies.next_if_eq(&row).is_none();
    rows.iter().copied().enumerate().filter(is_good).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Key;

    fn id(epoch: u64, index: u64) -> RecordId {
        RecordId { epoch, index }
    }

    fn bad(row: usize, of: RecordId, replaced_by: Option<RecordId>) -> BadRecord {
        let (path, key) = ("data".into(), Key(Vec::new()));
        BadRecord { path, id: of, key, reason: "torn".to_owned(), replaced_by, row }
    }

    #[test]
    fn each_epoch_is_counted_by_itself_and_a_copy_is_no_record() {
        let mut count = BadCount::default();
        let mut add = |ids: &[RecordId], bad: &[BadRecord]| {
            let mut seen = Vec::new();
            count.add(ids, bad, None, |count, last| {
                seen.push((count.epoch, count.records, count.bad, last.id.index))
            });
            (seen, count)
        };
        assert_eq!(add(&[id(0, 3), id(0, 4)], &[]).0, []);
        assert_eq!(add(&[id(0, 6)], &[bad(0, id(0, 5), None)]).0, [(0, 4, 1, 5)]);
        // One more of this epoch, then one of the next; the copy has the name of another record.
        let (seen, now) = add(&[id(1, 0), id(1, 0)], &[bad(0, id(0, 7), Some(id(1, 0)))]);
        assert_eq!((seen, now), (vec![(0, 5, 2, 7)], BadCount { epoch: 1, records: 1, bad: 0 }));
        // A block of an epoch before.
        assert_eq!(add(&[], &[bad(0, id(0, 1), None)]).0, [(1, 2, 1, 1)]);
    }

    #[test]
    fn all_of_a_mixture_is_of_its_own_epoch_whatever_pass_a_record_is_of() {
        let mut count = BadCount::default();
        count.add(&[id(5, 0), id(0, 9)], &[], Some(0), |_, _| unreachable!("none is bad"));
        let mut seen = Vec::new();
        count.add(&[id(0, 8)], &[bad(1, id(6, 1), None)], Some(0), |count, _| seen.push(*count));
        assert_eq!(seen, [BadCount { epoch: 0, records: 4, bad: 1 }]);
        count.add(&[id(6, 2)], &[], Some(1), |_, _| unreachable!("none is bad"));
        assert_eq!(count, BadCount { epoch: 1, records: 1, bad: 0 });
    }

    #[test]
    fn a_rate_is_of_a_thousand_records_at_least_and_the_lower_limit_counts() {
        let count = |records| BadCount { epoch: 0, records, bad: 0 };
        let rate = BadRecords::skip().at_most_rate(0.01);
        assert_eq!([1, 1000, 1100, 5000].map(|records| count(records).allowed(&rate)), [10, 10, 11, 50]);
        assert_eq!(count(5000).allowed(&rate.clone().at_most(7)), 7);
        assert_eq!(count(5000).allowed(&BadRecords::skip().at_most_rate(1.0)), u64::MAX);
        assert_eq!(count(5000).allowed(&BadRecords::skip().at_most_rate(0.0)), 0);
    }

    #[test]
    fn a_replica_that_is_not_known_had_what_the_others_had() {
        let counts = [(3, 100, 4), (3, 101, 3), (2, 900, 90)];
        let counts = counts.map(|(epoch, records, bad)| BadCount { epoch, records, bad });
        assert_eq!(BadCount::mean(&counts, 3), BadCount { epoch: 3, records: 101, bad: 4 });
        assert_eq!(BadCount::mean(&counts, 4), BadCount { epoch: 4, records: 0, bad: 0 });
    }

    #[test]
    fn a_snapshot_that_counts_more_than_there_can_be_is_no_panic() {
        let most = BadCount { epoch: 0, records: u64::MAX, bad: u64::MAX };
        assert_eq!(BadCount::mean(&[most, most], 0), BadCount { epoch: 0, records: 1 << 63, bad: 1 << 63 });
        let mut count = most;
        count.add(&[id(0, 1)], &[], None, |_, _| unreachable!("none is bad"));
        count.add(&[id(0, 2)], &[bad(1, id(0, 3), None)], None, |_, _| {});
        assert_eq!(count, most);
    }
}
