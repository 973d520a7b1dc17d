//! `percolator dump` shows users what their net sees, so it must write exactly those arrays, and a refused
//! dump must leave nothing behind that could be taken for them. These tests run the command as a user does.
//! They compare its files with hashes of what real Caffe gave and with files that NumPy wrote, and check its
//! messages when it fails.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::{TempDir, tempdir};

use crate::common;

fn golden(name: &str) -> PathBuf {
    common::repository().join("tests/data/golden").join(name)
}

fn case(name: &str) -> Value {
    let cases: Value = serde_json::from_str(&fs::read_to_string(golden("cases.json")).unwrap()).unwrap();
    cases.as_array().unwrap().iter().find(|case| case["name"] == name).unwrap().clone()
}

/// A folder to run the command in; it writes to `out` there.
struct Dump {
    folder: TempDir,
}

/// Files by their names.
type Arrays = BTreeMap<String, Vec<u8>>;

impl Dump {
    fn new() -> Self {
        Dump { folder: tempdir().unwrap() }
    }

    /// With a net in the folder, named `net.prototxt`.
    fn with_net(text: &str) -> Self {
        let dump = Dump::new();
        fs::write(dump.folder.path().join("net.prototxt"), text).unwrap();
        dump
    }

    /// Runs the command; paths in a net are relative to the golden databases.
    fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.run_to("out", args)
    }

    fn run_to<S: AsRef<OsStr>>(&self, out: &str, args: impl IntoIterator<Item = S>) -> Output {
        self.command(out, args).output().unwrap()
    }

    fn command<S: AsRef<OsStr>>(&self, out: &str, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command
            .args(["dump", "--force"])
            .args(args)
            .args(["--out", out])
            .arg("--root")
            .arg(golden(""))
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG");
        command
    }

    /// Runs what must succeed. Returns its standard output.
    #[track_caller]
    fn pass<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert!(output.stderr.is_empty(), "there is nothing to warn of: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail with a readable message on one line. Returns the message.
    #[track_caller]
    fn fail<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let earlier = self.arrays();
        let output = self.run(args);
        self.check_failure(&output, &earlier)
    }

    #[track_caller]
    fn check_failure(&self, output: &Output, earlier: &Arrays) -> String {
        let message = self.check_nothing_done(output, 1, earlier);
        assert_eq!(message.lines().count(), 1, "one message: {message}");
        message.strip_prefix("percolator: ").expect(&message).trim_end().to_owned()
    }

    /// Runs what clap must refuse. Returns the message and the usage.
    #[track_caller]
    fn refuse<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let earlier = self.arrays();
        let output = self.run(args);
        let message = self.check_nothing_done(&output, 2, &earlier);
        assert!(message.starts_with("error: "), "{message}");
        message
    }

    /// Checks a run that failed: what looks finished was there `earlier`, and is as it was.
    #[track_caller]
    fn check_nothing_done(&self, output: &Output, code: i32, earlier: &Arrays) -> String {
        let message = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(!message.contains("panicked"), "{message}");
        assert!(output.stdout.is_empty(), "nothing was done: {}", String::from_utf8_lossy(&output.stdout));
        for (name, bytes) in self.arrays() {
            assert!(earlier.get(&name) == Some(&bytes), "{name} is of a run that failed");
        }
        message
    }

    /// The arrays that look finished.
    fn arrays(&self) -> Arrays {
        let Ok(files) = fs::read_dir(self.folder.path().join("out")) else { return Arrays::new() };
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".npy")).map(|name| (name.clone(), self.array(&name))).collect()
    }

    fn names(&self) -> Vec<String> {
        self.arrays().into_keys().collect()
    }

    fn array(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("out").join(name)).unwrap()
    }

    /// Both arrays, as stored in their files.
    fn both(&self) -> [Vec<u8>; 2] {
        ["data.npy", "label.npy"].map(|name| self.array(name))
    }
}

/// Splits an array file into its header and its elements.
fn split(array: &[u8]) -> (&[u8], &[u8]) {
    array.split_at(10 + usize::from(u16::from_le_bytes([array[8], array[9]])))
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
    let written =
        [["--lmdb", "raw_lmdb"], ["--leveldb", "raw_leveldb_log"], ["--leveldb", "raw_leveldb_ldb"]].map(
            |source| {
                let dump = Dump::new();
                dump.pass([&source[..], &["--phase", "test", "--batch-size", "16"]].concat());
                dump.both()
            },
        );
    let case = case("raw_none");
    assert_eq!(hash(split(&written[0][0]).1), case["data_sha256"].as_str().unwrap());
    assert_eq!(hash(split(&written[0][1]).1), case["label_sha256"].as_str().unwrap());
    assert!(written[0] == written[1] && written[0] == written[2]);

    // The same again, by arguments instead of by a net.
    let dump = Dump::new();
    let transform = ["--crop", "27", "--mean-value", "104,117,123", "--scale", "0.017"];
    let source = ["--lmdb", "raw_lmdb", "--phase", "test", "--batch-size", "16"];
    dump.pass(source.iter().chain(&transform));
    let by_net = Dump::new();
    by_net.pass(args_of(&self::case("raw_crop_mv3_scale")));
    assert!(dump.both() == by_net.both(), "the arguments say what the net says");
}

const LAYER: &str = "layer { name: 'data' type: 'Data' top: 'data' \
                     data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";

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
    for args in [["net.prototxt", "--phase", "test"], ["--lmdb=raw_lmdb", "--batch-size=4", "--phase=test"]] {
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
        let args = ["--lmdb", path, "--batch-size", "2", "--batches", "2", "--rank", rank, "--of", "2"];
        assert!(dump.pass(args).contains(&format!("[4, 1, {side}, {side}]")));
        let data = dump.array("data.npy");
        assert_eq!(split(&data).1.len(), 4 * side * side * size_of::<f32>());
    }
}

#[test]
fn the_arrays_are_whole_even_where_nobody_listens() {
    let run = |dump: &Dump, stdout: Stdio| {
        let mut command = dump.command("out", ["net.prototxt"]);
        command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let net = LAYER.replace("top: 'data'", "top: 'data' top: 'label'");
    let dump = Dump::with_net(&net);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(run(&dump, writer.into()).status.success());
    assert_eq!(dump.names(), ["data.npy", "label.npy"]);

    let dump = Dump::with_net(&net);
    let output = run(&dump, fs::File::options().write(true).open("/dev/full").unwrap().into());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.starts_with("percolator: cannot write to the standard output: No space left"),
        "{message}"
    );
    assert_eq!(dump.names(), ["data.npy", "label.npy"]);
}

#[test]
fn a_run_that_fails_leaves_no_arrays_of_the_run_before_and_one_that_cannot_begin_leaves_them() {
    let dump = Dump::with_net(LAYER);
    dump.pass(["net.prototxt"]);
    let arrays = dump.arrays();
    assert_eq!(dump.run(["gone.prototxt"]).status.code(), Some(1));
    assert_eq!(dump.arrays(), arrays);
    dump.fail(["--lmdb", "png_mixed_lmdb", "--batches", "12"]);
}

#[test]
fn records_of_several_shapes_make_no_array() {
    let dump = Dump::new();
    let message = dump.fail(["--lmdb", "png_mixed_lmdb", "--batches", "12"]);
    assert!(message.starts_with("png_mixed_lmdb: batch "), "{message}");
    assert!(message.contains("arrays of different shapes cannot be joined"), "{message}");
    // The suggested remedy works.
    let advice = message.split("--batches ").nth(1).unwrap();
    dump.pass(["--lmdb", "png_mixed_lmdb", "--batches", advice]);

    let message = Dump::new().fail(["--lmdb", "png_mixed_lmdb", "--batch-size", "12"]);
    assert!(message.contains("all records of a batch have one shape"), "{message}");
    assert!(message.contains("png_mixed_lmdb: epoch 0, record "), "{message}");
}

#[test]
fn a_net_that_cannot_be_read_is_named_with_the_place() {
    let message = Dump::new().fail(["missing.prototxt"]);
    assert_eq!(message, "missing.prototxt: cannot be read: No such file or directory (os error 2)");
    let message = Dump::new().fail(["."]);
    assert!(message.ends_with("this is a folder: give it with --lmdb, --leveldb or --tfrecord"), "{message}");
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
            "net.prototxt:1:1: layer \"data\": {}: cannot open the database: \
             No such file or directory (os error 2)",
            path.display()
        )
    );
    let message = Dump::with_net(&LAYER.replace("LMDB", "LEVELDB")).fail(["net.prototxt"]);
    assert!(message.contains("raw_lmdb: not a LevelDB database"), "{message}");
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
    let message = dump.fail(["--lmdb", path, "--batch-size", "2", "--batches", "4"]);
    let place = format!("{path}: epoch 0, record 5, key \"00000005\": ");
    assert!(message.starts_with(&place), "{message}");
    dump.pass(["--lmdb", path, "--batch-size", "2", "--batches", "2"]);
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
    let args = ["--leveldb", path, "--batch-size", "8"];
    let message = dump.fail(args);
    assert!(message.contains("starts with write 6, but write 5 is due"), "{message}");
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
    Dump::with_net(LAYER).refuse(["net.prototxt", "--lmdb", "raw_lmdb"]);
    Dump::with_net(LAYER).refuse(["net.prototxt", "--crop", "3"]);
    Dump::with_net(LAYER).refuse(["net.prototxt", "--tfrecord", "x"]);
    Dump::new().refuse(["--lmdb", "raw_lmdb", "--layer", "data"]);
    Dump::new().refuse([""; 0]);
    Dump::with_net(LAYER).refuse(["net.prototxt", "--batches", "0"]);
}

#[test]
fn where_nothing_can_be_written_it_says_so() {
    let dump = Dump::with_net(LAYER);
    // Before it reads the data, which may take long.
    for source in ["net.prototxt", "--lmdb=no_such_lmdb"] {
        for out in ["net.prototxt", "net.prototxt/out", "net.prototxt/out/deep"] {
            let output = dump.run_to(out, [source]);
            let message = dump.check_failure(&output, &Arrays::new());
            assert!(message.starts_with(&format!("cannot make the folder {out}: ")), "{message}");
        }
    }
    let output = dump.run_to("deep/out", ["--lmdb=no_such_lmdb"]);
    assert!(dump.check_failure(&output, &Arrays::new()).contains("no_such_lmdb"));
    assert!(!dump.folder.path().join("deep").exists(), "nothing is made for a run that cannot begin");
    // Something other than a regular file has the array's name, and stays.
    let data = dump.folder.path().join("out/data.npy");
    let refused = || String::from_utf8(dump.run(["net.prototxt"]).stderr).unwrap();
    fs::create_dir_all(&data).unwrap();
    let message = refused();
    assert!(message.contains("cannot write out/data.npy: a folder is there"), "{message}");
    fs::remove_dir(&data).unwrap();
    assert!(Command::new("mkfifo").arg(&data).status().unwrap().success());
    let message = refused();
    assert!(message.contains("cannot write out/data.npy: a FIFO is there"), "{message}");
    assert!(!fs::metadata(&data).unwrap().is_file());
}

#[test]
fn arrays_are_written_where_links_lead() {
    let dump = Dump::with_net(LAYER);
    let at = |name: &str| dump.folder.path().join(name);
    fs::create_dir_all(at("out")).unwrap();
    fs::create_dir_all(at("elsewhere")).unwrap();
    for name in ["data.npy", "label.npy"] {
        std::os::unix::fs::symlink(at("elsewhere").join(name), at("out").join(name)).unwrap();
    }
    dump.pass(["net.prototxt"]);
    let whole = fs::read(at("elsewhere/data.npy")).unwrap();
    dump.pass(["net.prototxt"]);
    assert!(at("out/data.npy").is_symlink() && whole.starts_with(b"\x93NUMPY"));
    assert_eq!(fs::read(at("elsewhere/data.npy")).unwrap(), whole);
    // A failed run leaves nothing behind that could be taken for its arrays.
    assert!(!dump.run(["net.prototxt", "--batches", "1000000000000000000"]).status.success());
    assert!(!at("elsewhere/data.npy").exists());
}

#[test]
fn an_array_that_fits_no_disk_is_refused_before_any_of_it_is_made() {
    let dump = Dump::with_net(LAYER);
    dump.pass(["net.prototxt"]);
    for batches in ["100000000000", "1000000000000000000"] {
        let message = dump.fail(["net.prototxt", "--batches", batches]);
        assert!(message.starts_with("out/data.npy"), "{message}");
        // Nothing of this run or of an earlier one is left that could pass for the result.
        assert_eq!(fs::read_dir(dump.folder.path().join("out")).unwrap().count(), 0);
    }
}

#[test]
fn arrays_that_exist_stay() {
    let dump = Dump::with_net(LAYER);
    let at = |name: &str| dump.folder.path().join("out").join(name);
    fs::create_dir(at("")).unwrap();
    fs::write(at("label.npy"), "somebody's").unwrap();
    for source in ["net.prototxt", "--lmdb=no_such_lmdb"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(["dump", source, "--out", "out", "--root"]).arg(golden(""));
        let output = command.current_dir(dump.folder.path()).env_remove("RUST_LOG").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("out/label.npy: it already exists; give another folder"), "{message}");
    }
    // Even if they may be replaced: there is nothing to replace them with.
    assert!(!dump.run(["--lmdb=no_such_lmdb"]).status.success());
    assert_eq!(fs::read_to_string(at("label.npy")).unwrap(), "somebody's");
    // The layer gives no labels, and an array of an earlier run could pass for theirs.
    dump.pass(["net.prototxt"]);
    assert_eq!(dump.names(), ["data.npy"]);
}

#[test]
fn a_full_disk_leaves_no_array() {
    let small = LAYER.replace("data_param", "transform_param { crop_size: 3 } data_param");
    // A full disk is found while writing, or when the file is closed.
    for net in [LAYER, &small] {
        let dump = Dump::with_net(net);
        // No file may have a byte, and a write returns an error instead of killing the process.
        let command = dump.command("out", ["net.prototxt"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(command.get_program());
        limited.args(command.get_args()).current_dir(dump.folder.path()).env_remove("RUST_LOG");
        let message = dump.check_failure(&limited.output().unwrap(), &Arrays::new());
        assert!(message.starts_with("cannot write out/data.npy"), "{message}");
        assert!(message.contains("File too large"), "{message}");
        assert_eq!(fs::read_dir(dump.folder.path().join("out")).unwrap().count(), 0);
    }
}
