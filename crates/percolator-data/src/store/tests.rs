//! Each kind of store: what is written is read back, by this library's readers and by another's.

use std::collections::BTreeMap;
use std::fs;

use percolator::leveldb::LevelDb;
use percolator::source::{Lmdb, Source, TfRecord};
use proptest::prelude::*;
use rusty_leveldb::LdbIterator as _;

use super::*;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

const BACKENDS: [Backend; 3] = [Backend::Lmdb, Backend::LevelDb, Backend::TfRecord];

fn open(backend: Backend, path: &Path) -> Box<dyn Source> {
    match backend {
        Backend::Lmdb => Box::new(Lmdb::open(path).unwrap()),
        Backend::LevelDb => Box::new(LevelDb::open(path).unwrap()),
        Backend::TfRecord => Box::new(TfRecord::open(path).unwrap()),
    }
}

fn read(backend: Backend, path: &Path) -> Records {
    let source = open(backend, path);
    let (mut cursor, mut records) = (source.cursor().unwrap(), Vec::new());
    while let Some(entry) = cursor.advance().unwrap() {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    records
}

#[test]
fn a_leveldb_has_blocks_as_small_as_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let made = [1_u32 << 10, 64 << 10].map(|block_bytes| {
        let path = folder.path().join(block_bytes.to_string());
        let mut store = NewStore::leveldb_with_blocks(&path, block_bytes, Existing::Refuse).unwrap();
        (0..200).for_each(|number| store.put(format!("{number:08}").as_bytes(), &[7; 1000]).unwrap());
        store.finish().unwrap();
        let files = fs::read_dir(&path).unwrap().map(Result::unwrap);
        let tables = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "ldb"));
        let bytes: u64 = tables.map(|file| file.metadata().unwrap().len()).sum();
        (read(Backend::LevelDb, &path), bytes)
    });
    let [(records, bytes), (wanted, fewer)] = made;
    assert!(records.len() == 200 && records == wanted);
    // A hundred blocks, each with its checksum and its place in the index, and not four.
    assert!(bytes > fewer + 2000, "{bytes}, {fewer}");
}

/// What a store of this kind has after these records were put.
fn wanted(backend: Backend, records: &Records) -> Records {
    match backend {
        Backend::TfRecord => {
            let key = |number| format!("{number:08}").into_bytes();
            records.iter().enumerate().map(|(number, (_, value))| (key(number), value.clone())).collect()
        }
        _ => records.iter().cloned().collect::<BTreeMap<_, _>>().into_iter().collect(),
    }
}

/// Writes the records, and reopens the store after each of `ends`: the number of records after which it is
/// committed, and of those that are put after that and lost.
fn write(backend: Backend, path: &Path, records: &Records, ends: &[(usize, usize)]) {
    let mut writer = backend.create(path).unwrap();
    let mut next = 0;
    for &(count, lost) in ends {
        let end = records.len().min(next + count);
        records[next..end].iter().for_each(|(key, value)| writer.put(key, value).unwrap());
        let mark = writer.commit().unwrap();
        let beyond = &records[end..records.len().min(end + lost)];
        beyond.iter().for_each(|(key, value)| writer.put(key, value).unwrap());
        if lost % 2 == 0 {
            // It is written, but its mark is not known.
            writer.commit().unwrap();
        }
        drop(writer);
        let mark = serde_json::from_str(&serde_json::to_string(&mark).unwrap()).unwrap();
        writer = backend.reopen(path, &mark).unwrap();
        next = end;
    }
    for (key, value) in &records[next..] {
        writer.put(key, value).unwrap();
        if writer.is_due() {
            writer.commit().unwrap();
        }
    }
    writer.finish().unwrap();
}

fn records() -> impl Strategy<Value = Records> {
    let key = proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 1..6);
    let value = proptest::collection::vec(any::<u8>(), 0..300);
    proptest::collection::vec((key, value), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read(
        records in records(),
        ends in proptest::collection::vec((0..20_usize, 0..5_usize), 0..4),
    ) {
        for backend in BACKENDS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store");
            write(backend, &path, &records, &ends);
            prop_assert_eq!(read(backend, &path), wanted(backend, &records), "{:?}", backend);
        }
    }
}

#[test]
fn large_records_are_due_by_their_bytes_and_written_again_after_a_mark() {
    let records: Records = (0..20u8).map(|number| (vec![number], vec![number; 5 << 20])).collect();
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut writer = backend.create(&path).unwrap();
        let first_due = records.iter().position(|(key, value)| {
            writer.put(key, value).unwrap();
            writer.is_due()
        });
        // One record has 5 MiB, and 13 have 65 MiB.
        assert_eq!(first_due, Some(if backend == Backend::Lmdb { 0 } else { 12 }), "{backend:?}");
        let mark = writer.commit().unwrap();
        assert!(!writer.is_due());
        let next = first_due.unwrap() + 1;
        // They are not committed, and written again.
        records[next..next + 3].iter().for_each(|(key, _)| writer.put(key, &vec![0xff; 5 << 20]).unwrap());
        drop(writer);
        writer = backend.reopen(&path, &mark).unwrap();
        records[next..].iter().for_each(|(key, value)| writer.put(key, value).unwrap());
        writer.finish().unwrap();
        assert!(read(backend, &path) == wanted(backend, &records), "{backend:?}");
    }
}

/// The number of entries in a folder.
fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn another_library_reads_the_leveldb() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let key = |number: usize| format!("{number:08}").into_bytes();
    // In several tables: of the last level, and of level 0, some with the same keys. The list of the tables
    // takes several blocks of the manifest.
    let mut records: Records = (0..2500).map(|number| (key(number * 2), vec![1; number % 50])).collect();
    records.extend((0..1500).map(|number| (key(number * 3), vec![2; number % 70])));
    records.push((vec![b'z'; 8000], vec![3; 200_000]));
    let mut writer = Backend::LevelDb.create(&path).unwrap();
    for (number, (key, value)) in records.iter().enumerate() {
        writer.put(key, value).unwrap();
        if number % 1000 == 999 || number > 3800 {
            writer.commit().unwrap();
        }
    }
    writer.finish().unwrap();
    assert!(fs::metadata(path.join("MANIFEST-000001")).unwrap().len() > 16_000);
    let wanted = wanted(Backend::LevelDb, &records);
    assert_eq!(read(Backend::LevelDb, &path), wanted);
    let mut database = rusty_leveldb::DB::open(&path, rusty_leveldb::Options::default()).unwrap();
    let mut cursor = database.new_iter().unwrap();
    let mut found = Records::new();
    while let Some((key, value)) = cursor.next() {
        found.push((key.to_vec(), value.to_vec()));
    }
    assert!(found == wanted, "{} records, not {}", found.len(), wanted.len());
    drop(cursor);
    // It is a database to write to, too.
    database.put(b"00000000", b"new").unwrap();
    database.close().unwrap();
    drop(database);
    assert_eq!(read(Backend::LevelDb, &path)[0], (key(0), b"new".to_vec()));
}

#[test]
fn a_map_grows_with_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let records: Records =
        (0..40_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 1 << 20])).collect();
    write(Backend::Lmdb, &path, &records, &[(25, 2), (3, 0)]);
    assert_eq!(entries(&path), 1, "no lock file");
    assert_eq!(read(Backend::Lmdb, &path), records);
}

#[test]
fn a_key_that_a_store_cannot_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (backend, bytes, allowed) in [
        (Backend::Lmdb, 512, "an LMDB has 1 to 511"),
        (Backend::Lmdb, 0, "an LMDB has 1 to 511"),
        (Backend::LevelDb, 8193, "a LevelDB has 0 to 8192"),
    ] {
        let path = folder.path().join(format!("{backend}{bytes}"));
        let mut writer = backend.create(&path).unwrap();
        let error = writer.put(&vec![b'k'; bytes], b"value").unwrap_err();
        assert!(error.to_string().contains(allowed), "{error}");
        let said = backend.check_key(&vec![b'k'; bytes]).unwrap_err();
        assert!(said.starts_with(&format!("its key has {bytes} bytes")), "{said}");
        writer.put(b"key", b"value").unwrap();
        writer.finish().unwrap();
        assert_eq!(read(backend, &path).len(), 1, "the store is as before");
    }
}

#[test]
fn a_store_that_is_not_as_it_was_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    for backend in BACKENDS {
        let path = folder.path().join(backend.to_string());
        let mut writer = backend.create(&path).unwrap();
        writer.put(b"key", b"value").unwrap();
        let mark = writer.commit().unwrap();
        drop(writer);
        let damaged = match backend {
            Backend::Lmdb => path.join("data.mdb"),
            Backend::LevelDb => path.join("000005.ldb"),
            Backend::TfRecord => path.clone(),
        };
        let whole = fs::read(&damaged).unwrap();
        if backend == Backend::Lmdb {
            fs::remove_file(&damaged).unwrap();
        } else {
            fs::write(&damaged, &whole[1..]).unwrap();
        }
        let error = backend.reopen(&path, &mark).unwrap_err();
        assert!(matches!(error, StoreError::Changed { .. }), "{error}");
        fs::write(&damaged, whole).unwrap();
        backend.reopen(&path, &mark).unwrap().finish().unwrap();
        assert_eq!(read(backend, &path).len(), 1);
    }
}

#[test]
fn of_the_list_of_tables_only_what_the_mark_says_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut writer = Backend::LevelDb.create(&path).unwrap();
    writer.put(b"key", b"value").unwrap();
    let mark = writer.commit().unwrap();
    drop(writer);
    let list = path.join("MANIFEST-000001");
    // A hole of a terabyte, which no machine reads.
    fs::OpenOptions::new().write(true).open(&list).unwrap().set_len(1 << 40).unwrap();
    drop(Backend::LevelDb.reopen(&path, &mark).unwrap());
    let whole = fs::read(&list).unwrap();
    // Nobody writes to it: whoever waits for that hangs.
    fs::remove_file(&list).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&list).status().unwrap().success());
    let error = Backend::LevelDb.reopen(&path, &mark).unwrap_err();
    assert!(error.to_string().contains("found a FIFO"), "{error}");
    fs::remove_file(&list).unwrap();
    fs::write(&list, whole).unwrap();
    Backend::LevelDb.reopen(&path, &mark).unwrap().finish().unwrap();
    assert_eq!(read(Backend::LevelDb, &path).len(), 1);
}

#[test]
fn an_lmdb_without_all_that_was_before_the_mark_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let data = path.join("data.mdb");
    let mut writer = Backend::Lmdb.create(&path).unwrap();
    let mut commits = Vec::new();
    let marks: Vec<_> = [&b"a"[..], b"b", b"b"]
        .map(|key| {
            writer.put(key, &[1; 10_000]).unwrap();
            let mark = writer.commit().unwrap();
            commits.push(fs::read(&data).unwrap());
            mark
        })
        .into();
    drop(writer);
    let [first, second, last] = &commits[..] else { panic!("three commits") };
    // The last commit has as many records as the second.
    for damaged in [&b""[..], first, second, &last[..2 * 4096], &last[..last.len() - 4096]] {
        fs::write(&data, damaged).unwrap();
        let error = Backend::Lmdb.reopen(&path, &marks[2]).unwrap_err();
        assert!(matches!(error, StoreError::Changed { .. }), "{} bytes: {error}", damaged.len());
        assert!(fs::read(&data).unwrap() == damaged, "it stays");
    }
    // What was written after a mark is no change.
    for mark in &marks {
        fs::write(&data, last).unwrap();
        Backend::Lmdb.reopen(&path, mark).unwrap().finish().unwrap();
        assert_eq!(read(Backend::Lmdb, &path).len(), 2);
    }
}

#[test]
fn a_new_store_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    for backend in BACKENDS {
        let path = folder.path().join(backend.to_string());
        let mut store = NewStore::create(&path, backend, Existing::Refuse).unwrap();
        store.put(b"key", b"one").unwrap();
        let taken = NewStore::create(&path, backend, Existing::Replace).unwrap_err();
        assert!(matches!(taken, StoreError::InUse { .. }), "{taken}");
        drop(store);
        assert_eq!(entries(folder.path()), 0, "nothing is left");

        let mut store = NewStore::create(&path, backend, Existing::Refuse).unwrap();
        store.put(b"key", b"one").unwrap();
        store.finish().unwrap();
        let there = NewStore::create(&path, backend, Existing::Refuse).unwrap_err();
        assert!(matches!(there, StoreError::Exists { .. }), "{there}");

        let mut store = NewStore::create(&path, backend, Existing::Replace).unwrap();
        store.put(b"key", b"two").unwrap();
        assert_eq!(read(backend, &path)[0].1, b"one", "until the new one is whole");
        store.finish().unwrap();
        assert_eq!(read(backend, &path)[0].1, b"two");
        assert_eq!(entries(folder.path()), 1);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_store_that_cannot_have_its_name_is_removed() {
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut store = NewStore::create(&path, backend, Existing::Refuse).unwrap();
        store.put(b"key", b"value").unwrap();
        fs::write(&path, b"somebody else's").unwrap();
        let error = store.finish().unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
        assert_eq!(entries(folder.path()), 1);
    }
}

#[test]
fn what_is_no_store_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photos");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("cat.jpg"), b"a photograph").unwrap();
    for backend in BACKENDS {
        let error = NewStore::create(&path, backend, Existing::Replace).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    }
    let file = path.join("cat.jpg");
    let error = NewStore::create(&file, Backend::Lmdb, Existing::Replace).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(fs::read(file).unwrap(), b"a photograph");
    assert_eq!(entries(folder.path()), 1);
}
