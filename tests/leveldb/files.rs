//! Databases for tests: those of the tree, copies of them, what is read of one, and the error of one that is
//! refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use percolator::leveldb::LevelDbError;
use percolator::reader::ReaderError;
use percolator::source::{Cursor, LevelDb, Source, SourceError};
use percolator::{Feed, FeedError};
use tempfile::{TempDir, tempdir};

use crate::common::need;

pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn drain(mut cursor: Box<dyn Cursor>) -> Result<Records, SourceError> {
    let mut records = Records::new();
    while let Some(entry) = cursor.advance()? {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    Ok(records)
}

pub(crate) fn read(path: &Path) -> Result<Records, SourceError> {
    drain(LevelDb::open(path)?.cursor()?)
}

/// The error of opening or reading a LevelDB; a feed must give the same.
pub(crate) fn refusal(path: &Path) -> LevelDbError {
    let error = read(path).unwrap_err();
    match Feed::builder().leveldb(path).build() {
        Err(FeedError::Reader(ReaderError::Source(from_feed))) => assert_eq!(from_feed, error),
        // A feed reads only the first record before it starts.
        other => assert!(matches!(other, Err(FeedError::Record(_)) | Ok(_)), "{other:?}"),
    }
    assert!(error.to_string().contains(path.to_str().unwrap()), "the file is named: {error}");
    println!("{error}");
    match error {
        SourceError::LevelDb(error) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// A copy of a database of the tree, to be damaged.
pub(crate) fn copy(name: &str) -> TempDir {
    let folder = tempdir().unwrap();
    for file in fs::read_dir(data(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

/// Whether C++ LevelDB is available.
pub(crate) fn has_plyvel() -> bool {
    need::python("PLYVEL", "plyvel")
}
