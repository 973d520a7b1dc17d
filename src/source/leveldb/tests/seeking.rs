//! Compares a cursor that seeks by position with a plain one, with both ways of verifying, over intact and
//! over damaged databases.

use std::path::Path;

use super::LevelDb;
use super::deferring::{DATABASES, Records, checked, copy, damage_each, data, verified};
use crate::source::{Cursor, IndexPlace, Source, SourceError, VerifiesLater};
use percolator_files::Access;

fn open(path: &Path, access: Access) -> LevelDb {
    LevelDb::options().access(access).open(path).unwrap()
}

fn indexed(path: &Path, access: Access) -> LevelDb {
    let source = open(path, access);
    source.index(&IndexPlace::Memory).unwrap();
    source
}

/// A cursor that verifies, and one that defers checksums.
fn cursors(source: &LevelDb) -> [Box<dyn Cursor>; 2] {
    [source.cursor().unwrap(), source.deferring_cursor(VerifiesLater::promised(None)).unwrap()]
}

/// Positions in no order, the last one first, including one past the end.
fn positions(records: usize) -> impl Iterator<Item = usize> {
    (0..=records).rev().map(move |number| number * 7919 % (records + 1))
}

#[test]
fn a_cursor_that_seeks_finds_what_a_plain_one_finds_there() {
    let logs = ["golden/raw_leveldb_log", "leveldb/big_values", "leveldb/killed", "leveldb/nothing"];
    for name in DATABASES.into_iter().chain(logs) {
        let sources = [Access::Mapped, Access::Read].map(|access| indexed(&data(name), access));
        let (records, error) = verified(LevelDb::open(data(name)).unwrap().cursor().unwrap(), 1);
        assert_eq!(error, None);
        assert!(sources.iter().all(|source| source.records() == Some(records.len() as u64)), "{name}");
        for mut cursor in sources.iter().flat_map(cursors) {
            for position in positions(records.len()) {
                cursor.seek(position as u64).unwrap();
                let found = cursor.advance().unwrap();
                if let Some(entry) = &found {
                    entry.check().unwrap();
                }
                let found = found.map(|entry| (entry.key(), entry.value()));
                let due = records.get(position).map(|(key, value)| (&key[..], &value[..]));
                assert!(found == due, "{name}: record {position}");
            }
            for position in [0, 1, records.len() / 3, records.len().saturating_sub(5), records.len() + 9] {
                for (step, run_records) in [(1, 1), (1, 7), (3, 4)] {
                    cursor.seek(position as u64 + 1).unwrap();
                    cursor.seek(position as u64).unwrap();
                    let (found, error) = checked(&mut *cursor, step, run_records);
                    assert_eq!(error, None);
                    let due: Records = records.iter().skip(position).step_by(step).cloned().collect();
                    assert!(found == due, "{name}: from {position} on, each {step}th");
                }
            }
        }
    }
}

#[test]
fn a_database_that_is_damaged_after_it_was_indexed_gives_the_records_or_errors() {
    for (name, bytes_apart) in [
        ("leveldb/uncompressed", 61),
        ("leveldb/snappy", 61),
        ("leveldb/overwritten", 31),
        ("leveldb/levels", 997),
        ("golden/raw_leveldb_ldb", 3989),
    ] {
        let (folder, tables) = copy(name);
        let place = IndexPlace::Folder(folder.path().join("indexes"));
        let source = LevelDb::open(folder.path()).unwrap();
        source.index(&place).unwrap();
        let (records, _) = verified(source.cursor().unwrap(), 1);
        drop(source);
        let mut errors = 0;
        for table in tables {
            damage_each(&table, bytes_apart, |at| {
                let [source, read] = [Access::Mapped, Access::Read].map(|access| {
                    let source = open(folder.path(), access);
                    source.index(&place).unwrap();
                    source
                });
                let [mut cursor, mut by_read] = [&source, &read].map(|source| source.cursor().unwrap());
                for position in positions(records.len()).step_by(3) {
                    let [one, other] = [&mut cursor, &mut by_read].map(|cursor| {
                        cursor.seek(position as u64).unwrap();
                        cursor.advance().map(|entry| entry.map(|entry| entry.value().to_vec()))
                    });
                    assert!(one == other, "{name}: byte {at}, record {position}: {one:?} {other:?}");
                }
                for mut cursor in cursors(&source) {
                    for position in positions(records.len()).step_by(3) {
                        cursor.seek(position as u64).unwrap();
                        let found = cursor.advance().and_then(|entry| {
                            entry.map_or(Ok(None), |entry| {
                                entry.check().map(|()| Some(entry)).map_err(SourceError::from)
                            })
                        });
                        match found.map(|entry| entry.map(|entry| (entry.key(), entry.value()))) {
                            Err(_) => errors += 1,
                            Ok(found) => {
                                let due = records.get(position).map(|(key, value)| (&key[..], &value[..]));
                                assert!(found == due, "{name}: byte {at}, record {position}");
                            }
                        }
                    }
                }
            });
        }
        println!("{name}: {errors}");
        assert!(errors > 0, "{name}");
    }
}
