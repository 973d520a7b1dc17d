//! What a lane records of each batch that it hands over.

use std::collections::BTreeMap;

use super::digest::{Digest, EpochKey};
use super::multiset::Multiset;
use super::sketch::Sketch;
use crate::bad::{BadRecord, good};
use crate::receipt::content::ContentHash;
use crate::record::{RecordId, StepEnd};

/// What was delivered of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerEntry {
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

impl LedgerEntry {
    /// Adds a record of this epoch `times` times; if negative, takes it out.
    #[inline]
    pub(super) fn add(&mut self, key: EpochKey, index: u64, times: i64) {
        let mark = key.mark(index);
        self.digest.add_marked(mark, times);
        self.sketch.add(index, mark, times);
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

/// What was delivered, epoch by epoch.
pub(super) type Entries = BTreeMap<u64, LedgerEntry>;

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
            let entry = self.entries.entry(epoch).or_default();
            entry.steps.entry(self.replica).or_default().add(step..step + 1, 1);
        }
        // Most batches belong to one epoch, which is then looked up once.
        let mut contents = contents.iter();
        for records in records.chunk_by(|one, next| one.epoch == next.epoch) {
            let epoch = records[0].epoch;
            let (key, entry) = (EpochKey::of(epoch), self.entries.entry(epoch).or_default());
            records.iter().for_each(|record| entry.add(key, record.index, 1));
            contents.by_ref().take(records.len()).for_each(|hash| entry.contents.add_content(*hash, 1));
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
            self.entries.entry(epoch).or_default().bad.add(index..index + 1, 1);
        }
    }
}
