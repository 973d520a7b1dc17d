//! Real databases: what is held of them, and where their records are.

use std::path::Path;
use std::sync::Arc;

use percolator_files::Access;

use super::*;
use crate::table::Verify;

fn options(held_max: usize, access: Access) -> Options {
    Options { access, held_max, ..Options::default() }
}

fn open(name: &str, held_max: usize) -> Arc<Database> {
    open_as(name, held_max, Access::Mapped)
}

fn open_as(name: &str, held_max: usize, access: Access) -> Arc<Database> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/leveldb").join(name);
    Database::open(&path, &options(held_max, access)).unwrap()
}

#[test]
fn the_databases_of_the_tests_have_what_they_are_there_for() {
    let tables = |name: &str| open(name, 0).levels.each_ref().map(Vec::len);
    println!("{:?}", ["levels", "compacted", "killed", "deleted", "reopened"].map(tables));
    assert!(tables("levels").iter().filter(|&&tables| tables > 0).count() >= 3, "three levels");
    assert!(tables("reopened")[0] > 1, "tables of level 0");
    assert!(!open("reopened", 0).memtable.is_empty(), "and a log");
    assert_eq!(tables("big_values"), [0; 7]);
    assert!(!open("killed", 0).memtable.is_empty());
}

#[test]
fn what_is_held_is_that_of_the_keys_in_the_logs_and_of_the_tables() {
    let (nothing, logs, tables) = (open("nothing", 9), open("big_values", 9), open("levels", 9));
    let least = nothing.held_bytes();
    let keys = logs.memtable.len() * 40;
    assert!(logs.held_bytes() >= least + keys, "{} for {keys}", logs.held_bytes());
    let count = tables.levels.iter().map(Vec::len).sum::<usize>();
    let held = tables.held_bytes() - least;
    assert!((100 * count..1000 * count).contains(&held), "{held} for {count} tables");
}

#[test]
fn what_is_read_and_not_mapped_is_held() {
    let file_bytes = |name: &str, ending: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/leveldb").join(name);
        let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let meant = files.filter(|file| file.path().extension().is_some_and(|found| found == ending));
        meant.map(|file| std::fs::read(file.path()).unwrap().len()).collect::<Vec<_>>()
    };
    let logs: usize = file_bytes("big_values", "log").into_iter().sum();
    let [mapped, read] =
        [Access::Mapped, Access::Read].map(|access| open_as("big_values", 9, access).held_bytes());
    assert!(logs > 60_000 && read >= mapped + logs, "{read}, {mapped} and {logs}");
    let tables = file_bytes("levels", "ldb");
    let [mapped, read] = [Access::Mapped, Access::Read]
        .map(|access| open_as("levels", 9, access).range(&[], None).read_bytes_max());
    assert_eq!(mapped, 0);
    let (longest, all) = (*tables.iter().max().unwrap(), tables.iter().sum());
    assert!((longest..=all).contains(&read), "{read}: a table of each level, of {tables:?}");
}

/// This table is not held when the database is opened: there are more tables than may be held.
#[test]
fn a_table_that_is_deleted_before_a_walk_opens_it_says_that_somebody_writes() {
    deleted_before_a_walk(Access::Mapped);
    deleted_before_a_walk(Access::Read);
}

fn deleted_before_a_walk(access: Access) {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/leveldb/uncompressed");
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let source = Database::open(folder.path(), &options(0, access)).unwrap();
    std::fs::remove_file(folder.path().join("000005.ldb")).unwrap();
    let error = source.range(&[], None).advance().map(|_| ()).unwrap_err();
    assert!(matches!(error, LevelDbError::BeingWritten { .. }), "{error}");
    assert!(error.to_string().contains("000005.ldb is no longer there"), "{error}");
}

#[test]
fn each_record_is_found_at_its_place_and_nothing_at_others() {
    for (name, held_max) in [("levels", 99), ("levels", 0), ("snappy", 99), ("killed", 99)] {
        for access in [Access::Mapped, Access::Read] {
            let database = open_as(name, held_max, access);
            let (mut walk, mut places) = (database.range(&[], None), database.range(&[], None));
            let mut records = RecordCursor::new(&database);
            while let Some(entry) = walk.advance().unwrap() {
                let place = places.next_place().unwrap().unwrap();
                assert_eq!(RecordPlace::of_numbers(place.to_numbers().unwrap()), place);
                records.go_to(place, Verify::AtOnce).unwrap();
                let found = records.entry().unwrap();
                assert!((found.key, found.value) == (entry.key, entry.value), "{name}: {place:?}");
            }
            assert_eq!(places.next_place(), Ok(None));
            for number in [usize::MAX, 1 << 20] {
                let error = records.go_to(RecordPlace::Memory(number), Verify::AtOnce).unwrap_err();
                assert!(matches!(error, LevelDbError::NoRecord { .. }), "{error}");
                assert!(records.entry().is_none());
            }
        }
    }
}
