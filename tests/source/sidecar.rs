//! An index in a sidecar beside its database is used as long as the database is unchanged. If the database
//! has changed, or the sidecar is damaged or cut, the index is rebuilt. A forged sidecar leads to a record
//! of the database or to an error, and never ends the process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use percolator::source::{IndexPlace, LevelDb, Lmdb, LmdbError, Source, SourceError};
use tempfile::tempdir;

use crate::common;
use crate::common::indexed::{
    Records, Written, check_every_record, check_source, leveldb_options, mixed, page_bytes, walked,
    written_leveldb,
};
use crate::common::log::Log;
use crate::common::process::{check_without_root, child_command, role, this_test};
use crate::common::sample::{some_of, some_with};

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
    assert!(index(&records).contains("a record index was built"));
    assert!(index(&records).contains("a record index is used"));
    let whole = fs::read(&sidecar).unwrap();
    for at in some_of(0..whole.len(), 7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        fs::write(&sidecar, if at % 2 == 0 { &changed[..] } else { &whole[..at] }).unwrap();
        let text = index(&records);
        assert!(text.contains("rebuilding it"), "byte {at}: {text}");
        assert_eq!(fs::read(&sidecar).unwrap(), whole, "byte {at}");
    }
    common::leveldb::write(&path, leveldb_options(1), mixed(60).into_iter().skip(40));
    let text = index(&mixed(60));
    assert!(text.contains("is of another state of the database") && text.contains("MANIFEST"), "{text}");
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
fn a_sidecar_is_made_once_and_used_again() {
    let database = Written::of(100);
    let log = Log::default();
    let first = log.listen(|| database.indexed());
    assert!(log.text().contains("a record index was built"), "{}", log.text());
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
    // The data file's own path names the same database.
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
fn an_index_of_a_database_that_grew_is_rebuilt() {
    let database = Written::of(20);
    drop(database.indexed());
    let before = fs::read(database.sidecar()).unwrap();
    common::write_lmdb(&database.path(), (20..50).map(|index| common::image(index, 3, 4, 4)));
    let log = Log::default();
    let source = log.listen(|| database.indexed());
    let text = log.text();
    let told = text.lines().find(|line| line.contains("is of another state of the database")).unwrap();
    assert!(told.contains("INFO") && (told.contains("file bytes") || told.contains("modified")), "{told}");
    assert_ne!(fs::read(database.sidecar()).unwrap(), before);
    check_source(&source, 20);
    let mut cursor = source.cursor().unwrap();
    cursor.seek(49).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(49));
}

#[test]
fn a_sidecar_that_is_cut_at_any_length_is_rebuilt() {
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
fn a_sidecar_of_which_any_byte_changed_is_rebuilt() {
    let database = Written::of(12);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    // All of the header, whose bytes have meanings of their own.
    for at in some_with(0..whole.len(), 7, |at| *at < 16) {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            fs::write(database.sidecar(), &changed).unwrap();
            let log = Log::default();
            log.listen(|| check_every_record(&database, &records, &format!("byte {at} ^ {flip:#x}")));
            assert!(log.text().contains("rebuilding it"), "byte {at} ^ {flip:#x}: {}", log.text());
            assert_eq!(fs::read(database.sidecar()).unwrap(), whole, "byte {at} ^ {flip:#x}");
        }
    }
}

#[test]
fn a_sidecar_of_a_newer_version_or_another_program_is_rebuilt() {
    let database = Written::of(12);
    let records = walked(&database.open());
    drop(database.indexed());
    let whole = fs::read(database.sidecar()).unwrap();
    let newer = [&whole[..8], &2_u32.to_le_bytes(), &whole[12..]].concat();
    for (bytes, told) in [
        (newer, "it has version 2 of the format, but this program reads 1"),
        (
            b"a file of somebody else's, which is no index at all, not at all".to_vec(),
            "it is not a record index",
        ),
    ] {
        fs::write(database.sidecar(), bytes).unwrap();
        let log = Log::default();
        log.listen(|| check_every_record(&database, &records, told));
        assert!(log.text().contains(told), "{}", log.text());
        assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
    }
}

/// Corrects the crc32c after the header.
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
    let pages = {
        let data = fs::read(database.path().join("data.mdb")).unwrap();
        (data.len() / page_bytes(&data)) as u64
    };
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
            Ok(Some(entry)) => assert_eq!(entry.key(), records[0].0),
            Err(SourceError::Lmdb(LmdbError::BrokenPage { .. }) | SourceError::NoPositions { .. }) => {
                refused += 1
            }
            other => panic!("{place:#x}: {other:?}"),
        }
    }
    assert!(refused > 2 * pages, "{refused} of {pages} pages");
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
    assert!(log.text().contains("the record index cannot be used"), "{}", log.text());
    assert_eq!(fs::read(database.sidecar()).unwrap(), whole);
    check_source(&source, 10);
    // A sidecar cut while it is open is mended too.
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
    let name = this_test!();
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
    let mut command = child_command(name, database.path().to_str().unwrap());
    command.env("XDG_CACHE_HOME", cache.path());
    check_without_root(name, command, database.folder.path());
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
        assert!(text.contains("WARN") && text.contains("kept in memory only"), "{text}");
    }
    fs::remove_file(cache.parent().unwrap()).unwrap();
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
