//! Handles that come and go, and those who stand in the others' way.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use percolator_cluster::clock::{Clock, ManualClock};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Outcome, Transaction};
use rusqlite::Connection;

use super::commit;

#[test]
fn handles_are_opened_and_closed_by_many_threads() {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..EACH).for_each(|_| count_up(&FolderMetadata::open(folder).unwrap())));
        }
    });
    let records = FolderMetadata::open(folder).unwrap();
    assert_eq!(records.read("").unwrap().records[0].value, (THREADS * EACH).to_string().as_bytes());
    let clones = (records.clone(), FolderMetadata::open(folder).unwrap());
    assert_eq!(clones.1.read("").unwrap(), clones.0.read("").unwrap());
    drop((records, clones));
    assert_eq!(open_files_in(folder), 0);
}

fn open_files_in(folder: &Path) -> usize {
    let folder = fs::canonicalize(folder).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|file| fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&folder))).count()
}

fn count_up(records: &FolderMetadata) {
    loop {
        let found = records.read("count").unwrap();
        let transaction = match found.get("count") {
            None => Transaction::new().when_missing("count").put("count", "1"),
            Some(record) => {
                let count: usize = str::from_utf8(&record.value).unwrap().parse().unwrap();
                let next = (count + 1).to_string();
                Transaction::new().when_modified("count", record.modified).put("count", next)
            }
        };
        if let Outcome::Committed(_) = records.transact(&transaction).unwrap() {
            return;
        }
    }
}

/// A connection that changes records, and does not end that.
fn changing(folder: &Path) -> Connection {
    let other = Connection::open(folder.join("metadata.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

/// A process that was stopped within a change delays the others' changes for as long as they said, and no
/// longer. They read meanwhile.
#[test]
fn nobody_waits_for_ever() {
    const SHORT: Duration = Duration::from_millis(30);
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::options().patience(SHORT).open(folder.path()).unwrap();
    let revision = commit(&records, &Transaction::new().put("a", "1"));
    // As a process would that never goes on.
    let other = changing(folder.path());
    let occupied = |error: MetadataError| match error {
        MetadataError::Unreachable { waited, source: Some(source), .. } => {
            assert!(waited >= SHORT);
            assert!(source.to_string().contains("lslocks"), "{source}");
        }
        error => panic!("{error:?}"),
    };
    occupied(records.transact(&Transaction::new().put("a", "2")).unwrap_err());
    occupied(records.grant(SHORT).unwrap_err());
    assert_eq!(records.read("").unwrap().records[0].value, b"1");
    assert!(!records.wait("a", revision, SHORT).unwrap());
    assert_eq!(FolderMetadata::open(folder.path()).unwrap().read("").unwrap().revision, revision);
    drop(other);
    commit(&records, &Transaction::new().put("a", "3"));
}

/// A process that was stopped while it read keeps the log from beginning anew. It does not grow for ever:
/// changes are refused until that process goes on.
#[test]
fn a_log_that_is_read_does_not_grow_for_ever() {
    const LOG_BYTES_MAX: u64 = 5 << 20;
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::options().patience(Duration::ZERO).open(folder.path()).unwrap();
    commit(&records, &Transaction::new().put("a", "1"));
    let other = Connection::open(folder.path().join("metadata.sqlite")).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM records").unwrap();
    let put = |number: usize| records.transact(&Transaction::new().put("b", vec![7; 100_000 + number]));
    let error = (0..1000).find_map(|number| put(number).err()).expect("the log grows");
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error:?}");
    let log = fs::metadata(folder.path().join("metadata.sqlite-wal")).unwrap();
    assert!(log.len() <= LOG_BYTES_MAX, "{} bytes", log.len());
    assert_eq!(records.read("").unwrap().records.len(), 2);
    drop(other);
    put(0).unwrap();
}

/// Whoever has looked once, and is then kept from ending a lease, has seen no change: the wait ends when it
/// was to end.
#[test]
fn a_wait_ends_at_its_time_without_a_change() {
    const AT_MOST: Duration = Duration::from_millis(200);
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let (tell, told) = channel();
    let tells = Tells(tell, clock.clone());
    let records = FolderMetadata::options().clock(tells).open(folder.path()).unwrap();
    records.grant(Duration::from_secs(1)).unwrap();
    let now = records.read("").unwrap().revision;
    let _other = changing(folder.path());
    told.try_iter().for_each(drop);
    thread::scope(|scope| {
        let waits = scope.spawn(|| records.wait("", now, AT_MOST));
        // The first look is made at this time, and the others after it.
        told.recv().unwrap();
        clock.advance(Duration::from_secs(1));
        assert!(!waits.join().unwrap().unwrap());
    });
}

/// Says when somebody looks, after it has taken the time.
#[derive(Debug)]
struct Tells(Sender<()>, ManualClock);

impl Clock for Tells {
    fn now(&self) -> Duration {
        let now = self.1.now();
        let _ = self.0.send(());
        now
    }
}
