//! What is in the logs only: the newest write of each key, in order.

use crate::batch::Write;
use crate::map::Store;

/// The newest write of each key in the logs, in key order.
///
/// It takes 40 bytes per write while the logs are read, in a vector that doubles (a write takes at least two
/// bytes of a log), and 40 bytes per key afterwards. The keys and values stay in the mapped logs, except for
/// those that a log's blocks cut into pieces.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    writes: Vec<Write>,
}

impl Memtable {
    /// Sorts writes whose bytes are in `store`, and drops those that a later one replaces.
    pub(crate) fn new(mut writes: Vec<Write>, store: &Store) -> Self {
        let key = |write: &Write| store.bytes(write.key);
        writes.sort_unstable_by(|one, other| key(one).cmp(key(other)).then(other.tag.cmp(&one.tag)));
        writes.dedup_by(|later, kept| key(later) == key(kept));
        writes.shrink_to_fit();
        Memtable { writes }
    }

    /// Drops deletions; for a database without tables, where there is nothing to delete.
    pub(crate) fn forget_deletions(&mut self) {
        self.writes.retain(|write| !write.tag.is_deletion());
        self.writes.shrink_to_fit();
    }

    /// Returns how many bytes it holds. The keys and values belong to the store.
    pub(crate) fn held_bytes(&self) -> usize {
        self.writes.capacity() * size_of::<Write>()
    }

    /// Returns how many keys there are, including deleted ones.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the position of the first write whose key is `start` or after it.
    pub(crate) fn position(&self, start: &[u8], store: &Store) -> usize {
        self.writes.partition_point(|write| store.bytes(write.key) < start)
    }

    /// Returns the write at `position`.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<&Write> {
        self.writes.get(position)
    }
}
