//! The command converts images and stores, is gone on with wherever it was ended, and says what it did.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use percolator::leveldb::LevelDb;
use percolator::proto::Datum;
use percolator::source::{Lmdb, TfRecord};
use prost::Message as _;
use rustix::io::Errno;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::indexed::{Records, walked};
use crate::common::sample::times;
use crate::common::words_of;
use crate::data_tools::catches_before_it_ends;

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.arg("convert").args(arguments.split_whitespace()).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn run(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Runs the command, which must succeed, and returns what it printed.
fn pass(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the command, which must fail, and returns its message.
fn fail(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn lmdb(path: &Path) -> Records {
    walked(&Lmdb::open_without_lock(path).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// A folder with the images of a golden database in `img`, and a list of them.
fn images() -> TempDir {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("img")).unwrap();
    let mut list = String::new();
    for (key, value) in lmdb(&common::repository().join("tests/data/golden/png_color_lmdb")) {
        let (name, datum) =
            (String::from_utf8(key[9..].to_vec()).unwrap(), Datum::decode(&value[..]).unwrap());
        fs::write(folder.path().join("img").join(&name), datum.data.unwrap()).unwrap();
        list += &format!("{name} {}\n", datum.label.unwrap());
    }
    fs::write(folder.path().join("list"), list).unwrap();
    folder
}

#[test]
fn convert_imagesets_flags_give_its_records() {
    let folder = images();
    let golden = |name: &str| lmdb(&common::repository().join("tests/data/golden").join(name));
    for (flags, wanted) in [
        ("", "imageset_raw_lmdb"),
        ("--gray", "imageset_gray_lmdb"),
        ("--resize-height 32 --resize_width=24 --check_size", "imageset_resize_lmdb"),
        ("--encoded", "png_color_lmdb"),
        ("--encode_type=png --threads 1", "png_color_lmdb"),
    ] {
        let printed = pass(folder.path(), &format!("imageset img/ list made --force {flags}"));
        assert!(printed.starts_with("made\n12 records, "), "{printed}");
        assert!(lmdb(&folder.path().join("made")) == golden(wanted), "{flags}");
    }
    pass(folder.path(), "list img/ list l --backend leveldb");
    assert!(walked(&LevelDb::open(folder.path().join("l")).unwrap()) == golden("imageset_raw_lmdb"));
    pass(folder.path(), "records l t.tfrecord --backend tfrecord --shards 2");
    let halves = ["t.tfrecord-00000-of-00002", "t.tfrecord-00001-of-00002"];
    let halves = halves.map(|name| walked(&TfRecord::open(folder.path().join(name)).unwrap()));
    let values: Vec<_> = halves.iter().flatten().map(|(_, value)| value).collect();
    assert_eq!(values, golden("imageset_raw_lmdb").iter().map(|(_, value)| value).collect::<Vec<_>>());
}

#[test]
fn what_is_skipped_is_said_and_the_exit_code_is_1() {
    let folder = images();
    fs::write(folder.path().join("img/bad.png"), "no image").unwrap();
    let list = fs::read_to_string(folder.path().join("list")).unwrap();
    fs::write(folder.path().join("list"), format!("bad.png 1\n{list}\u{1b}[2Jmissing.png 2\n")).unwrap();
    let output = run(folder.path(), "list img/ list made");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("skipped: 2, listed in made.skipped.txt"), "{printed}");
    assert!(printed.contains("skipped: item 0, 00000000_bad.png: Could not decode"), "{printed}");
    assert!(printed.contains("00000013_\\x1b[2Jmissing.png: cannot read"), "{printed}");
    assert!(!printed.contains('\u{1b}'));
    assert_eq!(lmdb(&folder.path().join("made")).len(), 12);
    // The same as JSON, and with another exit code.
    let printed = pass(folder.path(), "list img/ list made --force --keep-going --json");
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["records"], &json["skipped"], &json["outputs"][0]),
        (&12.into(), &2.into(), &"made".into())
    );
    assert_eq!(json["first_skipped"][1]["item"], 13);
    assert_eq!(json["skipped_list"], "made.skipped.txt");
}

#[test]
fn records_that_cannot_be_read_are_skipped_and_the_exit_code_is_1() {
    let folder = images();
    pass(folder.path(), "list img/ list made --backend tfrecord");
    let mut bytes = fs::read(folder.path().join("made")).unwrap();
    // The first byte of the first record's data, behind its length and the length's checksum.
    bytes[12] ^= 1;
    fs::write(folder.path().join("made"), bytes).unwrap();
    let output = run(folder.path(), "records made copy");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("11 records, ") && printed.contains("skipped: 1, listed in copy.skipped.txt"));
    assert!(
        printed.contains("skipped: item 0, 00000000: it cannot be read") && printed.contains("checksum"),
        "{printed}"
    );
    assert_eq!(lmdb(&folder.path().join("copy")).len(), 11);
    pass(folder.path(), "records made copy --force --keep-going");
}

#[test]
fn the_lists_beside_tfrecord_files_are_not_read_as_records() {
    let folder = images();
    fs::create_dir_all(folder.path().join("root/cat")).unwrap();
    fs::write(folder.path().join("root/cat/bad.png"), "no image").unwrap();
    for name in names(&folder.path().join("img")).iter().take(2) {
        let [from, to] = ["img", "root/cat"].map(|place| folder.path().join(place).join(name));
        fs::copy(from, to).unwrap();
    }
    fs::create_dir(folder.path().join("out")).unwrap();
    pass(folder.path(), "folders root out/train --backend tfrecord --shards 2 --keep-going");
    let written = names(&folder.path().join("out"));
    let due = ["train-00000-of-00002", "train-00001-of-00002", "train.labels.txt", "train.skipped.txt"];
    assert_eq!(written, due);
    pass(folder.path(), "records out copy");
    assert_eq!(lmdb(&folder.path().join("copy")).len(), 2);
}

#[test]
fn flags_are_written_as_caffes_scripts_write_them() {
    let folder = images();
    let caffes = "--resize_height=0 --resize_width=0 --gray=false --shuffle=0 --encoded=true --encode_type= \
                  --check_size=no --backend=lmdb";
    pass(folder.path(), &format!("imageset {caffes} img/ list caffes"));
    pass(folder.path(), "list img/ list ours --encoded");
    assert!(lmdb(&folder.path().join("caffes")) == lmdb(&folder.path().join("ours")));
    pass(folder.path(), "imageset --gray --resize_height=7 --resize_width 9 img/ list small");
    let first = Datum::decode(&lmdb(&folder.path().join("small"))[0].1[..]).unwrap();
    assert_eq!((first.channels, first.height, first.width), (Some(1), Some(7), Some(9)));
}

#[test]
fn bad_input_is_refused() {
    let folder = images();
    pass(folder.path(), "list img/ list made");
    fs::create_dir(folder.path().join("photos")).unwrap();
    fs::write(folder.path().join("photos/cat.jpg"), "").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let of_list = format!("missing: cannot read the list: {}", words_of(Errno::NOENT));
    let [missing, file] = [("missing", Errno::NOENT), ("list", Errno::NOTDIR)]
        .map(|(path, error)| format!("{path}: cannot list the folder: {}", words_of(error)));
    for (arguments, message) in [
        ("list img/ list made", "made: it already exists; give another path, or --force to replace it"),
        (
            "list img/ list photos --force",
            "photos: it is a folder with \"cat.jpg\", which is no part of a database",
        ),
        ("list img/ missing x", &of_list),
        ("list img/ empty x", "empty: there is no record"),
        (
            "list img/ list x --resize_height=5 --resize_width=0",
            "an image is resized to both, or with 0 for both",
        ),
        ("list wrong/ list x", "list: not one of its 12 items could be converted; the first one"),
        ("list img/ list nowhere/x", "nowhere/x.percolator-converting: cannot create the folder"),
        ("folders missing x", &missing),
        ("folders list x", &file),
        ("folders img x", "img: it has no folder: each class has a folder of images"),
        ("idx list list x", "list: it starts with"),
        ("cifar10 list x", "are no whole number of records"),
        ("cifar10 img x", "img/data_batch_1.bin: cannot open the file"),
        ("cifar100 img x --split test", "img/test.bin: cannot open the file"),
        ("records missing x", "missing"),
        ("records list x", "list: a list of images, which has no records: convert it as a list"),
        ("records made x --database none", "none"),
        ("cifar10 empty x --split test", "empty: --split chooses among the files of a folder"),
        ("list img/ list x --threads 60000", "60000 threads are too many; at most 1024 are allowed"),
        ("records made x --shards 100", "made: 100 shards cannot be made of 12 items"),
    ] {
        let said = fail(folder.path(), arguments);
        assert!(said.starts_with("percolator: ") && said.contains(message), "{arguments}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(names(folder.path()), ["empty", "img", "list", "made", "photos"], "nothing is left");
    for (arguments, message) in [
        ("", "Usage: percolator convert"),
        ("list img/", "LIST"),
        ("list img/ list x --threads 0", "--threads"),
        ("list img/ list x --encode-type gif", "images are encoded as jpg or png"),
        ("list img/ list x --shards 0", "--shards"),
        ("list img/ list x --resize-height 5", "--resize-width <COLUMNS>"),
        ("list img/ list x --gray=maybe", "not a boolean"),
        ("records made x --example image", "names of two features"),
        ("cifar100 img x --label both", "possible values: fine, coarse"),
    ] {
        let output = run(folder.path(), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(message), "{arguments}: {said}");
    }
}

#[test]
fn names_may_be_any_bytes() {
    let folder = tempdir().unwrap();
    let name = OsStr::from_bytes(b"an image \xff\xfe.png");
    let png = lmdb(&common::repository().join("tests/data/golden/png_gray_lmdb")).remove(0).1;
    let root = OsStr::from_bytes(b"classes \xf0");
    fs::create_dir_all(folder.path().join(root).join("a class")).unwrap();
    fs::write(folder.path().join(root).join("a class").join(name), Datum::decode(&png[..]).unwrap().data())
        .unwrap();
    let output = OsStr::from_bytes(b"made \xff");
    for json in [false, true] {
        let mut command = command(folder.path(), "folders");
        command.args([root, output]).args(["--force"]).args(json.then_some("--json"));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let key = &lmdb(&folder.path().join(output))[0].0;
    assert_eq!(key, b"00000000_a class/an image \xff\xfe.png");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = images();
    let mut child =
        command(folder.path(), "list img/ list made --json").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(lmdb(&folder.path().join("made")).len(), 12);
}

#[test]
fn a_full_disk_keeps_what_is_committed() {
    let folder = tempdir().unwrap();
    let records = (0..3000).map(|number| (format!("{number:08}").into_bytes(), vec![7; 2000]));
    common::write_lmdb(&folder.path().join("db"), records);
    let wanted = lmdb(&folder.path().join("db"));
    for backend in ["lmdb", "leveldb"] {
        // Files of this process may have this many blocks of 512 bytes: too few for all, or for any.
        for (blocks, is_kept) in [(10_000, backend == "lmdb"), (1000, false)] {
            let script =
                format!("ulimit -f {blocks}; exec \"$0\" convert records db made --backend {backend}");
            let output = Command::new("sh")
                .args(["-c", &script, env!("CARGO_BIN_EXE_percolator")])
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            if output.status.success() {
                // Each table is a file, which may be small enough.
                assert_eq!((backend, blocks), ("leveldb", 10_000), "{said}");
                fs::remove_dir_all(folder.path().join("made")).unwrap();
                continue;
            }
            assert_eq!(output.status.code(), Some(2), "{said}");
            // liblmdb makes an I/O error of a write that was cut short.
            assert!(said.contains(&words_of(Errno::FBIG)) || said.contains("the disk may be full"), "{said}");
            assert!(!folder.path().join("made").exists());
            let partial = folder.path().join("made.percolator-converting");
            if is_kept {
                assert!(
                    said.contains("is in made.percolator-converting: --resume goes on with it"),
                    "{said}"
                );
                pass(folder.path(), &format!("records db made --backend {backend} --resume"));
                assert!(lmdb(&folder.path().join("made")) == wanted);
                fs::remove_dir_all(folder.path().join("made")).unwrap();
            } else {
                assert!(said.contains("nothing is left of the output"), "{said}");
            }
            assert!(!partial.exists());
        }
    }
}

/// A conversion of 30 commits, whose records come out as they are in `db`.
fn large() -> (TempDir, Records) {
    let folder = tempdir().unwrap();
    let records: Records =
        (0..30_500).map(|number| (format!("{number:08}").into_bytes(), vec![7; number % 90])).collect();
    common::write_lmdb(&folder.path().join("db"), records.clone());
    (folder, records)
}

#[test]
fn a_command_that_is_killed_at_any_moment_is_gone_on_with() {
    let (folder, wanted) = large();
    let mut random = rand_mt::Mt::new(11);
    let arguments =
        |backend| format!("records db made --backend {backend} --shards 3 --resume --force --quiet");
    let kills = std::env::var("PERCOLATOR_KILLS").map_or(times(40, 9), |kills| kills.parse().unwrap());
    for backend in ["lmdb", "leveldb", "tfrecord"] {
        let (mut killed, mut finished, mut resumed, mut length) = (0, 0, 0, Duration::from_millis(300));
        while killed < kills / 3 {
            let start = Instant::now();
            let mut child = command(folder.path(), &arguments(backend))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let moment = length.mul_f64(f64::from(random.next_u32() % 1000) / 1000.0);
            while child.try_wait().unwrap().is_none() {
                if start.elapsed() >= moment {
                    child.kill().unwrap();
                    break;
                }
                std::hint::spin_loop();
            }
            let output = child.wait_with_output().unwrap();
            if output.status.signal().is_some() {
                killed += 1;
                continue;
            }
            assert!(output.status.success(), "{output:?}");
            finished += 1;
            resumed += usize::from(String::from_utf8_lossy(&output.stdout).contains("before"));
            length = start.elapsed().max(Duration::from_millis(100));
            check(folder.path(), backend, &wanted);
        }
        let output = run(folder.path(), &arguments(backend));
        assert!(output.status.success(), "{output:?}");
        check(folder.path(), backend, &wanted);
        println!("{backend}: {killed} killed, {finished} finished by themselves, {resumed} of them resumed");
        for name in names(folder.path()).iter().filter(|name| name.starts_with("made")) {
            let path = folder.path().join(name);
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }
}

/// The outputs are whole, have all records, and nothing else is left.
fn check(folder: &Path, backend: &str, wanted: &Records) {
    let outputs: Vec<_> = names(folder).into_iter().filter(|name| name.starts_with("made")).collect();
    assert_eq!(outputs, [0, 1, 2].map(|shard| format!("made-0000{shard}-of-00003")));
    let found: Records = outputs
        .iter()
        .map(|name| folder.join(name))
        .flat_map(|path| match backend {
            "lmdb" => lmdb(&path),
            "leveldb" => walked(&LevelDb::open(path).unwrap()),
            _ => walked(&TfRecord::open(path).unwrap()),
        })
        .collect();
    match backend {
        "tfrecord" => assert!(found.iter().map(|(_, value)| value).eq(wanted.iter().map(|(_, value)| value))),
        _ => assert!(found == *wanted),
    }
}

#[test]
fn an_interrupt_says_what_is_kept() {
    let (folder, wanted) = large();
    // It is stopped as soon as it has committed something, or it may end first.
    for signal in ["INT", "TERM"] {
        let mut child = command(folder.path(), "records db made --quiet --threads 1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let state = folder.path().join("made.percolator-converting/state.json");
        while !state.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        let was_there = sent.unwrap().success();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        match child.wait().unwrap().code() {
            Some(130 | 143) => {
                assert!(
                    said.contains(&format!("SIG{signal}: the conversion was stopped; the output of")),
                    "{said}"
                );
                assert!(fail(folder.path(), "records db made").contains("--resume goes on with it"));
                // Whoever goes on may be interrupted, too.
                let mut resumed = command(folder.path(), "records db made --resume --quiet --threads 1")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                if catches_before_it_ends(signal, &mut resumed) {
                    let id = resumed.id().to_string();
                    let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
                    assert!(sent.unwrap().success());
                }
                if resumed.wait().unwrap().code() != Some(0) {
                    pass(folder.path(), "records db made --resume");
                }
            }
            code => assert!(code == Some(0) && was_there, "{code:?}: {said}"),
        }
        assert!(lmdb(&folder.path().join("made")) == wanted);
        fs::remove_dir_all(folder.path().join("made")).unwrap();
    }
}
