//! What real Caffe made of databases that real Caffe wrote, bit for bit.
//!
//! Each case is an unchanged net with one Data layer. The data and labels of all its batches are hashed and
//! compared with the hashes of Caffe's own. See `tests/data/golden/README.md`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use percolator::order::Ranks;
use percolator::transform::CaffeEra;
use percolator::{Device, Feed, Phase, Seed};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name)
}

fn cases() -> Vec<Value> {
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(data("cases.json")).unwrap()).unwrap();
    let cases = cases.as_array().unwrap().clone();
    assert_eq!(cases.len(), 53, "a case is missing");
    cases
}

/// All batches of a case, concatenated.
#[derive(Default)]
struct Arrays {
    shape: Vec<u64>,
    data: Vec<f32>,
    labels: Vec<f32>,
}

fn feed(case: &Value, threads: usize) -> Arrays {
    let phase = if case["phase"] == "TRAIN" { Phase::Train } else { Phase::Test };
    let net = format!("net/{}.prototxt", case["name"].as_str().unwrap());
    let mut feed = Feed::from_prototxt(data(&net), phase)
        .unwrap()
        .root(data(""))
        .seed(Seed::Caffe { seed: case["seed"].as_u64().unwrap() as u32, era: CaffeEra::Today })
        .devices([Device::host(0)])
        .threads(threads);
    if let Value::Array(shard) = &case["shard"] {
        feed = feed.share(Ranks {
            first: shard[1].as_u64().unwrap() as usize,
            of: shard[0].as_u64().unwrap() as usize,
        });
    }
    let mut arrays = Arrays::default();
    let lane = feed.build().unwrap().take_lanes().unwrap().remove(0);
    for batch in lane.take(case["batches"].as_u64().unwrap() as usize) {
        let batch = batch.unwrap();
        let records = arrays.shape.first().copied().unwrap_or(0);
        arrays.shape = batch.shape().dims().map(|extent| extent as u64).to_vec();
        arrays.shape[0] += records;
        arrays.data.extend_from_slice(batch.pixels::<f32>().unwrap());
        arrays.labels.extend_from_slice(batch.labels_f32().unwrap());
    }
    arrays
}

fn hash(floats: &[f32]) -> String {
    let mut hash = Sha256::new();
    floats.iter().for_each(|float| hash.update(float.to_le_bytes()));
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn every_case_is_exact_with_any_number_of_threads() {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        for threads in [1, 3] {
            let arrays = feed(&case, threads);
            assert_eq!(Value::from(arrays.shape), case["shape"], "{name}: shape");
            assert_eq!(hash(&arrays.labels), case["label_sha256"].as_str().unwrap(), "{name}: labels");
            assert_eq!(hash(&arrays.data), case["data_sha256"].as_str().unwrap(), "{name}: data");
        }
    }
}
