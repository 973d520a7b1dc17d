//! What users get wrong with `percolator dump`, and what they give it that cannot be read: the message names
//! it, and no array is written.

use std::fs;

use rustix::io::Errno;

use crate::common;
use crate::dumps::{Dump, LAYER, golden, split};

#[test]
fn records_of_several_shapes_make_no_array() {
    let dump = Dump::new();
    let message = dump.fail(["png_mixed_lmdb", "--batches", "12"]);
    assert!(message.starts_with("png_mixed_lmdb: batch "), "{message}");
    assert!(message.contains("arrays of different shapes cannot be joined"), "{message}");
    // The suggested remedy works.
    let advice = message.split("--batches ").nth(1).unwrap();
    dump.pass(["png_mixed_lmdb", "--batches", advice]);

    let message = Dump::new().fail(["png_mixed_lmdb", "--batch-size", "12"]);
    assert!(message.contains("all records of a batch have one shape"), "{message}");
    assert!(message.contains("png_mixed_lmdb: epoch 0, record "), "{message}");
}

#[test]
fn a_net_that_cannot_be_read_is_named_with_the_place() {
    let message = Dump::new().fail(["missing.prototxt"]);
    let missing = std::io::Error::from(Errno::NOENT);
    assert_eq!(message, format!("missing.prototxt: cannot be read: {missing}"));
    let message = Dump::new().fail(["."]);
    assert!(message.contains("/.: neither a net nor data that can be fed: it is a folder"), "{message}");
    let message = Dump::new().fail(["--net", "."]);
    assert!(message.starts_with(".: a net is a file, and this is a folder: "), "{message}");
    let message = Dump::with_net("layer {\n  name: 'd'\n  nmae 'x'\n}").fail(["net.prototxt"]);
    assert!(message.starts_with("net.prototxt:3:8: expected \":\""), "{message}");
    let crop = LAYER.replace("data_param", "transform_param { crop: 3 }\ndata_param");
    let message = Dump::with_net(&crop).fail(["net.prototxt"]);
    assert!(
        message.starts_with("net.prototxt:1:65: message type \"caffe.TransformationParameter\""),
        "{message}"
    );
    let message = Dump::with_net(&LAYER.replace("batch_size: 4", "")).fail(["net.prototxt"]);
    assert!(
        message.starts_with("net.prototxt:1:1: layer \"data\": positive batch size required"),
        "{message}"
    );
    let message = Dump::with_net(LAYER).fail(["net.prototxt", "--phase", "test", "--batch-size", "0"]);
    assert_eq!(message, "net.prototxt:1:1: layer \"data\": batch_size is 0; it must be at least 1");
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let message = Dump::with_net(&LAYER.replace("raw_lmdb", "no_lmdb")).fail(["net.prototxt"]);
    let path = golden("no_lmdb");
    assert_eq!(
        message,
        format!(
            "net.prototxt:1:1: layer \"data\": {}: cannot open the database: {}",
            path.display(),
            std::io::Error::from(Errno::NOENT)
        )
    );
    let message = Dump::with_net(&LAYER.replace("LMDB", "LEVELDB")).fail(["net.prototxt"]);
    assert!(message.contains("raw_lmdb: not a LevelDB: it is an LMDB: read it"), "{message}");
    let mean = LAYER.replace("data_param", "transform_param { mean_file: 'no.binaryproto' } data_param");
    let message = Dump::with_net(&mean).fail(["net.prototxt"]);
    assert!(message.contains("no.binaryproto: cannot be read: "), "{message}");
}

#[test]
fn a_bad_record_is_named_and_ends_the_dump() {
    let dump = Dump::new();
    let mut records: Vec<_> = (0..9).map(|index| common::image(index, 3, 8, 8)).collect();
    records[5].1.truncate(100);
    let path = dump.folder.path().join("bad_lmdb");
    common::write_lmdb(&path, records);
    let path = path.to_str().unwrap();
    let message = dump.fail([path, "--batch-size", "2", "--batches", "4"]);
    let place = format!("{path}: epoch 0, record 5, key \"00000005\": ");
    assert!(message.starts_with(&place), "{message}");
    dump.pass([path, "--batch-size", "2", "--batches", "2"]);
}

#[test]
fn a_leveldb_whose_log_lacks_a_record_is_read_where_that_is_allowed() {
    let dump = Dump::new();
    let path = dump.folder.path().join("gap_leveldb");
    let mut database = rusty_leveldb::DB::open(&path, rusty_leveldb::Options::default()).unwrap();
    for index in 0..9 {
        let (key, value) = common::image(index, 1, 2, 2);
        database.put(&key, &value).unwrap();
    }
    database.close().unwrap();
    drop(database);
    let logs = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let log = logs.filter(|path| path.extension().is_some_and(|kind| kind == "log")).max().unwrap();
    // One fragment per record, all in one block.
    let bytes = fs::read(&log).unwrap();
    let fragment = 7 + usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    fs::write(&log, [&bytes[..4 * fragment], &bytes[5 * fragment..]].concat()).unwrap();
    let path = path.to_str().unwrap();
    let args = [path, "--batch-size", "8"];
    let message = dump.fail(args);
    assert!(message.contains("starts with write 6, but write 5 is due"), "{message}");
    assert!(message.contains("--allow-log-gaps") && !message.contains("LogGaps"), "{message}");
    let output = dump.run([&args[..], &["--allow-log-gaps"]].concat());
    let warned = String::from_utf8(output.stderr).unwrap();
    let due = "starts with write 6, but write 5 is due";
    assert!(output.status.success() && warned.contains(due), "{warned}");
    let label = dump.array("label.npy");
    let labels = split(&label).1.chunks(4).map(|label| f32::from_le_bytes(label.try_into().unwrap()));
    assert_eq!(labels.collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn ranks_and_seeds_are_checked() {
    let refused = Dump::with_net(LAYER).refuse(["net.prototxt", "--rank", "1"]);
    assert!(refused.contains("--of <N>"), "{refused}");
    let message = Dump::with_net(LAYER).fail(["net.prototxt", "--rank", "2", "--of", "2"]);
    assert_eq!(message, "--rank 2: of 2 ranks, the last is 1");

    let large = ["net.prototxt", "--seed", "4294967296"];
    for random in [&[][..], &["--random", "caffe"], &["--random", "caffe-2015"]] {
        let message = Dump::with_net(LAYER).fail([&large, random].concat());
        assert!(message.starts_with("--seed 4294967296: Caffe's seeds have 32 bits"), "{message}");
    }
    Dump::with_net(LAYER).pass([&large[..], &["--random", "indexed"]].concat());
    Dump::with_net(LAYER).pass(["net.prototxt", "--seed", "4294967295"]);
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    let message = Dump::with_net(LAYER).fail(["net.prototxt", "raw_lmdb"]);
    assert!(message.starts_with("net.prototxt: a net cannot be combined with other data sets"), "{message}");
    let message = Dump::with_net(LAYER).fail(["net.prototxt", "--crop", "3"]);
    assert!(message.ends_with("such as --crop, cannot be used with a net: net.prototxt"), "{message}");
    let message = Dump::new().fail(["raw_lmdb", "--layer", "data"]);
    assert!(message.ends_with("select a layer of a net, and no net is given"), "{message}");
    Dump::with_net(LAYER).refuse(["--net", "net.prototxt", "raw_lmdb"]);
    Dump::new().refuse([""; 0]);
    Dump::with_net(LAYER).refuse(["net.prototxt", "--batches", "0"]);
}
