//! The command reads TFRecord files as it reads databases of the same records.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use percolator::tfrecord::{Compression, TfRecordWriter};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;

const RECORDS: usize = 24;

/// The same Datums as an LMDB and as three files, one of which is compressed.
fn written() -> TempDir {
    let folder = tempdir().unwrap();
    common::write_images(&folder.path().join("lmdb"), RECORDS, 3, 6, 5);
    fs::create_dir(folder.path().join("files")).unwrap();
    for (file, compression) in [Compression::Plain, Compression::Gzip, Compression::Plain].iter().enumerate()
    {
        let path = folder.path().join(format!("files/part-{file}"));
        let mut writer = TfRecordWriter::create(path, *compression).unwrap();
        for index in file * 8..(file + 1) * 8 {
            writer.write(&common::image(index, 3, 6, 5).1).unwrap();
        }
        writer.finish().unwrap();
    }
    folder
}

fn run(folder: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

#[track_caller]
fn pass(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_are_dumped_fed_planned_and_digested() {
    let folder = written();
    let folder = folder.path();
    // A file without a record is no net.
    fs::write(folder.join("empty"), "").unwrap();
    let of_both = pass(folder, "digest files/part-0 empty --json");
    assert_eq!(of_both.replace(", empty", ""), pass(folder, "digest files/part-0 --json"));
    let arrays = |source: &str| {
        pass(
            folder,
            &format!("dump {source} --batches 4 --batch-size 6 --crop 4 --seed 5 --out out --force"),
        );
        ["data", "label"].map(|name| fs::read(folder.join(format!("out/{name}.npy"))).unwrap())
    };
    let of_lmdb = arrays("lmdb");
    for source in [
        "files",
        "files/part-*",
        "files/part-[01] files/part-2",
        "--tfrecord files/part-[01] --tfrecord files/part-2",
    ] {
        assert!(arrays(source) == of_lmdb, "{source}");
    }
    let printed = pass(folder, "plan files --global-batch-size 5 --shuffle files --seed 1 --json");
    let plan: Value = serde_json::from_str(&printed).unwrap();
    let order: Vec<u64> = serde_json::from_value::<Vec<Vec<Vec<u64>>>>(plan["steps"].clone())
        .unwrap()
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert_eq!(order.len(), RECORDS);
    assert!(
        order.chunks(8).all(|file| file[0] % 8 == 0 && file.windows(2).all(|pair| pair[1] == pair[0] + 1))
    );
    pass(folder, "digest files --each-record --out digest");
    let feed = "feed files --epochs 2 --batch-size 5 --shuffle files";
    pass(folder, &format!("{feed} --receipt receipt --receipt-contents"));
    let verdict = pass(folder, "verify-run receipt --epochs 2 --digest digest");
    assert!(verdict.contains("epoch 1"), "{verdict}");
}

/// What leads to single records of a compressed file says what to do, and then it works.
#[test]
fn compressed_files_are_shuffled_after_a_conversion() {
    let folder = written();
    let folder = folder.path();
    let feed = "feed --epochs 1 --batch-size 5 --index memory";
    for refused in ["--shuffle global", "--shuffle window:8", "--workers 2 --worker 1 --shuffle global"] {
        let output = run(folder, &format!("{feed} files {refused}"));
        let message = String::from_utf8_lossy(&output.stderr);
        let due = "part-1: it is compressed, so it can only be read from front to back";
        let instead = "percolator convert records IN OUT --backend tfrecord";
        assert!(!output.status.success() && message.contains(due) && message.contains(instead), "{message}");
    }
    for read in ["--shuffle files", "--workers 2 --worker 1", "--workers 2 --worker 1 --shuffle files"] {
        pass(folder, &format!("{feed} files {read}"));
    }
    assert_eq!(fs::read_dir(folder.join("files")).unwrap().count(), 3, "nothing is written beside them");
    pass(folder, "convert records files plain --backend tfrecord --quiet");
    pass(folder, &format!("{feed} plain --shuffle global"));
    let [packed, plain] = ["files", "plain"].map(|source| {
        pass(folder, &format!("dump {source} --batches 4 --batch-size 6 --out out --force"));
        fs::read(folder.join("out/data.npy")).unwrap()
    });
    assert!(packed == plain, "the records are in their order");
}

/// What is written among the records would be taken for records, or end the next run.
#[test]
fn nothing_is_written_among_the_records() {
    let folder = written();
    let folder = folder.path();
    let files = || {
        let mut names: Vec<_> =
            fs::read_dir(folder.join("files")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for arguments in [
        "feed files --once --bad-records skip --quarantine files/bad.tfrecord",
        "feed files/part-* --once --bad-records skip --quarantine ./files/part-bad",
        "feed --root files part-* --epochs 1 --receipt files/part-r",
        "feed files --epochs 1 --snapshot files/s",
        "feed files --epochs 1 --trace files/trace",
        "mean files files/mean.binaryproto",
        "inspect files/p* --html files/page",
        "inspect files --html files/report",
        "verify files/part-* --repair files/part-clean",
        "verify files --repair files/clean",
        "digest files --out files/digest",
        "digest files/part-0 --tfrecord files --out ./files/digest",
        "dump files --batches 1 --batch-size 2 --out files",
        "convert records files files/twice --backend tfrecord",
        "convert records files/p* files/part --backend tfrecord --shards 2",
    ] {
        let output = run(folder, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        let is_said =
            ["would be one of", "would be among", "a part of the data set", "would be a part of it"];
        assert!(is_said.iter().any(|said| message.contains(said)), "{arguments}: {message}");
        assert_eq!((output.status.code(), files().len()), (Some(2), 3), "{arguments}");
    }
    // These are no files of records, or other data sets'.
    pass(folder, "convert records files twice --backend tfrecord --quiet");
    pass(folder, "dump files --batches 1 --batch-size 2 --out new/");
    pass(folder, "feed files --epochs 1 --receipt files/r.json --snapshot files/.s");
    pass(folder, "inspect files/part-* --html files/pictures.html");
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = written();
    let folder = folder.path();
    fs::write(folder.join("net"), "name: \"a net with nothing to read\"").unwrap();
    for (arguments, due) in [
        ("feed nothing-* --once", "nothing-*: no file matches this pattern"),
        ("feed missing --once", "missing: cannot find it: No such file or directory"),
        ("feed --tfrecord lmdb/data.mdb --once", "not a TFRecord file: it is an LMDB's data file"),
        ("feed net files --once", "net: a net cannot be combined with other data sets"),
        ("feed files --database train --once", "--database names a database of an LMDB"),
        ("feed files --shuffle file --epochs 1", "must be no, global, files, window:RECORDS"),
        ("feed files --allow-log-gaps --once", "--allow-log-gaps is for a LevelDB"),
        ("verify files --database train", "files: the name of a database is for an LMDB, and this is of the"),
        ("verify files --root files/", "files: a root folder is for a list of images, and this is of the"),
        (
            "mean lmdb --allow-log-gaps",
            "lmdb: gaps in logs are those of a LevelDB, and this is of the kind LMDB",
        ),
        ("digest lmdb --layer data", "select a layer of a net, and no net is given"),
        ("digest lmdb --stage one", "select a layer of a net, and no net is given"),
        ("digest net --lmdb lmdb --out d", "net: a net cannot be combined with other data sets"),
        ("digest net files --out d", "net: a net cannot be combined with other data sets"),
        ("verify-run r --metadata-folder m", "cannot be used with"),
        ("verify-run r --etcd http://127.0.0.1:1", "cannot be used with"),
        ("bench --synthetic raw256 --top data", "cannot be used with"),
        ("bench --synthetic raw256 --allow-log-gaps", "cannot be used with"),
    ] {
        let output = run(folder, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(due), "{arguments}: {message}");
    }
}

#[test]
fn files_are_measured() {
    let folder = written();
    let folder = folder.path();
    let bench = "bench --rounds 1 --seconds 0.1 --threads 2 --json";
    let job = |arguments: &str| -> Value {
        serde_json::from_str(&pass(folder, &format!("{bench} {arguments}"))).unwrap()
    };
    let synthetic = job("--synthetic tokens --as tfrecord --records 300 --cache made");
    assert_eq!(synthetic["job"], "tokens-tfrecord");
    for (measured, records) in [(synthetic, 300), (job("files"), RECORDS)] {
        assert!(measured["records_per_s"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{measured}");
        // They are known once a cursor has been through the files.
        assert!(measured["source_records"].is_null() || measured["source_records"] == records, "{measured}");
    }
    let made = fs::read_dir(folder.join("made")).unwrap().map(|entry| entry.unwrap().path());
    let made = made.collect::<Vec<_>>();
    assert!(made.len() == 1 && made[0].is_file(), "{made:?}");
}

#[test]
fn databases_and_files_are_one_data_set() {
    let folder = written();
    let folder = folder.path();
    let labels = |source: &str, batches: usize| {
        pass(folder, &format!("dump {source} --batches {batches} --batch-size 6 --out out --force"));
        let file = fs::read(folder.join("out/label.npy")).unwrap();
        file[file.len() - batches * 6 * 4..].to_vec()
    };
    let of_lmdb = labels("lmdb", 4);
    assert_eq!(labels("files lmdb", 8), [&of_lmdb[..], &of_lmdb].concat());
}
