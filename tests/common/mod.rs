//! What several tests and benches share: databases made on the spot, processes, logs, sources.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "shared by tests only"
)]

pub mod indexed;
pub mod leveldb;
pub mod lmdb_forge;
pub mod log;
pub mod process;
#[cfg(target_os = "linux")]
pub mod resident;
pub mod source;
pub mod tasks;

pub use process::need;
#[allow(unused_imports, reason = "not every binary has long tests")]
pub use process::sample;

use std::path::Path;

use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::FeedBuilder;
use percolator::proto::Datum;
use prost::Message as _;

/// The repository's folder, for the tests of every package in it.
pub fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/standin").is_dir()).expect("a package lies in the repository")
}

/// The system's words for an error, which differ from one C library to another. Rust puts the number behind
/// them, and liblmdb does not: they are without it.
pub fn words_of(error: impl Into<std::io::Error>) -> String {
    let said = error.into().to_string();
    said.split_once(" (os error").unwrap().0.to_owned()
}

/// The wire bytes of a raw u8 record.
pub fn datum(channels: i32, height: i32, width: i32, label: i32, data: Vec<u8>) -> Vec<u8> {
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

/// The wire bytes of a float record.
pub fn float_datum(channels: i32, height: i32, width: i32, label: i32, data: Vec<f32>) -> Vec<u8> {
    Datum {
        channels: Some(channels),
        height: Some(height),
        width: Some(width),
        label: Some(label),
        float_data: data,
        ..Datum::default()
    }
    .encode_to_vec()
}

/// Writes an LMDB as Caffe does: a folder, the unnamed database, keys in order.
pub fn write_lmdb(folder: &Path, records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) {
    std::fs::create_dir_all(folder).unwrap();
    let env =
        Environment::new().set_map_size(1 << 36).set_flags(EnvironmentFlags::NO_SYNC).open(folder).unwrap();
    let database = env.open_db(None).unwrap();
    let mut records = records.into_iter().peekable();
    while records.peek().is_some() {
        let mut transaction = env.begin_rw_txn().unwrap();
        for (key, value) in records.by_ref().take(1000) {
            transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

/// Caffe's keys: eight digits.
pub fn key(index: usize) -> Vec<u8> {
    format!("{index:08}").into_bytes()
}

/// Writes an LMDB of `count` records of one shape. A record's pixels are a function of its index, and its
/// label is the index.
pub fn write_images(folder: &Path, count: usize, channels: usize, height: usize, width: usize) {
    write_lmdb(folder, (0..count).map(|index| image(index, channels, height, width)));
}

/// One record of [`write_images`]: its key and its value.
pub fn image(index: usize, channels: usize, height: usize, width: usize) -> (Vec<u8>, Vec<u8>) {
    let [c, h, w] = [channels, height, width].map(|extent| i32::try_from(extent).unwrap());
    let data = (0..channels * height * width).map(|at| pixel(index, at)).collect();
    (key(index), datum(c, h, w, i32::try_from(index).unwrap(), data))
}

/// The pixel at a position of a record of [`write_images`].
pub fn pixel(index: usize, at: usize) -> u8 {
    let mixed = (index as u64).wrapping_mul(0x9e37_79b9).wrapping_add((at as u64).wrapping_mul(0x85eb_ca6b));
    (mixed >> 13) as u8
}

/// Pixels and labels of the first batches of a feed's first lane.
pub fn arrays(feed: FeedBuilder, batches: usize) -> (Vec<f32>, Vec<i32>) {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for batch in feed.build().unwrap().take_lanes().unwrap().remove(0).take(batches) {
        let batch = batch.unwrap();
        pixels.extend_from_slice(batch.pixels::<f32>().unwrap());
        labels.extend_from_slice(batch.labels().unwrap());
    }
    (pixels, labels)
}
