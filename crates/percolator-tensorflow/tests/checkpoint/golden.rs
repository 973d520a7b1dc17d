//! Every tensor of every checkpoint that TensorFlow wrote is what TensorFlow's own reader gives.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use percolator_files::Access;
use percolator_tensorflow::{Checkpoint, Elements, Tensor};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The checksum that the manifest has of a tensor: of its bytes, or of its strings joined by NUL bytes.
pub(crate) fn digest(tensor: &Tensor<'_>) -> String {
    match tensor.elements() {
        Elements::Bytes(bytes) => sha256(bytes),
        Elements::Strings(strings) => sha256(&strings.join(&b"\0"[..])),
    }
}

pub(crate) fn manifest() -> Vec<Value> {
    let text = std::fs::read_to_string(data("manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(manifest["checkpoints"].take()).unwrap()
}

fn check(checkpoint: &Checkpoint, golden: &Value) {
    let mut lines = String::new();
    for info in checkpoint.tensors() {
        let tensor = checkpoint.tensor(info.name).unwrap();
        assert_eq!((tensor.data_type(), tensor.shape()), (info.data_type, info.shape));
        let shape = serde_json::to_string(info.shape).unwrap().replace(',', ", ");
        writeln!(lines, "{} {} {shape} {}", info.name, info.data_type, digest(&tensor)).unwrap();
    }
    for due in golden["tensors"].as_array().unwrap() {
        let name = due["name"].as_str().unwrap();
        let tensor = checkpoint.tensor(name).unwrap();
        assert_eq!(tensor.data_type().name(), due["dtype"].as_str().unwrap(), "{name}");
        assert_eq!(serde_json::json!(tensor.shape()), due["shape"], "{name}");
        assert_eq!(digest(&tensor), due["sha256"].as_str().unwrap(), "{name}");
        if let Elements::Strings(strings) = tensor.elements() {
            let strings: Vec<_> = strings.iter().map(|string| hex(string)).collect();
            assert_eq!(serde_json::json!(strings), due["strings"], "{name}");
        }
    }
    assert_eq!(checkpoint.len() as u64, golden["count"].as_u64().unwrap());
    assert_eq!(sha256(lines.as_bytes()), golden["digest"].as_str().unwrap(), "{lines}");
}

#[test]
fn every_tensor_is_what_tensorflow_reads() {
    let manifest = manifest();
    assert!(manifest.len() >= 10);
    for golden in &manifest {
        let prefix = data(golden["prefix"].as_str().unwrap());
        for access in [Access::Mapped, Access::Read] {
            check(&Checkpoint::open_with(&prefix, access).unwrap(), golden);
        }
    }
}
