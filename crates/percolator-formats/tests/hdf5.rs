//! HDF5 files whose data sets share their first axis.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::fs;

use percolator_files::Access;
use percolator_formats::{DataSet, Options, format_of, hdf5};
use survival::{Made, fails, options, records};

fn parts(names: &[&str]) -> Options {
    let mut options = Options::default();
    options.parts = Some(names.iter().map(|name| (*name).to_owned()).collect());
    options
}

/// The parts of a case whose file has others, too.
fn wanted(case: &str) -> Option<Vec<String>> {
    (case == "hdf5_vlen").then(|| ["image", "ints", "text"].map(str::to_owned).to_vec())
}

#[test]
fn golden_files_are_read() {
    let cases = common::cases("hdf5");
    assert_eq!(cases.len(), 22);
    for case in cases {
        let path = common::files_of(case).remove(0);
        assert_eq!(format_of(&path).unwrap(), Some("hdf5"), "{}", common::name(case));
        common::check(case, &|options| {
            let mut options = options.clone();
            options.parts = wanted(common::name(case));
            hdf5::open(&path, &options)
        });
    }
}

#[test]
fn data_sets_that_differ_are_named_or_refused() {
    let path = common::golden("hdf5/vlen.h5");
    let differ = ["offsets/flat has", "image has 12", "name the parts"];
    fails(hdf5::open(&path, &Options::default()), &differ);
    let ragged = records(hdf5::open(&path, &parts(&["offsets/flat"]))).unwrap();
    assert!(ragged.len() > 12);
    fails(hdf5::open(&path, &parts(&["images"])), &["none of its data sets is wanted", "offsets/index"]);
    let uneven = common::golden("hdf5/uneven.h5");
    fails(hdf5::open(&uneven, &Options::default()), &["data has 4, label has 3"]);
    assert_eq!(records(hdf5::open(&uneven, &parts(&["label"]))).unwrap().len(), 3);
    let scalar = common::golden("hdf5/scalar.h5");
    fails(hdf5::open(&scalar, &Options::default()), &["it has no axis"]);
}

#[test]
fn texts_are_texts() {
    let texts = records(hdf5::open(&common::golden("hdf5/strings.h5"), &Options::default())).unwrap();
    assert!(texts.iter().all(|record| record.as_object().unwrap().values().all(|part| part.is_string())));
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("hdf5") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "hdf5_signature" => &["gzip_f32.h5", "no HDF5 file", "signature"],
            "hdf5_cut" => &["9472", "4736", "cut"],
            "hdf5_cut_small" => &["gzip_f32.h5"],
            "hdf5_btree" => &["data: ", "B-tree"],
            "hdf5_gzip_data" => &["record 4", "data, chunk (4, 0, 0, 0)", "cannot be inflated"],
            "hdf5_gzip_adler" => &["data, chunk (4, 0, 0, 0)", "checksum mismatch"],
            "hdf5_fletcher32" => &["record 0", "data, chunk (0, 0, 0, 0)", "checksum mismatch"],
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| hdf5::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("hdf5") {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| {
            let mut options = options.clone();
            options.parts = wanted(common::name(case));
            hdf5::open(&folder.join(name), &options)
        });
    }
}

/// A file as the user's block of 512 bytes is put before it; with `stated`, the superblock says so.
fn behind_user_block(file: &str, stated: bool) -> Vec<u8> {
    let mut bytes = fs::read(common::golden(file)).unwrap();
    if stated {
        // Superblock 0: the base address and that of the end.
        bytes[24..32].copy_from_slice(&512_u64.to_le_bytes());
        let end = bytes.len() as u64 + 512;
        bytes[40..48].copy_from_slice(&end.to_le_bytes());
    }
    [vec![b'#'; 512], bytes].concat()
}

#[test]
fn a_user_block_is_passed_over() {
    for (file, wanted) in
        [("hdf5/contiguous_f32.h5", None), ("hdf5/gzip_f32.h5", None), ("hdf5/vlen.h5", wanted("hdf5_vlen"))]
    {
        for stated in [true, false] {
            let made = Made::new(&[("blocked", &behind_user_block(file, stated))]);
            assert_eq!(format_of(&made.path("blocked")).unwrap(), Some("hdf5"));
            let mut options = Options::default();
            options.parts = wanted.clone();
            let plain = records(hdf5::open(&common::golden(file), &options)).unwrap();
            assert_eq!(
                records(hdf5::open(&made.path("blocked"), &options)).unwrap(),
                plain,
                "{file} {stated}"
            );
        }
    }
}

#[test]
fn a_tar_of_an_hdf5_file_is_a_tar() {
    let mut header = vec![0; 512];
    header[..4].copy_from_slice(b"a.h5");
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[124..135].copy_from_slice(b"00000005750");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let file = fs::read(common::golden("hdf5/contiguous_f32.h5")).unwrap();
    let made = Made::new(&[("a", &[header, file].concat())]);
    assert_eq!(format_of(&made.path("a")).unwrap(), Some("tar"));
}

#[test]
fn a_shape_that_no_file_can_hold_is_no_allocation() {
    let original = fs::read(common::golden("hdf5/extendable.h5")).unwrap();
    // The extents of `data`, which can grow: 5 rows of 2, 3, 4.
    let extents: Vec<u8> = [5_u64, 2, 3, 4].iter().flat_map(|extent| extent.to_le_bytes()).collect();
    let at = original.windows(32).position(|bytes| bytes == extents).unwrap();
    for (axis, extent) in [(0, 1 << 40), (0, u64::MAX), (1, 1 << 40), (3, u64::MAX / 8), (0, 10_000_000)] {
        let mut bytes = original.clone();
        bytes[at + axis * 8..][..8].copy_from_slice(&u64::to_le_bytes(extent));
        let made = Made::new(&[("a.h5", &bytes)]);
        for access in [Access::Mapped, Access::Read] {
            let mut options = options(access, &[]);
            options.parts = Some(vec!["data".to_owned()]);
            fails(hdf5::open(&made.path("a.h5"), &options), &["data: ", "a.h5"]);
        }
    }
}

#[test]
fn files_of_one_shape_are_one_data_set() {
    let names = ["hdf5/contiguous_f32.h5", "hdf5/chunked_f32.h5", "hdf5/gzip_f32.h5"];
    let paths = names.map(common::golden);
    let data_set = DataSet::open(&paths, &Options::default()).unwrap();
    assert_eq!(data_set.shards().iter().map(|shard| shard.records().unwrap()).sum::<u64>(), 26);
    let other = [common::golden("hdf5/contiguous_f32.h5"), common::golden("hdf5/f64.h5")];
    let error = DataSet::open(&other, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("open them apart"), "{error}");
}

#[test]
fn only_wanted_data_sets_are_looked_at() {
    // In `strings.h5` and `vlen.h5`, what is not wanted may be anything.
    let none = records(hdf5::open(&common::golden("hdf5/one.h5"), &parts(&[]))).unwrap();
    assert_eq!(none.len(), 1);
    let label = records(hdf5::open(&common::golden("hdf5/one.h5"), &parts(&["label"]))).unwrap();
    assert_eq!(label[0].as_object().unwrap().len(), 1);
    let mut wrong = Options::default();
    wrong.settings = vec![("root".to_owned(), "a".to_owned())];
    fails(hdf5::open(&common::golden("hdf5/one.h5"), &wrong), &["has no setting \"root\""]);
}
