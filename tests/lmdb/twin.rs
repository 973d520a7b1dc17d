//! Records are read as the library reads them, mapped or not, in order and by position.

use std::fs;
use std::path::Path;

use lmdb::{Cursor as _, DatabaseFlags, Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::feed::SourceSpec;
use percolator::source::{Access, IndexPlace, Lmdb, LmdbOptions, Source};
use percolator::{Feed, Shuffle};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::common;
use crate::common::lmdb_forge::{Numbers, forge};
use crate::{Records, files_in, read, refusal, value, written};

/// What the library itself reads from one database of a file.
pub(crate) fn by_the_library(folder: &Path, name: Option<&str>) -> Records {
    let mut options = Environment::new();
    options.set_flags(EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_LOCK).set_max_dbs(8);
    let env = options.open(folder).unwrap();
    let database = env.open_db(name).unwrap();
    let transaction = env.begin_ro_txn().unwrap();
    let mut cursor = transaction.open_ro_cursor(database).unwrap();
    let records = cursor.iter().map(|record| record.unwrap());
    records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// What our reader gives, mapped and not, in order and by position.
pub(crate) fn by_us(path: &Path, name: Option<&str>) -> Records {
    let mut found = Vec::new();
    for access in [Access::Mapped, Access::Read] {
        let options = Lmdb::options().without_lock().access(access);
        let source = name.into_iter().fold(options, LmdbOptions::name).open(path).unwrap();
        found.push(read(&source));
        source.index(&IndexPlace::Memory).unwrap();
        let mut cursor = source.cursor().unwrap();
        let last = source.records().unwrap();
        let mut backwards: Records = (0..last)
            .rev()
            .map(|position| {
                cursor.seek(position).unwrap();
                let entry = cursor.advance().unwrap().unwrap();
                (entry.key().to_vec(), entry.value().to_vec())
            })
            .collect();
        backwards.reverse();
        found.push(backwards);
    }
    assert!(found.windows(2).all(|two| two[0] == two[1]), "ways of reading differ");
    found.remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Records are put, overwritten and deleted in several transactions: pages split, merge, move, and are
    /// reused.
    #[test]
    fn whatever_was_written_is_read_as_the_library_reads_it(
        commits in prop::collection::vec(
            prop::collection::vec((0..400_usize, 0..8_usize, prop::bool::weighted(0.3)), 1..300), 1..6),
        key_bytes in prop::sample::select(vec![4_usize, 8, 60, 480]),
    ) {
        let folder = tempdir().unwrap();
        let env = Environment::new()
            .set_map_size(1 << 30)
            .set_flags(EnvironmentFlags::NO_SYNC)
            .open(folder.path())
            .unwrap();
        let database = env.open_db(None).unwrap();
        for (number, commit) in commits.iter().enumerate() {
            let mut transaction = env.begin_rw_txn().unwrap();
            for &(index, size, deletes) in commit {
                let key = format!("{index:04}{}", "x".repeat((index * 7) % (key_bytes - 3)));
                if deletes {
                    let _ = transaction.del(database, &key, None);
                } else {
                    let bytes = [0, 1, 10, 333, 1900, 2100, 5000, 30_000][size] + index % 3;
                    transaction
                        .put(database, &key, &value(index + number, bytes), WriteFlags::empty())
                        .unwrap();
                }
            }
            transaction.commit().unwrap();
        }
        drop(env);
        prop_assert!(by_us(folder.path(), None) == by_the_library(folder.path(), None));
    }
}

#[test]
fn pages_of_all_lengths_are_read() {
    let mut numbers = Numbers(7);
    for shift in 9..=16 {
        let page_bytes = 1 << shift;
        for count in [0, 1, 3, 40, 1000] {
            let bytes_max = [30, 600, 3 * page_bytes][count % 3];
            let records: Records = (0..count)
                .map(|index| (common::key(index), value(index, numbers.below(bytes_max))))
                .collect();
            let folder = tempdir().unwrap();
            fs::write(folder.path().join("data.mdb"), forge(page_bytes, &records)).unwrap();
            assert_eq!(by_us(folder.path(), None), records, "{count} records on pages of {page_bytes} bytes");
            // The library supports pages of up to 32 KiB.
            if page_bytes <= 32 << 10 {
                assert_eq!(by_the_library(folder.path(), None), records);
            }
        }
    }
}

#[test]
fn pages_of_a_length_that_cannot_be_are_refused_before_the_library_divides_by_it() {
    let whole = forge(4096, &[(b"key".to_vec(), b"value".to_vec())]);
    for page_bytes in [0_u32, 1, 256, 1000, 1 << 17, 16_715_776, u32::MAX] {
        let mut bytes = whole.clone();
        for at in [40, 4096 + 40] {
            bytes[at..at + 4].copy_from_slice(&page_bytes.to_le_bytes());
        }
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), bytes).unwrap();
        let text = refusal(folder.path()).to_string();
        assert!(text.contains(&format!("page 0 says that pages have {page_bytes} bytes")), "{text}");
        assert_eq!(files_in(folder.path()), ["data.mdb"], "the library has not seen it");
    }
}

#[test]
fn a_file_that_lacks_pages_which_no_record_needs_is_whole() {
    let folder = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let commit = |change: &dyn Fn(&mut lmdb::RwTransaction<'_>)| {
        let mut transaction = env.begin_rw_txn().unwrap();
        change(&mut transaction);
        transaction.commit().unwrap();
    };
    let put = |transaction: &mut lmdb::RwTransaction<'_>, key: &[u8], value: &[u8]| {
        transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
    };
    commit(&|transaction| {
        for index in 0..64 {
            let (key, value) = common::image(index, 3, 32, 32);
            put(transaction, &key, &value);
        }
    });
    for first in [32, 48] {
        commit(&|transaction| {
            (first..first + 16)
                .for_each(|index| transaction.del(database, &common::key(index), None).unwrap());
        });
    }
    commit(&|transaction| {
        // This page is a free one, which the transaction now uses.
        put(transaction, &common::key(0), &common::image(0, 3, 32, 32).1);
        // These pages are new, and freed before they are written.
        put(transaction, b"z", &value(0, 500_000));
        transaction.del(database, b"z", None).unwrap();
    });
    let last_page = env.info().unwrap().last_pgno() as u64;
    drop(env);
    let bytes = fs::metadata(folder.path().join("data.mdb")).unwrap().len();
    assert!(bytes < (last_page + 1) * 4096, "the file has all {last_page} pages");
    let records: Records = (0..32).map(|index| common::image(index, 3, 32, 32)).collect();
    assert_eq!(by_us(folder.path(), None), records);
    assert_eq!(read(&Lmdb::open(folder.path()).unwrap()), records, "with a lock as well");
}

#[test]
fn a_named_database_is_read_and_a_database_of_names_says_which() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("lmdb");
    fs::create_dir(&path).unwrap();
    let env = Environment::new().set_map_size(1 << 30).set_max_dbs(8).open(&path).unwrap();
    for (name, flags, first) in [
        ("train", DatabaseFlags::empty(), 0),
        ("test/été", DatabaseFlags::empty(), 1000),
        ("reversed", DatabaseFlags::REVERSE_KEY, 0),
        ("numbers", DatabaseFlags::INTEGER_KEY, 0),
    ] {
        let database = env.create_db(Some(name), flags).unwrap();
        let mut transaction = env.begin_rw_txn().unwrap();
        for index in (first..first + 300).rev() {
            let (key, value) = common::image(index, 3, 5, 5 + first / 500);
            let key = if name == "numbers" { (index as u64 * 77).to_le_bytes().to_vec() } else { key };
            transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
    drop(env);
    for name in ["train", "test/été", "reversed", "numbers"] {
        let records = by_us(&path, Some(name));
        assert_eq!(records.len(), 300);
        assert_eq!(records, by_the_library(&path, Some(name)), "{name}");
    }
    let text = refusal(&path).to_string();
    let names = "it holds databases and not records: \"numbers\", \"reversed\", \"test/été\", \"train\"; \
     name one of them";
    assert!(text.contains(names), "{text}");
    let text = Lmdb::options().name("trian").open(&path).unwrap_err().to_string();
    assert!(text.contains("there is no database \"trian\" in it; it holds \"numbers\", "), "{text}");
    // Each has an index of its own, and none evicts another's.
    let of = |name| Lmdb::options().name(name).open(&path).unwrap();
    let sidecars =
        || files_in(folder.path()).into_iter().filter(|name| name.contains("index")).collect::<Vec<_>>();
    for name in ["train", "test/été"] {
        of(name).index(&IndexPlace::Beside).unwrap();
    }
    let before = sidecars();
    assert_eq!(before.len(), 2, "{before:?}");
    let database = SourceSpec::Lmdb { path: path.clone(), name: Some("test/été".to_owned()) };
    let feed = Feed::builder().data(database).batch_size(100).shuffle(Shuffle::Global).epochs(1).threads(1);
    let mut labels: Vec<i32> =
        feed.build().unwrap().steps().flat_map(|step| step.unwrap()[0].labels().unwrap().to_vec()).collect();
    labels.sort_unstable();
    assert!(labels.into_iter().eq(1000..1300));
    assert_eq!(sidecars(), before);
    let identity = |name| of(name).identity();
    assert_ne!(identity("train"), identity("test/été"));
    // A database without names.
    let (plain, _) = written(3);
    let text = Lmdb::options().name("train").open(plain.path()).unwrap_err().to_string();
    assert!(text.contains("it holds none: open it without a name"), "{text}");
}

#[test]
fn several_values_of_one_key_are_refused_and_single_ones_read() {
    let folder = tempdir().unwrap();
    let env = Environment::new().set_max_dbs(2).open(folder.path()).unwrap();
    let database = env.create_db(Some("several"), DatabaseFlags::DUP_SORT).unwrap();
    let put = |key: &[u8], value: &[u8]| {
        let mut transaction = env.begin_rw_txn().unwrap();
        transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
        transaction.commit().unwrap();
    };
    put(b"a", b"1");
    put(b"b", b"1");
    let open = || Lmdb::options().name("several").without_lock().open(folder.path()).unwrap();
    assert_eq!(read(&open()).len(), 2);
    put(b"b", b"2");
    let error = open().cursor().unwrap().advance().unwrap_err();
    assert!(error.to_string().contains("it holds several values of one key"), "{error}");
}
