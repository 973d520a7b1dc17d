//! TensorFlow's records from the command: `dump` writes a file for each field, `feed` and `bench` run, and
//! what no feature can become is refused in words.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use percolator::example::ExampleWriter;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;

/// The records of an uncompressed TFRecord file.
fn records(name: &str) -> Vec<Vec<u8>> {
    let file = fs::read(common::repository().join("tests/data/tensorflow").join(name)).unwrap();
    let (mut rest, mut records) = (&*file, Vec::new());
    while let Some((head, behind)) = rest.split_at_checked(12) {
        let len = usize::try_from(u64::from_le_bytes(*head.first_chunk().unwrap())).unwrap();
        records.push(behind[..len].to_vec());
        rest = &behind[len + 4..];
    }
    records
}

/// A folder with these records in an LMDB named `db`.
fn database(records: impl IntoIterator<Item = Vec<u8>>) -> TempDir {
    let folder = tempdir().unwrap();
    let keyed = records.into_iter().enumerate().map(|(index, record)| (common::key(index), record));
    common::write_lmdb(&folder.path().join("db"), keyed);
    folder
}

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator")).current_dir(folder).args(args).output().unwrap()
}

#[track_caller]
fn succeeds(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !message.contains("panicked"), "{message}");
    message
}

/// The type, the shape and the bytes of an array file.
fn npy(path: &Path) -> (String, String, Vec<u8>) {
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let end = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let header = std::str::from_utf8(&file[10..end]).unwrap();
    let between = |start: &str, end: &str| {
        let (_, rest) = header.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    (between("'descr': '", "'"), between("'shape': (", ")"), file[end..].to_vec())
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|value| i64::from_le_bytes(*value)).collect()
}

fn list(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

#[test]
fn dump_writes_a_file_for_each_field() {
    let folder = database(records("examples.tfrecord"));
    let golden = fs::read(common::repository().join("tests/data/tensorflow/examples.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    let examples = &golden["examples"].as_array().unwrap()[..48];
    let fields = "ids:i64[3x4],id:i32,name:bytes(12),ragged:i64[<=8]=-1,ragged as in/loose:u8[<=8],\
                  weights:bf16[5],image:bytes[27]";
    let args = ["dump", "db", "--batch-size", "16", "--batches", "3", "--out", "out"];
    let said = succeeds(folder.path(), &[&args[..], &["--fields", fields]].concat());
    let array = |name: &str| npy(&folder.path().join("out").join(name));
    let nothing = Value::Array(Vec::new());
    let ragged = |example: &Value| list(example.get("ragged").unwrap_or(&nothing));
    let (descr, shape, bytes) = array("ids.npy");
    assert_eq!((&*descr, &*shape), ("<i8", "48, 3, 4"));
    assert_eq!(i64s(&bytes), examples.iter().flat_map(|example| list(&example["ids"])).collect::<Vec<_>>());
    let (descr, shape, bytes) = array("id.npy");
    assert_eq!((&*descr, &*shape), ("<i4", "48,"));
    assert_eq!(bytes, (0..48_i32).flat_map(i32::to_le_bytes).collect::<Vec<_>>());
    let (descr, shape, bytes) = array("name.npy");
    assert_eq!((&*descr, &*shape), ("|S12", "48,"));
    let lengths = i64s(&array("name.lengths.npy").2);
    for (number, (name, length)) in bytes.chunks(12).zip(&lengths).enumerate() {
        let wanted = format!("record {number}");
        assert_eq!((&name[..wanted.len()], *length), (wanted.as_bytes(), wanted.len() as i64));
    }
    let (descr, shape, bytes) = array("ragged.npy");
    assert_eq!((&*descr, &*shape), ("<i8", "48, 8"));
    let lengths = i64s(&array("ragged.lengths.npy").2);
    for (number, example) in examples.iter().enumerate() {
        let mut row = ragged(example);
        assert_eq!(lengths[number], row.len() as i64);
        row.resize(8, -1);
        assert_eq!(i64s(&bytes[64 * number..][..64]), row);
    }
    let (descr, shape, values) = array("in/loose.npy");
    let all: Vec<u8> = examples.iter().flat_map(ragged).map(|value| u8::try_from(value).unwrap()).collect();
    assert_eq!((&*descr, shape, values), ("|u1", format!("{},", all.len()), all));
    let (_, shape, offsets) = array("in/loose.offsets.npy");
    let ends = examples.iter().scan(0, |end, example| {
        *end += ragged(example).len() as i64;
        Some(*end)
    });
    assert_eq!((&*shape, i64s(&offsets)), ("49,", [0].into_iter().chain(ends).collect()));
    let (descr, shape, _) = array("weights.npy");
    assert_eq!((&*descr, &*shape), ("<f4", "48, 5"));
    let (descr, shape, _) = array("image.npy");
    assert_eq!((&*descr, &*shape), ("|u1", "48, 27"));
    assert!(said.contains("out/ids.npy: int64 [48, 3, 4]\n"), "{said}");
    assert!(said.contains("out/name.npy: bytes of 12 [48]\n  lengths in out/name.lengths.npy\n"), "{said}");
    assert!(said.contains("loose.npy: uint8, ragged\n  offsets in out/in/loose.offsets.npy\n"), "{said}");
}

#[test]
fn dump_of_an_examples_image_is_that_of_the_database() {
    let folder = database(records("raw.tfrecord"));
    let golden = common::repository().join("tests/data/golden/raw_lmdb");
    let args = ["dump", "--batch-size", "8", "--batches", "8", "--crop", "24", "--seed", "5"];
    succeeds(folder.path(), &[&args[..], &[golden.to_str().unwrap(), "--out", "theirs"]].concat());
    let image = ["db", "--image", "image/raw", "--image-shape", "image/shape"];
    let label = ["--label", "image/class/label", "--out", "ours", "--fields", "image/shape as shape:i64[3]"];
    succeeds(folder.path(), &[&args[..], &image, &label].concat());
    let read = |path: &str| fs::read(folder.path().join(path)).unwrap();
    for name in ["data.npy", "label.npy"] {
        assert!(read(&format!("ours/{name}")) == read(&format!("theirs/{name}")), "{name}");
    }
    assert_eq!(npy(&folder.path().join("ours/shape.npy")).1, "64, 3");
    let fixed = ["db", "--image", "image/raw", "--image-shape", "3x40x36", "--out", "fixed"];
    let said = succeeds(folder.path(), &[&args[..], &fixed].concat());
    assert!(read("fixed/data.npy") == read("ours/data.npy"));
    assert!(said.ends_with("no label.npy: there is no --label\n"), "{said}");
    assert!(!folder.path().join("fixed/label.npy").exists());
}

#[test]
fn a_failed_dump_replaces_no_array() {
    let bad = ExampleWriter::new().ints("a", [1, 2, 3]).to_bytes();
    let good = ExampleWriter::new().ints("a", [1]).to_bytes();
    let folder = database([good.clone(), good, bad]);
    let args = ["dump", "db", "--out", "out", "--fields", "a:i64[<=2]", "--batches"];
    let files = || {
        let files = fs::read_dir(folder.path().join("out")).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.map(|path| (fs::read(&path).unwrap(), path)).collect();
        files.sort();
        files
    };
    succeeds(folder.path(), &[&args[..], &["2"]].concat());
    let before = files();
    assert_eq!(before.len(), 2);
    let message = fails(folder.path(), &[&args[..], &["3", "--force"]].concat());
    assert!(
        message.contains("the feature \"a\" has 3 value(s), but the field a: i64 [<=2] takes at most 2"),
        "{message}"
    );
    assert_eq!(files(), before);
}

#[test]
fn feed_and_bench_take_examples() {
    let folder = database(records("examples.tfrecord"));
    let fields = ["db", "--fields", "ids:i64[12],ragged:i32[<=4]=0"];
    let said = succeeds(folder.path(), &[&["feed"][..], &fields, &["--once", "--batch-size", "16"]].concat());
    assert!(said.contains("batches of 16 records of ids: i64 [12], ragged: i32 [<=4]=0"), "{said}");
    let measured = ["bench", "--json", "--rounds", "1", "--seconds", "0.05", "--threads", "2"];
    let said = succeeds(folder.path(), &[&measured[..], &fields].concat());
    let figures: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&figures["source_shape"], &figures["dtype"]), (&Value::Null, &"i64".into()));
    let image = ["feed", "db", "--image", "image", "--once"];
    let message = fails(folder.path(), &image);
    assert!(message.contains("record 0"), "{message}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let folder = database(records("examples.tfrecord"));
    let dump = |more: &[&str]| fails(folder.path(), &[&["dump", "db", "--out", "out"], more].concat());
    let message = dump(&["--fields", "ids:i65"]);
    assert!(message.contains("at character 5, \"i65\": not a type: use i8, i16,"), "{message}");
    let message = dump(&["--fields", "ids:i64[12]", "--crop", "3"]);
    assert!(message.contains("transform is for Caffe's image records"), "{message}");
    assert!(dump(&["--label", "id"]).contains("--image"));
    let message = fails(folder.path(), &["feed", "net.prototxt", "--fields", "a:i64"]);
    assert!(message.contains("cannot be used with"), "{message}");
}
