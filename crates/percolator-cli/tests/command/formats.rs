//! Data of other libraries: printed, taken apart, fed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common;

/// A golden file of the package that reads it.
fn golden(path: &str) -> PathBuf {
    common::repository().join("crates/percolator-formats/tests/data/golden").join(path)
}

fn percolator(arguments: &[&str]) -> Output {
    let golden = golden("");
    Command::new(env!("CARGO_BIN_EXE_percolator")).args(arguments).current_dir(golden).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = percolator(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*error), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = percolator(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn lines(arguments: &[&str]) -> Vec<Value> {
    said(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn records_are_printed_with_their_parts() {
    let shards = lines(&["cat", "webdataset/shard-{000000..000002}.tar", "--json"]);
    assert_eq!(shards.len(), 12);
    for (number, line) in shards.iter().enumerate() {
        assert_eq!(line["n"], number);
        let picture = ["jpg", "png"].iter().find_map(|part| line["parts"][part]["$bytes"].as_u64());
        assert!(picture.unwrap() > 100, "{line}");
    }
    let one = lines(&["cat", "webdataset/shard-*.tar", "--json", "--record", "5"]);
    assert_eq!(one, [shards[5].clone()]);
    let key = shards[7]["key"].as_str().unwrap();
    assert_eq!(lines(&["cat", "webdataset/shard-*.tar", "--json", "--record", key]), [shards[7].clone()]);
    let two = lines(&["cat", "parquet/full_snappy.parquet", "--json", "--head", "2"]);
    assert_eq!(two.len(), 2);
    assert_eq!(two[0]["parts"]["ints"], json!([7435, 18191, 7465, 27209, 58614, 8042, 22998]));
    let text = said(&["cat", "jsonl/plain.jsonl", "--head", "1"]);
    assert!(text.starts_with("0\n    key    \"000000\"\n    label  9\n"), "{text}");
    let pairs = lines(&["cat", "lmdb/ocr", "--json", "--head", "1"]);
    assert_eq!((&pairs[0]["key"], &pairs[0]["parts"]["label"]), (&json!(1), &json!("signal semi;colon 🧭")));
    let refused = refused(&["cat", "webdataset/shard-*.tar", "--record", "12"]);
    assert!(refused.contains("there is no record \"12\" among 12 records"), "{refused}");
}

#[test]
fn records_of_percolators_own_databases_are_printed() {
    let data = common::repository().join("tests/data/golden/raw_lmdb");
    let lines = lines(&["cat", data.to_str().unwrap(), "--json", "--head", "1"]);
    let parts = lines[0]["parts"].as_object().unwrap();
    assert!(["channels", "height", "width", "label", "data"].iter().all(|part| parts.contains_key(*part)));
}

#[test]
fn a_part_is_written_as_it_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("picture.jpg");
    let arguments = [
        "extract",
        "parquet/hf_image.parquet",
        "--record",
        "3",
        "--part",
        "text",
        "-o",
        file.to_str().unwrap(),
    ];
    said(&arguments);
    assert_eq!(fs::read_to_string(&file).unwrap(), "灯台 ζυγός");
    let exists = refused(&arguments);
    assert!(exists.contains("picture.jpg"), "{exists}");
    let picture = percolator(&["extract", "webdataset/tarwriter.tar", "--record", "000003", "--part", "jpg"]);
    assert_eq!((picture.status.code(), picture.stdout.len()), (Some(0), 583));
    assert!(picture.stdout.starts_with(b"\xff\xd8\xff"));
    let missing = refused(&["extract", "webdataset/tarwriter.tar", "--record", "0", "--part", "png"]);
    assert!(
        missing.contains("record 0 has no part \"png\"; it has cls, jpg, json, txt, vec.npy"),
        "{missing}"
    );
}

/// The records that a feed's report says were read, without an error.
fn records_of(report: &str) -> u64 {
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["error"], Value::Null);
    let metrics = report["metrics"].as_array().unwrap();
    let records = metrics.iter().find(|metric| metric["name"] == "percolator_reader_records_total");
    records.unwrap()["value"].as_u64().unwrap()
}

#[test]
fn every_format_is_fed() {
    let images = ["--resize", "16x16", "--color", "color", "--once", "--json"];
    for (path, more) in [
        ("webdataset/tarwriter.tar.gz", &["--image", "jpg;png", "--label", "cls"][..]),
        ("parquet/hf_image.parquet", &[]),
        ("arrow/hf_disk", &["--image", "image.bytes", "--label", "label"]),
        ("mds/full", &[]),
        ("litdata/pytree", &[]),
        ("recordio/images.rec", &[]),
        ("lmdb/ocr", &["--image", "image"]),
        ("bagz/plain.bag", &["--image", "record"]),
    ] {
        let report = said(&[&["feed", path][..], more, &images].concat());
        assert_eq!(records_of(&report), 40, "{path}");
    }
    let tokens = ["feed", "megatron/u16.bin", "--fields", "tokens:i64[<=512]=0", "--epochs", "1", "--json"];
    assert_eq!(records_of(&said(&tokens)), 13);
    let fields = "label:i64,vec:f32[5],ints:i64[<=64],text:bytes(256)";
    said(&[
        "feed",
        "jsonl/plain.jsonl",
        "--fields",
        fields,
        "--shuffle",
        "global",
        "--epochs",
        "1",
        "--index",
        "memory",
    ]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let line = refused(&["cat", "jsonl/nan.jsonl"]);
    assert!(line.contains("jsonl/nan.jsonl, record 0, line 1: column 7: NaN is no JSON"), "{line}");
    let sparse = refused(&["feed", "webdataset/gnutar_sparse_gnu.tar", "--image", "bin", "--once"]);
    assert!(sparse.contains("the member sparse.bin is sparse"), "{sparse}");
    let unnamed = refused(&["feed", "jsonl/plain.jsonl", "--once"]);
    assert!(unnamed.contains("a feed must be told which it feeds"), "{unnamed}");
    let unknown = refused(&["cat", "jsonl/plain.jsonl", "--read-as", "zip"]);
    assert!(unknown.contains("there is no format \"zip\"; there are"), "{unknown}");
}

#[test]
fn data_of_other_libraries_is_inspected_and_verified() {
    let report: Value = serde_json::from_str(&said(&["inspect", "litdata/pytree", "--json"])).unwrap();
    assert_eq!(report["content"], "parts");
    assert_eq!((&report["records"], &report["files"]), (&json!(40), &json!(3)));
    assert_eq!(report["image_features"], json!(["image"]));
    let parts = report["features"].as_array().unwrap();
    let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["flag", "image", "label", "mat", "score", "t", "text", "tt", "vec"]);
    assert_eq!(report["labels"]["counts"].as_array().unwrap().len(), 10);
    let text = said(&["inspect", "parquet/hf_image.parquet"]);
    assert!(text.contains("--image image.bytes --label label"), "{text}");
    let tokens = said(&["inspect", "megatron/u16.bin"]);
    assert!(tokens.contains("--fields 'tokens:i64"), "{tokens}");
    let one = said(&["inspect", "webdataset/tarwriter.tar", "--record", "000004"]);
    assert!(one.contains("cls") && one.contains("vec.npy"), "{one}");
    for path in ["mds/full", "webdataset/tarwriter.tar.gz", "jsonl/plain.jsonl", "lmdb/ocr"] {
        let verified = said(&["verify", path]);
        assert!(verified.contains("nothing is wrong"), "{path}: {verified}");
    }
}

#[test]
fn damage_in_data_of_other_libraries_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("a.tar");
    let mut bytes = fs::read(golden("webdataset/tarwriter.tar")).unwrap();
    let jpeg = bytes.windows(3).position(|bytes| bytes == b"\xff\xd8\xff").unwrap();
    bytes[jpeg + 20..jpeg + 200].fill(0);
    fs::write(&copy, &bytes).unwrap();
    let output = percolator(&["verify", copy.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("record 0, key") && text.contains("2 records are whole"), "{text}");
}

#[test]
fn data_of_other_libraries_become_datums_and_examples() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let convert = ["convert", "records", "--quiet"];
    let [datums, examples] = [out("lmdb"), out("a.tfrecord")];
    said(&[&convert[..], &["webdataset/tarwriter.tar", &datums, "--example", "jpg,cls"]].concat());
    let labels: Vec<_> = lines(&["cat", &datums, "--json"])
        .into_iter()
        .map(|line| (line["key"].clone(), line["parts"]["label"].clone()))
        .collect();
    let due = [("00000000", 6), ("00000001", 0), ("00000002", 1)];
    assert_eq!(labels, due.map(|(key, label)| (json!(key), json!(label))));

    said(&[&convert[..], &["mds/full", &examples, "--backend", "tfrecord"]].concat());
    let (found, due) = (lines(&["cat", &examples, "--json"]), lines(&["cat", "mds/full", "--json"]));
    assert_eq!(found.len(), 40);
    for (found, due) in found.iter().zip(&due) {
        let (found, due) = (&found["parts"], &due["parts"]);
        // A feature is a list.
        assert_eq!((&found["image"][0], &found["label"]["values"][0]), (&due["image"], &due["label"]));
        assert!(found.get("meta.key").is_some() || due["meta"].is_null(), "{found}");
    }
    let strip = refused(&[&convert[..], &["mds/full", &out("x"), "--strip"]].concat());
    assert!(strip.contains("it has named parts, and is no Datum"), "{strip}");
}

#[test]
fn records_are_written_as_other_libraries_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let parts = |path: &str| -> Vec<Value> {
        lines(&["cat", path, "--json"]).into_iter().map(|line| line["parts"].clone()).collect()
    };
    let write = |words: &[&str]| said(&[&["convert", "shards", "--quiet"], words].concat());
    let parquet = out("a.parquet");
    write(&["mds/full", "--out", &parquet]);
    let names = ["image", "ints", "label", "meta", "score", "text", "vec_s"];
    for (found, due) in parts(&parquet).iter().zip(parts("mds/full")) {
        for name in names.iter().filter(|name| **name != "ints") {
            assert_eq!(found[name], due[name], "{name}");
        }
        assert_eq!(found["ints"].as_array().unwrap().len(), due["ints"]["shape"][0]);
    }

    // From own records and shards, in one order, over three shards.
    let shards = out("t.tar");
    let sources = ["webdataset/shard-*.tar", "mds/full", "--out", &shards, "--shards", "3"];
    write(&[&sources[..], &["--shuffle", "7"]].concat());
    let found = parts(&out("t-{000000..000002}.tar"));
    assert_eq!(found.len(), 52);
    let image = |parts: &Value| {
        let of = |name: &&&str| parts.get(**name).is_some();
        parts[*["jpg", "png", "image"].iter().find(of).unwrap()]["sha256"].as_str().unwrap().to_owned()
    };
    let sorted = |parts: &[Value]| {
        let mut images: Vec<_> = parts.iter().map(image).collect();
        images.sort_unstable();
        images
    };
    let due = [parts("webdataset/shard-*.tar"), parts("mds/full")].concat();
    assert_eq!(sorted(&found), sorted(&due));
    assert_ne!(found.iter().map(image).collect::<Vec<_>>(), due.iter().map(image).collect::<Vec<_>>());
    let bytes = fs::read(out("t-000001.tar")).unwrap();
    write(&[&sources[..], &["--shuffle", "7", "--force"]].concat());
    assert_eq!(fs::read(out("t-000001.tar")).unwrap(), bytes, "the same order, the same bytes");

    let there = refused(&[&["convert", "shards"], &sources[..]].concat());
    assert!(there.contains("t-000000.tar") && there.contains("exist"), "{there}");
    let unnamed = refused(&["convert", "shards", "mds/full", "--out", &out("x")]);
    assert!(unnamed.contains("say --as tar or --as parquet"), "{unnamed}");
    let packed =
        ["convert", "shards", "webdataset/tarwriter.tar.gz", "--out", &out("y.tar"), "--shuffle", "1"];
    assert!(refused(&packed).contains("its records have no places"));
    write(&["webdataset/tarwriter.tar.gz", "--out", &out("y.tar"), "--head", "30"]);
    assert_eq!(parts(&out("y.tar")), parts("webdataset/tarwriter.tar.gz")[..30]);
}

/// Reads what was written with the libraries that it is for.
const READ: &str = r#"
import hashlib, json, sys
import pyarrow.parquet
import webdataset
sha = lambda bytes: hashlib.sha256(bytes).hexdigest()
shards, table = sys.argv[1:]
samples = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
tar = [[sample["__key__"], sha(sample["jpg"] if "jpg" in sample else sample["png"]), int(sample["cls"]),
        sample["text"].decode(), json.loads(sample["ints.json"]) if "ints.json" in sample else None]
       for sample in samples]
rows = pyarrow.parquet.read_table(table).to_pylist()
parquet = [[sha(row["image"]), row["label"], row["text"], row["ints"], row["meta"]["key"]] for row in rows]
print(json.dumps({"tar": tar, "parquet": parquet}))
"#;

#[test]
fn webdataset_and_pyarrow_read_what_is_written() {
    if !common::need::python("WEBDATASET", "webdataset, pyarrow.parquet") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [shards, table] = [out("t.tar"), out("t.parquet")];
    said(&["convert", "shards", "jsonl/plain.jsonl", "--quiet", "--out", &out("plain.parquet")]);
    said(&["convert", "shards", "litdata/zstd_batch", "--quiet", "--out", &shards, "--shards", "2"]);
    said(&["convert", "shards", "mds/full", "--quiet", "--out", &table]);
    let output =
        Command::new("python3").args(["-c", READ, &out("t-{000000..000001}.tar"), &table]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();

    let due = lines(&["cat", "litdata/zstd_batch", "--json"]);
    let tar = read["tar"].as_array().unwrap();
    assert_eq!(tar.len(), due.len());
    for ((number, found), due) in tar.iter().enumerate().zip(&due) {
        let due = &due["parts"];
        assert_eq!(found[0], format!("{number:08}"));
        assert_eq!([&found[1], &found[2], &found[3]], [&due["image"]["sha256"], &due["label"], &due["text"]]);
    }
    let due = lines(&["cat", "mds/full", "--json"]);
    let rows = read["parquet"].as_array().unwrap();
    assert_eq!(rows.len(), due.len());
    for (found, due) in rows.iter().zip(&due) {
        let due = &due["parts"];
        assert_eq!([&found[0], &found[1], &found[2]], [&due["image"]["sha256"], &due["label"], &due["text"]]);
        assert_eq!([&found[3], &found[4]], [&due["ints"]["values"], &due["meta"]["key"]]);
    }
}

/// So many files are not kept open, in the middle of any of them.
#[test]
fn many_files_become_one() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..70 {
        let lines: String = (0..3).map(|line| format!("{{\"id\": {}}}\n", 3 * file + line)).collect();
        fs::write(folder.path().join(format!("{file:02}.jsonl")), lines).unwrap();
    }
    let pattern = format!("{}/*.jsonl", folder.path().display());
    let merged = folder.path().join("all.tar").display().to_string();
    said(&["convert", "shards", &pattern, "--out", &merged, "--quiet"]);
    let shuffled = folder.path().join("shuffled.tar").display().to_string();
    said(&["convert", "shards", &pattern, "--out", &shuffled, "--shuffle", "1", "--quiet"]);
    let ids = |tar: &str| -> Vec<u64> {
        let id = |line: &Value| line["parts"]["id"].as_str().unwrap().parse().unwrap();
        lines(&["cat", tar, "--json"]).iter().map(id).collect()
    };
    assert!(ids(&merged).into_iter().eq(0..210));
    let mut found = ids(&shuffled);
    assert!(!found.is_sorted());
    found.sort_unstable();
    assert!(found.into_iter().eq(0..210));
}
