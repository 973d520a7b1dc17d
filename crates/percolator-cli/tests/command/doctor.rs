//! `percolator doctor`: what it says of feeds and data of which it is known what is wrong with them. The
//! measurements are so short that no rate means anything, and none is asserted.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;
#[cfg(target_os = "linux")]
use crate::data_tools::wait_until_it_catches;

/// A database of 640 images of 3x6x8, whose channels are around 55, 135 and 215, with these labels.
fn database(label: impl Fn(usize) -> i32) -> TempDir {
    let folder = tempdir().unwrap();
    write(folder.path(), RECORDS, label);
    folder
}

/// More than are looked at.
const RECORDS: usize = 640;

fn write(folder: &Path, records: usize, label: impl Fn(usize) -> i32) {
    let record = |number: usize| {
        let pixel =
            |at: usize| [40_u8, 120, 200][at / 48] + if (at + number).is_multiple_of(2) { 30 } else { 0 };
        (common::key(number), common::datum(3, 6, 8, label(number), (0..144).map(pixel).collect()))
    };
    common::write_lmdb(folder, (0..records).map(record));
}

fn mixed(number: usize) -> i32 {
    i32::try_from(((number * 7919) >> 3) % 10).unwrap()
}

fn doctor(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["doctor", "--seconds", "0.01", "--threads", "2", "--batch-size", "8", "--quiet"])
        .args(args)
        .current_dir(folder)
        // A lane that waits long on a machine that is busy warns.
        .env("RUST_LOG", "error")
        .output()
        .unwrap()
}

/// What it says of the database in this folder, as JSON, and its exit code.
#[track_caller]
fn diagnosed(folder: &TempDir, args: &[&str]) -> (Value, i32) {
    let output = doctor(folder.path(), &[&[".", "--json"], args].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.is_empty(), "{message}");
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code().unwrap())
}

/// The same of the data alone: no change of the feed is tried.
#[track_caller]
fn diagnosed_data(folder: &TempDir, args: &[&str]) -> (Value, i32) {
    diagnosed(folder, &[args, &["--at-most", "0"]].concat())
}

/// The kinds of the findings.
fn found(diagnosis: &Value) -> Vec<&str> {
    let findings = diagnosis["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn a_good_feed_is_examined_and_nothing_looks_wrong() {
    let folder = database(mixed);
    let (diagnosis, code) = diagnosed(&folder, &["--mean-value", "55,135,215"]);
    assert_eq!((found(&diagnosis), code), (vec![], 0));
    assert_eq!((&diagnosis["records"], &diagnosis["looked_at"]), (&RECORDS.into(), &512.into()));
    assert_eq!(diagnosis["channel_means"], serde_json::json!([55.0, 135.0, 215.0]));
    assert_eq!(diagnosis["devices"], serde_json::json!(["host:0"]));
    assert_eq!((&diagnosis["is_spread"], &diagnosis["failed"]), (&true.into(), &Value::Null));
    let pipeline = &diagnosis["pipeline"];
    let trials = pipeline["trials"].as_array().unwrap();
    let options: Vec<_> = trials.iter().map(|trial| trial["option"].as_str().unwrap()).collect();
    assert_eq!(options[0], "--threads 3");
    assert!(options[1].starts_with("--prefetch "), "{options:?}");
    assert_eq!(options[2..], ["--access read"]);
    for trial in trials {
        let [ratio, low, high] = ["ratio", "low", "high"].map(|name| trial[name].as_f64().unwrap());
        assert!(0.0 < low && low <= ratio && ratio <= high, "{trial}");
        assert_eq!(trial["verdict"] == "helps", low > 1.02, "{trial}");
        assert_eq!(trial["verdict"] == "slower", high < 1.0, "{trial}");
    }
    assert!(pipeline["records_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn workers_that_are_chosen_are_tried_as_many_and_one_more() {
    let folder = database(mixed);
    let args = ["doctor", ".", "--batch-size", "8", "--seconds", "0.01", "--json", "--quiet"];
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(args)
        .current_dir(folder.path())
        .env("RUST_LOG", "error")
        .output()
        .unwrap();
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pipeline = &diagnosis["pipeline"];
    let threads = pipeline["threads"].as_u64().unwrap();
    for (number, due) in [threads, threads + 1].into_iter().enumerate() {
        let trial = &pipeline["trials"][number];
        let change = serde_json::json!(
            { "what": "workers", "threads": due, "instead_of": threads, "was_chosen": true }
        );
        assert_eq!((&trial["change"], &trial["option"]), (&change, &format!("--threads {due}").into()));
    }
}

#[test]
fn changes_for_which_there_is_no_time_are_named() {
    let folder = database(mixed);
    let (diagnosis, code) = diagnosed(&folder, &["--at-most", "0"]);
    let pipeline = &diagnosis["pipeline"];
    assert_eq!((&pipeline["trials"], code), (&serde_json::json!([]), 0));
    let names: Vec<_> =
        pipeline["not_tried"].as_array().unwrap().iter().map(|change| change["what"].as_str()).collect();
    assert_eq!(names, [Some("workers"), Some("ring"), Some("read_files")]);
    let output = doctor(folder.path(), &[".", "--at-most", "0"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Not tried: --threads 3, --prefetch "), "{text}");
}

#[test]
fn a_feed_that_keeps_up_with_its_training_is_told_so() {
    let folder = database(mixed);
    let (diagnosis, code) = diagnosed_data(&folder, &["--step-ms", "60"]);
    assert_eq!((diagnosis["pipeline"]["binds"].as_str().unwrap(), code), ("consumer", 0));
}

#[test]
fn labels_in_the_order_of_keys_need_a_shuffle() {
    let folder = database(|number| i32::try_from(number / 64).unwrap());
    let (diagnosis, code) = diagnosed_data(&folder, &[]);
    assert_eq!((found(&diagnosis), code), (vec!["labels_together"], 1));
    assert_eq!(found(&diagnosed_data(&folder, &["--shuffle", "files"]).0), ["labels_together"]);
    for args in [&["--shuffle", "global"][..], &["--phase", "test"]] {
        let (diagnosis, code) = diagnosed_data(&folder, args);
        assert_eq!((found(&diagnosis), code), (vec![], 0), "{args:?}");
    }
    let one = database(|_| 3);
    assert_eq!(found(&diagnosed_data(&one, &[]).0), ["one_label"]);
}

#[test]
fn all_databases_of_a_feed_are_looked_at() {
    let folder = tempdir().unwrap();
    for (name, label) in [("cats", 0), ("dogs", 1)] {
        write(&folder.path().join(name), 100, |_| label);
    }
    let output = doctor(folder.path(), &["cats", "dogs", "--at-most", "0", "--json"]);
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((found(&diagnosis), &diagnosis["records"]), (vec!["labels_together"], &200.into()));
}

#[test]
fn records_that_end_a_run_are_found_among_the_others() {
    let folder = tempdir().unwrap();
    let record = |number: usize| match number {
        37 => (common::key(number), b"no datum".to_vec()),
        _ => (common::key(number), common::datum(1, 2, 2, mixed(number), vec![7; 4])),
    };
    common::write_lmdb(folder.path(), (0..100).map(record));
    let (diagnosis, code) = diagnosed_data(&folder, &[]);
    assert_eq!((found(&diagnosis), code), (vec!["undecodable"], 1));
    let finding = &diagnosis["findings"][0];
    assert_eq!((&finding["records"], &finding["first"]), (&1.into(), &37.into()));
    assert!(diagnosis["failed"].as_str().unwrap().contains("00000037") && diagnosis["pipeline"].is_null());
    let output = doctor(folder.path(), &["."]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("The feed fails: ") && text.contains("the first at position 37"), "{text}");
}

#[test]
fn a_leveldb_of_floats_and_a_list_of_images_are_examined() {
    let folder = tempdir().unwrap();
    let record = |number: usize| {
        (common::key(number), common::float_datum(2, 1, 2, mixed(number), vec![0.5, 1.5, -3.0, -1.0]))
    };
    let options = rusty_leveldb::Options::default();
    common::leveldb::write(&folder.path().join("floats"), options, (0..100).map(record));
    let output = doctor(folder.path(), &["floats", "--mean-value", "0.1", "--at-most", "0", "--json"]);
    let message = String::from_utf8_lossy(&output.stderr);
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{message}"));
    assert_eq!((found(&diagnosis), &diagnosis["looked_at"]), (vec![], &100.into()));
    assert_eq!(diagnosis["channel_means"], serde_json::json!([1.0, -2.0]));

    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/bench/photos");
    let line = |number: usize| {
        let name = ["coffee", "rocket"][number % 2];
        format!("{} {}\n", photos.join(name).with_extension("jpg").display(), number % 2)
    };
    fs::write(folder.path().join("list.txt"), (0..4).map(line).collect::<String>()).unwrap();
    let layer = "layer { name: 'data' type: 'ImageData' top: 'data' top: 'label' \
                 transform_param { crop_size: 8 } image_data_param { source: 'list.txt' batch_size: 2 \
                 new_height: 8 new_width: 8 } }";
    fs::write(folder.path().join("net.prototxt"), layer).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["doctor", "net.prototxt", "--seconds", "0.01", "--at-most", "0", "--json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{message}"));
    assert_eq!((found(&diagnosis), &diagnosis["looked_at"]), (vec!["much_larger"], &4.into()));
    assert_eq!(output.status.code(), Some(0), "it wastes time, and is not wrong");
}

#[test]
fn means_that_cannot_be_right_are_found() {
    let folder = database(mixed);
    for (mean, due) in [
        ("215,135,55", "channels_reversed"),
        ("0.2,0.5,0.85", "mean_does_not_fit"),
        ("10", "mean_does_not_fit"),
    ] {
        let (diagnosis, code) = diagnosed_data(&folder, &["--mean-value", mean]);
        assert_eq!((found(&diagnosis), code), (vec![due], 1), "{mean}");
    }
}

/// What `tobytes` of an image stores is no image of a Datum's order.
#[test]
fn pixels_in_another_order_are_found() {
    let folder = tempdir().unwrap();
    // Soft pictures.
    let level = |number: usize, [channel, y, x]: [usize; 3]| {
        u8::try_from(20 + number % 7 + 60 * channel + 5 * y + 3 * x).unwrap()
    };
    let planes = |at: usize| [at / 120, at / 10 % 12, at % 10];
    let pixels = |at: usize| [at % 3, at / 30, at / 3 % 10];
    for is_by_pixel in [false, true] {
        let bytes = |number: usize| -> Vec<u8> {
            let place = |at| if is_by_pixel { pixels(at) } else { planes(at) };
            (0..360).map(|at| level(number, place(at))).collect()
        };
        let name = format!("by_pixel_{is_by_pixel}");
        let lmdb = folder.path().join(&name);
        let datum = |number| (common::key(number), common::datum(3, 12, 10, mixed(number), bytes(number)));
        common::write_lmdb(&lmdb, (0..64).map(datum));
        let path = folder.path().join(format!("{name}.tfrecord"));
        let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
        for number in 0..64 {
            let mut example = ExampleWriter::new();
            example.bytes("image", [bytes(number)]).ints("label", [mixed(number).into()]);
            writer.write(&example.to_bytes()).unwrap();
        }
        writer.finish().unwrap();
        let examples = [path.to_str().unwrap(), "--image", "image", "--label", "label"];
        let chw = ["--image-shape", "3x12x10", "--image-order", "chw"];
        let hwc = ["--image-shape", "12x10x3", "--image-order", "hwc"];
        for (args, is_read_by_pixel, due) in [
            (vec![lmdb.to_str().unwrap()], false, "write them transposed"),
            ([&examples[..], &chw].concat(), false, "give --image-order hwc"),
            ([&examples[..], &hwc].concat(), true, "leave out --image-order hwc"),
        ] {
            // No change of the feed is tried.
            let args = [&args[..], &["--at-most", "0"]].concat();
            let output = doctor(folder.path(), &[&args[..], &["--json"]].concat());
            let message = String::from_utf8_lossy(&output.stderr);
            let diagnosis: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{message}"));
            let is_wrong = is_by_pixel != is_read_by_pixel;
            assert_eq!(found(&diagnosis), vec!["pixel_order"; usize::from(is_wrong)], "{args:?}");
            assert_eq!(output.status.code(), Some(i32::from(is_wrong)), "{args:?}");
            let text = String::from_utf8(doctor(folder.path(), &args).stdout).unwrap();
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(text.contains("look scrambled") && text.contains(due), is_wrong, "{args:?}: {text}");
        }
    }
}

#[test]
fn a_net_is_examined_from_its_own_root() {
    let folder = database(mixed);
    let net = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { crop_size: 2 } \
               data_param { source: '.' batch_size: 4 backend: LMDB } }";
    fs::write(folder.path().join("net.prototxt"), net).unwrap();
    let root = folder.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["doctor", &format!("{root}/net.prototxt"), "--root", root, "--seconds", "0.01"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for due in ["640 records", "What binds: ", "What would help: ", "images of 6 pixels are cropped to 2"] {
        assert!(text.contains(due), "{due}: {text}");
    }
    let is_short = |line: &str| line.chars().count() <= 100 || line.contains(root);
    assert!(text.lines().all(is_short), "{text}");
}

#[test]
fn compressed_files_are_looked_at_from_their_front() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("images.tfrecord.gz");
    let mut writer = TfRecordWriter::create(&path, Compression::Gzip).unwrap();
    for number in 0..2000 {
        let pixels = vec![7; 3 * 8 * 8];
        let datum = percolator::proto::Datum {
            channels: Some(3),
            height: Some(8),
            width: Some(8),
            data: Some(pixels),
            label: Some(mixed(number)),
            ..Default::default()
        };
        writer.write(&prost::Message::encode_to_vec(&datum)).unwrap();
    }
    writer.finish().unwrap();
    let output = doctor(folder.path(), &["images.tfrecord.gz", "--at-most", "0", "--json"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(diagnosis["failed"], Value::Null);
    assert_eq!(diagnosis["looked_at"], 512);
    assert_eq!(diagnosis["is_spread"], false);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["images.tfrecord.gz"], "nothing was written beside them");
}

#[test]
fn images_of_examples_are_judged_as_caffes_are() {
    let folder = tempdir().unwrap();
    let image = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/images/rgb.jpg")).unwrap();
    let write = |name: &str, label: fn(usize) -> i64| {
        let mut writer = TfRecordWriter::create(folder.path().join(name), Compression::Plain).unwrap();
        for number in 0..200 {
            let mut example = ExampleWriter::new();
            example.bytes("image/encoded", [&image]).ints("image/class/label", [label(number)]);
            writer.write(&example.to_bytes()).unwrap();
        }
        writer.finish().unwrap();
    };
    write("mixed", |number| (number * 7 % 10) as i64);
    write("sorted", |number| (number / 50) as i64);
    let found_in = |name: &str| {
        let source = [name, "--image", "image/encoded", "--label", "image/class/label", "--json"];
        let output = doctor(folder.path(), &[&source[..], &["--at-most", "0"]].concat());
        let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(diagnosis["looked_at"], 200);
        found(&diagnosis).join(" ")
    };
    assert_eq!(found_in("mixed"), "");
    assert_eq!(found_in("sorted"), "labels_together");
}

#[test]
fn records_that_are_not_caffes_are_fed_and_not_judged() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("numbers.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    for number in 0..40 {
        let mut example = ExampleWriter::new();
        example.ints("number", [number]);
        writer.write(&example.to_bytes()).unwrap();
    }
    writer.finish().unwrap();
    let args = ["numbers.tfrecord", "--fields", "number:i64"];
    let output = doctor(folder.path(), &args);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(text.contains("nothing is said of the data"), "{text}");
}

#[test]
fn what_a_run_would_refuse_is_refused() {
    let folder = database(mixed);
    for (args, due) in [
        (&["missing"][..], "missing"),
        (&[".", "--crop", "7"], "7"),
        (&[".", "--mean-file", "missing.binaryproto"], "missing.binaryproto"),
    ] {
        let output = doctor(folder.path(), args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            output.stdout.is_empty() && message.contains(due) && message.lines().count() == 1,
            "{message}"
        );
    }
    for args in [&[][..], &[".", "--rounds", "2"], &[".", "--step-ms=-1"], &[".", "--seconds", "0"]] {
        assert_eq!(doctor(folder.path(), args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_the_measurements() {
    let folder = database(mixed);
    for (words, signal, code) in [
        ("doctor . --seconds 600", "INT", 130),
        // The training step would take an hour.
        ("doctor . --step-ms 3600000", "TERM", 143),
        ("bench . --seconds 600", "INT", 130),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_percolator"))
            .args(words.split(' '))
            .current_dir(folder.path())
            .env("RUST_LOG", "error")
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_catches(signal, &mut child);
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {message}");
        assert!(message.contains("stopped before the measurements were complete"), "{words}: {message}");
        assert!(output.stdout.is_empty(), "{words}");
    }
}
