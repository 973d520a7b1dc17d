//! A cursor can seek to any position of a database. These tests seek at random and compare the records with
//! those of a plain pass.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};

use lmdb::{DatabaseFlags, Environment, Transaction as _, WriteFlags};
use percolator::source::{IndexPlace, LevelDb, Lmdb, LmdbError, Source, SourceError};
use percolator::{Epochs, Feed};
use tempfile::tempdir;

use crate::common;
use crate::common::indexed::{Written, check_source, mixed, rest, walked, written_leveldb};
use crate::common::process::{check, child_command, must_end, role, this_test};
use crate::common::source::MemorySource;

#[test]
fn a_cursor_that_seeks_finds_what_a_plain_pass_finds() {
    let large_keys =
        (0..5000_usize).map(|index| (format!("{index:0>480}").into_bytes(), vec![index as u8; index % 50]));
    for (what, records) in [
        ("one", mixed(1)),
        ("mixed", mixed(300)),
        ("small", (0..3000).map(|index| (common::key(index), vec![index as u8])).collect()),
        ("a deep tree", large_keys.collect()),
    ] {
        println!("{what}");
        let database = Written::with(records.clone());
        let source = database.open();
        assert!(walked(&source) == records);
        assert!(!source.is_seekable());
        check_source(&source, 20);
        source.index(&IndexPlace::Memory).unwrap();
        assert!(source.is_seekable() && source.clone().is_seekable());
        // Beside the places, a bit for each page, and another where pages are free.
        let pages = fs::metadata(database.path().join("data.mdb")).unwrap().len().div_ceil(4096);
        let bits = source.held_bytes() - records.len() * 8;
        assert!(bits as u64 <= 2 * (pages / 8 + 8), "{bits} bytes for {pages} pages");
        check_source(&source, 100);
        assert_eq!(database.names(), ["lmdb"], "nothing was written");
        let source = database.indexed();
        check_source(&source, 30);
        drop(source);
        check_source(&database.indexed(), 100);
    }
}

#[test]
fn caffes_own_databases_are_indexed() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden");
    let folders: Vec<PathBuf> = fs::read_dir(golden)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("data.mdb").exists())
        .collect();
    assert!(folders.len() >= 10, "{folders:?}");
    for folder in folders {
        println!("{}", folder.display());
        let source = Lmdb::open_without_lock(folder).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        check_source(&source, 30);
    }
}

#[test]
fn a_cursor_over_a_leveldb_seeks_as_well() {
    let small = || (0..3000).map(|index| (common::key(index), vec![index as u8; index % 50])).collect();
    for (what, records, compressor) in [
        ("one", mixed(1), 0),
        ("mixed", mixed(300), 0),
        ("mixed, snappy", mixed(300), 1),
        ("small", small(), 0),
        ("small, snappy", small(), 1),
    ] {
        println!("{what}");
        let (folder, path) = written_leveldb(records.clone(), compressor);
        let source = LevelDb::open(&path).unwrap();
        assert!(walked(&source) == records && !source.is_seekable());
        check_source(&source, 5);
        for _ in 0..2 {
            let source = LevelDb::open(&path).unwrap();
            source.index(&IndexPlace::Beside).unwrap();
            assert_eq!((source.is_seekable(), source.records()), (true, Some(records.len() as u64)));
            check_source(&source, 60);
        }
        assert!(folder.path().join("leveldb.percolator-index").exists());
    }
}

#[test]
fn records_that_were_deleted_have_no_positions() {
    let folder = tempdir().unwrap();
    let records = mixed(400);
    common::write_lmdb(folder.path(), records.clone());
    let env = Environment::new().set_map_size(1 << 36).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let delete = |which: &dyn Fn(usize) -> bool| {
        let mut transaction = env.begin_rw_txn().unwrap();
        for (_, (key, _)) in records.iter().enumerate().filter(|(index, _)| which(*index)) {
            let _ = transaction.del(database, key, None);
        }
        transaction.commit().unwrap();
    };
    let open = || {
        let source = Lmdb::open(folder.path()).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        source
    };
    delete(&|index| index % 3 == 0);
    check_source(&open(), 50);
    delete(&|index| index != 200);
    let source = open();
    assert_eq!(source.records(), Some(1));
    check_source(&source, 20);
    drop(source);
    delete(&|_| true);
    let source = open();
    assert_eq!(source.records(), Some(0));
    let mut cursor = source.cursor().unwrap();
    cursor.seek(3).unwrap();
    assert!(cursor.advance().unwrap().is_none());
}

#[test]
fn a_record_is_lent_after_any_seek() {
    let database = Written::with(mixed(50));
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    cursor.seek(30).unwrap();
    let entry = cursor.advance().unwrap().unwrap();
    assert!(entry.is_lent());
    let address = entry.value().as_ptr();
    cursor.seek(3).unwrap();
    cursor.advance().unwrap().unwrap();
    cursor.seek(30).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().value().as_ptr(), address);
}

#[test]
fn a_caller_implemented_source_seeks_too() {
    let memory = MemorySource::numbered("memory", 60, 8);
    assert!(!memory.is_seekable());
    memory.index(&IndexPlace::Beside).unwrap();
    assert!(!memory.is_seekable());
    check_source(&memory, 50);
}

/// Deletes some records, in a database with room for another commit.
fn delete(path: &Path, records: std::ops::Range<usize>) {
    let env = Environment::new().set_map_size(1 << 36).open(path).unwrap();
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    records.for_each(|index| transaction.del(database, &common::key(index), None).unwrap());
    transaction.commit().unwrap();
}

#[test]
fn a_walk_of_another_commit_than_the_index_walks() {
    let name = this_test!();
    // LMDB allows a process to open a database only once, so a child writes.
    if let Some(path) = role() {
        return delete(Path::new(&path), 0..1);
    }
    let database = Written::of(2000);
    // Frees pages, so that the file does not grow.
    delete(&database.path(), 1000..2000);
    delete(&database.path(), 900..1000);
    let source = database.indexed();
    let mut indexed = source.cursor().unwrap();
    indexed.seek(5).unwrap();
    let mut late = source.cursor().unwrap();
    check(name, &child_command(name, database.path().to_str().unwrap()).output().unwrap());
    source.index(&IndexPlace::Beside).unwrap();
    let new = source.cursor().unwrap();
    late.seek(5).unwrap();
    for (what, mut cursor, first) in [("indexed", indexed, 0), ("late", late, 0), ("new", new, 1)] {
        cursor.seek(200).unwrap();
        assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(first + 200), "{what}");
        cursor.seek(100).unwrap();
        assert_eq!(rest(&mut *cursor).len(), 900 - first - 100, "{what}");
    }
}

#[test]
fn what_has_several_values_a_key_or_databases_within_has_no_positions() {
    let duplicates = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).open(duplicates.path()).unwrap();
    let database = env.create_db(None, DatabaseFlags::DUP_SORT).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    for value in ["a", "b", "c"] {
        transaction.put(database, b"key", &value, WriteFlags::empty()).unwrap();
    }
    transaction.commit().unwrap();
    drop(env);
    let named = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).set_max_dbs(2).open(named.path()).unwrap();
    env.create_db(Some("images"), DatabaseFlags::empty()).unwrap();
    drop(env);
    let source = Lmdb::open(duplicates.path()).unwrap();
    let error = source.index(&IndexPlace::Memory).unwrap_err();
    assert!(matches!(error, SourceError::NoPositions { .. }), "{error}");
    println!("{error}");
    assert!(!source.is_seekable());
    let error = Lmdb::open(named.path()).unwrap_err();
    assert!(matches!(error, SourceError::Lmdb(LmdbError::HoldsDatabases { .. })), "{error}");
}

#[test]
fn a_database_that_was_replaced_is_not_indexed_in_the_others_place() {
    let database = Written::of(20);
    let source = database.open();
    let other = Written::of(30);
    fs::rename(other.path().join("data.mdb"), database.path().join("data.mdb")).unwrap();
    source.index(&IndexPlace::Beside).unwrap();
    let mut cursor = source.cursor().unwrap();
    cursor.seek(19).unwrap();
    assert_eq!(rest(&mut *cursor).len(), 1, "it is the one that is open");
    assert_eq!(database.names(), ["lmdb"], "nothing is written beside the other one");
    assert_eq!(walked(&database.indexed()).len(), 30);
}

#[test]
fn a_feed_goes_on_over_a_database_that_is_indexed() {
    let database = Written::of(200);
    let source = database.indexed();
    let records = must_end("a feed over an indexed database", move || {
        let mut feed = Feed::builder().source(source).batch_size(20).epochs(Epochs::OnePass).build().unwrap();
        feed.steps()
            .map(|step| step.unwrap().iter().map(|batch| batch.labels().unwrap().len()).sum::<usize>())
            .sum::<usize>()
    });
    assert_eq!(records, 200);
}
