//! C++ LevelDB cannot open a database without rewriting it, and most of what Caffe wrote is in a log, which a
//! reader of tables alone does not see. These tests read databases as real writers left them (Caffe, C++
//! LevelDB through plyvel, a writer that was killed), compare every record, and compare the folder before and
//! after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator::leveldb::{LevelDbError, LogGaps};
use percolator::reader::{DataReader, Registry};
use percolator::source::{Access, IndexPlace, LevelDb, Lmdb, Source, SourceError};
use percolator::{Epochs, Feed};
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use crate::common;
use crate::common::process::{check_without_root, child_command, open_files, role, this_test};
use crate::common::sample::times;
use crate::files::{Records, copy, data, drain, has_plyvel, read, refusal};

/// Everything about a folder that a reader could change.
fn state(folder: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64, u32)> {
    let entry = |entry: fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (bytes, metadata.mtime(), metadata.mtime_nsec(), metadata.mode()))
    };
    fs::read_dir(folder).unwrap().map(|file| entry(file.unwrap())).collect()
}

/// The digest that `make.py` computes.
fn digest(records: &Records) -> String {
    let mut digest = Sha256::new();
    for part in records.iter().flat_map(|(key, value)| [key, value]) {
        digest.update(u32::try_from(part.len()).unwrap().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares every database that `make.py` wrote to a folder with what it says it wrote.
fn check_made(folder: &Path) -> usize {
    let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: BTreeMap<String, serde_json::Value> = serde_json::from_str(&expected).unwrap();
    let both = [Access::Mapped, Access::Read];
    for ((name, expected), access) in expected.iter().flat_map(|one| both.map(|access| (one, access))) {
        let path = folder.join(name);
        let before = state(&path);
        let source = LevelDb::options().access(access).open(&path).unwrap();
        let mut cursor = source.cursor().unwrap();
        let records = drain(source.cursor().unwrap()).unwrap();
        assert_eq!(expected["records"], records.len(), "{name}");
        assert_eq!(expected["sha256"], digest(&records), "{name}");
        assert_eq!(source.cuts(), [], "{name}");
        if let Some(count) = source.records() {
            assert_eq!(count, records.len() as u64, "{name}");
        }
        // Two passes, and ranges from and to every 7th key.
        for (key, value) in &records {
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]), "{name}");
        }
        assert!(cursor.advance().unwrap().is_none() && cursor.advance().unwrap().is_none());
        cursor.rewind().unwrap();
        assert_eq!(
            cursor.advance().unwrap().map(|entry| entry.key().to_vec()),
            records.first().map(|first| first.0.clone())
        );
        let step = (records.len() / 20).max(1);
        for (at, (key, _)) in records.iter().enumerate().step_by(step) {
            assert_eq!(drain(source.range(Some(key), None).unwrap()).unwrap(), records[at..], "{name}");
            assert_eq!(drain(source.range(None, Some(key)).unwrap()).unwrap(), records[..at], "{name}");
        }
        assert!(state(&path) == before, "{name} is as it was");
    }
    assert_eq!(
        refusal(&folder.join("comparator")),
        LevelDbError::Comparator {
            file: folder.join("comparator/MANIFEST-000002"),
            found: "percolator.reversed".to_owned()
        }
    );
    expected.len()
}

#[test]
fn what_caffe_wrote_is_the_same_in_its_log_its_table_and_its_lmdb() {
    let due = drain(Lmdb::open_without_lock(data("golden/raw_lmdb")).unwrap().cursor().unwrap()).unwrap();
    let logged = Some(due.len() as u64);
    for (name, records, access) in [
        ("raw_leveldb_log", logged, Access::Mapped),
        ("raw_leveldb_log", logged, Access::Read),
        ("raw_leveldb_ldb", None, Access::Mapped),
        ("raw_leveldb_ldb", None, Access::Read),
    ] {
        let folder = copy(&format!("golden/{name}"));
        let before = state(folder.path());
        let source = LevelDb::options().access(access).open(folder.path()).unwrap();
        assert_eq!(source.records(), records, "{name}");
        assert!(drain(source.cursor().unwrap()).unwrap() == due, "{name}");
        assert_eq!(source.cuts(), []);
        assert!(state(folder.path()) == before, "{name} is as it was");
    }
}

#[test]
fn databases_of_cpp_leveldb_are_read_as_it_reads_them() {
    assert_eq!(check_made(&data("leveldb")), 14);
}

/// Ten times as large: levels with several tables, tables with many blocks, compactions under way.
#[test]
fn larger_databases_of_cpp_leveldb_are_read_as_it_reads_them() {
    if !has_plyvel() {
        return;
    }
    for scale in times(vec!["3", "8"], vec!["3"]) {
        let folder = tempdir().unwrap();
        let made = Command::new("python3")
            .arg(data("leveldb/make.py"))
            .arg(folder.path())
            .args(["--scale", scale])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(check_made(folder.path()), 14);
    }
}

/// Where the records of a log end: those that are not split into fragments, and the last fragments of those
/// that are.
fn record_ends(log: &[u8]) -> Vec<usize> {
    const BLOCK: usize = 32_768;
    let (mut ends, mut at) = (vec![0], 0);
    while at + 7 <= log.len() {
        if BLOCK - at % BLOCK < 7 {
            at = at.next_multiple_of(BLOCK);
            continue;
        }
        let end = at + 7 + usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
        ends.extend(Some(end).filter(|&end| matches!(log[at + 6], 1 | 4) && end <= log.len()));
        at = end;
    }
    ends
}

/// Bulk loads of C++ LevelDB, closed, reopened, compacted and killed: each is read, whatever its sequence
/// numbers. Then the older of two logs is cut where a record ends, which no checksum shows: each such
/// database is refused.
#[test]
fn what_a_bulk_load_left_is_read_and_what_lost_writes_is_not() {
    if !has_plyvel() {
        return;
    }
    let number = |name: &str, or: &str| std::env::var(name).unwrap_or(or.to_owned());
    let folder = tempdir().unwrap();
    let made = Command::new("python3")
        .arg(data("leveldb/bulk.py"))
        .arg(folder.path())
        .args(["--count", &number("PERCOLATOR_BULK_LOADS", times("40", "8"))])
        .args(["--seed", &number("PERCOLATOR_BULK_SEED", "0")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let expected = fs::read_to_string(folder.path().join("expected.json")).unwrap();
    let expected: BTreeMap<String, serde_json::Value> = serde_json::from_str(&expected).unwrap();
    let (mut cuts, mut with_two) = (0, 0);
    for (name, expected) in &expected {
        let path = folder.path().join(name);
        let records = read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(expected["records"], records.len(), "{name}");
        assert_eq!(expected["sha256"], digest(&records), "{name}");
        let logs: Vec<(PathBuf, Vec<u8>)> = state(&path)
            .into_iter()
            .filter(|(name, (bytes, ..))| name.ends_with(".log") && !bytes.is_empty())
            .map(|(name, (bytes, ..))| (path.join(name), bytes))
            .collect();
        let [(older, bytes), _younger] = &logs[..] else { continue };
        fs::remove_file(older).unwrap();
        if read(&path).is_ok_and(|found| found == records) {
            // Killed after the older log went to a table, before the log was deleted.
            continue;
        }
        with_two += 1;
        let ends = record_ends(bytes);
        let (_, before) = ends.split_last().unwrap();
        for &end in before.iter().step_by(before.len().div_ceil(20)) {
            fs::write(older, &bytes[..end]).unwrap();
            let Err(error) = read(&path) else { panic!("{name}: cut at byte {end}, and read") };
            assert!(matches!(error, SourceError::LevelDb(LevelDbError::Gap { .. })), "{name} {end}: {error}");
            LevelDb::open_with(&path, LogGaps::Allow).unwrap();
            cuts += 1;
        }
    }
    println!("{} databases, {with_two} with two logs, {cuts} cuts", expected.len());
}

/// A user who may write and create nothing reads everything.
#[test]
fn a_folder_that_cannot_be_written_is_read() {
    let name = this_test!();
    if let Some(path) = role() {
        assert_eq!(read(Path::new(&path)).unwrap().len(), 140);
        return;
    }
    let folder = copy("leveldb/reopened");
    let before = state(folder.path());
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let command = child_command(name, folder.path().to_str().unwrap());
    check_without_root(name, command, folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let after = state(folder.path());
    assert!(before.keys().eq(after.keys()));
    assert!(
        before.values().zip(after.values()).all(|(before, after)| before.0 == after.0 && before.1 == after.1)
    );
}

#[test]
fn values_are_lent_and_stay_when_everything_else_is_gone() {
    for name in ["leveldb/big_values", "leveldb/uncompressed", "leveldb/noise_and_text", "leveldb/levels"] {
        let folder = copy(name);
        let due = read(folder.path()).unwrap();
        let registry = Registry::new();
        let source = LevelDb::open(folder.path()).unwrap();
        let reader =
            DataReader::builder("data", source).batch_size(due.len()).passes(1).open_in(&registry).unwrap();
        let mut leases = Vec::new();
        while let Some(lease) = reader.full().pop().unwrap() {
            leases.push(lease);
        }
        drop(reader);
        assert!(registry.is_empty());
        fs::remove_dir_all(folder.path()).unwrap();
        let read: Records = leases
            .iter()
            .flat_map(|lease| lease.iter().map(|record| (record.key.to_vec(), record.value.to_vec())))
            .collect();
        assert_eq!(read, due, "{name}");
        std::thread::spawn(move || drop(leases)).join().unwrap();
    }
}

#[test]
fn ranges_are_walked_on_threads_of_their_own() {
    let source = LevelDb::open(data("leveldb/levels")).unwrap();
    let due = drain(source.cursor().unwrap()).unwrap();
    let borders: Vec<Vec<u8>> = due.iter().step_by(due.len() / 4).map(|(key, _)| key.clone()).collect();
    let starts = [None].into_iter().chain(borders.iter().map(Some));
    let ends = borders.iter().map(Some).chain([None]);
    let read: Records = std::thread::scope(|scope| {
        let walks: Vec<_> = starts
            .zip(ends)
            .map(|(start, end)| {
                let source = &source;
                scope.spawn(move || {
                    drain(source.range(start.map(Vec::as_slice), end.map(Vec::as_slice)).unwrap()).unwrap()
                })
            })
            .collect();
        walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
    });
    assert_eq!(read, due);
    assert_eq!(drain(source.range(Some(b"z"), None).unwrap()).unwrap(), []);
    assert_eq!(drain(source.range(Some(b"5"), Some(b"1")).unwrap()).unwrap(), []);
}

#[test]
fn no_file_stays_open() {
    if !common::process::is_alone(this_test!()) {
        return;
    }
    let before = open_files();
    let source = LevelDb::open(data("leveldb/levels")).unwrap();
    let mut cursor = source.cursor().unwrap();
    while cursor.advance().unwrap().is_some() {
        assert_eq!(open_files(), before);
    }
}

#[test]
fn every_database_is_the_same_read_and_mapped() {
    let mut databases: Vec<PathBuf> =
        ["raw_leveldb_log", "raw_leveldb_ldb"].map(|name| data("golden").join(name)).into();
    let entries = fs::read_dir(data("leveldb")).unwrap().map(|entry| entry.unwrap().path());
    databases.extend(entries.filter(|path| path.join("CURRENT").exists()));
    assert!(databases.len() > 14);
    for path in &databases {
        let opened = |access| LevelDb::options().access(access).open(path);
        match (opened(Access::Mapped), opened(Access::Read)) {
            (Ok(mapped), Ok(read)) => {
                let due = drain(mapped.cursor().unwrap()).unwrap();
                assert_eq!(drain(read.cursor().unwrap()).unwrap(), due, "{}", path.display());
                assert_eq!((mapped.cuts(), mapped.identity()), (read.cuts(), read.identity()));
                read.index(&IndexPlace::Memory).unwrap();
                let mut cursor = read.cursor().unwrap();
                for (position, (key, value)) in due.iter().enumerate().rev().step_by(3) {
                    cursor.seek(position as u64).unwrap();
                    let entry = cursor.advance().unwrap().unwrap();
                    assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]), "{}", path.display());
                }
            }
            (mapped, read) => assert_eq!(mapped.unwrap_err(), read.unwrap_err()),
        }
    }
}

#[test]
fn a_feed_of_a_leveldb_is_a_feed_of_the_lmdb() {
    let batches = |builder: percolator::FeedBuilder| {
        let mut feed = builder.batch_size(8).epochs(Epochs::OnePass).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let mut batches = Vec::new();
        for batch in lane.by_ref() {
            let batch = batch.unwrap();
            batches.push((batch.bytes().to_vec(), batch.labels().unwrap().to_vec()));
        }
        batches
    };
    let folder = copy("golden/raw_lmdb");
    let due = batches(Feed::builder().lmdb(folder.path()));
    assert!(due.len() > 5);
    for name in ["raw_leveldb_log", "raw_leveldb_ldb"] {
        for access in [Access::Mapped, Access::Read] {
            let feed = Feed::builder().leveldb(data("golden").join(name)).access(access);
            assert!(batches(feed) == due, "{name}, {access:?}");
        }
    }
}
