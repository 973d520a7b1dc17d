//! Checkpoints move what was committed from the log into the file while others change records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use percolator_cluster::metadata::{FolderMetadata, Metadata as _, Transaction};
use rusqlite::Connection;

use super::commit;

const HANDLES: usize = 4;
const THREADS: usize = 8;
const EACH: usize = 40;

/// The bytes of a record: some have pages of their own.
fn value(thread: usize, number: usize) -> Vec<u8> {
    let seed = thread * EACH + number;
    (0..seed * 37 % 9000 + 1).map(|at| u8::try_from((seed + at) % 251).unwrap()).collect()
}

/// Every record that was put is there at the end with its bytes, whatever another connection does.
#[test]
fn checkpoints_lose_nothing_that_is_put_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let open = || FolderMetadata::open(folder.path()).unwrap();
    let handles: Vec<_> = (0..HANDLES).map(|_| open()).collect();
    let other = Connection::open(folder.path().join("metadata.sqlite")).unwrap();
    let are_done = AtomicBool::new(false);
    let moved = thread::scope(|scope| {
        let are_done = &are_done;
        let checkpoints = scope.spawn(move || {
            let mut moved = 0;
            while !are_done.load(Ordering::Relaxed) {
                let pages = |row: &rusqlite::Row<'_>| row.get::<_, i64>(2);
                moved += other.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages).unwrap().max(0);
                // All connections of a process share a mutex, which this loop would keep from the others.
                thread::yield_now();
            }
            moved
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let records = &handles[thread % HANDLES];
                scope.spawn(move || {
                    for number in 0..EACH {
                        let (key, again) = (format!("/{thread}/{number}"), format!("/{thread}/last"));
                        let put = Transaction::new().put(key, value(thread, number));
                        commit(records, &put.put(again, value(thread, number)));
                    }
                })
            })
            .collect();
        // The loop ends whatever became of them.
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        are_done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(Result::unwrap);
        checkpoints.join().unwrap()
    });
    assert!(moved > 0, "no checkpoint has moved anything");
    let check = |records: &FolderMetadata| {
        for thread in 0..THREADS {
            let found = records.read(&format!("/{thread}/")).unwrap();
            assert_eq!(found.records.len(), EACH + 1);
            for number in 0..EACH {
                let record = found.get(&format!("/{thread}/{number}")).unwrap();
                assert!(record.value == value(thread, number), "{}", record.key);
            }
            assert!(found.get(&format!("/{thread}/last")).unwrap().value == value(thread, EACH - 1));
        }
    };
    handles.iter().for_each(check);
    drop(handles);
    check(&open());
}
