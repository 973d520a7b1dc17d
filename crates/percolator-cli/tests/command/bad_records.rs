//! `percolator feed` goes on after bad records, and `verify-run` and `verify` say which they were.

use std::path::Path;

use percolator::example::ExampleWriter;
use percolator::tfrecord::write_record;

use crate::common;
use crate::receipts::command;

/// 40 images, of which these are torn.
fn write_lmdb(folder: &Path, torn: &[usize]) {
    let records = (0..40).map(|index| {
        let (key, value) = common::image(index, 3, 4, 4);
        (key, if torn.contains(&index) { value[..9].to_vec() } else { value })
    });
    common::write_lmdb(folder, records);
}

#[test]
fn a_run_goes_on_and_says_what_it_went_on_without() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_lmdb(&folder.join("lmdb"), &[3, 17]);
    let feed = ["feed", "lmdb", "--batch-size", "8", "--epochs", "2", "--shuffle", "global"];
    let run = |more: &[&str]| command(&[&feed[..], more].concat(), folder);

    let (code, text) = run(&[]);
    assert!(code == 2 && text.contains("lmdb: epoch 0, record "), "{text}");
    let files = ["--quarantine", "bad.tfrecord", "--receipt", "run.receipt", "--snapshot", "run.snapshot"];
    for action in ["skip", "replace"] {
        let (code, text) = run(&[&["--bad-records", action], &files[..]].concat());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("\nbatches went without 4 bad records\n"), "{text}");
        let (code, text) = command(&["verify-run", "run.receipt", "--epochs", "2"], folder);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("epoch 1: covered: 38 records, each once"), "{text}");
        assert!(text.contains("\n  2 bad, and left out: 3, 17\n"), "{text}");
        assert!(text.contains("all 2 epochs were covered exactly once, but for 4 bad records"), "{text}");
        let snapshot = std::fs::read_to_string(folder.join("run.snapshot")).unwrap();
        assert!(snapshot.contains("\nbad 2 of 40 records of epoch 1 replica 0\n"), "{snapshot}");
        std::fs::remove_file(folder.join("run.receipt")).unwrap();
    }

    let verify = || command(&["verify", "lmdb", "--quarantine", "bad.tfrecord", "--quiet"], folder);
    let (code, text) = verify();
    assert_eq!(code, 1, "{text}");
    for key in ["00000003", "00000017"] {
        let line = text.lines().find(|line| line.contains("bad in epoch 0") && line.contains(key));
        assert!(line.is_some_and(|line| line.ends_with("the data set has the same bytes")), "{text}");
    }
    let (_, text) = command(&["verify", "lmdb", "--quarantine", "bad.tfrecord", "--quiet", "--json"], folder);
    assert!(text.contains("{\"schema\":\"percolator.verify.quarantined/1\","), "{text}");
    std::fs::remove_dir_all(folder.join("lmdb")).unwrap();
    write_lmdb(&folder.join("lmdb"), &[]);
    let (code, text) = verify();
    assert_eq!((code, text.matches("the data set has others by now").count()), (0, 2), "{text}");
}

/// A run whose first batch fails has a receipt of nothing.
#[test]
fn a_receipt_without_a_step_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_lmdb(&folder.join("lmdb"), &[3]);
    let (code, _) = command(&["feed", "lmdb", "--epochs", "1", "--receipt", "r"], folder);
    assert_eq!(code, 2);
    let (code, text) = command(&["verify-run", "r", "--json"], folder);
    assert!(code == 1 && text.contains("\"is_sound\":false"), "{text}");
    assert!(text.contains("the receipts have no step of any epoch: nothing is proven"), "{text}");
}

#[test]
fn the_reason_why_a_record_cannot_be_read_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for number in 0..8 {
        starts.push(bytes.len());
        write_record(&mut bytes, &ExampleWriter::new().ints("number", [number]).to_bytes()).unwrap();
    }
    bytes[starts[3] + 14] ^= 1;
    std::fs::write(folder.join("numbers.tfrecord"), bytes).unwrap();
    let feed = ["feed", "numbers.tfrecord", "--fields", "number:i64", "--batch-size", "4"];
    let skipping = ["--once", "--bad-records", "skip", "--quarantine", "bad.tfrecord"];
    let (code, text) = command(&[&feed[..], &skipping].concat(), folder);
    assert_eq!(code, 0, "{text}");

    // By another path to the same file, too. The file names it by its absolute path.
    let place = folder.canonicalize().unwrap().join("numbers.tfrecord").display().to_string();
    for name in ["numbers.tfrecord", "./numbers.tfrecord"] {
        let (_, text) = command(&["verify", name, "--quarantine", "bad.tfrecord", "--quiet"], folder);
        let line = text.lines().find(|line| line.contains("bad in epoch 0")).unwrap();
        let start = format!("{place}: record 3, key \"00000003\": bad in epoch 0: ");
        assert!(line.starts_with(&start), "{line}");
        assert!(line.ends_with("; it still cannot be read"), "{line}");
        assert_eq!((line.matches("checksum").count(), line.matches("numbers.tfrecord").count()), (1, 1));
    }
}

#[test]
fn limits_end_a_run_and_an_option_without_a_policy_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_lmdb(&folder.join("lmdb"), &[3, 17]);
    let feed = ["feed", "lmdb", "--batch-size", "8", "--once", "--bad-records", "skip"];
    for limit in [["--bad-at-most", "1"], ["--bad-rate", "0.001"]] {
        let (code, text) = command(&[&feed[..], &limit].concat(), folder);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("2 of the first 24 records of epoch 0 are bad, and 1 may be"), "{text}");
    }
    let (code, text) = command(&["feed", "lmdb", "--quarantine", "bad.tfrecord"], folder);
    assert!(code == 2 && text.contains("--bad-records"), "{text}");
    let (code, text) = command(&[&feed[..], &["--bad-rate", "7"]].concat(), folder);
    assert!(code == 2 && text.contains("a number from 0 to 1"), "{text}");
}
