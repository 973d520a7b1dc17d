//! What a lane records of each batch that it hands over.

use super::account::{Entries, account_of};
use super::digest::EpochKey;
use crate::bad::{BadRecord, good};
use crate::receipt::content::ContentHash;
use crate::record::{RecordId, StepEnd};

/// What one replica was given. It takes about 5 KiB per epoch, and allocates when an epoch begins.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(super) replica: usize,
    pub(super) entries: Entries,
}

impl Ledger {
    pub(crate) fn of(replica: usize) -> Self {
        Ledger { replica, entries: Entries::new() }
    }

    /// Returns it as it is, and empties it.
    pub(crate) fn take(&mut self) -> Self {
        Ledger { replica: self.replica, entries: std::mem::take(&mut self.entries) }
    }

    /// Records a batch: the step it is a share of, its records, the content hashes of all of them or of none,
    /// and the bad records that it leaves out.
    pub(crate) fn fold(
        &mut self,
        step: Option<StepEnd>,
        records: &[RecordId],
        contents: &[ContentHash],
        bad: &[BadRecord],
    ) {
        debug_assert!(contents.is_empty() || contents.len() == records.len());
        if !bad.is_empty() {
            return self.fold_with_bad(step, records, contents, bad);
        }
        if let Some(StepEnd { epoch, step, .. }) = step {
            let entry = account_of(&mut self.entries, epoch);
            entry.steps.entry(self.replica).or_default().add(step..step + 1, 1);
        }
        // Most batches belong to one epoch, which is then looked up once.
        let mut contents = contents.iter();
        for records in records.chunk_by(|one, next| one.epoch == next.epoch) {
            let epoch = records[0].epoch;
            let (key, entry) = (EpochKey::of(epoch), account_of(&mut self.entries, epoch));
            records.iter().for_each(|record| entry.add_by(key, record.index, 1));
            contents.by_ref().take(records.len()).for_each(|hash| entry.contents.add_content(*hash));
        }
    }

    /// The same, for a batch with bad records. A row that replaces one is a copy, and does not count again.
    fn fold_with_bad(
        &mut self,
        step: Option<StepEnd>,
        records: &[RecordId],
        contents: &[ContentHash],
        bad: &[BadRecord],
    ) {
        let contents: Vec<ContentHash> = good(contents, bad).collect();
        self.fold(step, &good(records, bad).collect::<Vec<_>>(), &contents, &[]);
        for RecordId { epoch, index } in bad.iter().map(|bad| bad.id) {
            account_of(&mut self.entries, epoch).bad.add(index..index + 1, 1);
        }
    }
}
