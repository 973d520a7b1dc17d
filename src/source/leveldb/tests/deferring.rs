//! Compares a cursor that leaves verification to others with one that verifies: whatever byte of a table is
//! damaged, a user that checks the deferred checksums gets the same records, then the same error.

use std::fs;
use std::path::{Path, PathBuf};

use super::LevelDb;
use crate::process::sample::some_with;
use crate::record::RecordId;
use crate::source::{Cursor, Run, Source, SourceError, VerifiesLater};

pub(super) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// All test databases that have tables.
pub(super) const DATABASES: [&str; 12] = [
    "golden/raw_leveldb_ldb",
    "leveldb/all_deleted",
    "leveldb/bloom",
    "leveldb/compacted",
    "leveldb/deleted",
    "leveldb/empty_strings",
    "leveldb/levels",
    "leveldb/noise_and_text",
    "leveldb/overwritten",
    "leveldb/reopened",
    "leveldb/snappy",
    "leveldb/uncompressed",
];

pub(super) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The records, and the error that ended the pass, if any.
pub(super) type Walked = (Records, Option<SourceError>);

/// Returns every `step`th record of a cursor that verifies.
pub(super) fn verified(mut cursor: Box<dyn Cursor>, step: usize) -> Walked {
    let mut records = Records::new();
    for number in 0.. {
        match cursor.advance() {
            Ok(Some(entry)) if number % step == 0 => {
                assert!(!entry.is_unverified(), "a cursor that anyone may use verifies");
                records.push((entry.key().to_vec(), entry.value().to_vec()));
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

/// Returns the same for a cursor that defers checksums, in runs of `run_records` records. Each record is
/// taken after its block's deferred checksum is checked.
pub(super) fn checked(cursor: &mut dyn Cursor, step: usize, run_records: usize) -> Walked {
    let (mut records, mut run) = (Records::new(), Run::with_capacity(run_records));
    for number in 0.. {
        let ended = if number % step == 0 {
            match cursor.advance() {
                Ok(Some(entry)) => {
                    run.push(RecordId::default(), entry);
                    None
                }
                Ok(None) => Some(None),
                Err(error) => Some(Some(error)),
            }
        } else {
            match cursor.skip() {
                Ok(true) => None,
                Ok(false) => Some(None),
                Err(error) => Some(Some(error)),
            }
        };
        if ended.is_some() || run.len() == run_records {
            let mut checksums = run.deferred_checksums();
            for (position, record) in run.iter().enumerate() {
                if let Err(error) = checksums.before(position) {
                    return (records, Some(error.into()));
                }
                records.push((record.key.to_vec(), record.value.to_vec()));
            }
            run.clear();
        }
        if let Some(error) = ended {
            return (records, error);
        }
    }
    unreachable!("a pass ends")
}

fn deferring(path: &Path) -> Box<dyn Cursor> {
    LevelDb::open(path).unwrap().deferring_cursor(VerifiesLater::promised(None)).unwrap()
}

#[test]
fn a_cursor_that_defers_checksums_gives_what_one_that_verifies_gives() {
    for name in DATABASES {
        let due = verified(LevelDb::open(data(name)).unwrap().cursor().unwrap(), 1);
        let mut cursor = deferring(&data(name));
        for run_records in [1, 7, 16] {
            assert!(checked(&mut *cursor, 1, run_records) == due, "{name}");
            cursor.rewind().unwrap();
        }
    }
}

#[test]
fn uncompressed_blocks_are_deferred_and_each_run_has_the_checksums_of_its_records() {
    let mut cursor = deferring(&data("leveldb/uncompressed"));
    let mut run = Run::with_capacity(0);
    let mut unverified = 0;
    while let Some(entry) = cursor.advance().unwrap() {
        unverified += usize::from(entry.is_unverified());
        run.push(RecordId::default(), entry);
    }
    assert_eq!(unverified, run.len());
    let mut snappy = deferring(&data("leveldb/snappy"));
    let is_unverified = snappy.advance().unwrap().map(|entry| entry.is_unverified());
    assert_eq!(is_unverified, Some(false), "unpacking a block verifies it");
}

/// Copies a database; returns the copy and its tables.
pub(super) fn copy(name: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let mut tables = Vec::new();
    for file in fs::read_dir(data(name)).unwrap() {
        let file = file.unwrap().path();
        let copy = folder.path().join(file.file_name().unwrap());
        fs::copy(&file, &copy).unwrap();
        if copy.extension().is_some_and(|extension| extension == "ldb" || extension == "sst") {
            tables.push(copy);
        }
    }
    (folder, tables)
}

/// Damages a table at one byte after the other, `bytes_apart` bytes apart, or at a sample of these and in the
/// footer, and calls `look` with the place of each.
pub(super) fn damage_each(table: &Path, bytes_apart: usize, mut look: impl FnMut(usize)) {
    let good = fs::read(table).unwrap();
    let is_footer = |at: &usize| at + 48 >= good.len();
    for at in some_with((0..good.len()).step_by(bytes_apart), 7, is_footer) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at / bytes_apart % 8);
        fs::write(table, bytes).unwrap();
        look(at);
    }
    fs::write(table, good).unwrap();
}

/// Damages bytes of all tables of a database, one after the other, and compares the two cursors. Returns how
/// many errors there were.
pub(super) fn damage(name: &str, bytes_apart: usize, walk: impl Fn(&Path) -> Box<dyn Cursor>) -> usize {
    let (folder, tables) = copy(name);
    let mut found = 0;
    for table in tables {
        damage_each(&table, bytes_apart, |at| {
            for (step, run_records) in [(1, 1), (1, 5), (3, 1), (3, 4)] {
                let (records, error) = checked(&mut *walk(folder.path()), step, run_records);
                let due = verified(LevelDb::open(folder.path()).unwrap().cursor().unwrap(), step);
                assert_eq!(error, due.1, "{name}: byte {at} of {}", table.display());
                assert!(due.0.starts_with(&records), "{name}: byte {at} of {}", table.display());
                found += usize::from(error.is_some());
            }
        });
    }
    found
}

#[test]
fn whatever_byte_is_damaged_the_records_before_it_are_given_and_then_the_same_error() {
    for (name, bytes_apart) in [
        ("leveldb/uncompressed", 11),
        ("leveldb/reopened", 7),
        ("leveldb/overwritten", 7),
        ("leveldb/deleted", 7),
        ("leveldb/compacted", 101),
        ("leveldb/levels", 211),
        ("golden/raw_leveldb_ldb", 997),
    ] {
        let found = damage(name, bytes_apart, deferring);
        println!("{name}: {found}");
        assert!(found > 0, "{name}");
    }
}
