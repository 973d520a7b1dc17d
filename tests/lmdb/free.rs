//! A commit lists its free pages. They still hold what was stored there before, and no tree may lead to them.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use lmdb::{DatabaseFlags, Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::source::{Access, IndexPlace, Lmdb, LmdbError, Source, SourceError};
use tempfile::{TempDir, tempdir};

use crate::anatomy::Anatomy;
use crate::common;
use crate::common::indexed::walked;
use crate::common::lmdb_forge::{Numbers, bytes_put, half, whole};
use crate::common::log::Log;
use crate::twin::{by_the_library, by_us};
use crate::{Records, value};

const WARNING: &str = "the list of free pages cannot be read";
const WAYS: [Access; 2] = [Access::Mapped, Access::Read];

/// A file in which each transaction after the first overwrote all records, and its current records. The older
/// ones are still there, on free pages.
fn rewritten(transactions: usize, count: usize, bytes: usize) -> (Vec<u8>, Records) {
    let folder = tempdir().unwrap();
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let mut records = Records::new();
    for round in 0..transactions {
        records = (0..count).map(|index| (common::key(index), value(index + round, bytes))).collect();
        let mut transaction = env.begin_rw_txn().unwrap();
        for (key, value) in &records {
            transaction.put(database, key, value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
    drop(env);
    (fs::read(folder.path().join("data.mdb")).unwrap(), records)
}

fn put(bytes: &[u8]) -> TempDir {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("data.mdb"), bytes).unwrap();
    folder
}

fn open(folder: &Path, access: Access) -> Lmdb {
    Lmdb::options().without_lock().access(access).open(folder).unwrap()
}

/// Points a branch at an older copy of its leaf. Returns that page, and the first key on it.
fn lead_to_older_copy(file: &mut [u8]) -> (usize, Vec<u8>) {
    let anatomy = Anatomy::of(file);
    let leaf = anatomy.leaves[3];
    let keys = keys_of(&anatomy, file, leaf);
    // It has the same keys, and its own number: nothing in the page is wrong.
    let is_older = |&page: &usize| {
        let at = page * anatomy.page_bytes;
        !anatomy.leaves.contains(&page)
            && whole(file, at) == page as u64
            && half(file, at + 10) == 2
            && keys_of(&anatomy, file, page) == keys
    };
    let older = (2..file.len() / anatomy.page_bytes).find(is_older).unwrap();
    let first = keys[0].to_vec();
    let [root] = anatomy.branches[..] else { panic!("{:?}", anatomy.branches) };
    let node = anatomy.nodes(file, root)[3];
    assert_eq!(usize::from(half(file, node)), leaf);
    bytes_put(file, node, &(older as u16).to_le_bytes());
    (older, first)
}

fn keys_of<'a>(anatomy: &Anatomy, file: &'a [u8], leaf: usize) -> Vec<&'a [u8]> {
    let key = |node: usize| &file[node + 8..][..usize::from(half(file, node + 6))];
    anatomy.nodes(file, leaf).into_iter().map(key).collect()
}

/// The records that a cursor gives before its error, the page that the error names, and its text.
fn broken(source: &Lmdb) -> (Records, u64, String) {
    let mut cursor = source.cursor().unwrap();
    let mut records = Records::new();
    loop {
        match cursor.advance() {
            Ok(Some(entry)) => records.push((entry.key().to_vec(), entry.value().to_vec())),
            Ok(None) => panic!("no error in {} records", records.len()),
            Err(error @ SourceError::Lmdb(LmdbError::BrokenPage { page, .. })) => {
                return (records, page, error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_branch_that_leads_to_an_older_copy_of_its_leaf_is_an_error() {
    let (mut file, records) = rewritten(2, 700, 40);
    let (older, before) = lead_to_older_copy(&mut file);
    let folder = put(&file);
    for access in WAYS {
        let source = open(folder.path(), access);
        // A bit for each page.
        assert_eq!(source.held_bytes(), file.len().div_ceil(64 * 4096) * 8);
        let (found, page, text) = broken(&source);
        println!("{text}");
        let whole: Records = records.iter().take_while(|(key, _)| *key < before).cloned().collect();
        assert!(found == whole && whole.len() > 100, "{} records", found.len());
        assert_eq!(page, older as u64, "{text}");
        assert!(text.contains("is listed as free"), "{text}");
        let last = String::from_utf8(whole.last().unwrap().0.clone()).unwrap();
        assert!(text.contains(&last) && text.contains("copy it again"), "{text}");
        let error = source.index(&IndexPlace::Memory).unwrap_err();
        assert_eq!(error.to_string(), text, "{access:?}");
    }
    // If nothing is free, nothing is kept.
    let (file, _) = rewritten(1, 700, 40);
    assert_eq!(open(put(&file).path(), Access::Mapped).held_bytes(), 0);
}

#[test]
fn a_value_on_pages_that_are_free_is_an_error() {
    let (mut file, records) = rewritten(2, 300, 9000);
    let anatomy = Anatomy::of(&file);
    let leaf = anatomy.leaves[1];
    let node = anatomy.nodes(&file, leaf)[2];
    let is_older = |&page: &usize| {
        let at = page * anatomy.page_bytes;
        !anatomy.overflows.contains(&page) && whole(&file, at) == page as u64 && half(&file, at + 10) == 4
    };
    let older = (2..file.len() / anatomy.page_bytes).find(is_older).unwrap();
    let at = node + 8 + usize::from(half(&file, node + 6));
    bytes_put(&mut file, at, &(older as u64).to_le_bytes());
    let folder = put(&file);
    for access in WAYS {
        let source = open(folder.path(), access);
        let (found, page, text) = broken(&source);
        println!("{text}");
        assert!(found == records[..found.len()] && found.len() > 100, "{} records", found.len());
        assert_eq!(page, leaf as u64, "{text}");
        let pages = format!("on pages {older} to {}, of which page {older} is listed as free", older + 2);
        assert!(text.contains(&pages), "{text}");
        assert_eq!(source.index(&IndexPlace::Memory).unwrap_err().to_string(), text, "{access:?}");
    }
}

#[test]
fn an_index_that_leads_to_a_page_that_is_free_is_an_error() {
    let (mut file, records) = rewritten(2, 700, 40);
    let (older, first) = lead_to_older_copy(&mut file);
    // As made by releases that did not read the lists: the index of a file that has none.
    let mut without = file.clone();
    let newest = usize::from(whole(&file, 4096 + 144) > whole(&file, 144)) * 4096;
    bytes_put(&mut without, newest + 46, &[0; 2]);
    bytes_put(&mut without, newest + 72, &[0; 8]);
    bytes_put(&mut without, newest + 80, &[0xff; 8]);
    let folder = tempdir().unwrap();
    let path = folder.path().join("lmdb");
    fs::create_dir(&path).unwrap();
    let data = path.join("data.mdb");
    fs::write(&data, without).unwrap();
    let modified = fs::metadata(&data).unwrap().modified().unwrap();
    let log = Log::default();
    log.listen(|| open(&path, Access::Mapped).index(&IndexPlace::Beside).unwrap());
    assert!(!log.text().contains("is listed as free"), "{}", log.text());
    fs::remove_file(&data).unwrap();
    fs::write(&data, file).unwrap();
    fs::File::options().write(true).open(&data).unwrap().set_modified(modified).unwrap();
    for access in WAYS {
        let source = open(&path, access);
        source.index(&IndexPlace::Beside).unwrap();
        let mut cursor = source.cursor().unwrap();
        let mut refused = 0;
        for (position, (key, value)) in records.iter().enumerate().rev() {
            cursor.seek(position as u64).unwrap();
            match cursor.advance() {
                Ok(entry) => {
                    assert_eq!(entry.map(|entry| (entry.key(), entry.value())), Some((&key[..], &value[..])))
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("page {older} is listed as free")), "{text}");
                    assert!(*key >= first);
                    refused += 1;
                }
            }
        }
        assert!((20..100).contains(&refused), "{access:?}: {refused} refused");
    }
}

#[test]
fn a_damaged_list_of_free_pages_is_a_warning_and_all_records_are_read() {
    // One list on the leaf, and one on overflow pages.
    for count in [700, 40_000] {
        let (file, records) = rewritten(2, count, 40);
        let list = Anatomy::of_free_list(&file);
        let [leaf] = list.leaves[..] else { panic!("{:?}", list.leaves) };
        let node = list.nodes(&file, leaf)[0];
        let ids = list.overflows.first().map_or(node + 16, |page| page * list.page_bytes + 16);
        assert_eq!(list.overflows.len(), usize::from(count > 700));
        let first = whole(&file, ids + 8);
        let far = (file.len() / list.page_bytes) as u64 + 1000;
        let damages = [
            ("the head of its page", leaf * list.page_bytes, 7),
            ("a transaction to come", node + 8, 1 << 40),
            ("more pages than there is room for", ids, 1 << 40),
            ("more pages than can be counted", ids, u64::MAX),
            ("a page behind the last one", ids + 8, far),
            ("a meta page", ids + 8 * whole(&file, ids) as usize, 1),
            ("a page twice", ids + 16, first),
            ("a page out of order", ids + 16, first + 1),
        ];
        for (what, at, number) in damages {
            check_warns(&file, at, number, &records, what);
        }
    }
    let (file, records) = rewritten(3, 700, 40);
    let list = Anatomy::of_free_list(&file);
    let nodes = list.nodes(&file, list.leaves[0]);
    let [first, second] = nodes[..] else { panic!("{nodes:?}") };
    let lowest = |node: usize| node + 16 + 8 * whole(&file, node + 16) as usize;
    check_warns(&file, lowest(second), whole(&file, lowest(first)), &records, "a page in two lists");
}

/// Checks that the log has one warning, however many cursors there are.
fn check_warns(file: &[u8], at: usize, number: u64, records: &Records, what: &str) {
    let mut damaged = file.to_vec();
    bytes_put(&mut damaged, at, &number.to_le_bytes());
    let folder = put(&damaged);
    for access in WAYS {
        let log = Log::default();
        let found = log.listen(|| {
            let source = open(folder.path(), access);
            source.index(&IndexPlace::Memory).unwrap();
            [walked(&source), walked(&source)]
        });
        assert!(found.iter().all(|found| found == records), "{what}");
        let warnings: Vec<String> =
            log.text().lines().filter(|line| line.contains(WARNING)).map(str::to_owned).collect();
        println!("{what}: {warnings:?}");
        assert_eq!(warnings.len(), 1, "{what}, {access:?}: {warnings:?}");
        let path = folder.path().to_str().unwrap();
        assert!(warnings[0].contains(path) && warnings[0].contains("WARN"), "{warnings:?}");
    }
}

#[test]
fn any_byte_of_a_list_of_free_pages_may_be_damaged() {
    let (file, records) = rewritten(2, 700, 40);
    let list = Anatomy::of_free_list(&file);
    let leaf = list.leaves[0] * list.page_bytes;
    let ids = list.nodes(&file, list.leaves[0])[0] + 16;
    let end = ids + 8 + 8 * whole(&file, ids) as usize;
    let (mut refused, mut whole) = (0, 0);
    for at in (leaf..leaf + 18).chain(ids - 16..end) {
        for change in [0x01, 0x1f, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= change;
            let folder = put(&damaged);
            let source = open(folder.path(), WAYS[at % 2]);
            let mut found = Records::new();
            let mut cursor = source.cursor().unwrap();
            let ended = loop {
                match cursor.advance() {
                    Ok(Some(entry)) => found.push((entry.key().to_vec(), entry.value().to_vec())),
                    ended => break ended.map(drop),
                }
            };
            assert!(found == records[..found.len()], "byte {at}: {} records", found.len());
            match ended {
                Ok(()) => assert_eq!(found.len(), records.len(), "byte {at}"),
                // The content of the list is not protected: another page may be listed.
                Err(error) => assert!(error.to_string().contains("is listed as free"), "byte {at}: {error}"),
            }
            (refused, whole) = (refused + u32::from(found != records), whole + u32::from(found == records));
        }
    }
    println!("{refused} refused, {whole} not");
    assert!(refused > 0 && whole > 200, "{refused} refused, {whole} not");
}

/// One change to a database.
fn change(
    transaction: &mut lmdb::RwTransaction<'_>,
    database: lmdb::Database,
    numbers: &mut Numbers,
    round: usize,
) {
    match numbers.below(40) {
        0 => transaction.clear_db(database).unwrap(),
        1..8 => {
            let first = numbers.below(600);
            for index in first..first + numbers.below(60) {
                let _ = transaction.del(database, &common::key(index), None);
            }
        }
        _ => {
            let first = numbers.below(600);
            let bytes = numbers.of(&[0, 10, 300, 1900, 2100, 9000, 20_000]);
            for index in first..first + numbers.below(if bytes > 3000 { 4 } else { 60 }) {
                let value = value(index + round, bytes + index % 3);
                transaction.put(database, &common::key(index), &value, WriteFlags::empty()).unwrap();
            }
        }
    }
}

/// Pages are freed and reused, while readers keep some of them from reuse, also in nested transactions that
/// are aborted, and by writers with a writable map: no page that is listed as free is in use.
#[test]
fn what_many_transactions_wrote_over_is_read_as_the_library_reads_it() {
    let (mut lists, mut long_lists) = (0, 0);
    let log = Log::default();
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let folder = tempdir().unwrap();
        let mut flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::NO_TLS;
        if seed % 3 == 1 {
            flags |= EnvironmentFlags::WRITE_MAP;
        }
        let mut options = Environment::new();
        options.set_map_size(1 << 26).set_max_dbs(2).set_flags(flags);
        let env = options.open(folder.path()).unwrap();
        let name = (seed % 2 == 1).then_some("train");
        let database = env.create_db(name, DatabaseFlags::empty()).unwrap();
        let other = env.create_db(name.map(|_| "test"), DatabaseFlags::empty()).unwrap();
        let mut reader = None;
        for round in 0..60 {
            match numbers.below(6) {
                0 => reader = Some(env.begin_ro_txn().unwrap()),
                1 => reader = None,
                _ => {}
            }
            let mut transaction = env.begin_rw_txn().unwrap();
            for _ in 0..numbers.below(8) {
                let database = numbers.of(&[database, database, other]);
                change(&mut transaction, database, &mut numbers, round);
            }
            // A writable map allows no nested transactions.
            if seed % 3 != 1 && numbers.below(4) == 0 {
                let mut inner = transaction.begin_nested_txn().unwrap();
                for _ in 0..numbers.below(4) {
                    change(&mut inner, database, &mut numbers, round);
                }
                if numbers.below(2) == 0 {
                    inner.commit().unwrap();
                } else {
                    inner.abort();
                }
            }
            if numbers.below(10) == 0 {
                transaction.abort();
            } else {
                transaction.commit().unwrap();
            }
            if round % 4 == 3 {
                // With a writable map the file is as long as the map.
                let used = (env.info().unwrap().last_pgno() as u64 + 1) * 4096;
                let mut file = Vec::new();
                let data = fs::File::open(folder.path().join("data.mdb")).unwrap();
                data.take(used).read_to_end(&mut file).unwrap();
                let list = Anatomy::of_free_list(&file);
                let copy = put(&file);
                lists += usize::from(!list.leaves.is_empty());
                long_lists += usize::from(!list.overflows.is_empty());
                let ours = log.listen(|| by_us(copy.path(), name));
                assert!(ours == by_the_library(copy.path(), name), "seed {seed}, round {round}");
            }
        }
        drop(reader);
    }
    println!("{lists} lists of free pages, {long_lists} of them long");
    assert!(!log.text().contains(WARNING), "{}", log.text());
    assert!(lists > 200 && long_lists > 10, "{lists} lists of free pages, {long_lists} of them long");
}
