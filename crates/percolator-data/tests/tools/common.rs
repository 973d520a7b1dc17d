//! Databases for the tests: golden ones, copies, and some made on the spot.

use std::fs;
use std::path::{Path, PathBuf};

use lmdb::{Environment, Transaction as _, WriteFlags};
use percolator::proto::Datum;
use prost::Message as _;

/// A file or folder of the repository's test data.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// A database that real Caffe wrote.
pub(crate) fn golden(name: &str) -> PathBuf {
    data("golden").join(name)
}

/// The names of all golden databases.
pub(crate) fn golden_databases() -> Vec<String> {
    let entries = fs::read_dir(data("golden")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with("_lmdb") || name.contains("_leveldb_"))
        .collect();
    names.sort();
    assert!(names.len() >= 16, "{names:?}");
    names
}

/// Copies the files of a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().contains("lock") {
            fs::write(to.join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// A record's value: a raw image.
pub(crate) fn datum([channels, height, width]: [i32; 3], label: i32, data: Vec<u8>) -> Vec<u8> {
    Datum {
        channels: Some(channels),
        height: Some(height),
        width: Some(width),
        label: Some(label),
        data: Some(data),
        ..Datum::default()
    }
    .encode_to_vec()
}

/// A record's value: an encoded file.
pub(crate) fn encoded(label: i32, file: Vec<u8>) -> Vec<u8> {
    Datum { label: Some(label), data: Some(file), encoded: Some(true), ..Datum::default() }.encode_to_vec()
}

/// Writes an LMDB of these records.
pub(crate) fn lmdb<K: AsRef<[u8]>>(folder: &Path, records: impl IntoIterator<Item = (K, Vec<u8>)>) {
    fs::create_dir_all(folder).unwrap();
    let environment = Environment::new().set_map_size(64 << 20).open(folder).unwrap();
    let database = environment.open_db(None).unwrap();
    let mut transaction = environment.begin_rw_txn().unwrap();
    for (key, value) in records {
        transaction.put(database, &key.as_ref(), &value, WriteFlags::empty()).unwrap();
    }
    transaction.commit().unwrap();
    environment.sync(true).unwrap();
}
