//! Our own LMDB reader: whatever is found on disks under the name of a database gives its records, as the
//! library reads them (`twin`), or a typed error, even if other processes have it open (`locks`) and whatever
//! is damaged in it (`damage`). What could kill the process runs in a child, which reports how far it came.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

mod anatomy;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod files;
mod free;
mod growth;
#[path = "../common/damage/mod.rs"]
mod harness;
mod locks;
mod metas;
mod twin;

use std::fs;
use std::path::Path;

use percolator::reader::ReaderError;
use percolator::source::{Lmdb, Source, SourceError};
use percolator::{Feed, FeedError};
use tempfile::{TempDir, tempdir};

use common::indexed::{Records, walked as read};

fn written(records: usize) -> (TempDir, Records) {
    let folder = tempdir().unwrap();
    common::write_images(folder.path(), records, 3, 8, 8);
    fs::remove_file(folder.path().join("lock.mdb")).unwrap();
    (folder, (0..records).map(|index| common::image(index, 3, 8, 8)).collect())
}

fn files_in(folder: &Path) -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

/// The error of opening this as a reader and as a feed: both must give the same.
fn refusal(path: &Path) -> SourceError {
    let error = Lmdb::open(path).and_then(|source| source.cursor()?.advance().map(drop)).unwrap_err();
    match Feed::builder().lmdb(path).build() {
        Err(FeedError::Reader(ReaderError::Source(from_feed))) => assert_eq!(from_feed, error),
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains(path.to_str().unwrap()), "the path is named: {error}");
    println!("{error}");
    error
}

fn value(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| common::pixel(seed, at)).collect()
}
