//! `percolator doctor`: what it says of feeds and data of which it is known what is wrong with them. The
//! measurements are so short that no rate means anything, and none is asserted.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;

/// A database of 64 images of 3x6x8, whose channels are around 40, 120 and 200, with these labels.
fn database(label: impl Fn(usize) -> i32) -> TempDir {
    let folder = tempdir().unwrap();
    let record = |number: usize| {
        let pixel =
            |at: usize| [40_u8, 120, 200][at / 48] + if (at + number).is_multiple_of(2) { 30 } else { 0 };
        (common::key(number), common::datum(3, 6, 8, label(number), (0..144).map(pixel).collect()))
    };
    common::write_lmdb(folder.path(), (0..64).map(record));
    folder
}

fn mixed(number: usize) -> i32 {
    i32::try_from(number * 7 % 10).unwrap()
}

fn doctor(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["doctor", "--seconds", "0.01", "--threads", "2", "--batch-size", "8"])
        .args(args)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

/// What it says of the database in this folder, as JSON, and its exit code.
#[track_caller]
fn diagnosed(folder: &TempDir, args: &[&str]) -> (Value, i32) {
    let output = doctor(folder.path(), &[&["--lmdb", ".", "--json"], args].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.is_empty(), "{message}");
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code().unwrap())
}

/// The kinds of the findings.
fn found(diagnosis: &Value) -> Vec<&str> {
    let findings = diagnosis["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn a_good_feed_is_examined_and_nothing_looks_wrong() {
    let folder = database(mixed);
    let (diagnosis, code) = diagnosed(&folder, &["--mean-value", "55,135,215"]);
    assert_eq!((found(&diagnosis), code), (vec![], 0));
    assert_eq!((&diagnosis["records"], &diagnosis["looked_at"]), (&64.into(), &64.into()));
    assert_eq!(diagnosis["channel_means"], serde_json::json!([55.0, 135.0, 215.0]));
    assert_eq!(diagnosis["devices"], serde_json::json!(["host:0"]));
    let trials = diagnosis["trials"].as_array().unwrap();
    let options: Vec<_> = trials.iter().map(|trial| trial["option"].as_str().unwrap()).collect();
    assert_eq!(options[0], "--threads 3");
    assert!(options[1].starts_with("--prefetch "), "{options:?}");
    for trial in trials {
        let [ratio, low, high] = ["ratio", "low", "high"].map(|name| trial[name].as_f64().unwrap());
        assert!(0.0 < low && low <= ratio && ratio <= high, "{trial}");
        assert_eq!(trial["helps"], low > 1.02, "{trial}");
    }
    assert!(diagnosis["records_per_s"].as_f64().unwrap() > 0.0);
    assert_ne!(diagnosis["binds"], "consumer", "nobody trains");
}

#[test]
fn a_feed_that_keeps_up_with_its_training_is_told_so() {
    let folder = database(mixed);
    let (diagnosis, code) = diagnosed(&folder, &["--step-ms", "60"]);
    assert_eq!((diagnosis["binds"].as_str().unwrap(), code), ("consumer", 0));
}

#[test]
fn labels_in_the_order_of_keys_need_a_shuffle() {
    let folder = database(|number| i32::try_from(number / 8).unwrap());
    let (diagnosis, code) = diagnosed(&folder, &[]);
    assert_eq!((found(&diagnosis), code), (vec!["labels_together"], 1));
    for args in [&["--shuffle", "global"][..], &["--phase", "test"]] {
        let (diagnosis, code) = diagnosed(&folder, args);
        assert_eq!((found(&diagnosis), code), (vec![], 0), "{args:?}");
    }
    let one = database(|_| 3);
    assert_eq!(found(&diagnosed(&one, &[]).0), ["one_label"]);
}

#[test]
fn means_that_cannot_be_right_are_found() {
    let folder = database(mixed);
    for (mean, due) in [
        ("215,135,55", "channels_reversed"),
        ("0.2,0.5,0.85", "mean_does_not_fit"),
        ("10", "mean_does_not_fit"),
    ] {
        let (diagnosis, code) = diagnosed(&folder, &["--mean-value", mean]);
        assert_eq!((found(&diagnosis), code), (vec![due], 1), "{mean}");
    }
}

#[test]
fn a_net_is_examined_from_its_own_root() {
    let folder = database(mixed);
    let net = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { crop_size: 2 } \
               data_param { source: '.' batch_size: 4 backend: LMDB } }";
    fs::write(folder.path().join("net.prototxt"), net).unwrap();
    let root = folder.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["doctor", &format!("{root}/net.prototxt"), "--root", root, "--seconds", "0.01"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for due in ["64 records", "What binds: ", "What would help: ", "images of 6 pixels are cropped to 2"] {
        assert!(text.contains(due), "{due}: {text}");
    }
    let is_short = |line: &str| line.chars().count() <= 100 || line.contains(root);
    assert!(text.lines().all(is_short), "{text}");
}

#[test]
fn records_that_are_not_caffes_are_fed_and_not_judged() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("numbers.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    for number in 0..40 {
        let mut example = ExampleWriter::new();
        example.ints("number", [number]);
        writer.write(&example.to_bytes()).unwrap();
    }
    writer.finish().unwrap();
    let args = ["--tfrecord", "numbers.tfrecord", "--fields", "number:i64"];
    let output = doctor(folder.path(), &args);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(text.contains("nothing is said of the data"), "{text}");
}

#[test]
fn what_a_run_would_refuse_is_refused() {
    let folder = database(mixed);
    for (args, due) in [
        (&["--lmdb", "missing"][..], "missing"),
        (&["--lmdb", ".", "--crop", "7"], "7"),
        (&["--lmdb", ".", "--mean-file", "missing.binaryproto"], "missing.binaryproto"),
    ] {
        let output = doctor(folder.path(), args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            output.stdout.is_empty() && message.contains(due) && message.lines().count() == 1,
            "{message}"
        );
    }
    for args in [&[][..], &["--lmdb", ".", "--rounds", "2"], &["--lmdb", ".", "--step-ms", "-1"]] {
        assert_eq!(doctor(folder.path(), args).status.code(), Some(2), "{args:?}");
    }
}
