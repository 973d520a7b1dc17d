//! Whether the bytes that were delivered are those of the data set.

use percolator::receipt::{Digest, DigestDetail};

use super::Audit;
use crate::verdict::{ContentsDeviation, ContentsVerdict};

impl Audit<'_> {
    /// Compares an epoch's bytes, receipt by receipt.
    pub(super) fn contents(&self, epoch: u64) -> Option<ContentsVerdict> {
        let data = self.data?;
        let accounts = || self.witnesses.iter().map(|witness| (witness, witness.receipt.epoch(epoch)));
        let lacks = accounts().filter(|(_, account)| {
            account.is_some_and(|account| account.contents().records() != account.digest().records())
        });
        let receipts: Vec<String> = lacks.map(|(witness, _)| witness.name.to_owned()).collect();
        if !receipts.is_empty() {
            return Some(ContentsVerdict::NotSaid { receipts });
        }
        if data.detail() == DigestDetail::Sum {
            return Some(ContentsVerdict::NotKnown);
        }
        let deviations = accounts().filter_map(|(witness, account)| {
            let found = account.map_or(Digest::default(), |account| account.contents().low_half());
            let due = witness.expected.get(&epoch).map_or(Digest::default(), |due| due.contents.low_half());
            let receipts = vec![witness.name.to_owned()];
            (found != due).then_some(ContentsDeviation { receipts, found, due })
        });
        let deviations: Vec<ContentsDeviation> = deviations.collect();
        Some(if deviations.is_empty() {
            ContentsVerdict::Proven
        } else {
            ContentsVerdict::Differ(deviations)
        })
    }

    /// Compares the bytes of an epoch of which all records came as often as they are due.
    pub(super) fn contents_of_all(&self, epoch: u64) -> ContentsVerdict {
        let having = self
            .witnesses
            .iter()
            .filter_map(|witness| Some((witness.name, witness.receipt.epoch(epoch)?.contents())));
        let found = having.clone().fold(Digest::default(), |sum, (_, contents)| sum + contents);
        let due = self.data.map_or(Digest::default(), |data| data.contents().times(self.times.into()));
        if found == due {
            return ContentsVerdict::Proven;
        }
        let receipts = having.map(|(name, _)| name.to_owned()).collect();
        ContentsVerdict::Differ(vec![ContentsDeviation { receipts, found, due }])
    }
}
