//! The two meta pages, when one is damaged, or a crash left transactions that do not follow each other. The
//! newest commit is read, as the library reads it, or there is an error. An older commit is never read in its
//! place.

use std::fs;

use lmdb::{Cursor as _, Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::source::{Access, Lmdb, LmdbError, SourceError};
use tempfile::tempdir;

use crate::common;
use crate::common::lmdb_forge::{bytes_put, whole};
use crate::common::log::Log;
use crate::{Records, read, value};

const PAGE_BYTES: usize = 4096;
const NUMBER: usize = 144;
const LAST_PAGE: usize = 136;
/// What is logged when the older page is ignored.
const PASSED_OVER: &str =
    "the older meta page is damaged, or a crash left it out of date: reading the newer one";

/// A file after several commits, and the file as it was after each of them.
struct Written {
    commits: Vec<(Vec<u8>, Records)>,
}

impl Written {
    /// Each commit adds records after those that are there.
    fn growing(commits: usize) -> Self {
        Self::of(commits, |commit| commit * 40..commit * 40 + 40)
    }

    /// Each commit rewrites the same records, so that after some commits the file no longer grows.
    fn steady(commits: usize) -> Self {
        Self::of(commits, |_| 0..40)
    }

    fn of(commits: usize, records_of: impl Fn(usize) -> std::ops::Range<usize>) -> Self {
        let folder = tempdir().unwrap();
        let mut builder = Environment::new();
        builder.set_map_size(1 << 30).set_flags(EnvironmentFlags::NO_SYNC);
        let env = builder.open(folder.path()).unwrap();
        let database = env.open_db(None).unwrap();
        let mut records = std::collections::BTreeMap::new();
        let commits = (0..commits).map(|commit| {
            let mut transaction = env.begin_rw_txn().unwrap();
            for index in records_of(commit) {
                let (key, value) = (common::key(index), value(index + commit, 2500));
                transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
                records.insert(key, value);
            }
            transaction.commit().unwrap();
            let file = fs::read(folder.path().join("data.mdb")).unwrap();
            (file, records.clone().into_iter().collect())
        });
        Written { commits: commits.collect() }
    }

    fn last(&self) -> &(Vec<u8>, Records) {
        self.commits.last().unwrap()
    }

    /// Which of the meta pages has the last commit.
    fn newer(&self) -> usize {
        self.commits.len() % 2
    }
}

fn number(file: &[u8], page: usize) -> u64 {
    whole(file, page * PAGE_BYTES + NUMBER)
}

fn last_page(file: &[u8], page: usize) -> u64 {
    whole(file, page * PAGE_BYTES + LAST_PAGE)
}

fn changed(file: &[u8], page: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    bytes_put(&mut file, page * PAGE_BYTES + at, bytes);
    file
}

/// What is read from a file, with a lock and without one, mapped and not, and what is logged meanwhile.
fn seen(file: &[u8]) -> (Result<Records, SourceError>, String) {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("data.mdb"), file).unwrap();
    let (with, without) = (Lmdb::options(), Lmdb::options().without_lock());
    let read_alone = Lmdb::options().access(Access::Read);
    let mut found: Vec<(Result<Records, SourceError>, String)> = Vec::new();
    for options in [without, read_alone, with] {
        let log = Log::default();
        let records = log.listen(|| options.open(folder.path()).map(|source| read(&source)));
        found.push((records, log.text()));
    }
    let said: Vec<bool> = found.iter().map(|(_, log)| log.contains(PASSED_OVER)).collect();
    assert!(said.iter().all(|each| *each == said[0]), "all say it, or none: {said:?}");
    let last = found.pop().unwrap();
    for (others, _) in &found {
        assert!(*others == last.0, "{:?} and {:?}", others.as_ref().err(), last.0.as_ref().err());
    }
    last
}

/// What the library reads.
fn twin(file: &[u8]) -> Records {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("data.mdb"), file).unwrap();
    let env = Environment::new().set_flags(EnvironmentFlags::READ_ONLY).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let transaction = env.begin_ro_txn().unwrap();
    let mut cursor = transaction.open_ro_cursor(database).unwrap();
    cursor.iter().map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn is_whole(what: &str, file: &[u8], records: &Records) {
    let (found, log) = seen(file);
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(found == *records, "{what}: {} records of {}", found.len(), records.len());
    assert!(log.contains(PASSED_OVER), "{what}: {log}");
    assert!(twin(file) == *records, "{what}: the library reads it otherwise");
}

fn is_refused(what: &str, file: &[u8], page: usize) {
    match seen(file).0 {
        Err(SourceError::Lmdb(LmdbError::BrokenPage { page: found, message, .. })) => {
            println!("{what}: page {found} {message}");
            assert_eq!(found, page as u64, "{what}: {message}");
        }
        other => panic!("{what}: {:?}", other.map(|records| records.len())),
    }
}

/// Fields of a meta page, and values they never have. The library checks none of them on the page that it
/// does not use.
fn damages() -> [(&'static str, usize, Vec<u8>); 9] {
    let far = (1_u64 << 60).to_le_bytes().to_vec();
    [
        ("the page's number", 0, vec![77]),
        ("a flag beside that of a meta page", 10, vec![0x28, 0]),
        ("the free tree's depth", 46, vec![99, 0]),
        ("the free tree's root", 80, far.clone()),
        ("the tree's depth", 94, vec![0xff, 0xff]),
        ("how many records there are", 120, vec![0; 8]),
        ("the tree's root", 128, far.clone()),
        ("no last page", LAST_PAGE, vec![0; 8]),
        ("a last page beyond all", LAST_PAGE, far),
    ]
}

#[test]
fn an_older_meta_page_that_is_damaged_is_passed_over_and_a_newer_one_is_an_error() {
    for commits in [4, 5] {
        let written = Written::growing(commits);
        let ((file, records), newer) = (written.last(), written.newer());
        for (what, at, bytes) in damages() {
            is_whole(&format!("older: {what}"), &changed(file, 1 - newer, at, &bytes), records);
            is_refused(&format!("newer: {what}"), &changed(file, newer, at, &bytes), newer);
        }
        // Only page 0 says where page 1 is.
        let page_bytes = changed(file, 1, 40, &[3, 0, 0, 0]);
        match newer {
            0 => is_whole("older: a page's length", &page_bytes, records),
            _ => is_refused("newer: a page's length", &page_bytes, newer),
        }
    }
}

#[test]
fn what_is_no_meta_page_is_refused_wherever_it_lies() {
    let written = Written::growing(4);
    let file = &written.last().0;
    for page in [0, 1] {
        for (what, at, bytes) in [
            ("flags", 10, &[2_u8, 0][..]),
            ("magic", 16, &[1]),
            ("version", 20, &[2]),
            ("all", 0, &[0; PAGE_BYTES]),
        ] {
            let file = changed(file, page, at, bytes);
            match seen(&file).0 {
                Err(SourceError::Lmdb(LmdbError::BrokenPage { page: found, .. })) => {
                    assert_eq!(found, page as u64, "{what}")
                }
                Err(SourceError::Lmdb(LmdbError::NotLmdb { .. }) | SourceError::Instead { .. }) => {
                    assert_eq!(page, 0, "{what}");
                }
                other => panic!("{what} of page {page}: {:?}", other.map(|records| records.len())),
            }
        }
    }
}

#[test]
fn an_older_page_that_is_damaged_and_has_another_number_than_the_one_before_is_an_error() {
    let written = Written::growing(5);
    let file = changed(&written.last().0, 0, 128, &(1_u64 << 60).to_le_bytes());
    for number in [0_u64, 2, 3, 5, 6, 1 << 40] {
        is_refused(&format!("transaction {number}"), &changed(&file, 0, NUMBER, &number.to_le_bytes()), 0);
    }
}

#[test]
fn a_damaged_number_of_a_transaction_never_leads_to_older_records() {
    let (mut refused, mut whole) = (0, 0);
    for (is_growing, written) in [4, 5]
        .map(|commits| (true, Written::growing(commits)))
        .into_iter()
        .chain([(false, Written::steady(9))])
    {
        let ((file, records), newer) = (written.last(), written.newer());
        assert_eq!(last_page(file, 0) != last_page(file, 1), is_growing);
        let commits = written.commits.len() as u64;
        assert_eq!((number(file, newer), number(file, 1 - newer)), (commits, commits - 1));
        let numbers = (0..64).map(|bit| commits ^ 1 << bit).chain(0..20).chain([u64::MAX, u64::MAX - 1]);
        for (page, number) in numbers.flat_map(|number| [(0, number), (1, number)]) {
            let damaged = changed(file, page, NUMBER, &number.to_le_bytes());
            let [zero, one] = [0, 1].map(|page| self::number(&damaged, page));
            if zero.abs_diff(one) == 1 && !is_growing {
                // By all evidence, this is a file before or after another commit.
                continue;
            }
            let what = format!("page {page} has transaction {number}, of {commits}");
            match seen(&damaged).0 {
                Ok(found) => {
                    assert!(found == *records, "{what}: {} records", found.len());
                    whole += 1;
                }
                Err(error) => {
                    assert!(
                        matches!(error, SourceError::Lmdb(LmdbError::BrokenPage { .. })),
                        "{what}: {error}"
                    );
                    refused += 1;
                }
            }
        }
        if is_growing {
            // The last pages also show which page is the newer one.
            is_whole("a lower one", &changed(file, 1 - newer, NUMBER, &(commits - 3).to_le_bytes()), records);
            is_whole("a higher one", &changed(file, newer, NUMBER, &(commits + 2).to_le_bytes()), records);
        }
    }
    println!("{refused} refused, {whole} whole");
    assert!(refused > 200 && whole > 50, "{refused} refused, {whole} whole");
}

#[test]
fn after_a_crash_without_sync_the_newest_commit_that_is_there_is_read() {
    let written = Written::growing(7);
    let ((file, records), newer) = (written.last(), written.newer());
    for before in [4, 2] {
        // The older page is as it was some commits ago: later writes to it were lost.
        let (old, _) = &written.commits[before - 1];
        let page = (1 - newer) * PAGE_BYTES;
        let crashed = changed(file, 1 - newer, 0, &old[page..page + PAGE_BYTES]);
        assert_eq!([number(&crashed, newer), number(&crashed, 1 - newer)], [7, before as u64]);
        is_whole(&format!("transactions {before} and 7"), &crashed, records);
    }
    // The newer page was lost: nothing shows that the commit was ever made.
    let (old, before) = &written.commits[5];
    let crashed = changed(file, newer, 0, &old[newer * PAGE_BYTES..][..PAGE_BYTES]);
    let (found, log) = seen(&crashed);
    assert!(found.unwrap() == *before && !log.contains(PASSED_OVER), "{log}");
    assert!(twin(&crashed) == *before);
}

#[test]
fn where_the_file_did_not_grow_pages_that_do_not_follow_each_other_are_an_error_that_says_what_to_do() {
    let written = Written::steady(9);
    let ((file, _), newer) = (written.last(), written.newer());
    let (old, _) = &written.commits[5];
    let page = (1 - newer) * PAGE_BYTES;
    let crashed = changed(file, 1 - newer, 0, &old[page..page + PAGE_BYTES]);
    assert_eq!(last_page(&crashed, 0), last_page(&crashed, 1));
    let error = seen(&crashed).0.unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("mdb_copy -c"), "{error}");
}
