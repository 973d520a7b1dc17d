//! `percolator dump` shows users what their net sees, so it must write exactly those arrays. These tests run
//! the command as a user does, and compare its files with hashes of what real Caffe gave and with files that
//! NumPy wrote.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::common;
use crate::dumps::{Dump, LAYER, golden, split};

fn case(name: &str) -> Value {
    let cases: Value = serde_json::from_str(&fs::read_to_string(golden("cases.json")).unwrap()).unwrap();
    cases.as_array().unwrap().iter().find(|case| case["name"] == name).unwrap().clone()
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The arguments that a golden case was made with.
fn args_of(case: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_u64().unwrap().to_string();
    let mut args = vec![
        golden(&format!("net/{}.prototxt", case["name"].as_str().unwrap())).to_str().unwrap().to_owned(),
        "--phase".to_owned(),
        case["phase"].as_str().unwrap().to_owned(),
        "--batches".to_owned(),
        number(&case["batches"]),
        "--seed".to_owned(),
        number(&case["seed"]),
    ];
    if let Value::Array(shard) = &case["shard"] {
        args.extend(["--rank".to_owned(), number(&shard[1]), "--of".to_owned(), number(&shard[0])]);
    }
    args
}

#[test]
fn what_it_writes_is_what_caffe_gave() {
    for name in [
        "raw_none",
        "raw_leveldb_wrap",
        "raw_train_all",
        "raw_train_all_seed42",
        "raw_train_rank0of2",
        "raw_train_rank1of2",
        "raw_train_rank2of3",
        "raw_test_rank1of2",
        "gray_crop_mean",
        "float_train",
        "png_color_train_all",
        "png_rgba_none",
        "png_mixed_force_gray",
        "imageset_resize_none",
    ] {
        let (case, dump) = (case(name), Dump::new());
        let said = dump.pass(args_of(&case));
        let [data, label] = dump.both();
        let ((header, data), (_, labels)) = (split(&data), split(&label));
        assert_eq!(hash(data), case["data_sha256"].as_str().unwrap(), "{name}: data");
        assert_eq!(hash(labels), case["label_sha256"].as_str().unwrap(), "{name}: labels");
        let extents: Vec<String> =
            case["shape"].as_array().unwrap().iter().map(ToString::to_string).collect();
        let extents = extents.join(", ");
        assert!(String::from_utf8_lossy(header).contains(&format!("'shape': ({extents}), ")), "{name}");
        assert!(said.contains(&format!("out/data.npy: float32 [{extents}]\n  channel 0: min ")), "{said}");
        assert_eq!(dump.names(), ["data.npy", "label.npy"]);
    }
}

/// The header that NumPy wrote before the data of a golden case.
fn header_by_numpy(name: &str) -> Vec<u8> {
    fs::read(golden(&format!("headers/{name}.npy"))).unwrap()
}

#[test]
fn headers_are_numpys_to_the_byte() {
    // The cases of a pair have the same shapes.
    for (ours, numpys) in [
        ("png_color_none", "jpg_color_none"),
        ("png_gray_none", "jpg_gray_none"),
        ("png_color_train_all", "jpg_color_train_all"),
    ] {
        let dump = Dump::new();
        dump.pass(args_of(&case(ours)));
        assert_eq!(split(&dump.array("data.npy")).0, header_by_numpy(numpys), "{ours}");
        // numpy.save(file, numpy.zeros(n, "f4"))
        let records = if ours == "png_color_train_all" { 18 } else { 12 };
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({records},), }}");
        let label = format!("\x00{text:<117}\n");
        let label = [b"\x93NUMPY\x01\x00\x76", label.as_bytes()].concat();
        assert_eq!(split(&dump.array("label.npy")).0, label, "{ours}");
    }
}

#[test]
fn the_arrays_do_not_depend_on_the_threads() {
    for name in ["raw_train_all", "png_color_train_all"] {
        let written = ["1", "2", "7"].map(|threads| {
            let (mut args, dump) = (args_of(&case(name)), Dump::new());
            args.extend(["--threads".to_owned(), threads.to_owned()]);
            dump.pass(args);
            dump.both()
        });
        assert!(written[0] == written[1] && written[0] == written[2], "{name}");
    }
}

/// The arrays of a net that crops and mirrors in training, with these arguments.
fn random(args: &[&str]) -> [Vec<u8>; 2] {
    let dump = Dump::new();
    let net = golden("net/raw_train_all.prototxt");
    dump.pass([&[net.to_str().unwrap(), "--batches", "3"], args].concat());
    dump.both()
}

#[test]
fn each_random_sequence_is_its_own_and_the_same_every_time() {
    let sequences = ["caffe", "caffe-2015", "indexed"].map(|name| {
        let args = ["--seed", "1701", "--random", name];
        let arrays = random(&args);
        assert!(arrays == random(&args), "{name} is the same twice");
        assert!(arrays[0] != random(&["--seed", "1702", "--random", name])[0], "{name} has a seed");
        arrays
    });
    let [[caffe, label], [caffe_2015, _], [indexed, _]] = &sequences;
    assert!(caffe != caffe_2015 && caffe != indexed && caffe_2015 != indexed);
    // The random sequence does not affect the order of the records.
    assert!(sequences.iter().all(|[_, other]| other == label));
    assert!(*caffe == random(&["--seed", "1701"])[0], "a net with a seed is Caffe's");
    assert!(random(&[]) == random(&["--seed", "0", "--random", "indexed"]), "one without is ours");
}

#[test]
fn a_database_needs_no_net() {
    let written = [["raw_lmdb"], ["raw_leveldb_log"], ["raw_leveldb_ldb"]].map(|source| {
        let dump = Dump::new();
        dump.pass([&source[..], &["--phase", "test", "--batch-size", "16"]].concat());
        dump.both()
    });
    let case = case("raw_none");
    assert_eq!(hash(split(&written[0][0]).1), case["data_sha256"].as_str().unwrap());
    assert_eq!(hash(split(&written[0][1]).1), case["label_sha256"].as_str().unwrap());
    assert!(written[0] == written[1] && written[0] == written[2]);

    // The same again, by arguments instead of by a net.
    let dump = Dump::new();
    let transform = ["--crop", "27", "--mean-value", "104,117,123", "--scale", "0.017"];
    let source = ["raw_lmdb", "--phase", "test", "--batch-size", "16"];
    dump.pass(source.iter().chain(&transform));
    let by_net = Dump::new();
    by_net.pass(args_of(&self::case("raw_crop_mv3_scale")));
    assert!(dump.both() == by_net.both(), "the arguments say what the net says");
}

#[test]
fn a_layer_without_labels_has_no_label_file() {
    let dump = Dump::with_net(LAYER);
    let said = dump.pass(["net.prototxt"]);
    assert_eq!(dump.names(), ["data.npy"]);
    assert!(said.ends_with("no label.npy: the layer has no second top\n"), "{said}");
    assert_eq!(fs::read_dir(dump.folder.path().join("out")).unwrap().count(), 1, "and no other file");
}

#[test]
fn a_layer_is_chosen_by_its_name() {
    let second = LAYER.replace("raw_lmdb", "gray_lmdb").replace("'data'", "'gray'");
    let dump = Dump::with_net(&format!("{LAYER}\n{second}"));
    let message = dump.fail(["net.prototxt"]);
    let choose = "in TRAIN (level 0, no stages): choose one with --layer: \"data\", \"gray\"";
    assert_eq!(message, format!("net.prototxt: 2 data layers {choose}"));
    let message = dump.fail(["net.prototxt", "--layer", "label"]);
    assert_eq!(message, format!("net.prototxt: no data layer \"label\" {choose}"));
    assert!(dump.pass(["net.prototxt", "--layer", "gray"]).contains("[4, 1, 28, 28]"));

    let dump = Dump::with_net(&format!("{LAYER}\n{}", LAYER.replace("top: 'data'", "top: 'more'")));
    let message = dump.fail(["net.prototxt", "--layer", "data"]);
    assert!(message.starts_with("net.prototxt: 2 data layers \"data\" in TRAIN"), "{message}");
    assert!(message.ends_with("choose one with --top: \"data\", \"more\""), "{message}");
    for args in [&["--layer", "data", "--top", "more"][..], &["--top", "data"]] {
        dump.pass([&["net.prototxt"], args].concat());
    }
    let message = dump.fail(["net.prototxt", "--layer", "data", "--top", "none"]);
    assert!(message.contains("no data layer \"data\" that fills \"none\" in TRAIN"), "{message}");
}

#[test]
fn a_layer_may_be_called_anything() {
    let dump = Dump::with_net(&LAYER.replace("name: 'data'", "name: 'a\\000b'"));
    dump.pass(["net.prototxt"]);
}

#[test]
fn in_test_a_rank_has_every_record() {
    for args in [["net.prototxt", "--phase", "test"], ["raw_lmdb", "--batch-size=4", "--phase=test"]] {
        let dump = Dump::with_net(LAYER);
        dump.pass(args);
        let whole = dump.array("data.npy");
        dump.pass([&args[..], &["--rank", "1", "--of", "2"]].concat());
        assert_eq!(dump.array("data.npy"), whole, "{args:?}");
        let message = dump.fail([&args[..], &["--rank", "7", "--of", "2"]].concat());
        assert_eq!(message, "--rank 7: of 2 ranks, the last is 1");
    }
}

/// Caffe deals by the phase of the layer, which may have its own.
#[test]
fn a_layers_own_phase_says_whether_a_rank_has_every_record() {
    let net = LAYER.replace("top: 'data'", "top: 'data' top: 'label'");
    let labels = |own: &str, phase: &str| {
        let dump = Dump::with_net(&net.replace("name:", &format!("{own} name:")));
        dump.pass(["net.prototxt", "--phase", phase, "--rank", "0", "--of", "2"]);
        let label = dump.array("label.npy");
        split(&label).1.to_vec()
    };
    let (dealt, every) = (labels("", "train"), labels("", "test"));
    assert_ne!(dealt, every);
    assert_eq!(labels("phase: TRAIN", "test"), dealt);
    assert_eq!(labels("phase: TEST", "train"), every);
}

#[test]
fn a_ranks_own_records_may_have_another_shape_than_the_first() {
    let dump = Dump::new();
    let side = |index: usize| if index.is_multiple_of(2) { 2 } else { 3 };
    let records: Vec<_> = (0..8).map(|index| common::image(index, 1, side(index), side(index))).collect();
    let path = dump.folder.path().join("mixed_lmdb");
    common::write_lmdb(&path, records);
    let path = path.to_str().unwrap();
    for (rank, side) in [("0", 2), ("1", 3)] {
        let args = [path, "--batch-size", "2", "--batches", "2", "--rank", rank, "--of", "2"];
        assert!(dump.pass(args).contains(&format!("[4, 1, {side}, {side}]")));
        let data = dump.array("data.npy");
        assert_eq!(split(&data).1.len(), 4 * side * side * size_of::<f32>());
    }
}
