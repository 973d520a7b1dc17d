//! The order of an epoch in which files are shuffled but the records within each file are not.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Permutation;
use super::sharding::ShardName;

/// Files in a shuffled order. For each: the place in the epoch at which it begins, and the number of its
/// first record.
///
/// # Invariant
///
/// There is one entry for each file, and the places do not decrease. Of several files that begin at the same
/// place, all but the last are empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileOrder {
    begins: Vec<u64>,
    firsts: Vec<u64>,
}

impl FileOrder {
    /// Orders the files by this key. `files` has the number of each file's first record; there are `records`
    /// in all.
    pub(super) fn new(files: &[u64], records: u64, key: u64) -> Self {
        let order = Permutation::new(files.len() as u64, key);
        let mut place = 0;
        let (mut begins, mut firsts) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for slot in 0..files.len() as u64 {
            let file = usize::try_from(order.number_at(slot)).expect("it is the number of a file");
            let end = files.get(file + 1).copied().unwrap_or(records);
            begins.push(place);
            firsts.push(files[file]);
            place += end - files[file];
        }
        debug_assert_eq!(place, records, "the files have all records");
        FileOrder { begins, firsts }
    }

    /// The number of the record at a place.
    pub(super) fn number_at(&self, place: u64) -> u64 {
        let slot = self.slot_of(place);
        self.firsts[slot] + (place - self.begins[slot])
    }

    /// The number of places from this one to the end of its file; `None` in the last file.
    pub(super) fn neighbours(&self, place: u64) -> Option<u64> {
        self.begins.get(self.slot_of(place) + 1).map(|next| next - place)
    }

    fn slot_of(&self, place: u64) -> usize {
        self.begins.partition_point(|&begin| begin <= place) - 1
    }
}

/// The orders that were made last. An order has as many entries as its shard has files, and every step needs
/// it. What is kept does not affect the result.
#[derive(Default)]
pub(super) struct KeptOrders(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The newest orders of each shard, by their keys.
    orders: HashMap<ShardName, Vec<(u64, Arc<FileOrder>)>>,
    /// The number of files of all orders.
    files: usize,
}

/// The most orders of a shard: a step may be in two epochs.
const OF_SHARD_MAX: usize = 2;
/// The most files of the orders of several shards: 64 MiB.
const FILES_MAX: usize = 1 << 22;

impl KeptOrders {
    /// The order of a shard with this key.
    pub(super) fn get(&self, name: ShardName, key: u64, make: impl FnOnce() -> FileOrder) -> Arc<FileOrder> {
        let Kept { orders, files } = &mut *self.0.lock();
        let of_shard = orders.entry(name).or_default();
        if let Some((_, order)) = of_shard.iter().find(|(known, _)| *known == key) {
            return order.clone();
        }
        let order = Arc::new(make());
        if of_shard.len() == OF_SHARD_MAX {
            *files -= of_shard.remove(0).1.begins.len();
        }
        of_shard.push((key, order.clone()));
        *files += order.begins.len();
        if *files > FILES_MAX {
            orders.retain(|other, _| *other == name);
            *files = orders.values().flatten().map(|(_, order)| order.begins.len()).sum();
        }
        order
    }
}

impl fmt::Debug for KeptOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptOrders")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::AutoShardPolicy;

    #[test]
    #[cfg_attr(miri, ignore = "it makes an order of millions of files")]
    fn the_two_newest_orders_of_each_shard_are_kept_and_large_ones_of_others_go() {
        let kept = KeptOrders::default();
        let name = |worker| ShardName { policy: AutoShardPolicy::Hint, worker, workers: 9 };
        let is_made = |worker, key, files: usize| {
            let mut is_made = false;
            let order = kept.get(name(worker), key, || {
                is_made = true;
                FileOrder::new(&vec![0; files], 1, key)
            });
            assert_eq!(order.begins.len(), files);
            is_made
        };
        for worker in 0..9 {
            assert_eq!(
                [1, 1, 2, 1, 3, 1, 3].map(|key| is_made(worker, key, 4)),
                [true, false, true, false, true, true, false]
            );
        }
        assert!(!is_made(0, 3, 4), "other shards take none of its places");
        assert_eq!(kept.0.lock().files, 9 * 2 * 4);
        assert!(is_made(0, 4, FILES_MAX) && !is_made(0, 1, 4) && is_made(1, 3, 4));
        assert_eq!(kept.0.lock().files, 4, "those of the shard that was asked for last");
    }

    proptest! {
        /// The naive twin: files laid end to end.
        #[test]
        fn files_come_whole_and_in_order(lengths in prop::collection::vec(0_u64..9, 1..30), key: u64) {
            let mut records = 0;
            let mut firsts = Vec::new();
            for length in &lengths {
                firsts.push(records);
                records += length;
            }
            let order = FileOrder::new(&firsts, records, key);
            let shuffled = Permutation::new(lengths.len() as u64, key);
            let file = |slot| usize::try_from(shuffled.number_at(slot)).unwrap();
            let files = (0..lengths.len() as u64).map(file);
            let twin: Vec<u64> =
                files.flat_map(|file| firsts[file]..firsts[file] + lengths[file]).collect();
            let listed: Vec<u64> = (0..records).map(|place| order.number_at(place)).collect();
            prop_assert_eq!(&listed, &twin);
            for place in 0..records {
                let count = order.neighbours(place).unwrap_or(records - place);
                let first = order.number_at(place);
                prop_assert!(count > 0);
                prop_assert!((0..count).all(|next| order.number_at(place + next) == first + next));
            }
        }
    }
}
