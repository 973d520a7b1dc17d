//! What `inspect` prints to feed a data set with runs as it is printed, whatever the records are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter};
use tempfile::tempdir;

use crate::common;

fn image(name: &str) -> Vec<u8> {
    fs::read(common::repository().join("tests/data/images").join(name)).unwrap()
}

/// An Example that `write` writes.
fn example(write: impl FnOnce(&mut ExampleWriter) -> &mut ExampleWriter) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    write(&mut writer);
    writer.to_bytes()
}

fn write(path: &Path, records: &[Vec<u8>]) {
    let mut writer = TfRecordWriter::create(path, Compression::Plain).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
}

/// Runs what `inspect` prints last, in a shell, for two batches of two; returns the command.
#[track_caller]
fn runs(what: &str, path: &Path) -> String {
    let percolator = env!("CARGO_BIN_EXE_percolator");
    let inspected = Command::new(percolator).arg("inspect").arg(path).output().unwrap();
    let printed = String::from_utf8(inspected.stdout).unwrap();
    assert!(inspected.status.success(), "{what}: {}", String::from_utf8_lossy(&inspected.stderr));
    let start = printed.rfind("\npercolator feed ").unwrap_or_else(|| panic!("{what}: {printed}")) + 1;
    let (command, comments) = printed[start..].split_once('\n').unwrap();
    let script =
        format!("percolator() {{ {percolator} \"$@\"; }}\n{command} --batch-size 2 --batches 2\n{comments}");
    let fed = Command::new("bash").args(["-ec", &script]).output().unwrap();
    assert!(fed.status.success(), "{what}: {command}: {}", String::from_utf8_lossy(&fed.stderr));
    printed[start..].to_owned()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn the_command_for_any_examples_runs() {
    let (jpeg, other) = (image("420.jpg"), image("grey_8.png"));
    let long = "x".repeat(300);
    let cases: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
        (
            "a long string",
            vec![example(|x| x.bytes("s", [long.as_str()])), example(|x| x.bytes("s", ["a"]))],
            "s:bytes(300)",
        ),
        (
            "several long strings",
            vec![example(|x| x.bytes("s", [long.as_str(), "b"])), example(|x| x.bytes("s", ["a"]))],
            "s:strings[<=2](300)",
        ),
        (
            "several labels beside a picture",
            vec![
                example(|x| x.bytes("image/encoded", [&jpeg]).ints("image/class/label", [1, 2, 3])),
                example(|x| x.bytes("image/encoded", [&jpeg]).ints("image/class/label", [4])),
            ],
            "image/class/label:i64[<=3]",
        ),
        (
            "labels of which some records have several, called as the image's own field",
            vec![
                example(|x| x.bytes("image", [&jpeg]).ints("label", [1, 2])),
                example(|x| x.bytes("image", [&jpeg]).ints("label", [1, 2])),
            ],
            "label as label_2:i64[2]",
        ),
        (
            "a label that is a word",
            vec![example(|x| x.bytes("image", [&jpeg]).bytes("label", ["cat"]))],
            "label as label_2:bytes",
        ),
        (
            "a label of 64 bits",
            vec![example(|x| x.bytes("image", [&jpeg]).ints("label", [1 << 40]))],
            "label as label_2:i64",
        ),
        (
            "a picture of another name, with a label",
            vec![example(|x| x.bytes("image_raw", [&jpeg]).ints("label", [7]))],
            "--image image_raw --label label",
        ),
        (
            "pictures of two shapes",
            vec![example(|x| x.bytes("image", [&jpeg])), example(|x| x.bytes("image", [&other]))],
            "--color color --resize",
        ),
        (
            "pictures that some records lack",
            vec![example(|x| x.bytes("image", [&jpeg])), example(|x| x.ints("label", [1]))],
            "image:strings[<=1](",
        ),
        (
            "two pictures",
            vec![example(|x| x.bytes("left", [&jpeg]).bytes("right", [&other]))],
            "# there are images in \"right\", too",
        ),
        (
            "a name that another's lengths have",
            vec![example(|x| x.bytes("a", ["b", "c"]).ints("a/lengths", [1]))],
            "a/lengths as a/lengths_2",
        ),
        (
            "names that are no words",
            vec![example(|x| x.ints("a.b", [1]).ints("a b", [1]).ints("/", [1]).ints("it's", [1]))],
            "\"a.b\" as a_b_2:i64",
        ),
        (
            "a name of other letters",
            vec![example(|x| x.ints("größe", [1]).floats("", [1.0]))],
            "as gr__e:i64",
        ),
        (
            "features that are missing, empty or of several kinds",
            vec![
                example(|x| x.ints("a", [1]).floats("b", [1.0, 2.0]).ints("c", [1]).unset("d")),
                example(|x| x.ints("e", [1, 2]).floats("c", [1.0]).unset("b")),
            ],
            "\"c\" is left out: its values are of several kinds",
        ),
        (
            "more features than a batch has room for",
            vec![example(|x| (0..80).fold(x, |x, at| x.bytes(&format!("f{at:02}"), ["a", "b"])))],
            "left out: a batch has no room for it",
        ),
        (
            "many features with long names",
            vec![example(|x| (0..60).fold(x, |x, at| x.ints(&format!("{at:02}{long}"), [1])))],
            ":i64,",
        ),
        ("fixed numbers", vec![example(|x| x.floats("v", [1.0; 5]))], "v:f32[5]"),
    ];
    let folder = tempdir().unwrap();
    for (what, records, wanted) in cases {
        let path = folder.path().join(format!("{what}'s.tfrecord"));
        write(&path, &records);
        let command = runs(what, &path);
        assert!(command.contains(wanted), "{what}: {command}");
    }
}

#[test]
fn the_command_for_datums_and_odd_paths_runs() {
    let folder = tempdir().unwrap();
    let datums = [common::datum(1, 4, 6, 3, vec![7; 24]), common::datum(1, 5, 4, 2, vec![7; 20])];
    for name in [b"plain" as &[u8], b"a b$c`d\"e", b"new\nline", b"\xff\xfe"] {
        let path = folder.path().join(OsStr::from_bytes(name));
        write(&path, &datums);
        assert!(runs("datums", &path).contains("--resize"));
    }
    let database = folder.path().join("lmdb");
    let records = [example(|x| x.ints("x", [5])), example(|x| x.ints("x", [6]))];
    common::write_lmdb(&database, records.into_iter().enumerate().map(|(at, it)| (common::key(at), it)));
    assert!(runs("examples in an LMDB", &database).contains("--fields x:i64"));
}
