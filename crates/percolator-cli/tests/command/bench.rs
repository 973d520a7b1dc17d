//! Goals are measured with `percolator bench`, so its figures must be right and agree with each other, and
//! the data it makes must be the same everywhere. These tests run the command as a user does, on data so
//! small that no figure means anything: figures are compared with each other, never with a time or a rate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use percolator::proto::Datum;
use percolator::source::{LevelDb, Lmdb, Source};
use prost::Message as _;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::indexed::walked;

/// A folder for data.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Bench { folder: tempdir().unwrap() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        let rounds = if args.contains(&"--rounds") { &[][..] } else { &["--rounds", "1"] };
        command
            .args(["bench", "--seconds", "0.1", "--threads", "2"])
            .args(rounds)
            .args(args)
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path())
            .env_remove("RUST_LOG");
        command
    }

    /// Runs what must succeed and print nothing to standard error, nor how far it is: a busy machine may take
    /// so long that it would. Returns its standard output.
    #[track_caller]
    fn pass(&self, args: &[&str]) -> String {
        let output = self.command(args).arg("--quiet").output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && message.is_empty(), "{message}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must succeed. Returns its output, one line of JSON per job and nothing else.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let said = self.pass(&[args, &["--json"]].concat());
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(check);
        lines
    }

    /// Runs what must fail before anything is measured. Returns the message.
    #[track_caller]
    fn fail(&self, args: &[&str], code: i32) -> String {
        check_failure(&self.command(args).output().unwrap(), code)
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("percolator")
    }

    /// The data sets that were made, by name.
    fn made(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.cache()) else { return Vec::new() };
        let mut made: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        made.sort();
        made
    }

    #[track_caller]
    fn only_made(&self) -> PathBuf {
        let made = self.made();
        assert_eq!(made.len(), 1, "{made:?}");
        made.into_iter().next().unwrap()
    }
}

#[track_caller]
fn check_failure(output: &Output, code: i32) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(output.stdout.is_empty() && !message.contains("panicked"), "{message}");
    if message.starts_with("percolator: ") {
        assert_eq!(message.lines().count(), 1, "one message: {message}");
    }
    message
}

/// Checks that a number is positive and finite.
#[track_caller]
fn positive(figures: &Value, name: &str) -> f64 {
    let number = figures[name].as_f64().unwrap_or_else(|| panic!("{name} of {figures}"));
    assert!(number > 0.0 && number.is_finite(), "{name} is {number}");
    number
}

/// Checks what must hold for the figures of every job.
#[track_caller]
fn check(figures: &Value) {
    for name in ["job", "batch_shape", "dtype", "layout", "transform_on", "binds", "held_up_by"] {
        assert!(figures[name].as_str().is_some_and(|text| !text.is_empty()), "{name} of {figures}");
    }
    assert_eq!(figures["threads"], 2);
    let spread = &figures["records_per_s"];
    let [min, median, max] = ["min", "median", "max"].map(|name| positive(spread, name));
    assert!(min <= median && median <= max, "{spread}");
    for name in [
        "source_gb_s",
        "output_gb_s",
        "cpu_s_per_1000",
        "first_batch_ms",
        "fresh_memory_ms",
        "batch_size",
        "seconds",
    ] {
        positive(figures, name);
    }
    let intervals = &figures["batch_interval_ms"];
    assert!(intervals["p50"].as_f64().unwrap() <= intervals["p99"].as_f64().unwrap(), "{intervals}");
    // Zero is allowed: memory freed between two samples is not seen.
    assert!(figures["anon_mib"].is_null() || figures["anon_mib"].as_f64().unwrap() >= 0.0);
    check_limits(figures);
    check_stages(figures);
    check_rounds(figures);
}

/// The figures are medians of those of the rounds.
#[track_caller]
fn check_rounds(figures: &Value) {
    let rounds = figures["each_round"].as_array().unwrap();
    assert_eq!(figures["rounds"], rounds.len());
    let middle = |of: &dyn Fn(&Value) -> f64| {
        let mut sorted: Vec<f64> = rounds.iter().map(of).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    if rounds.len() % 2 == 1 {
        assert_eq!(figures["records_per_s"]["median"], middle(&|round| positive(round, "records_per_s")));
        assert_eq!(figures["cpu_s_per_1000"], middle(&|round| positive(round, "cpu_s_per_1000")));
        for (name, share) in figures["share_of"].as_object().unwrap() {
            assert_eq!(*share, middle(&|round| positive(&round["share_of"], name)), "{name}");
            for round in rounds {
                positive(&round["limits"], name);
            }
        }
    }
}

#[track_caller]
fn check_limits(figures: &Value) {
    let limits = &figures["limits"];
    for name in ["copy_1_gb_s", "copy_n_gb_s", "store_n_gb_s", "fresh_n_gb_s", "read_n_gb_s"] {
        positive(limits, name);
    }
    assert_eq!(limits["copy_gb_s"]["1"], limits["copy_1_gb_s"]);
    assert_eq!(limits["copy_gb_s"]["2"], limits["copy_n_gb_s"]);
    assert!(limits["pinned_copy_gb_s"].is_null(), "no GPU is fed");
    let shares = &figures["share_of"];
    assert_eq!(shares.get("decode").is_some(), !limits["decode_1_per_s"].is_null());
    let share = |name: &str| shares[name].as_f64().unwrap();
    for name in shares.as_object().unwrap().keys() {
        assert!(share(name) > 0.0, "{name} of {shares}");
    }
    // The limit that binds has a share; only the processor binds although another share is larger.
    let binds = figures["binds"].as_str().unwrap();
    assert_eq!(figures["share"], shares[binds]);
    // A copy does not bind a pipeline that writes more than it reads.
    let is_copy = figures["output_gb_s"].as_f64() <= figures["source_gb_s"].as_f64();
    let others = shares.as_object().unwrap().keys();
    let others =
        others.filter(|name| !["copy_1", "cpu"].contains(&&***name) && (is_copy || *name != "copy_n"));
    let largest = others.map(|name| share(name)).fold(0.0, f64::max);
    assert!(if binds == "cpu" { largest < 0.5 } else { share(binds) >= largest }, "{binds} of {shares}");
}

#[track_caller]
fn check_stages(figures: &Value) {
    let stages = figures["stages"].as_array().unwrap();
    let devices = figures["devices"].as_array().unwrap();
    assert_eq!(stages.len(), 2 + 2 * devices.len());
    let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["reader", "workers"]);
    for (device, names) in devices.iter().zip(names[2..].chunks(2)) {
        let device = device.as_str().unwrap();
        assert_eq!(names, [format!("lane {device}"), format!("consumer {device}")]);
    }
    for stage in stages {
        let shares =
            stage["waited_for"].as_array().unwrap().iter().map(|waited| waited["share"].as_f64().unwrap());
        let waited: f64 = shares.sum();
        let at_work = stage["at_work"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&at_work) && at_work + waited > 0.999, "{stage}");
    }
}

#[test]
fn every_kind_of_data_is_measured() {
    let bench = Bench::new();
    let kinds = ["raw256", "small", "jpeg", "bytes", "tokens"];
    let kinds_given = ["--synthetic", "raw256,small", "--synthetic", "jpeg,bytes,tokens"];
    let jobs = bench.json(&[&kinds_given[..], &["--records", "64", "--rounds", "3"]].concat());
    let of = |name: &str| jobs.iter().map(|job| job[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("job"), kinds);
    assert_eq!(of("rounds"), [3, 3, 3, 3, 3]);
    assert_eq!(of("dtype"), ["f32", "f32", "f32", "u8", "i64"]);
    assert_eq!(of("source_records"), [64; 5]);
    let images = ["3x256x256", "3x32x32", "3x375x500", "1x1x2048"].map(Value::from);
    assert_eq!(of("source_shape"), [&images[..], &[Value::Null]].concat());
    let batches = [
        "64x3x227x227",
        "256x3x28x28",
        "64x3x227x227",
        "256x1x1x2048",
        "256 records of input: i64 [128], is_masked: i64 [128], seg_id: i64 [128]",
    ];
    for (said, batch) in of("batch_shape").iter().zip(batches) {
        assert!(said.as_str().unwrap().starts_with(batch), "{said}");
    }
    let is_decoded = jobs.iter().map(|job| job["share_of"].get("decode").is_some());
    assert!(is_decoded.eq(kinds.iter().map(|&kind| kind == "jpeg")));
}

#[test]
fn rates_that_are_of_one_another_agree() {
    let bench = Bench::new();
    let jobs = bench.json(&["--synthetic", "small,bytes", "--records", "64", "--batch-size", "32"]);
    // Labels and field numbers are less than two percent of a value.
    for (job, [source, output]) in jobs.iter().zip([[3072.0, 3.0 * 28.0 * 28.0 * 4.0], [2048.0, 2048.0]]) {
        let records_per_s = job["records_per_s"]["median"].as_f64().unwrap();
        let a_record = |name: &str| job[name].as_f64().unwrap() * 1e9 / records_per_s;
        assert!((1.0..1.02).contains(&(a_record("source_gb_s") / source)), "{job}");
        assert!((0.999..1.001).contains(&(a_record("output_gb_s") / output)), "{job}");
    }
}

#[test]
fn options_go_before_what_a_kind_of_data_brings_along() {
    let bench = Bench::new();
    let source = ["--synthetic", "small", "--records", "64"];
    let batch = |options: &[&str]| {
        let jobs = bench.json(&[&source[..], options].concat());
        jobs[0]["batch_shape"].as_str().unwrap().to_owned()
    };
    assert_eq!(batch(&["--dtype", "u8", "--batch-size", "8"]), "8x3x28x28 NCHW u8");
    assert_eq!(batch(&["--crop", "20", "--batch-size", "8", "--layout", "nhwc"]), "8x20x20x3 NHWC f32");
    let options = ["--crop", "0", "--mirror=false", "--mean-value", "1", "--scale", "1", "--batch-size", "8"];
    assert_eq!(batch(&options), "8x3x32x32 NCHW f32");
    assert_eq!(bench.made().len(), 1, "all are of the same data");
}

#[test]
fn lanes_are_measured_together() {
    let jobs = Bench::new().json(&[
        "--synthetic",
        "small",
        "--records",
        "64",
        "--batch-size",
        "16",
        "--devices",
        "host:0,host:1",
    ]);
    let job = &jobs[0];
    assert_eq!(job["devices"], serde_json::json!(["host:0", "host:1"]));
    let consumers = job["stages"].as_array().unwrap().iter();
    let consumers = consumers.filter(|stage| stage["stage"].as_str().unwrap().starts_with("consumer"));
    assert!(
        consumers.clone().count() == 2
            && consumers.clone().all(|stage| positive(stage, "records_per_s") > 0.0)
    );
}

#[test]
fn databases_and_nets_are_measured_as_they_stand() {
    let bench = Bench::new();
    let data = common::repository().join("tests/data/golden");
    let path = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let lmdb = &bench.json(&[&path("raw_lmdb"), "--mirror", "--batch-size", "4"])[0];
    let leveldb = &bench.json(&[&path("raw_leveldb_ldb"), "--batch-size", "4"])[0];
    assert_eq!(lmdb["source_shape"], leveldb["source_shape"]);
    let layer = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { crop_size: 9 } \
                 data_param { source: 'jpg_color_lmdb' batch_size: 4 backend: LMDB } }";
    fs::write(bench.folder.path().join("net.prototxt"), layer).unwrap();
    let net = &bench.json(&["net.prototxt", "--root", data.to_str().unwrap()])[0];
    assert_eq!((&net["job"], &net["batch_size"]), (&"net.prototxt".into(), &4.into()));
    assert!(!net["limits"]["decode_1_per_s"].is_null());
    let layer = "layer { name: 'data' type: 'ImageData' top: 'data' top: 'label' \
                 image_data_param { source: 'list.txt' batch_size: 2 new_height: 8 new_width: 8 } }";
    fs::write(bench.folder.path().join("files.prototxt"), layer).unwrap();
    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/bench/photos");
    let list =
        ["coffee", "rocket"].map(|name| format!("{} 1\n", photos.join(name).with_extension("jpg").display()));
    fs::write(bench.folder.path().join("list.txt"), list.concat()).unwrap();
    let files = &bench.json(&["files.prototxt"])[0];
    assert!(!files["limits"]["decode_1_per_s"].is_null());
    assert!(bench.made().is_empty(), "nothing had to be made");
}

#[test]
fn a_cold_run_says_whether_the_files_were_dropped() {
    let bench = Bench::new();
    let source = ["--synthetic", "small", "--records", "600", "--batch-size", "32"];
    for format in ["lmdb", "leveldb"] {
        let job = &bench.json(&[&source[..], &["--as", format, "--cold"]].concat())[0];
        assert_eq!(job["cold"], true);
        assert!(job["evicted"].is_boolean(), "a file system in memory may keep them: {job}");
    }
    let warm = &bench.json(&source)[0];
    assert!(warm["cold"] == false && warm["evicted"].is_null());
}

#[test]
fn people_get_a_table_and_a_sentence() {
    let bench = Bench::new();
    let said = bench.pass(&["--synthetic", "small,jpeg", "--records", "64"]);
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    for job in said.split("\njpeg: ") {
        assert!(job.contains("waited for") && job.contains("limit of this machine"), "{job}");
        let sentence = job.contains("What binds: ") || job.contains("No limit is near: ");
        assert!(sentence, "{job}");
    }
    assert!(serde_json::from_str::<Value>(said.lines().next().unwrap()).is_err());
}

#[test]
fn data_are_the_same_bytes_when_they_are_made_twice() {
    let (one, other) = (Bench::new(), Bench::new());
    let args = ["--synthetic", "jpeg,raw256,small,bytes,tokens", "--records", "20"];
    one.json(&args);
    other.json(&args);
    let pairs: Vec<_> = one.made().into_iter().zip(other.made()).collect();
    assert_eq!(pairs.len(), 5);
    let mut lmdbs = Vec::new();
    for (one, other) in pairs {
        assert_eq!(one.file_name(), other.file_name());
        assert!(
            fs::read(one.join("data.mdb")).unwrap() == fs::read(other.join("data.mdb")).unwrap(),
            "{one:?}"
        );
        lmdbs.push(walked(&Lmdb::open(one).unwrap()));
    }
    // A LevelDB of these data holds the same records.
    one.json(&[&args[..], &["--as", "leveldb"]].concat());
    let made = one.made().into_iter();
    let leveldbs: Vec<_> = made.filter(|path| path.to_str().unwrap().contains("-leveldb-")).collect();
    assert_eq!(leveldbs.len(), 5);
    for (folder, lmdb) in leveldbs.iter().zip(&lmdbs) {
        let leveldb = LevelDb::open(folder).unwrap();
        assert!(walked(&leveldb) == *lmdb && lmdb.len() == 20, "{}", folder.display());
    }
}

#[test]
fn data_look_like_photographs() {
    let bench = Bench::new();
    bench.json(&["--synthetic", "small,jpeg", "--records", "30"]);
    let [jpeg, small] = bench.made().try_into().unwrap();
    let encoded = walked(&Lmdb::open(jpeg).unwrap());
    for (_key, value) in &encoded {
        let datum = Datum::decode(&**value).unwrap();
        assert!(datum.encoded() && datum.data().starts_with(&[0xff, 0xd8]));
    }
    let raw = walked(&Lmdb::open(small).unwrap());
    let values: std::collections::BTreeSet<_> = raw.iter().map(|(_key, value)| value).collect();
    assert_eq!(values.len(), 30, "no two are the same");
    // Adjacent pixels of a photograph are similar; random bytes differ by 85 on average.
    let mut differences = Vec::new();
    for (_key, value) in &raw {
        let datum = Datum::decode(&**value).unwrap();
        let pixels = datum.data();
        differences.extend(pixels.windows(2).map(|pair| u64::from(pair[0].abs_diff(pair[1]))));
    }
    let mean = differences.iter().sum::<u64>() / differences.len() as u64;
    assert!((1..40).contains(&mean), "{mean}");
}

#[test]
fn what_a_run_that_was_cut_off_left_is_not_taken_for_data() {
    let bench = Bench::new();
    let args = ["--synthetic", "small", "--records", "20000"];
    let mut child = bench.command(&args).stdout(Stdio::null()).spawn().unwrap();
    let is_under_way =
        || bench.made().iter().any(|path| path.extension().is_some_and(|end| end == "percolator-converting"));
    common::process::settles(is_under_way, &true, "data are being made");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_under_way(), "it was cut off before they had their name");
    bench.json(&args);
    let made = bench.only_made();
    assert_eq!(Lmdb::open(made).unwrap().records(), Some(20_000));
}

#[test]
fn two_runs_make_data_once() {
    let bench = Bench::new();
    let args = ["--synthetic", "small", "--records", "3000", "--json"];
    let start = || bench.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let runs = [start(), start()].map(|run| run.wait_with_output().unwrap());
    for run in runs {
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        check(&serde_json::from_slice(&run.stdout).unwrap());
    }
    assert_eq!(Lmdb::open(bench.only_made()).unwrap().records(), Some(3000));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    let bench = Bench::new();
    let small = ["--synthetic", "small", "--records", "8"];
    let with = |more: &[&'static str]| [&small[..], more].concat();
    assert!(bench.fail(&[], 2).contains("give PATH, --synthetic KIND or --compare OLD NEW"));
    assert!(bench.fail(&["--synthetic", "large"], 2).contains("raw256, small, jpeg, bytes, tokens"));
    for more in [&["db"][..], &["--lmdb", "db"], &["--database", "train"]] {
        assert!(bench.fail(&with(more), 2).contains("cannot be used with"), "{more:?}");
    }
    assert!(bench.fail(&["db", "--records", "8"], 2).contains("cannot be used with"));
    assert!(bench.fail(&with(&["--records", "0"]), 2).contains("--records"));
    assert!(bench.fail(&with(&["--rounds", "0"]), 2).contains("--rounds"));
    assert!(bench.fail(&with(&["--seconds", "-1"]), 2).contains("--seconds"));
    assert!(bench.fail(&["nowhere"], 2).contains("nowhere"));
    assert!(bench.fail(&["nowhere.prototxt"], 2).contains("nowhere.prototxt"));
    assert!(bench.fail(&with(&["--crop", "40"]), 2).contains("40"));
    assert!(bench.fail(&with(&["--devices", "tpu:0"]), 2).contains("tpu:0"));
    assert!(bench.fail(&with(&["--batch-size", "0"]), 2).contains("batch_size is 0"));
}

#[test]
fn data_without_a_place_are_refused() {
    let bench = Bench::new();
    fs::write(bench.folder.path().join("file"), "").unwrap();
    let message = bench.fail(&["--synthetic", "small", "--records", "8", "--cache", "file/below"], 2);
    assert!(message.contains("file/below") && message.contains("--cache"), "{message}");
    let message = bench.fail(&["--synthetic", "raw256", "--records", "99999999"], 2);
    assert!(
        message.contains("99999999 records of raw256 need up to") && message.contains("are free"),
        "{message}"
    );
    assert!(bench.made().is_empty());
}

#[test]
fn a_signal_ends_the_making_of_data_and_nothing_is_left() {
    let bench = Bench::new();
    let mut child = bench.command(&["--synthetic", "small", "--records", "500000"]).spawn().unwrap();
    while bench.made().is_empty() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(bench.made().is_empty());
}

#[test]
fn rounds_without_end_are_refused() {
    let bench = Bench::new();
    for rounds in ["0", "100001", "18446744073709551615"] {
        let message = bench.fail(&["--synthetic", "small", "--rounds", rounds], 2);
        assert!(
            message.contains("--rounds <ROUNDS>") && message.contains("invalid value"),
            "{rounds}: {message}"
        );
    }
}
