//! `percolator feed` is how a user measures: what it says is fed must be what was asked for, and what cannot be is
//! refused with one message. These tests run the command as a user does.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

#[cfg(target_os = "linux")]
use common::resident;

fn command(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.arg(name).env_remove("RUST_LOG");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden"));
    command
}

fn feed(args: &[&str]) -> Output {
    command("feed").args(["--batches", "2"]).args(args).output().unwrap()
}

/// Runs what must succeed; what it says of the batches.
#[track_caller]
fn batches(args: &[&str]) -> String {
    let output = feed(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let first = said.lines().next().unwrap();
    first.split_once("; batches of ").unwrap().1.to_owned()
}

/// Runs what must fail; the message.
#[track_caller]
fn refuse(args: &[&str], code: i32) -> String {
    let output = feed(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    message
}

#[test]
fn a_global_batch_is_divided_among_the_devices() {
    let source = ["--lmdb", "raw_lmdb", "--global-batch-size", "6"];
    let of_three = batches(&[&source[..], &["--devices", "host:0,host:1"]].concat());
    assert_eq!(of_three, batches(&["--lmdb", "raw_lmdb", "--batch-size", "3"]));
    assert_eq!(batches(&source), batches(&["--lmdb", "raw_lmdb", "--batch-size", "6"]), "one device has all");
    assert_ne!(of_three, batches(&source));
}

#[test]
fn dropping_what_was_used_changes_no_batch() {
    for source in [["--lmdb", "raw_lmdb"], ["--leveldb", "raw_leveldb_ldb"]] {
        assert_eq!(batches(&[&source[..], &["--drop-behind"]].concat()), batches(&source));
    }
}

/// An LMDB of some 40 MB, on the disk that the program is built on: a temporary folder may lie in memory.
#[cfg(target_os = "linux")]
#[test]
fn what_was_used_is_dropped_where_the_command_is_told_so() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = |index| (common::key(index), common::datum(1, 1, 100_000, 0, vec![7; 100_000]));
    common::write_lmdb(folder.path(), (0..400).map(record));
    let file = folder.path().join("data.mdb");
    if !resident::evict(&file) {
        return;
    }
    let args =
        ["--lmdb", folder.path().to_str().unwrap(), "--batch-size", "4", "--prefetch", "2", "--dtype", "u8"];
    let kept_after = |more: &[&str]| {
        resident::warm(&file);
        let output = command("feed").args(args).arg("--once").args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        resident::share(&resident::pages(&file)[..(20 << 20) / resident::PAGE_BYTES])
    };
    assert!(kept_after(&[]) > 0.3, "without the option it stays");
    let kept = kept_after(&["--drop-behind"]);
    assert!(kept < 0.01, "{kept} of the first half is kept");
}

#[test]
fn a_bench_that_drops_what_it_used_is_not_compared_with_the_page_cache() {
    let args = ["--lmdb", "raw_lmdb", "--drop-behind"];
    let output = command("bench").args(args).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("add --cold"), "{message}");
}

#[test]
fn a_global_batch_goes_before_the_batch_size_of_a_net() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = "layer { name: 'data' type: 'Data' top: 'data' \
                 data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";
    std::fs::write(&net, layer).unwrap();
    let net = net.to_str().unwrap();
    assert_eq!(batches(&[net]), batches(&["--lmdb", "raw_lmdb", "--batch-size", "4"]));
    let divided = batches(&[net, "--global-batch-size", "6", "--devices", "host:0,host:1"]);
    assert_eq!(divided, batches(&["--lmdb", "raw_lmdb", "--batch-size", "3"]));
}

#[test]
fn a_global_batch_that_cannot_be_is_refused() {
    let source = ["--lmdb", "raw_lmdb", "--global-batch-size", "7"];
    let message = refuse(&[&source[..], &["--devices", "host:0,host:1"]].concat(), 1);
    assert!(message.contains("a global batch of 7 records is no multiple of 2 ranks"), "{message}");
    let message = refuse(&[&source[..], &["--batch-size", "4"]].concat(), 2);
    assert!(message.contains("cannot be used with"), "{message}");
    assert!(refuse(&["--lmdb", "raw_lmdb", "--global-batch-size", "0"], 1).contains("batch_size"));
}

#[test]
fn images_are_resized_and_may_be_decoded_smaller() {
    let source = ["--lmdb", "raw_lmdb", "--resize"];
    let resized = batches(&[&source[..], &["20x30"]].concat());
    assert!(resized.contains("3x20x30"), "{resized}");
    assert_eq!(batches(&[&source[..], &["20x30", "--scaled-decode"]].concat()), resized);
    for size in ["20", "20x", "0x30", "20x30x3", "-1x3"] {
        let message = refuse(&["--lmdb", "raw_lmdb", &format!("--resize={size}")], 2);
        assert!(message.contains("not a height and a width"), "{size}: {message}");
    }
}

#[test]
fn a_net_may_have_its_files_decoded_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/photos");
    let list = folder.path().join("list.txt");
    std::fs::write(&list, format!("{}/coffee.jpg 1\n", photos.display())).unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' \
         image_data_param {{ source: '{}' batch_size: 4 new_height: 60 new_width: 70 }} }}",
        list.display()
    );
    std::fs::write(&net, layer).unwrap();
    let said = batches(&[net.to_str().unwrap(), "--scaled-decode"]);
    assert!(said.contains("3x60x70"), "{said}");
}

/// The command says nothing of pixels, but the feed that it builds says where the option comes to nothing.
#[test]
fn smaller_decoding_is_asked_of_the_feed_where_the_command_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = "layer { name: 'data' type: 'Data' top: 'data' \
                 data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";
    std::fs::write(&net, layer).unwrap();
    let said = |args: &[&str]| {
        let output = feed(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{message}");
        message.contains("scaled_decode has no effect: nothing is resized")
    };
    for source in [&[net.to_str().unwrap()][..], &["--lmdb", "raw_lmdb"]] {
        assert!(said(&[source, &["--scaled-decode"]].concat()), "{source:?}");
        assert!(!said(source), "{source:?}");
    }
    assert!(!said(&["--lmdb", "raw_lmdb", "--resize", "20x30", "--scaled-decode"]));
}
