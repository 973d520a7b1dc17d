//! Turns: handles that come and go, and those who do not end theirs.

use std::fs::{self, File};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use percolator_cluster::clock::Clock;
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Outcome, Transaction};

use super::commit;
use crate::process;

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
    let data = fs::canonicalize(folder.join("metadata.mdb")).unwrap();
    assert_eq!(process::maps(&data), 1, "one environment");
    let clones = (records.clone(), FolderMetadata::open(folder).unwrap());
    assert_eq!(clones.1.read("").unwrap(), clones.0.read("").unwrap());
    assert_eq!(process::maps(&data), 1);
    drop((records, clones));
    assert_eq!(process::maps(&data), 0);
    assert_eq!(open_files_in(folder), 0);
}

fn open_files_in(folder: &std::path::Path) -> usize {
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

/// A process that was stopped within its turn delays the others for as long as they said, and no longer.
#[test]
fn nobody_waits_for_ever() {
    const SHORT: Duration = Duration::from_millis(30);
    let folder = tempfile::tempdir().unwrap();
    let options = FolderMetadata::options().patience(SHORT);
    let records = options.clone().open(folder.path()).unwrap();
    let revision = commit(&records, &Transaction::new().put("a", "1"));
    for name in ["metadata.mdb", "metadata.lock"] {
        // As a process would that never goes on.
        let other = File::options().write(true).open(folder.path().join(name)).unwrap();
        other.lock().unwrap();
        let occupied = |error: MetadataError| match error {
            MetadataError::Unreachable { waited, source: Some(source), .. } => {
                assert!(waited >= SHORT);
                assert!(source.to_string().contains("lslocks"), "{source}");
            }
            error => panic!("{error:?}"),
        };
        occupied(records.read("").unwrap_err());
        occupied(records.transact(&Transaction::new().put("a", "2")).unwrap_err());
        occupied(records.wait("a", revision, SHORT).unwrap_err());
        occupied(options.clone().open(folder.path()).unwrap_err());
        other.unlock().unwrap();
        assert_eq!(records.read("").unwrap().records[0].value, b"1");
    }
}

/// Says when somebody has a turn.
#[derive(Debug)]
struct Tells(Sender<()>);

impl Clock for Tells {
    fn now(&self) -> Duration {
        let _ = self.0.send(());
        Duration::ZERO
    }
}

/// Whoever has looked once, and then gets no turn, has seen no change: the wait ends when it was to end.
#[test]
fn a_wait_ends_at_its_time_without_a_turn() {
    const AT_MOST: Duration = Duration::from_millis(200);
    let folder = tempfile::tempdir().unwrap();
    let (tell, told) = channel();
    let records = FolderMetadata::options().clock(Tells(tell)).open(folder.path()).unwrap();
    let now = records.read("").unwrap().revision;
    let other = File::options().write(true).open(folder.path().join("metadata.mdb")).unwrap();
    told.try_iter().for_each(drop);
    thread::scope(|scope| {
        let waits = scope.spawn(|| records.wait("", now, AT_MOST));
        told.recv().unwrap();
        // Once that turn has ended.
        other.lock().unwrap();
        assert!(!waits.join().unwrap().unwrap());
    });
}

#[test]
fn readers_in_other_processes_do_not_delay_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::options().patience(Duration::ZERO).open(folder.path()).unwrap();
    let other = File::open(folder.path().join("metadata.mdb")).unwrap();
    other.lock_shared().unwrap();
    assert_eq!(records.read("").unwrap().records, []);
    assert!(matches!(records.grant(Duration::MAX), Err(MetadataError::Unreachable { .. })));
}
