//! What is not what was wanted is told by every command that meets it: what it is, and what this command's
//! user does about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter};
use tempfile::tempdir;

use crate::common;

/// Runs a command that fails; returns what it says.
#[track_caller]
fn fails(text: &str, path: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    for word in text.split(' ') {
        command.arg(if word == "@" { path.as_os_str() } else { word.as_ref() });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !said.contains("panicked"), "{text}: {said}");
    said
}

/// A copy of a golden file or folder.
fn golden(name: &str) -> PathBuf {
    common::repository().join("tests/data").join(name)
}

#[test]
fn each_reader_tells_a_git_lfs_pointer() {
    let folder = tempdir().unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n";
    let at = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, pointer).unwrap();
        path
    };
    let (database, folder_of_it) = (at("db/data.mdb"), folder.path().join("db"));
    let cases = [
        ("inspect @", database.clone()),
        ("verify @", folder_of_it.clone()),
        ("feed --lmdb @", folder_of_it),
        ("feed --lmdb @", database),
        ("feed --tfrecord @", at("train.tfrecord")),
        ("inspect @", at("test.tfrecord")),
        ("mean @", at("list.txt")),
        ("feed @", at("net.prototxt")),
        ("model list @", at("model.safetensors")),
        ("model list @", at("m.index")),
        ("model verify @", at("model.ckpt")),
        ("convert list ./ @ out", at("list.txt")),
        ("convert records @ out", at("x.tfrecord")),
    ];
    for (command, path) in cases {
        let said = fails(command, &path);
        let due =
            "it is a Git LFS pointer, which stands for a file of 1234 bytes: fetch that with `git lfs pull`";
        assert!(said.contains(due), "{command} {}: {said}", path.display());
    }
    let net = folder.path().join("n.prototxt");
    let lmdb = golden("golden/raw_lmdb");
    let said = fails(&format!("feed --lmdb {} --mean-file @", lmdb.display()), &at("mean.binaryproto"));
    assert!(said.contains("a Git LFS pointer"), "{said}");
    assert!(!net.exists());
}

/// A thing where another one is wanted.
#[test]
fn what_is_there_is_named() {
    let folder = tempdir().unwrap();
    let classes = folder.path().join("classes");
    fs::create_dir_all(classes.join("cat")).unwrap();
    fs::copy(golden("images/420.jpg"), classes.join("cat/1.jpg")).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let list = write("list.txt", "cat.jpg 3\n");
    let net = write("net.prototxt", "layer { name: \"a\" type: \"Data\" top: \"a\" }\n");
    let solver = write("solver.prototxt", "net: \"net.prototxt\"\nbase_lr: 0.1\n");
    let html = write("page.tfrecord", "<!DOCTYPE html><html><body>404 Not Found</body></html>");
    let torch = folder.path().join("model.ckpt");
    let mut zip = b"PK\x03\x04".to_vec();
    zip.resize(26, 0);
    zip.extend([16, 0, 0, 0]);
    zip.extend(b"archive/data.pkl");
    fs::write(&torch, zip).unwrap();
    let npy = folder.path().join("mean.npy");
    fs::write(&npy, b"\x93NUMPY\x01\0").unwrap();
    let rocks = folder.path().join("rocks");
    fs::create_dir(&rocks).unwrap();
    for name in ["CURRENT", "IDENTITY", "OPTIONS-000007", "MANIFEST-000004"] {
        fs::write(rocks.join(name), "MANIFEST-000004\n").unwrap();
    }
    let (lmdb, leveldb) = (golden("golden/raw_lmdb"), golden("golden/raw_leveldb_ldb"));
    let records = golden("tensorflow/raw.tfrecord");
    for (command, path, due) in [
        ("feed --tfrecord @", &lmdb, "it is an LMDB's data file: read it with `percolator feed PATH`, or"),
        ("feed --leveldb @", &lmdb, "not a LevelDB: it is an LMDB: read it"),
        ("feed --lmdb @", &leveldb, "not an LMDB: it is a LevelDB: read it"),
        (
            "feed --lmdb @",
            &records,
            "not an LMDB: it is a TFRecord file: read it with `percolator feed PATH`",
        ),
        ("feed --lmdb @", &rocks, "a RocksDB, which is no LevelDB"),
        ("feed --leveldb @", &rocks, "a RocksDB, which is no LevelDB"),
        ("inspect @", &rocks, "a RocksDB, which is no LevelDB"),
        ("inspect @", &net, "no data set: it is a net of Caffe: feed it with `percolator feed NET`"),
        (
            "inspect @",
            &solver,
            "no data set: it is a solver of Caffe, whose `net:` names the net: give that net",
        ),
        ("feed @", &solver, "not a net: it is a solver of Caffe"),
        ("feed @", &list, "neither a net nor data that can be fed: it is a list of images"),
        ("feed --tfrecord @", &list, "not a TFRecord file: it is a list of images"),
        ("feed --lmdb @", &classes, "a folder with a folder of images for each class"),
        ("feed @", &rocks, "a RocksDB, which is no LevelDB"),
        ("feed @", &html, "not a TFRecord file: it is an HTML page"),
        ("feed @", &torch, "a PyTorch file (a ZIP archive with a pickle)"),
        ("feed @", &npy, "mean.npy: the file ends inside its header: it is cut"),
        ("inspect @", &html, "an HTML page, as a server sends it"),
        ("feed --tfrecord @", &html, "not a TFRecord file: it is an HTML page"),
        ("inspect @", &torch, "a PyTorch file (a ZIP archive with a pickle)"),
        ("model list @", &torch, "a PyTorch file (a ZIP archive with a pickle)"),
        ("model list @", &net, "a net of Caffe"),
    ] {
        let said = fails(command, path);
        assert!(said.contains(due), "{command} {}: {said}", path.display());
        assert!(!said.contains(".lmdb(") && !said.contains("lmdb="), "{said}");
    }
    let said = fails(&format!("feed --lmdb {} --mean-file @", lmdb.display()), &npy);
    assert!(said.contains("it is a NumPy array (.npy)"), "{said}");
}

#[test]
fn records_of_another_kind_name_their_options() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    writer.write(&ExampleWriter::new().ints("label", [3]).to_bytes()).unwrap();
    writer.finish().unwrap();
    let said = fails("feed --tfrecord @", &path);
    assert!(
        said.contains("its value is a tf.train.Example, and not a Datum: name its features with --fields"),
        "{said}"
    );
    let jpegs = folder.path().join("jpegs");
    let jpeg = fs::read(golden("images/420.jpg")).unwrap();
    common::write_lmdb(&jpegs, [(common::key(0), jpeg)]);
    let said = fails("feed --lmdb @", &jpegs);
    assert!(said.contains("its value is a bare JPEG file, and not a Datum: no option reads it"), "{said}");
}

#[test]
fn of_no_record_no_command_says_anything_good() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("empty.tfrecord");
    fs::write(&path, "").unwrap();
    let database = folder.path().join("lmdb");
    common::write_lmdb(&database, []);
    for path in [path, database] {
        let run = |tool: &str, options: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
            let output = command.arg(tool).arg(&path).args(options).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        let (code, printed) = run("verify", &[]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.ends_with(": there is no record, so nothing was verified\n"), "{printed}");
        let (code, printed) = run("verify", &["--json"]);
        assert!(code == Some(1) && printed.contains("\"is_whole\":false"), "{printed}");
        let (code, printed) = run("inspect", &[]);
        assert!(code == Some(0) && printed.ends_with("\n\nThere is no record: a feed needs at least 1.\n"));
        assert!(
            !printed.contains("neither Datums") && !printed.contains("no values come twice"),
            "{printed}"
        );
        for tool in ["digest @", "mean @", "feed --lmdb @", "convert records @ out"] {
            let tool = if path.is_dir() { tool } else { &tool.replace("--lmdb", "--tfrecord") };
            let said = fails(tool, &path);
            assert!(said.contains(": there is no record"), "{tool}: {said}");
        }
    }
}
