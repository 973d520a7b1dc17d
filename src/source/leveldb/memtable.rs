//! What lies only in the logs: the newest write of each key, in order.

use super::batch::Write;
use super::map::Store;

/// The writes of the logs, one a key, in the order of their keys.
///
/// It takes 40 bytes a write while the logs are read (a write takes two bytes of a log or more), in a vector
/// that doubles, and as many a key afterwards. The keys and values stay in the mapped logs, but for those
/// that a log's blocks cut to pieces.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    writes: Vec<Write>,
}

impl Memtable {
    /// Sorts writes whose bytes lie in `store`, and forgets those that a later one replaces.
    pub(super) fn new(mut writes: Vec<Write>, store: &Store) -> Self {
        let key = |write: &Write| store.bytes(write.key);
        writes.sort_unstable_by(|one, other| key(one).cmp(key(other)).then(other.tag.cmp(&one.tag)));
        writes.dedup_by(|later, kept| key(later) == key(kept));
        writes.shrink_to_fit();
        Memtable { writes }
    }

    /// Forgets deletions, where there is nothing below that they could delete.
    pub(super) fn forget_deletions(&mut self) {
        self.writes.retain(|write| !write.tag.is_deletion());
        self.writes.shrink_to_fit();
    }

    /// What it holds; the keys and values are the store's.
    pub(super) fn held_bytes(&self) -> usize {
        self.writes.capacity() * size_of::<Write>()
    }

    /// How many keys there are, the deleted ones among them.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The position of the first write whose key is `start` or after it.
    pub(super) fn position(&self, start: &[u8], store: &Store) -> usize {
        self.writes.partition_point(|write| store.bytes(write.key) < start)
    }

    /// The write at a position.
    pub(super) fn get(&self, position: usize) -> Option<&Write> {
        self.writes.get(position)
    }
}
