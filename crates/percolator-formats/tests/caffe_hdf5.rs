//! Caffe's lists of HDF5 files, against what Caffe's layer gave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use percolator_formats::{FormatError, Options, Shard, Value, caffe_hdf5, format_of, hdf5, npy};
use serde_json::Value as Json;
use survival::{Made, fails, records};

type Opened = Result<Vec<Arc<dyn Shard>>, FormatError>;

/// A net of the golden ones: its list and its tops.
struct Net {
    json: &'static Json,
    list: PathBuf,
    tops: Vec<String>,
}

impl Net {
    fn of(json: &'static Json) -> Self {
        let text = fs::read_to_string(common::golden(json["net"].as_str().unwrap())).unwrap();
        let quoted = |key: &str| -> Vec<String> {
            text.split(key).skip(1).map(|rest| rest.split('"').nth(1).unwrap().to_owned()).collect()
        };
        Net { json, list: common::golden(&quoted("source:")[0]), tops: quoted("top:") }
    }

    fn name(&self) -> &str {
        common::name(self.json)
    }

    fn open(&self) -> Opened {
        caffe_hdf5::open(&self.list, &below_golden(&self.tops.join(",")))
    }

    fn number(&self, key: &str) -> usize {
        usize::try_from(self.json[key].as_u64().unwrap()).unwrap()
    }
}

fn nets() -> Vec<Net> {
    let nets = common::case("hdf5_caffe")["nets"].as_array().unwrap();
    nets.iter().map(Net::of).collect()
}

fn below_golden(tops: &str) -> Options {
    let mut options = Options::default();
    let root = common::golden("").to_str().unwrap().to_owned();
    options.settings = vec![("root".to_owned(), root), ("tops".to_owned(), tops.to_owned())];
    options
}

/// The arrays of one part in all rows: their extents and bytes.
fn rows(shards: Opened, part: &str) -> Vec<(Vec<u64>, Vec<u8>)> {
    let mut rows = Vec::new();
    for shard in shards.unwrap_or_else(|error| panic!("{error}")) {
        let grammar = shard.grammar();
        let mut cursor = shard.cursor().unwrap();
        while let Some(record) = cursor.advance().unwrap() {
            let Some(Value::Array(array)) = grammar.part(record.value.bytes(), part).unwrap() else {
                panic!("no array {part}");
            };
            assert_eq!(array.dtype.numpy(), "<f4");
            rows.push((array.shape.to_vec(), array.bytes.into_owned()));
        }
    }
    rows
}

/// Checks a net's outputs against the rows that are read; returns how many there are.
fn check(net: &Net, open: &dyn Fn() -> Opened) -> usize {
    let outputs = net.json["outputs"].as_object().unwrap();
    // Caffe deals rows to solvers in training alone.
    let (count, rank) = match net.json["phase"] == "TRAIN" {
        true => (net.number("solver_count"), net.number("solver_rank")),
        false => (1, 0),
    };
    for (top, output) in outputs {
        let path = common::golden(output["file"].as_str().unwrap());
        let due = rows(npy::open(&path, &Options::default()), "array");
        assert_eq!(due.len(), net.number("steps") * net.number("batch"), "{}", net.name());
        let found = rows(open(), top);
        for (at, due) in due.iter().enumerate() {
            assert_eq!(found[(rank + at * count) % found.len()], *due, "{}, {top}, row {at}", net.name());
        }
    }
    outputs.len()
}

#[test]
fn rows_are_caffes() {
    let mut checked = 0;
    for net in nets().iter().filter(|net| net.json.get("outputs").is_some()) {
        checked += match net.name() {
            // Caffe notices only at its turn that the second file is missing. Until then, it gives the first.
            "missing_second" => {
                fails(net.open(), &["list_missing.txt", "not_there.h5", "cannot be opened"]);
                let first = common::golden("hdf5/list_one.txt");
                check(net, &|| caffe_hdf5::open(&first, &below_golden("data,label")))
            }
            _ => check(net, &|| net.open()),
        };
    }
    assert_eq!(checked, 33);
}

#[test]
fn tops_are_in_the_nets_order() {
    for net in nets().iter().filter(|net| net.json.get("outputs").is_some() && net.name() != "missing_second")
    {
        let names = net.open().unwrap()[0].grammar().names();
        assert_eq!(names.as_ref(), Some(&net.tops), "{}", net.name());
    }
}

#[test]
fn what_caffe_refuses_is_refused_or_read() {
    for net in nets().iter().filter(|net| net.json.get("outputs").is_none()) {
        let words: &[&str] = match net.name() {
            // Caffe's version of HDF5 cannot: what is in the file is plain.
            "lzf" | "latest" => {
                let path = common::golden(&format!("hdf5/{}.h5", net.name().replace("lzf", "lzf_f32")));
                let plain = records(hdf5::open(&path, &Options::default())).unwrap();
                assert_eq!(records(net.open()).unwrap(), plain, "{}", net.name());
                continue;
            }
            "missing_second_3" => &["not_there.h5"],
            "no_such_top" => &["contiguous_f32.h5", "there is no data set weight", "data, label"],
            "empty_list" => &["list_empty.txt", "it lists no HDF5 file"],
            "uneven" => &["uneven.h5", "data has 4, label has 3"],
            "shape_changes" => &["wider.h5", "contiguous_f32.h5", "memory that is not theirs"],
            "scalar" => &["scalar.h5", "it has no axis"],
            "strings" => &["strings.h5", "floats and integers alone"],
            other => panic!("{other} is new"),
        };
        fails(net.open(), words);
    }
}

#[test]
fn a_list_is_known_by_its_names() {
    for (name, list, is) in [
        ("a.txt", "one.h5\ntwo.hdf5 three.H5\n", true),
        ("a.list", "one.h5", true),
        ("a.lst", "one.h5", false),
        ("a.txt", "one.h5 3\n", false),
        ("a.txt", "one.h5\nwords\n", false),
        ("a.txt", " \n", false),
        ("a.txt", "", false),
        ("long.txt", &"folder/of/files/a.h5\n".repeat(100), true),
    ] {
        let made = Made::new(&[(name, list.as_bytes())]);
        let found = format_of(&made.path(name)).unwrap();
        assert_eq!(found == Some("caffe-hdf5"), is, "{list:?}: {found:?}");
    }
}

#[test]
fn without_tops_all_of_the_root_are_read() {
    let list = common::golden("hdf5/list_multi.txt");
    let mut options = below_golden("");
    options.settings.pop();
    let shard = caffe_hdf5::open(&list, &options).unwrap().remove(0);
    assert_eq!(shard.grammar().names().unwrap(), ["data", "label", "pair", "vec"]);
    options.parts = Some(vec!["vec".to_owned()]);
    let shard = caffe_hdf5::open(&list, &options).unwrap().remove(0);
    assert_eq!(shard.grammar().description(), "vec: <f4[5]");
    for tops in ["", "data,", "data,data"] {
        fails(caffe_hdf5::open(&list, &below_golden(tops)), &["the setting tops is"]);
    }
    options.settings = vec![("shuffle".to_owned(), "true".to_owned())];
    fails(caffe_hdf5::open(&list, &options), &["no setting \"shuffle\"; it has root, tops"]);
}

#[test]
fn paths_begin_at_the_root_or_are_whole() {
    let whole = common::golden("hdf5/one.h5");
    let made = Made::new(&[("a.txt", whole.to_str().unwrap().as_bytes()), ("b.txt", b"one.h5")]);
    assert_eq!(records(caffe_hdf5::open(&made.path("a.txt"), &Options::default())).unwrap().len(), 1);
    let words = ["b.txt: it lists one.h5", "the working directory, as in Caffe: set root"];
    fails(caffe_hdf5::open(&made.path("b.txt"), &Options::default()), &words);
}

#[test]
fn changed_lists_and_files_are_errors_or_read() {
    // The lists name files of the golden folder; what is changed is theirs and the list.
    let folder = tempfile::tempdir().unwrap();
    for name in ["hdf5_types", "hdf5_filters"] {
        let list = name.replace("hdf5_", "hdf5/list_") + ".txt";
        let bytes = fs::read(common::golden(&list)).unwrap();
        let copy = folder.path().join("list.txt");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= [0x80, 0x01, 0x10, 0xff][at % 4];
            fs::write(&copy, &changed).unwrap();
            let _ = records(caffe_hdf5::open(&copy, &below_golden("data,label")));
        }
    }
    for (_, case) in (0..4).zip(common::cases("hdf5").into_iter().skip(7)) {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| {
            let list = folder.join("list.txt");
            fs::write(&list, name).unwrap();
            let mut options = options.clone();
            options.settings = vec![("root".to_owned(), folder.to_str().unwrap().to_owned())];
            caffe_hdf5::open(&list, &options)
        });
    }
}
