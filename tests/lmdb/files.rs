//! What can be opened: folders, files, links and pipes; undamaged files, cut ones and others.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::reader::{DataReader, ReaderError, Registry};
use percolator::source::{Access, IndexPlace, Lmdb, LmdbError, Source, SourceError};
use percolator::{Epochs, Feed, FeedError};
use tempfile::tempdir;

use crate::common;
use crate::common::need::missing;
use crate::common::process::{
    check, check_without_root, child_command, is_alone, must_end, open_files, role, settles, this_test,
    threads, under_a_limit_of_address_space,
};
use crate::{Records, files_in, read, refusal, value, written};

#[test]
fn a_folder_its_data_file_and_a_lone_file_read_the_same() {
    let (folder, records) = written(300);
    assert_eq!(read(&Lmdb::open(folder.path()).unwrap()), records);
    let data = folder.path().join("data.mdb");
    assert_eq!(read(&Lmdb::open(&data).unwrap()), records);
    assert_eq!(files_in(folder.path()), ["data.mdb", "lock.mdb"], "no second lock beside the writer's");
    let lone = folder.path().join("renamed");
    fs::copy(&data, &lone).unwrap();
    let source = Lmdb::open(&lone).unwrap();
    assert_eq!(source.records(), Some(300));
    assert_eq!(source.path(), lone);
    assert_eq!(read(&source), records);
}

#[test]
fn a_cursor_rewinds_and_ends_again_and_again() {
    let (folder, records) = written(20);
    let source = Lmdb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    for _pass in 0..3 {
        for (key, value) in &records {
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]));
        }
        assert!(cursor.advance().unwrap().is_none());
        cursor.rewind().unwrap();
    }
    assert!(cursor.advance().unwrap().is_some(), "and in the middle");
    cursor.rewind().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), records[0].0);
}

#[test]
fn every_spelling_of_a_path_shares_one_environment() {
    if !is_alone(this_test!()) {
        return;
    }
    let (folder, records) = written(20);
    let links = tempdir().unwrap();
    symlink(folder.path(), links.path().join("folder")).unwrap();
    symlink(folder.path().join("data.mdb"), links.path().join("file")).unwrap();
    let first = Lmdb::open(folder.path()).unwrap();
    let open = open_files();
    let spellings: [PathBuf; 5] = [
        folder.path().join("."),
        folder.path().join("data.mdb"),
        folder.path().join("..").join(folder.path().file_name().unwrap()),
        links.path().join("folder"),
        links.path().join("file"),
    ];
    let others: Vec<Lmdb> = spellings.iter().map(|path| Lmdb::open(path).unwrap()).collect();
    assert_eq!(open_files(), open, "nothing was opened a second time");
    drop(first);
    for source in &others {
        assert_eq!(read(source), records);
    }
    drop(others);
    assert!(open_files() < open, "and the last to go closes it");
}

#[test]
fn values_are_lent_and_stay_where_they_are_while_a_lease_is_held() {
    let (folder, records) = written(20);
    let registry = Registry::new();
    let source = Lmdb::open(folder.path()).unwrap();
    let reader = DataReader::builder("data", source).batch_size(8).passes(1).open_in(&registry).unwrap();
    let lease = reader.full().pop().unwrap().unwrap();
    let addresses: Vec<*const u8> = lease.iter().map(|record| record.value.as_ptr()).collect();
    drop(reader);
    assert!(registry.is_empty());
    // Opening the same path again gives the same environment, and therefore the same map.
    let again = Lmdb::open(folder.path()).unwrap();
    let mut cursor = again.cursor().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().value().as_ptr(), addresses[0], "lent, not copied");
    drop((cursor, again));
    fs::remove_dir_all(folder.path()).unwrap();
    for ((record, address), due) in lease.iter().zip(addresses).zip(&records) {
        assert_eq!(record.value.as_ptr(), address);
        assert_eq!((record.key, record.value), (&due.0[..], &due.1[..]));
    }
    std::thread::spawn(move || drop(lease)).join().unwrap();
}

#[test]
fn without_a_lock_nothing_is_created() {
    let (folder, records) = written(20);
    let source = Lmdb::open_without_lock(folder.path()).unwrap();
    assert_eq!(read(&source), records);
    drop(source);
    let lone = folder.path().join("lone");
    fs::rename(folder.path().join("data.mdb"), &lone).unwrap();
    assert_eq!(read(&Lmdb::open_without_lock(&lone).unwrap()), records);
    assert_eq!(files_in(folder.path()), ["lone"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_read_without_a_lock() {
    let name = this_test!();
    if let Some(path) = role() {
        let source = Lmdb::open(&path).unwrap();
        assert_eq!(read(&source).len(), 20);
        assert_eq!(files_in(Path::new(&path)), ["data.mdb"], "no lock file could be made");
        return;
    }
    let (folder, _) = written(20);
    fs::set_permissions(folder.path().join("data.mdb"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let command = child_command(name, folder.path().to_str().unwrap());
    check_without_root(name, command, folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_file_cut_at_any_length_is_an_error_and_not_a_signal() {
    let name = this_test!();
    if let Some(path) = role() {
        return cut_at_every_length(Path::new(&path));
    }
    let (folder, _) = written(CUT_RECORDS);
    let output = child_command(name, folder.path().to_str().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().rfind(|line| line.starts_with("cut at")).unwrap_or("nowhere").to_owned();
    assert!(
        output.status.success(),
        "{last}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    check(name, &output);
}

const CUT_RECORDS: usize = 1000;

fn cut_at_every_length(folder: &Path) {
    let whole = fs::read(folder.join("data.mdb")).unwrap();
    let cut = tempdir().unwrap();
    let before = threads();
    let page = 4096;
    let mut lengths: Vec<usize> = (0..whole.len() / page)
        .flat_map(|number| [0, 1, 100, 1000, page / 2, page - 1].map(|odd| number * page + odd))
        .collect();
    lengths.push(whole.len());
    lengths.sort_unstable();
    assert!(lengths.len() > 300, "{} bytes", whole.len());
    for length in lengths {
        println!("cut at {length} of {} bytes", whole.len());
        std::io::stdout().flush().unwrap();
        // A new file each time: an error may still keep the old one mapped.
        let path = cut.path().join(length.to_string());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data.mdb"), &whole[..length]).unwrap();
        let opened = Lmdb::open(&path);
        let built = Feed::builder().lmdb(&path).epochs(Epochs::OnePass).build();
        if length == whole.len() {
            assert_eq!(read(&opened.unwrap()).len(), CUT_RECORDS);
            assert_eq!(built.unwrap().steps().map(|step| step.unwrap().len()).sum::<usize>(), CUT_RECORDS);
            continue;
        }
        let error = opened.err().unwrap_or_else(|| panic!("opened when cut at {length}"));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        match &error {
            SourceError::Lmdb(LmdbError::Truncated { found_bytes, needed_bytes, .. }) => {
                let needed = if length < 2 * page { 2 * page } else { whole.len() };
                assert_eq!((*found_bytes, *needed_bytes), (length as u64, needed as u64));
            }
            SourceError::Lmdb(LmdbError::NotLmdb { .. }) | SourceError::Instead { .. } => {
                assert!(length < 100, "cut at {length}: {error}")
            }
            other => panic!("cut at {length}: {other}"),
        }
        assert!(
            matches!(built, Err(FeedError::Reader(ReaderError::Source(from_feed))) if from_feed == error)
        );
        fs::remove_dir_all(&path).unwrap();
    }
    settles(threads, &before, "no thread is left of a feed that was not built");
}

#[test]
fn a_database_that_shrank_in_its_last_commit_is_whole() {
    // Most of its pages are free, including the last ones, but it is still as long as its last page requires.
    let folder = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    for index in 0..2000 {
        let (key, value) = common::image(index, 3, 8, 8);
        transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
    }
    for index in 20..2000 {
        transaction.del(database, &common::key(index), None).unwrap();
    }
    transaction.commit().unwrap();
    let last_page = env.info().unwrap().last_pgno();
    drop(env);
    let bytes = fs::metadata(folder.path().join("data.mdb")).unwrap().len();
    println!("{bytes} bytes, last page {last_page}, which ends at {}", (last_page + 1) * 4096);
    let records: Records = (0..20).map(|index| common::image(index, 3, 8, 8)).collect();
    assert_eq!(read(&Lmdb::open(folder.path()).unwrap()), records);
}

#[test]
fn a_missing_path_says_so() {
    let folder = tempdir().unwrap();
    let error = refusal(&folder.path().join("no such folder"));
    assert!(matches!(error, SourceError::Io { kind: std::io::ErrorKind::NotFound, .. }));
}

#[test]
fn a_folder_without_a_database_says_what_is_missing() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("readme.txt"), "nothing here").unwrap();
    let error = refusal(folder.path());
    assert!(matches!(error, SourceError::NotADatabase { missing: "data.mdb", .. }));
    assert_eq!(files_in(folder.path()), ["readme.txt"], "and is left as it was");
}

#[test]
fn a_leveldb_is_no_lmdb_and_the_error_says_what_opens_it() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
    let error = refusal(folder.path());
    assert!(matches!(error, SourceError::Instead { .. }));
    assert!(error.to_string().contains("it is a LevelDB: read it with `.leveldb(path)`"), "{error}");
}

#[test]
fn what_is_no_lmdb_file_is_refused() {
    let text = "layer { name: \"data\" type: \"Data\" }\n".repeat(1000).into_bytes();
    let garbage: Vec<u8> = (0..100_000).map(|at| common::pixel(7, at)).collect();
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("short", vec![1, 2, 3]),
        ("zeroes", vec![0; 65536]),
        ("text", text),
        ("garbage", garbage),
    ] {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), &bytes).unwrap();
        fs::write(folder.path().join("lone"), &bytes).unwrap();
        for path in [folder.path().to_owned(), folder.path().join("data.mdb"), folder.path().join("lone")] {
            let error = refusal(&path);
            let is_known = ["empty", "zeroes", "text"].contains(&what);
            assert_eq!(is_known, matches!(error, SourceError::Instead { .. }), "{what}: {error}");
            assert_eq!(
                !is_known,
                matches!(error, SourceError::Lmdb(LmdbError::NotLmdb { .. })),
                "{what}: {error}"
            );
            let text = error.to_string();
            assert!(text.contains("LMDB"), "{what}: {text}");
        }
    }
}

/// Formats of other LMDBs: the heads are those that lmdb-js (LMDB 1.0's format) and 32-bit machines write.
#[test]
fn the_format_of_another_lmdb_is_named_with_what_writes_it_anew() {
    let magic = 0xbeef_c0de_u32;
    let little = |version: u32| [magic.to_le_bytes(), version.to_le_bytes()].concat();
    let big = [magic.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    for (at, stamp, kind, dump) in [
        (24, little(2), "LMDB 1.0's format:", "mdb_dump of LMDB 1.0"),
        (16, little(2), "LMDB 1.0's format, of a machine with words of 32 bits", "mdb_dump of LMDB 1.0"),
        (16, little(999), "a development build's", "mdb_dump of that build"),
        (12, little(1), "a machine with words of 32 bits", "mdb_dump on such a machine"),
        (12, big.clone(), "a machine with the other byte order", "mdb_dump on such a machine"),
        (16, big.clone(), "a machine with the other byte order", "mdb_dump on such a machine"),
        (24, big, "a machine with the other byte order", "mdb_dump on such a machine"),
    ] {
        let folder = tempdir().unwrap();
        let mut bytes = vec![0; 65_536];
        bytes[at..at + 8].copy_from_slice(&stamp);
        fs::write(folder.path().join("data.mdb"), &bytes).unwrap();
        let error = refusal(folder.path());
        assert!(matches!(error, SourceError::Lmdb(LmdbError::NotLmdb { .. })), "{error}");
        for part in [kind, dump, "mdb_load of LMDB 0.9"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        assert_eq!(files_in(folder.path()), ["data.mdb"], "and nothing is made beside it");
    }
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("data.mdb");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success(), "mkfifo: {made}");
    for path in [folder.path(), &pipe] {
        assert!(matches!(refusal(path), SourceError::Lmdb(LmdbError::NotLmdb { .. })));
    }
}

#[test]
fn a_database_that_was_replaced_is_not_taken_for_the_one_before() {
    let (folder, _) = written(3);
    let old = Lmdb::open(folder.path()).unwrap();
    fs::remove_file(folder.path().join("data.mdb")).unwrap();
    fs::remove_file(folder.path().join("lock.mdb")).unwrap();
    common::write_images(folder.path(), 7, 1, 2, 2);
    assert_eq!(Lmdb::open(folder.path()).unwrap().records(), Some(7));
    assert_eq!(read(&old).len(), 3, "whoever reads the old one goes on");
}

#[test]
fn what_only_observes_a_feed_does_not_keep_its_database_open() {
    let (folder, _) = written(20);
    let mut feed = Feed::builder().lmdb(folder.path()).build().unwrap();
    let handle = feed.handle();
    let open = || common::process::maps(&folder.path().join("data.mdb"));
    assert!(open() > 0);
    drop(feed.take_lanes().unwrap());
    assert_eq!(open(), 0, "the lanes are gone, and with them the map");
    assert_eq!(handle.stats().lanes.len(), 1);
    drop((feed, handle));
}

#[test]
fn an_empty_database_is_refused() {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), []);
    let env = Environment::new().open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    transaction.put(database, b"a", b"b", WriteFlags::empty()).unwrap();
    transaction.del(database, b"a", None).unwrap();
    transaction.commit().unwrap();
    drop(env);
    let source = Lmdb::open(folder.path()).unwrap();
    assert_eq!(source.records(), Some(0));
    assert!(source.cursor().unwrap().advance().unwrap().is_none());
    match Feed::builder().lmdb(folder.path()).build() {
        Err(FeedError::Reader(ReaderError::Source(SourceError::Empty { path }))) => {
            assert_eq!(path, folder.path())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_terabyte_of_map_is_not_asked_for() {
    let name = this_test!();
    if let Some(path) = role() {
        let source = Lmdb::open(&path).unwrap();
        assert_eq!(read(&source).len(), 10);
        let mut feed = Feed::builder().lmdb(&path).epochs(Epochs::OnePass).build().unwrap();
        assert_eq!(feed.steps().count(), 10);
        // The limit is real: liblmdb itself fails under it.
        Environment::new()
            .set_flags(EnvironmentFlags::READ_ONLY)
            .set_map_size(1 << 40)
            .open(Path::new(&path))
            .unwrap_err();
        return;
    }
    let folder = tempdir().unwrap();
    let opened =
        Environment::new().set_map_size(1 << 40).set_flags(EnvironmentFlags::NO_SYNC).open(folder.path());
    let env = match opened {
        Ok(env) => env,
        Err(error) => return missing("LARGE_MAPS", format_args!("such a database cannot be made: {error}")),
    };
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    for index in 0..10 {
        let (key, value) = common::image(index, 3, 8, 8);
        transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
    }
    transaction.commit().unwrap();
    assert_eq!(env.info().unwrap().map_size(), 1 << 40);
    drop(env);
    let child = child_command(name, folder.path().to_str().unwrap());
    let mut limited = under_a_limit_of_address_space(&child, Some(2 << 20));
    check(name, &limited.output().unwrap());
}

#[test]
fn many_threads_open_and_close_one_path_without_an_error() {
    if !is_alone(this_test!()) {
        return;
    }
    let (folder, records) = written(20);
    drop(Lmdb::open(folder.path()).unwrap());
    let before = open_files();
    let path = folder.path().to_owned();
    must_end("threads that open and close one database", move || {
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (path, records) = (&path, &records);
                scope.spawn(move || {
                    for life in 0..200 {
                        let source = if (thread + life) % 4 == 0 {
                            Lmdb::open(path.join("data.mdb")).unwrap()
                        } else {
                            Lmdb::open(path).unwrap()
                        };
                        let mut cursor = source.cursor().unwrap();
                        // The cursor outlives its source.
                        drop(source);
                        let entry = cursor.advance().unwrap().unwrap();
                        assert_eq!(entry.value(), records[0].1);
                    }
                });
            }
        });
    });
    assert_eq!(open_files(), before);
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_an_error() {
    if !is_alone(this_test!()) {
        return;
    }
    let small = (0..3000).map(|index| common::image(index, 3, 4, 4)).collect();
    let large = (0..300).map(|index| (common::key(index), value(index, 2500 + index * 400))).collect();
    for (records, by_index) in [(&small, false), (&small, true), (&large, false), (&large, true)] {
        let records: &Records = records;
        let folder = tempdir().unwrap();
        common::write_lmdb(folder.path(), records.clone());
        let data = folder.path().join("data.mdb");
        let bytes = fs::metadata(&data).unwrap().len();
        let source = Lmdb::options().access(Access::Read).open(folder.path()).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        let mut cursor = source.cursor().unwrap();
        if by_index {
            cursor.seek(1).unwrap();
            cursor.seek(0).unwrap();
        }
        for (key, value) in &records[..20] {
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]));
        }
        fs::File::options().write(true).open(&data).unwrap().set_len(bytes / 2).unwrap();
        let mut position = 20;
        let error = loop {
            match cursor.advance() {
                Ok(Some(entry)) => assert_eq!(entry.value(), records[position].1),
                Ok(None) => panic!("the end after {position} records, and no error"),
                Err(error) => break error,
            }
            position += 1;
        };
        assert!(position < records.len());
        let SourceError::Lmdb(LmdbError::Truncated { found_bytes, needed_bytes, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!((found_bytes, needed_bytes), (bytes / 2, bytes));
    }
}

#[test]
fn values_of_a_file_that_is_not_mapped_are_copied_or_given_and_the_same() {
    let records: Records = (0..60).map(|index| common::image(index, 3, 20 + index, 90)).collect();
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), records.clone());
    for batch_size in [1, 7] {
        let registry = Registry::new();
        let source = Lmdb::options().access(Access::Read).open(folder.path()).unwrap();
        let reader =
            DataReader::builder("data", source).batch_size(batch_size).passes(2).open_in(&registry).unwrap();
        let mut found = Records::new();
        while let Some(lease) = reader.full().pop().unwrap() {
            found.extend(lease.iter().map(|record| (record.key.to_vec(), record.value.to_vec())));
        }
        assert!(found.iter().eq(records.iter().chain(&records)), "runs of {batch_size}");
    }
}
