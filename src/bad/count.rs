//! How many records of an epoch were bad, and how many may be.

use super::{BadRecord, BadRecords};
use crate::record::RecordId;

/// The fewest records that a share is of: one bad record among the first ten says little about an epoch.
const SHARE_OF_MIN: u64 = 1000;

/// What a lane had of an epoch until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadCount {
    pub(crate) epoch: u64,
    /// All of its records, bad ones too.
    pub(crate) records: u64,
    pub(crate) bad: u64,
}

impl BadCount {
    /// Counts a batch: the ids of its rows, and its bad records. A later epoch starts the count again.
    pub(crate) fn add(&mut self, ids: &[RecordId], bad: &[BadRecord]) {
        let is_of_epoch = |id: &RecordId| id.epoch == self.epoch;
        if bad.is_empty() && ids.first().is_none_or(is_of_epoch) && ids.last().is_none_or(is_of_epoch) {
            self.records += ids.len() as u64;
            return;
        }
        let all = || good(ids, bad).chain(bad.iter().map(|bad| bad.id));
        let latest = all().map(|id| id.epoch).max().unwrap_or_default();
        if latest > self.epoch {
            *self = BadCount { epoch: latest, ..BadCount::default() };
        }
        let epoch = self.epoch;
        self.records += all().filter(|id| id.epoch == epoch).count() as u64;
        self.bad += bad.iter().filter(|bad| bad.id.epoch == epoch).count() as u64;
    }

    /// How many of these records may be bad.
    pub(crate) fn allowed(&self, policy: &BadRecords) -> u64 {
        let of = self.records.max(SHARE_OF_MIN);
        #[expect(clippy::cast_possible_truncation, reason = "a part of a number of records is one")]
        #[expect(clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
        #[expect(clippy::cast_precision_loss, reason = "a limit need not be exact past 2^53 records")]
        let by_share = (of as f64 * policy.at_most_share) as u64;
        let by_share = if policy.at_most_share < 1.0 { by_share } else { u64::MAX };
        by_share.min(policy.at_most.unwrap_or(u64::MAX))
    }

    /// Divides what several replicas had of an epoch among as many as there are now.
    pub(crate) fn divided(counts: &[BadCount], epoch: u64, replicas: usize) -> BadCount {
        let of_epoch = || counts.iter().filter(|count| count.epoch == epoch);
        let part = |of: fn(&BadCount) -> u64| of_epoch().map(of).sum::<u64>() / replicas as u64;
        BadCount { epoch, records: part(|count| count.records), bad: part(|count| count.bad) }
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
    fn an_epoch_is_counted_by_itself_and_a_copy_is_no_record() {
        let mut count = BadCount::default();
        count.add(&[id(0, 3), id(0, 4)], &[]);
        count.add(&[id(0, 6)], &[bad(0, id(0, 5), None)]);
        assert_eq!(count, BadCount { epoch: 0, records: 4, bad: 1 });
        // One more of this epoch, then one of the next; the copy has the name of another record.
        let replaced = bad(0, id(0, 7), Some(id(1, 0)));
        count.add(&[id(1, 0), id(1, 0)], &[replaced]);
        assert_eq!(count, BadCount { epoch: 1, records: 1, bad: 0 });
        count.add(&[], &[bad(0, id(1, 1), None)]);
        assert_eq!(count, BadCount { epoch: 1, records: 2, bad: 1 });
    }

    #[test]
    fn a_share_is_of_a_thousand_records_at_least_and_the_lower_limit_counts() {
        let count = |records| BadCount { epoch: 0, records, bad: 0 };
        let share = BadRecords::skip().at_most_share(0.01);
        assert_eq!([1, 1000, 1100, 5000].map(|records| count(records).allowed(&share)), [10, 10, 11, 50]);
        assert_eq!(count(5000).allowed(&share.clone().at_most(7)), 7);
        assert_eq!(count(5000).allowed(&BadRecords::skip().at_most_share(1.0)), u64::MAX);
        assert_eq!(count(5000).allowed(&BadRecords::skip().at_most_share(0.0)), 0);
    }

    #[test]
    fn other_replicas_divide_what_an_epoch_had() {
        let counts = [(3, 100, 4), (3, 101, 3), (2, 900, 90)];
        let counts = counts.map(|(epoch, records, bad)| BadCount { epoch, records, bad });
        assert_eq!(BadCount::divided(&counts, 3, 4), BadCount { epoch: 3, records: 50, bad: 1 });
        assert_eq!(BadCount::divided(&counts, 4, 4), BadCount { epoch: 4, records: 0, bad: 0 });
    }
}
