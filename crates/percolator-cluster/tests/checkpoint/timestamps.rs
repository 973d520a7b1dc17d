//! A clock that jumps. Timestamps are for people; which checkpoint is newer is said by the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::Origin;
use percolator_cluster::metadata::MemoryMetadata;

use crate::memory_store::MemoryStore;

#[test]
fn a_clock_that_jumps_decides_nothing() {
    const HOURS: [i64; 6] = [500_000, 3, -400_000, 0, i64::MAX / 3600 / 1_000_000_000, -1];
    let (store, metadata) = (Arc::new(MemoryStore::default()), Arc::new(MemoryMetadata::new()));
    let count = Arc::new(AtomicUsize::new(0));
    let clock = move || -> SystemTime {
        let hours = HOURS[count.fetch_add(1, Ordering::Relaxed) % HOURS.len()];
        let distance = Duration::from_secs(hours.unsigned_abs() * 3600);
        if hours < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    };
    for number in 0..12_u8 {
        let how = Checkpointer::new(store.clone(), metadata.clone(), "shard").unwrap().keep(3);
        let checkpoints = how.timestamps(clock.clone()).restore(Vec::new).unwrap();
        if number > 0 {
            assert!(matches!(checkpoints.restored().origin, Origin::Newest(_)));
            assert_eq!(*checkpoints.state().read(), [number - 1]);
        }
        *checkpoints.state().write() = vec![number];
        let entry = checkpoints.save_now().unwrap();
        let due = HOURS[usize::from(number) % HOURS.len()] * 3600 * 1_000_000_000;
        assert_eq!(entry.timestamp, due);
    }
}
