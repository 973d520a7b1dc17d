//! Arrays of one ZIP file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::io::{Cursor, Write as _};

use percolator_files::Access;
use percolator_formats::{Options, npz};
use serde_json::json;
use survival::{Made, fails, options, records};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn array(shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn zipped(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn parts(names: &[&str]) -> Options {
    let mut options = Options::default();
    options.parts = Some(names.iter().map(|name| (*name).to_owned()).collect());
    options
}

#[test]
fn golden_files_are_read() {
    for case in common::cases("npz") {
        let path = common::files_of(case).remove(0);
        let head = std::fs::read(&path).unwrap();
        assert!(npz::is(&path, &head), "{}", common::name(case));
        if common::name(case) != "npz_uneven" {
            common::check(case, &|options| npz::open(&path, options));
        }
    }
}

#[test]
fn arrays_that_differ_are_named_or_refused() {
    let path = common::golden("npy/uneven.npz");
    fails(npz::open(&path, &Options::default()), &["x has 5, y has 4", "name the parts"]);
    let rows = common::rows_of(common::case("npz_uneven"));
    assert_eq!(records(npz::open(&path, &parts(&["x"]))).unwrap().len(), 5);
    let labels = records(npz::open(&path, &parts(&["y"]))).unwrap();
    assert_eq!(labels.len(), 4);
    assert_eq!(labels[3]["y"], rows[3]["fields"]["y"]);
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("npz") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "npz_cut" => &["ZIP file", "cut"],
            "npz_crc" => &["x.npy", "CRC mismatch"],
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| npz::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("npz") {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| npz::open(&folder.join(name), options));
    }
}

#[test]
fn a_stored_array_is_verified_at_the_end_of_a_pass() {
    let bytes = std::fs::read(common::golden("npy/stored.npz")).unwrap();
    let at = bytes.windows(6).position(|six| six == b"\x93NUMPY").unwrap() + 128 + 5;
    let mut changed = bytes.clone();
    changed[at] ^= 1;
    let made = Made::new(&[("a.npz", &changed)]);
    for access in [Access::Mapped, Access::Read] {
        let shard = npz::open(&made.path("a.npz"), &options(access, &[])).unwrap().remove(0);
        let mut cursor = shard.cursor().unwrap();
        for _ in 0..40 {
            assert!(cursor.advance().unwrap().is_some());
        }
        let error = cursor.advance().unwrap_err();
        assert!(error.to_string().contains("x.npy has the CRC"), "{error}");
        assert_eq!(cursor.advance().unwrap_err(), error, "the same error");
    }
}

#[test]
fn members_are_parts_in_both_methods() {
    let (image, label) = (array("(2, 3)", &[1, 2, 3, 4, 5, 6]), array("(2,)", &[8, 9]));
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let made =
            Made::new(&[("a.npz", &zipped(&[("in/image.npy", &image), ("label.npy", &label)], method))]);
        let shard = npz::open(&made.path("a.npz"), &Options::default()).unwrap().remove(0);
        assert_eq!(shard.grammar().names(), Some(vec!["in/image".to_owned(), "label".to_owned()]));
        let first = json!({
            "in/image": {"$array": "|u1", "shape": [3], "values": [1, 2, 3]},
            "label": {"$array": "|u1", "shape": [], "values": [8]},
        });
        assert_eq!(records(Ok(vec![shard])).unwrap()[0], first);
    }
}

#[test]
fn a_member_that_is_no_array_is_refused_unless_others_are_named() {
    let label = array("(2,)", &[8, 9]);
    let bytes = zipped(&[("label.npy", &label), ("notes.txt", b"notes")], CompressionMethod::Stored);
    let made = Made::new(&[("a.npz", &bytes)]);
    fails(npz::open(&made.path("a.npz"), &Options::default()), &["notes.txt is no array"]);
    assert_eq!(records(npz::open(&made.path("a.npz"), &parts(&["label"]))).unwrap().len(), 2);
}

#[test]
fn a_stated_length_that_cannot_be_is_no_allocation() {
    let zeros = array("(100000,)", &vec![0; 100_000]);
    let mut bytes = zipped(&[("a.npy", &zeros)], CompressionMethod::Deflated);
    let length = u32::try_from(zeros.len()).unwrap().to_le_bytes();
    while let Some(at) = bytes.windows(4).position(|four| four == length) {
        bytes[at..at + 4].copy_from_slice(&0xfff0_0000_u32.to_le_bytes());
    }
    let made = Made::new(&[("a.npz", &bytes)]);
    fails(npz::open(&made.path("a.npz"), &Options::default()), &["a.npy", "cannot unpack to so many"]);
}

#[test]
fn an_archive_without_arrays_has_no_records() {
    let made = Made::new(&[("a.npz", &zipped(&[], CompressionMethod::Stored)), ("b.npz", b"")]);
    assert_eq!(records(npz::open(&made.path("a.npz"), &Options::default())), Ok(Vec::new()));
    fails(npz::open(&made.path("b.npz"), &Options::default()), &["ZIP file is damaged or cut"]);
}
