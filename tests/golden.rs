//! What real Caffe made of databases that real Caffe wrote, bit for bit.
//!
//! Each case is a net with one Data layer; the data and labels of all its batches are hashed and compared
//! with the hashes of Caffe's own. See `tests/data/golden/README.md`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use percolator::{Device, Feed, Lane, Lmdb, MeanImage, Phase, Transform};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name)
}

fn transform(asked: &Value) -> Transform {
    let number = |name: &str| asked.get(name).and_then(Value::as_f64);
    let mut transform = Transform::new();
    if let Some(crop) = number("crop_size") {
        transform = transform.crop(crop as u32);
    }
    if let Some(scale) = number("scale") {
        transform = transform.scale(scale as f32);
    }
    for mean in asked.get("mean_value").and_then(Value::as_array).into_iter().flatten() {
        transform = transform.mean_value(mean.as_f64().unwrap() as f32);
    }
    if let Some(file) = asked.get("mean_file") {
        transform = transform.mean_image(MeanImage::open(data(file.as_str().unwrap())).unwrap());
    }
    transform
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The lane that sees what a solver of this rank sees.
fn lane(case: &Value, threads: usize) -> Lane {
    let phase = if case["phase"] == "TRAIN" { Phase::Train } else { Phase::Test };
    let (solvers, rank) = match (&case["shard"], phase) {
        (Value::Array(shard), Phase::Train) => (shard[0].as_u64().unwrap(), shard[1].as_u64().unwrap()),
        // Testing is not sharded: one consumer sees every record.
        _ => (1, 0),
    };
    let batch_size = case["batch"].as_u64().unwrap();
    let mut feed = Feed::builder()
        .source(Lmdb::open_without_lock(data(case["db"].as_str().unwrap())).unwrap())
        .batch_size(batch_size as usize)
        .devices((0..solvers as usize).map(Device::host))
        .transform(transform(&case["transform"]))
        .phase(phase)
        .threads(threads)
        .build()
        .unwrap();
    let mut lanes = feed.lanes();
    // The other lanes go, and the records they were due go with them: this lane's stay the same.
    lanes.swap_remove(rank as usize)
}

fn check(case: &Value, threads: usize) {
    let name = case["name"].as_str().unwrap();
    let (mut pixels, mut labels) = (Sha256::new(), Sha256::new());
    let mut dims = [0; 4];
    for batch in lane(case, threads).take(case["batches"].as_u64().unwrap() as usize) {
        let batch = batch.unwrap();
        let records = dims[0];
        dims = batch.shape().dims();
        dims[0] += records;
        for pixel in batch.pixels::<f32>().unwrap() {
            pixels.update(pixel.to_le_bytes());
        }
        for label in batch.labels_f32() {
            labels.update(label.to_le_bytes());
        }
    }
    let shape: Vec<u64> = dims.iter().map(|&extent| extent as u64).collect();
    assert_eq!(Value::from(shape), case["shape"], "{name}: shape");
    assert_eq!(hex(&labels.finalize()), case["label_sha256"].as_str().unwrap(), "{name}: labels");
    assert_eq!(hex(&pixels.finalize()), case["data_sha256"].as_str().unwrap(), "{name}: data");
}

#[test]
fn every_case_is_exact_with_any_number_of_threads() {
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(data("cases.json")).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 19, "a case is missing");
    for case in cases {
        for threads in [1, 3] {
            check(case, threads);
        }
    }
}
