//! What was delivered of one epoch.

use std::collections::BTreeMap;

use super::digest::{Digest, EpochKey};
use super::multiset::Multiset;
use super::sketch::Sketch;

/// What was delivered of one epoch: which records, in a [`Digest`] and a sketch; the contents of those whose
/// bytes were hashed; the steps that each replica was given; and the records that were bad.
///
/// [`Receipt::epochs`](super::Receipt::epochs) has those of a run. [`beyond`](Self::beyond) names the records
/// by which it differs from an account of what was [due](Self::add).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochAccount {
    pub(super) epoch: u64,
    /// The records of this epoch, in whichever epoch's steps they came.
    pub(super) digest: Digest,
    pub(super) sketch: Sketch,
    /// The contents of those records whose bytes were hashed: all of them if contents are kept.
    pub(super) contents: Digest,
    /// The steps of this epoch that each replica was given, including empty ones.
    pub(super) steps: BTreeMap<usize, Multiset>,
    /// The records of this epoch that were bad, and did not come in the steps that have them.
    pub(super) bad: Multiset,
}

/// What was delivered, epoch by epoch.
pub(super) type Entries = BTreeMap<u64, EpochAccount>;

/// The account of an epoch, which is of nothing if there was none.
pub(super) fn account_of(entries: &mut Entries, epoch: u64) -> &mut EpochAccount {
    entries.entry(epoch).or_insert_with(|| EpochAccount::of(epoch))
}

impl EpochAccount {
    /// The account of an epoch of which nothing was delivered.
    #[must_use]
    pub fn of(epoch: u64) -> Self {
        EpochAccount {
            epoch,
            digest: Digest::default(),
            sketch: Sketch::default(),
            contents: Digest::default(),
            steps: BTreeMap::new(),
            bad: Multiset::default(),
        }
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The digest of the records delivered of this epoch, in whichever epoch's steps they came.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The digest of the contents of those records whose bytes were hashed: all of them, if contents were
    /// [kept](crate::feed::Receipts::Contents).
    #[must_use]
    pub fn contents(&self) -> Digest {
        self.contents
    }

    /// The steps of this epoch that each replica was given, including those in which it gets no record.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &Multiset)> {
        self.steps.iter().map(|(&replica, steps)| (replica, steps))
    }

    /// The steps of this epoch that a replica was given, if it was given any.
    #[must_use]
    pub fn steps_of(&self, replica: usize) -> Option<&Multiset> {
        self.steps.get(&replica)
    }

    /// The positions of the records of this epoch that were bad, and did not come in the steps that have
    /// them.
    #[must_use]
    pub fn bad(&self) -> &Multiset {
        &self.bad
    }

    /// Adds a record of this epoch, by its position, `times` times; if negative, takes it out.
    #[inline]
    pub fn add(&mut self, position: u64, times: i64) {
        self.add_by(EpochKey::of(self.epoch), position, times);
    }

    /// The same, with the epoch's key.
    #[inline]
    pub(super) fn add_by(&mut self, key: EpochKey, position: u64, times: i64) {
        let mark = key.mark(position);
        self.digest.add_marked(mark, times);
        self.sketch.add(position, mark, times);
    }

    /// Names the records that this account has beyond another one of the same epoch: their positions, and how
    /// many times too often each is there; negative for how many times it is not. `None` if these records are
    /// too many to be named: some tens can be.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Option<BTreeMap<u64, i64>> {
        if (self.digest, &self.sketch) == (other.digest, &other.sketch) {
            return Some(BTreeMap::new());
        }
        let key = EpochKey::of(self.epoch);
        let named = self.sketch.beyond(&other.sketch, key)?;
        // Names that do not explain the digests are not trusted.
        let mut explained = other.digest;
        named.iter().for_each(|(&position, &times)| explained.add_marked(key.mark(position), times));
        (explained == self.digest).then_some(named)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.digest += other.digest;
        self.sketch.merge(&other.sketch);
        self.contents += other.contents;
        for (&replica, steps) in &other.steps {
            self.steps.entry(replica).or_default().merge(steps);
        }
        self.bad.merge(&other.bad);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(records: impl IntoIterator<Item = u64>) -> EpochAccount {
        let mut account = EpochAccount::of(3);
        records.into_iter().for_each(|position| account.add(position, 1));
        account
    }

    #[test]
    fn records_that_differ_are_named_and_names_that_explain_nothing_are_not_trusted() {
        let due = account(0..40);
        assert_eq!(due.beyond(&due), Some(BTreeMap::new()));
        let found = account((1..40).chain([7, 99]));
        assert_eq!(found.beyond(&due), Some(BTreeMap::from([(0, -1), (7, 1), (99, 1)])));
        let forged = EpochAccount { digest: due.digest, ..found };
        assert_eq!(forged.beyond(&due), None);
        let forged = EpochAccount { digest: account([5]).digest, ..due.clone() };
        assert_eq!(forged.beyond(&due), None);
        assert_eq!(account(0..300).beyond(&account([])), None, "they are too many");
    }
}
