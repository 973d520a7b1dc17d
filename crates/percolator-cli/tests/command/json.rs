//! Wherever a program may read what a command says, `--json` says it as JSON.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;

use crate::common;

/// What a command prints: one JSON object, on one line.
#[track_caller]
fn said(folder: &Path, words: &str) -> Value {
    let database = common::repository().join("tests/data/golden/raw_lmdb");
    let words = words.split(' ').map(|word| if word == "DB" { database.as_os_str() } else { word.as_ref() });
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let output =
        command.args(words).arg("--json").current_dir(folder).env("RUST_LOG", "error").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn commands_answer_in_json() {
    let folder = tempdir().unwrap();
    let said = |words: &str| said(folder.path(), words);
    assert_eq!(said("convert records DB copy")["records"], 64);
    assert_eq!(said("mean DB mean.binaryproto")["shape"][0], 3);
    assert_eq!(said("inspect DB")["records"], 64);
    assert_eq!(said("inspect DB --record 3")["record"], 3);
    assert_eq!(said("verify DB")["is_whole"], true);
    assert_eq!(said("doctor DB --batch-size 8 --seconds 0.01 --at-most 0")["records"], 64);
    assert_eq!(said("feed DB --batch-size 8 --batches 1")["error"], Value::Null);
    assert_eq!(said("bench DB --batch-size 8 --seconds 0.01 --rounds 1")["rounds"], 1);
    assert!(said("plan --records 64 --global-batch-size 8").is_object());
    assert!(said("devices").is_object());
}

#[test]
fn a_dump_lists_its_arrays() {
    let folder = tempdir().unwrap();
    let said = said(folder.path(), "dump DB --batch-size 4 --batches 2 --out out");
    let arrays = said["arrays"].as_array().unwrap();
    let first = &arrays[0];
    assert_eq!((&first["path"], &first["dtype"]), (&"out/data.npy".into(), &"float32".into()));
    assert_eq!(first["shape"], serde_json::json!([8, 3, 40, 36]));
    assert_eq!((&first["lengths"], &first["offsets"]), (&Value::Null, &Value::Null));
    assert_eq!(arrays[1]["shape"], serde_json::json!([8]));
    assert_eq!((arrays.len(), said["channels"].as_array().unwrap().len()), (2, 3));
    assert_eq!((&said["channels"][0]["max"], &said["labels"]["min"]), (&255.0.into(), &0.0.into()));
}

#[test]
fn a_digest_says_its_sum() {
    let folder = tempdir().unwrap();
    let sum = said(folder.path(), "digest DB");
    let written = said(folder.path(), "digest DB --out sum.digest");
    assert_eq!((&sum["records"], &sum["out"]), (&64.into(), &Value::Null));
    assert_eq!((&written["contents"], &written["out"]), (&sum["contents"], &"sum.digest".into()));
    let digest = std::fs::read_to_string(folder.path().join("sum.digest")).unwrap();
    let contents = format!("contents {} of 64\n", sum["contents"].as_str().unwrap());
    assert!(digest.contains(&contents), "{contents} is not in {digest}");
}

/// A program knows by the schema what an object's keys mean.
#[test]
fn each_object_names_its_schema() {
    let folder = tempdir().unwrap();
    for (words, schema) in [
        ("bench DB --batch-size 8 --seconds 0.01 --rounds 1", "bench"),
        ("convert records DB copy", "convert"),
        ("devices --no-rates", "devices"),
        ("digest DB", "digest"),
        ("doctor DB --batch-size 8 --seconds 0.01 --at-most 0", "doctor"),
        ("dump DB --batch-size 8 --out out", "dump"),
        ("feed DB --batch-size 8 --epochs 1 --index memory --receipt r", "feed"),
        ("verify-run r", "verify-run"),
        ("inspect DB", "inspect"),
        ("inspect DB --record 3", "inspect.record"),
        ("mean DB", "mean"),
        ("plan --records 64 --global-batch-size 8", "plan"),
        ("verify DB", "verify"),
        ("model convert out out.safetensors", "model.convert"),
        ("model convert out none.npz --dry-run", "model.convert.names"),
        ("model diff out out.safetensors", "model.diff"),
        ("model list out.safetensors", "model.list"),
        ("model show out.safetensors", "model.show.tensors"),
        ("model show out.safetensors data", "model.show.tensor"),
        ("model verify out.safetensors", "model.verify"),
    ] {
        let said = said(folder.path(), words);
        assert_eq!(said["schema"], format!("percolator.{schema}/1"), "{words}: {said}");
    }
}
