//! Decoded rows that stay at hand while records are read in another order than they are stored.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef};
use parking_lot::Mutex;

/// The most memory of the batches that are kept.
const KEPT_BYTES: usize = 128 << 20;

/// Decoded rows.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) group: usize,
    /// The first one's number in its row group.
    pub(super) first: u64,
    pub(super) rows: u64,
    pub(super) columns: Vec<ArrayRef>,
}

impl Batch {
    pub(super) fn has(&self, group: usize, row: u64) -> bool {
        self.group == group && row.checked_sub(self.first).is_some_and(|row| row < self.rows)
    }

    fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.get_array_memory_size()).fold(0, usize::saturating_add)
    }
}

/// The batches that the shards of a data set keep at hand, together.
#[derive(Debug, Default)]
pub(crate) struct DecodedRows(Mutex<Kept>);

/// A batch's shard, its row group, and its first row.
type BatchPlace = (usize, usize, u64);

#[derive(Debug, Default)]
struct Kept {
    batches: HashMap<BatchPlace, (Arc<Batch>, u64)>,
    bytes: usize,
    shards: usize,
    /// Counts the uses, by which the one that was used longest ago is found.
    uses: u64,
}

impl DecodedRows {
    /// A number that no other shard has.
    pub(super) fn number(&self) -> usize {
        let mut kept = self.0.lock();
        kept.shards = kept.shards.saturating_add(1);
        kept.shards
    }

    pub(super) fn get(&self, place: BatchPlace) -> Option<Arc<Batch>> {
        let mut kept = self.0.lock();
        kept.uses = kept.uses.saturating_add(1);
        let now = kept.uses;
        kept.batches.get_mut(&place).map(|(batch, used)| {
            *used = now;
            Arc::clone(batch)
        })
    }

    /// Keeps a batch, in the place of those that were used longest ago.
    pub(super) fn keep(&self, place: BatchPlace, batch: &Arc<Batch>) {
        if batch.bytes() > KEPT_BYTES {
            return;
        }
        let mut kept = self.0.lock();
        // Another cursor may have decoded the same one.
        kept.remove(place);
        while kept.bytes.saturating_add(batch.bytes()) > KEPT_BYTES {
            let oldest = kept.batches.iter().min_by_key(|(_, (_, used))| *used).map(|(place, _)| *place);
            let Some(oldest) = oldest else { return };
            kept.remove(oldest);
        }
        kept.uses = kept.uses.saturating_add(1);
        let now = kept.uses;
        kept.bytes = kept.bytes.saturating_add(batch.bytes());
        kept.batches.insert(place, (Arc::clone(batch), now));
    }
}

impl Kept {
    fn remove(&mut self, place: BatchPlace) {
        if let Some((gone, _)) = self.batches.remove(&place) {
            self.bytes = self.bytes.saturating_sub(gone.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt8Array;

    use super::*;

    fn batch(bytes: usize) -> Arc<Batch> {
        let column: ArrayRef = Arc::new(UInt8Array::from(vec![0; bytes]));
        Arc::new(Batch { group: 0, first: 0, rows: bytes as u64, columns: vec![column] })
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let kept = DecodedRows::default();
        let third = batch(KEPT_BYTES / 3);
        for group in 0..2 {
            kept.keep((0, group, 0), &third);
        }
        assert!(kept.get((0, 0, 0)).is_some());
        kept.keep((0, 2, 0), &third);
        assert!(kept.get((0, 1, 0)).is_none() && kept.get((0, 0, 0)).is_some());
        assert!(kept.get((1, 0, 0)).is_none(), "of another shard");
        // One that would take all of the memory is not kept, and the same one twice counts once.
        kept.keep((0, 3, 0), &batch(KEPT_BYTES));
        kept.keep((0, 0, 0), &third);
        assert_eq!(kept.0.lock().bytes, 2 * third.bytes());
    }
}
