//! A walk can be sent to any position of a database, and an index in a file says where the records lie. These tests
//! send walks about and compare what they find with a plain walk; they cut and change the file of the index, and the
//! pages of the database, byte by byte: what comes must be the right record or an error, and never the end of the
//! process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use common::log::Log;
use common::process::{check, child_command, must_end, role};
use common::source::MemorySource;
use lmdb::{DatabaseFlags, Environment, Transaction as _, WriteFlags};
use percolator::{Cursor, Feed, IndexPlace, LevelDb, Lmdb, Source, SourceError};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Every record, by a plain walk.
fn walked(source: &dyn Source) -> Records {
    let mut cursor = source.cursor().unwrap();
    rest(&mut *cursor)
}

/// What a walk still comes to.
fn rest(cursor: &mut dyn Cursor) -> Records {
    let mut records = Records::new();
    while let Some(entry) = cursor.advance().unwrap() {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    records
}

/// A database in a folder of its own, so that what lies beside it is in that folder, too.
struct Written {
    folder: TempDir,
}

impl Written {
    fn with(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let folder = tempdir().unwrap();
        common::write_lmdb(&folder.path().join("lmdb"), records);
        Written { folder }
    }

    fn of(records: usize) -> Self {
        Self::with((0..records).map(|index| common::image(index, 3, 4, 4)))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("lmdb")
    }

    fn sidecar(&self) -> PathBuf {
        self.folder.path().join("lmdb.percolator-index")
    }

    fn open(&self) -> Lmdb {
        Lmdb::open(self.path()).unwrap()
    }

    fn indexed(&self) -> Lmdb {
        let source = self.open();
        source.index(&IndexPlace::Beside).unwrap();
        assert!(source.is_seekable());
        source
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.folder.path()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

/// Values that are in their leaf, on one page, and on many.
fn mixed(records: usize) -> Records {
    let value = |index: usize| {
        let bytes = [0, 1, 100, 1900, 3000, 4080, 20_000, 150_000][index * 7 % 8];
        (0..bytes).map(|at| common::pixel(index, at)).collect()
    };
    (0..records)
        .map(|index| (format!("{index:05}_{}", "k".repeat(index % 90)).into_bytes(), value(index)))
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Seek(u64),
    Advance(u8),
    Skip(u8),
    Rewind,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..1000_u64).prop_map(Step::Seek),
        4 => (0..40_u8).prop_map(Step::Advance),
        2 => (0..40_u8).prop_map(Step::Skip),
        1 => Just(Step::Rewind),
        1 => Just(Step::Seek(u64::MAX)),
    ];
    prop::collection::vec(step, 1..40)
}

/// A walk does what a position in a list would.
fn check_steps(cursor: &mut dyn Cursor, records: &Records, steps: &[Step]) {
    let mut position = 0;
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Step::Seek(to) => {
                // In 900ths of all, so that some go past the end.
                let to = if to == u64::MAX { to } else { to * records.len() as u64 / 900 };
                position = usize::try_from(to).unwrap().min(records.len());
                cursor.seek(to).unwrap();
            }
            Step::Advance(times) => {
                for _ in 0..times {
                    let entry = cursor.advance().unwrap().map(|entry| (entry.key(), entry.value()));
                    let wanted = records.get(position).map(|(key, value)| (&key[..], &value[..]));
                    assert!(entry == wanted, "step {number} of {steps:?}, position {position}");
                    position += usize::from(wanted.is_some());
                }
            }
            Step::Skip(times) => {
                for _ in 0..times {
                    let is_there = position < records.len();
                    assert_eq!(
                        cursor.skip().unwrap(),
                        is_there,
                        "step {number} of {steps:?}, position {position}"
                    );
                    position += usize::from(is_there);
                }
            }
            Step::Rewind => {
                cursor.rewind().unwrap();
                position = 0;
            }
        }
    }
    assert_eq!(rest(cursor).len(), records.len() - position);
}

fn check_source(source: &dyn Source, cases: u32) {
    let records = walked(source);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    runner
        .run(&steps(), |steps| {
            check_steps(&mut *source.cursor().unwrap(), &records, &steps);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_walk_that_is_sent_about_comes_to_what_a_plain_walk_finds() {
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
        assert_eq!(source.held_bytes(), records.len() * 8);
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
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
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

fn leveldb_options(compressor: u8) -> rusty_leveldb::Options {
    rusty_leveldb::Options { compressor, write_buffer_size: 64 << 10, ..rusty_leveldb::Options::default() }
}

/// A LevelDB in a folder of its own.
fn written_leveldb(records: Records, compressor: u8) -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("leveldb");
    common::leveldb::write(&path, leveldb_options(compressor), records);
    (folder, path)
}

#[test]
fn a_walk_over_a_leveldb_is_sent_about_as_well() {
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
fn a_leveldbs_sidecar_is_used_again_until_the_database_changes_and_mended_where_it_is_damaged() {
    let (folder, path) = written_leveldb(mixed(40), 1);
    let sidecar = folder.path().join("leveldb.percolator-index");
    let index = |records: &Records| {
        let log = Log::default();
        let source = LevelDb::open(&path).unwrap();
        log.listen(|| {
            source.index(&IndexPlace::Beside).unwrap();
            let mut cursor = source.cursor().unwrap();
            for (position, (key, value)) in records.iter().enumerate().rev() {
                cursor.seek(position as u64).unwrap();
                let entry = cursor.advance().unwrap().unwrap();
                assert!((entry.key(), entry.value()) == (&key[..], &value[..]), "record {position}");
            }
        });
        log.text()
    };
    let records = mixed(40);
    assert!(index(&records).contains("a record index is made"));
    assert!(index(&records).contains("a record index is used"));
    let whole = fs::read(&sidecar).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        fs::write(&sidecar, if at % 2 == 0 { &changed[..] } else { &whole[..at] }).unwrap();
        let text = index(&records);
        assert!(text.contains("made anew"), "byte {at}: {text}");
        assert_eq!(fs::read(&sidecar).unwrap(), whole, "byte {at}");
    }
    common::leveldb::write(&path, leveldb_options(1), mixed(60).into_iter().skip(40));
    let text = index(&mixed(60));
    assert!(text.contains("not of the database as it is now") && text.contains("MANIFEST"), "{text}");
}

#[test]
fn a_forged_index_of_a_leveldb_is_not_believed() {
    let (folder, path) = written_leveldb(mixed(60), 0);
    let sidecar = folder.path().join("leveldb.percolator-index");
    LevelDb::open(&path).unwrap().index(&IndexPlace::Beside).unwrap();
    let whole = fs::read(&sidecar).unwrap();
    let places_at = whole.len() - 60 * 16;
    let mut refused = 0;
    let tables = (0..3_u64).flat_map(|table| (0..40_u64).map(move |at| (table << 44) | (at * 997)));
    let numbers: Vec<u64> = tables.chain([u64::MAX, u64::MAX << 44, 1 << 63]).collect();
    for (first, second) in
        numbers.iter().flat_map(|&first| [(first, 0), (first, 4096 << 32), (first, u64::MAX)])
    {
        let mut forged = whole.clone();
        forged[places_at..][..8].copy_from_slice(&first.to_le_bytes());
        forged[places_at + 8..][..8].copy_from_slice(&second.to_le_bytes());
        forge(&mut forged, places_at);
        fs::write(&sidecar, &forged).unwrap();
        let source = LevelDb::open(&path).unwrap();
        source.index(&IndexPlace::Beside).unwrap();
        let mut cursor = source.cursor().unwrap();
        cursor.seek(7).unwrap();
        cursor.seek(0).unwrap();
        refused += u32::from(cursor.advance().is_err());
    }
    assert!(refused > 300, "{refused} of {}", numbers.len() * 3);
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
fn a_record_is_lent_wherever_the_walk_was_sent() {
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
fn a_source_of_a_callers_own_is_sent_about_too() {
    let memory = MemorySource::numbered("memory", 60, 8);
    assert!(!memory.is_seekable());
    memory.index(&IndexPlace::Beside).unwrap();
    assert!(!memory.is_seekable());
    check_source(&memory, 50);
}

#[test]
fn a_sidecar_is_made_once_and_used_again() {
    let database = Written::of(100);
    let log = Log::default();
    let first = log.listen(|| database.indexed());
    assert!(log.text().contains("a record index is made"), "{}", log.text());
    assert_eq!(database.names(), ["lmdb", "lmdb.percolator-index"], "no temporary file is left");
    let stamp = |metadata: fs::Metadata| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
    let written = stamp(fs::metadata(database.sidecar()).unwrap());
    drop(first);
    let log = Log::default();
    let source = log.listen(|| database.indexed());
    assert!(log.text().contains("a record index is used"), "{}", log.text());
    assert!(!log.text().contains("WARN") && !log.text().contains("INFO"), "{}", log.text());
    assert_eq!(stamp(fs::metadata(database.sidecar()).unwrap()), written);
    check_source(&source, 20);
    // The data file by its own name is the same database.
    drop(source);
    let source = Lmdb::open(database.path().join("data.mdb")).unwrap();
    source.index(&IndexPlace::Beside).unwrap();
    assert_eq!(database.names().len(), 2);
    assert_eq!(stamp(fs::metadata(database.sidecar()).unwrap()), written);
}

#[test]
fn a_sidecar_in_a_folder_of_many_is_named_by_its_database() {
    let (one, other) = (Written::of(20), Written::of(30));
    let folder = tempdir().unwrap();
    let place = IndexPlace::Folder(folder.path().join("indexes"));
    for _ in 0..2 {
        for (database, records) in [(&one, 20), (&other, 30)] {
            let source = database.open();
            source.index(&place).unwrap();
            let mut cursor = source.cursor().unwrap();
            cursor.seek(records - 1).unwrap();
            assert!(cursor.advance().unwrap().is_some() && cursor.advance().unwrap().is_none());
        }
    }
    let names: Vec<_> = fs::read_dir(folder.path().join("indexes")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(one.names(), ["lmdb"]);
}

#[test]
fn an_index_of_a_database_that_grew_is_made_anew() {
    let database = Written::of(20);
    drop(database.indexed());
    let before = fs::read(database.sidecar()).unwrap();
    common::write_lmdb(&database.path(), (20..50).map(|index| common::image(index, 3, 4, 4)));
    let log = Log::default();
    let source = log.listen(|| database.indexed());
    let text = log.text();
    let told = text.lines().find(|line| line.contains("not of the database as it is now")).unwrap();
    assert!(told.contains("INFO") && (told.contains("file bytes") || told.contains("modified")), "{told}");
    assert_ne!(fs::read(database.sidecar()).unwrap(), before);
    check_source(&source, 20);
    let mut cursor = source.cursor().unwrap();
    cursor.seek(49).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(49));
}

/// Deletes some records from a database with room for another commit.
fn delete(path: &Path, records: std::ops::Range<usize>) {
    let env = Environment::new().set_map_size(1 << 36).open(path).unwrap();
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    records.for_each(|index| transaction.del(database, &common::key(index), None).unwrap());
    transaction.commit().unwrap();
}

#[test]
fn a_walk_of_another_commit_than_the_index_walks() {
    const NAME: &str = "a_walk_of_another_commit_than_the_index_walks";
    // A process may have a database open but once, so that another one writes.
    if let Some(path) = role() {
        return delete(Path::new(&path), 0..1);
    }
    let database = Written::of(2000);
    // Pages become free, so that the file does not grow.
    delete(&database.path(), 1000..2000);
    delete(&database.path(), 900..1000);
    let source = database.indexed();
    let mut indexed = source.cursor().unwrap();
    indexed.seek(5).unwrap();
    let mut late = source.cursor().unwrap();
    check(NAME, &child_command(NAME, database.path().to_str().unwrap()).output().unwrap());
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

/// Opens the index as it is, or as it can be mended, and looks every record up, the last one first.
fn check_every_record(database: &Written, records: &Records, what: &str) {
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    for (position, (key, value)) in records.iter().enumerate().rev() {
        cursor.seek(position as u64).unwrap();
        let entry = cursor.advance().unwrap().unwrap_or_else(|| panic!("{what}: no record {position}"));
        assert!((entry.key(), entry.value()) == (&key[..], &value[..]), "{what}: record {position}");
    }
    cursor.seek(records.len() as u64).unwrap();
    assert!(cursor.advance().unwrap().is_none());
}

#[test]
fn a_sidecar_that_is_cut_at_any_length_is_made_anew() {
    let database = Written::of(12);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    for length in 0..whole.len() {
        fs::write(database.sidecar(), &whole[..length]).unwrap();
        let log = Log::default();
        log.listen(|| check_every_record(&database, &records, &format!("cut at {length}")));
        assert!(log.text().contains("WARN"), "{}", log.text());
        assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(database.sidecar(), longer).unwrap();
    check_every_record(&database, &records, "longer");
    assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
}

#[test]
fn a_sidecar_of_which_any_byte_changed_is_made_anew() {
    let database = Written::of(12);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            fs::write(database.sidecar(), &changed).unwrap();
            let log = Log::default();
            log.listen(|| check_every_record(&database, &records, &format!("byte {at} ^ {flip:#x}")));
            assert!(log.text().contains("made anew"), "byte {at} ^ {flip:#x}: {}", log.text());
            assert_eq!(fs::read(database.sidecar()).unwrap(), whole, "byte {at} ^ {flip:#x}");
        }
    }
}

#[test]
fn a_sidecar_of_a_newer_version_or_another_program_is_made_anew() {
    let database = Written::of(12);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    let newer = [&whole[..8], &2_u32.to_le_bytes(), &whole[12..]].concat();
    for (bytes, told) in [
        (newer, "it has version 2 of the format, and this program reads 1"),
        (
            b"a file of somebody else's, which is no index at all, not at all".to_vec(),
            "it is no record index",
        ),
    ] {
        fs::write(database.sidecar(), bytes).unwrap();
        let log = Log::default();
        log.listen(|| check_every_record(&database, &records, told));
        assert!(log.text().contains(told), "{}", log.text());
        assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
    }
}

/// The crc32c behind the head, made right again.
fn forge(sidecar: &mut [u8], places_at: usize) {
    let parts = sidecar[places_at..].chunks(1 << 16).map(crc32c::crc32c).collect::<Vec<_>>();
    let identity_bytes = u32::from_le_bytes(sidecar[32..36].try_into().unwrap()) as usize;
    for (part, checksum) in parts.iter().enumerate() {
        sidecar[36 + identity_bytes + part * 4..][..4].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&sidecar[..places_at - 4]);
    sidecar[places_at - 4..places_at].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_forged_sidecar_is_not_believed() {
    let database = Written::with(mixed(60));
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    let places_at = whole.len() - records.len() * 8;
    let mut forged = whole.clone();
    forge(&mut forged, places_at);
    assert_eq!(forged, whole, "the forger knows the format");
    let pages = fs::metadata(database.path().join("data.mdb")).unwrap().len() / 4096;
    let mut refused = 0;
    for place in (0..pages).flat_map(|page| [page << 16, page << 16 | 7, page << 16 | 0xffff]).chain([
        u64::MAX,
        1 << 63,
        pages << 16,
    ]) {
        forged[places_at..][..8].copy_from_slice(&place.to_le_bytes());
        forge(&mut forged, places_at);
        fs::write(database.sidecar(), &forged).unwrap();
        let source = database.indexed();
        let mut cursor = source.cursor().unwrap();
        cursor.seek(7).unwrap();
        cursor.seek(0).unwrap();
        match cursor.advance() {
            // Another record of this or of an older commit.
            Ok(Some(entry)) => assert!(entry.key().len() > 4),
            Err(SourceError::BrokenPage { .. }) => refused += 1,
            other => panic!("{place:#x}: {other:?}"),
        }
    }
    assert!(refused > pages, "{refused} of {pages} pages");
}

#[test]
fn an_index_that_is_damaged_while_it_is_in_use_is_mended() {
    let database = Written::of(20_000);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    cursor.seek(10).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), records[10].0);
    let last = fs::OpenOptions::new().write(true).open(database.sidecar()).unwrap();
    std::os::unix::fs::FileExt::write_at(&last, &[0xff], whole.len() as u64 - 3).unwrap();
    let log = Log::default();
    log.listen(|| {
        for position in [15_000, 19_999] {
            cursor.seek(position as u64).unwrap();
            assert_eq!(cursor.advance().unwrap().unwrap().key(), records[position].0);
        }
    });
    assert!(log.text().contains("the record index is damaged"), "{}", log.text());
    assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
    check_source(&source, 10);
    // Cut while it is open, it is mended as well.
    drop((source, cursor));
    let source = database.indexed();
    fs::OpenOptions::new().write(true).open(database.sidecar()).unwrap().set_len(2000).unwrap();
    check_source(&source, 10);
    assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
}

#[test]
fn several_threads_make_one_index_at_once() {
    let database = Written::of(5000);
    let records = walked(&database.open());
    for round in 0..10 {
        let _ = fs::remove_file(database.sidecar());
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let source = database.open();
                    start.wait();
                    source.index(&IndexPlace::Beside).unwrap();
                    let mut cursor = source.cursor().unwrap();
                    cursor.seek(4999 - round).unwrap();
                    let entry = cursor.advance().unwrap().unwrap();
                    assert_eq!(entry.key(), records[4999 - round as usize].0);
                });
            }
        });
        assert_eq!(database.names(), ["lmdb", "lmdb.percolator-index"]);
        check_every_record(&database, &records, "made at once");
    }
}

#[test]
fn where_a_sidecar_cannot_be_written_the_index_is_kept_elsewhere() {
    const NAME: &str = "where_a_sidecar_cannot_be_written_the_index_is_kept_elsewhere";
    const NOBODY: u32 = 65534;
    if let Some(path) = role() {
        return index_where_nothing_can_be_written(Path::new(&path));
    }
    let database = Written::of(20);
    let cache = tempdir().unwrap();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for path in [database.path().join("lock.mdb"), database.path(), database.folder.path().to_owned()] {
        let mode = if path.is_dir() { 0o555 } else { 0o444 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = child_command(NAME, database.path().to_str().unwrap());
    command.env("XDG_CACHE_HOME", cache.path());
    // The kernel lets root write anywhere, so root becomes somebody else.
    let probe = database.folder.path().join("probe");
    if fs::write(&probe, "").is_ok() {
        fs::remove_file(&probe).unwrap();
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    match command.output() {
        Ok(output) => check(NAME, &output),
        Err(error) => println!("skipped: cannot run this test as user {NOBODY}: {error}"),
    }
    assert_eq!(database.names(), ["lmdb"]);
    fs::set_permissions(database.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(database.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

fn index_where_nothing_can_be_written(path: &Path) {
    let cache = PathBuf::from(std::env::var_os("XDG_CACHE_HOME").unwrap()).join("percolator/indexes");
    let index = |place: &IndexPlace| {
        let log = Log::default();
        let source = Lmdb::open(path).unwrap();
        log.listen(|| source.index(place)).unwrap();
        check_source(&source, 5);
        log.text()
    };
    let text = index(&IndexPlace::Beside);
    assert!(text.contains("a record index cannot be kept there") && !text.contains("WARN"), "{text}");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "it is in the cache folder");
    let text = index(&IndexPlace::Beside);
    assert!(text.contains("a record index is used"), "{text}");
    fs::remove_dir_all(cache.parent().unwrap()).unwrap();
    fs::write(cache.parent().unwrap(), "no folder").unwrap();
    for place in [IndexPlace::Beside, IndexPlace::Folder(path.join("indexes"))] {
        let text = index(&place);
        assert!(text.contains("WARN") && text.contains("kept in memory alone"), "{text}");
    }
    fs::remove_file(cache.parent().unwrap()).unwrap();
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
    for folder in [duplicates, named] {
        let source = Lmdb::open(folder.path()).unwrap();
        let error = source.index(&IndexPlace::Memory).unwrap_err();
        assert!(matches!(error, SourceError::NoPositions { .. }), "{error}");
        println!("{error}");
        assert!(!source.is_seekable());
    }
}

#[test]
fn damaged_pages_are_errors_or_make_no_difference() {
    const NAME: &str = "damaged_pages_are_errors_or_make_no_difference";
    if role().is_none() {
        return check(NAME, &child_command(NAME, "alone").output().unwrap());
    }
    let records: Records =
        (0..150_usize).map(|index| (common::key(index), vec![index as u8; index * 40 % 2500])).collect();
    let database = Written::with(records.clone());
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let (mut refused, mut found) = (0, 0);
    let mut numbers = 12345_u64;
    for page in 2..whole.len() / 4096 {
        let is_tree = matches!(whole[page * 4096 + 10], 1 | 2);
        // The heads and offsets of each page of the tree, bytes of its nodes, and a few others.
        let nodes = (0..40).map(|_| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (numbers >> 33) as usize % 4096
        });
        let places: Vec<usize> =
            if is_tree { (0..40).chain(nodes).collect() } else { nodes.take(2).collect() };
        for at in places {
            let mut damaged = whole.clone();
            damaged[page * 4096 + at] ^= [0x01, 0x80, 0xff][at % 3];
            let path = database.folder.path().join(format!("damaged {page} {at}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("data.mdb"), damaged).unwrap();
            let source = Lmdb::open_without_lock(&path).unwrap();
            match source.index(&IndexPlace::Memory) {
                Err(SourceError::BrokenPage { .. } | SourceError::NoPositions { .. }) => refused += 1,
                Err(error) => panic!("page {page}, byte {at}: {error}"),
                Ok(()) => {
                    found += 1;
                    let mut cursor = source.cursor().unwrap();
                    let mut differ = 0;
                    for position in (0..records.len()).rev() {
                        cursor.seek(position as u64).unwrap();
                        let entry = cursor.advance().unwrap().unwrap();
                        differ += usize::from(entry.value() != records[position].1);
                    }
                    assert!(differ < 60, "page {page}, byte {at}: {differ} records differ");
                }
            }
            fs::remove_dir_all(&path).unwrap();
        }
    }
    println!("{refused} refused, {found} not");
    assert!(refused > 500 && found > 100, "{refused} refused, {found} not");
}

#[test]
fn a_tree_that_leads_back_to_itself_or_twice_to_a_page_is_an_error() {
    let database = Written::of(1000);
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let branches: Vec<usize> = (2..whole.len() / 4096).filter(|page| whole[page * 4096 + 10] == 1).collect();
    let root = *branches.last().unwrap();
    // Where the offset of a node on the root says that it starts.
    let node = |number: usize| {
        let at = root * 4096 + 16 + 2 * number;
        root * 4096 + usize::from(u16::from_le_bytes([whole[at], whole[at + 1]]))
    };
    let second = u16::from_le_bytes([whole[node(1)], whole[node(1) + 1]]);
    for (what, child) in
        [("itself", root as u16), ("another's page", second), ("a meta page", 1), ("no page", 0xfff0)]
    {
        let mut changed = whole.clone();
        changed[node(0)..][..2].copy_from_slice(&child.to_le_bytes());
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), changed).unwrap();
        let source = Lmdb::open_without_lock(folder.path()).unwrap();
        let error = source.index(&IndexPlace::Memory).unwrap_err();
        println!("{what}: {error}");
        assert!(matches!(error, SourceError::BrokenPage { .. }), "{what}: {error}");
    }
}

#[test]
fn a_file_that_a_dead_process_left_is_in_nobodys_way() {
    let database = Written::of(20);
    for number in 0..3 {
        fs::write(
            database.folder.path().join(format!("lmdb.percolator-index.{}-{number}", std::process::id())),
            "",
        )
        .unwrap();
    }
    drop(database.indexed());
    assert!(database.sidecar().exists());
}

#[test]
fn a_page_that_is_damaged_after_it_was_indexed_is_an_error() {
    let database = Written::with(mixed(300));
    let records = walked(&database.open());
    drop(database.indexed());
    let data = database.path().join("data.mdb");
    let modified = fs::metadata(&data).unwrap().modified().unwrap();
    let mut damaged = fs::read(&data).unwrap();
    for page in (2 * 4096..damaged.len()).step_by(4096) {
        if damaged[page + 10] == 2 {
            damaged[page + 8..][..8].fill(0xee);
        }
    }
    // In place of the file, with its length and time: the index is of it as far as one can tell.
    fs::write(&data, damaged).unwrap();
    fs::File::options().write(true).open(&data).unwrap().set_modified(modified).unwrap();
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    for position in 0..records.len() {
        cursor.seek((position * 7 % records.len()) as u64 + 1).unwrap();
        cursor.seek((position * 7 % records.len()) as u64).unwrap();
        let error = cursor.advance().unwrap_err();
        assert!(error.to_string().contains("is no leaf"), "{error}");
    }
}

#[test]
fn a_database_that_was_replaced_is_not_indexed_in_the_others_place() {
    let database = Written::of(20);
    let source = database.open();
    let other = Written::of(30);
    fs::rename(other.path().join("data.mdb"), database.path().join("data.mdb")).unwrap();
    let error = source.index(&IndexPlace::Memory).unwrap_err().to_string();
    assert!(error.contains("another file has taken its place"), "{error}");
}

#[test]
fn a_feed_goes_on_over_a_database_that_is_indexed() {
    let database = Written::of(200);
    let source = database.indexed();
    let records = must_end("a feed over an indexed database", move || {
        let mut feed = Feed::builder().source(source).batch_size(20).once().build().unwrap();
        feed.steps()
            .map(|step| step.unwrap().iter().map(|batch| batch.labels().len()).sum::<usize>())
            .sum::<usize>()
    });
    assert_eq!(records, 200);
}
