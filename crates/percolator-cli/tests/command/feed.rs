//! Users measure with `percolator feed`: it must feed what was asked for, and refuse what cannot be fed with
//! one message. These tests run the command as a user does.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::Errno;

use crate::common;
use crate::common::need::missing;
#[cfg(target_os = "linux")]
use crate::common::words_of;
use crate::{copy_command, without_backtraces};

fn command(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.arg(name).env_remove("RUST_LOG");
    command.current_dir(common::repository().join("tests/data/golden"));
    command
}

fn feed(args: &[&str]) -> Output {
    command("feed").args(["--batches", "2"]).args(args).output().unwrap()
}

/// Runs what must succeed. Returns what it prints about the batches.
#[track_caller]
fn batches(args: &[&str]) -> String {
    let output = feed(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let first = said.lines().next().unwrap();
    first.split_once("; batches of ").unwrap().1.to_owned()
}

/// Runs what must fail. Returns the message.
#[track_caller]
fn refuse(args: &[&str], code: i32) -> String {
    let output = feed(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    message
}

#[test]
fn a_global_batch_is_divided_among_the_devices() {
    let source = ["raw_lmdb", "--global-batch-size", "6"];
    let of_three = batches(&[&source[..], &["--devices", "host:0,host:1"]].concat());
    assert_eq!(of_three, batches(&["raw_lmdb", "--batch-size", "3"]));
    assert_eq!(batches(&source), batches(&["raw_lmdb", "--batch-size", "6"]), "one device has all");
    assert_ne!(of_three, batches(&source));
}

#[test]
fn files_are_mapped_or_read_as_the_command_is_told() {
    for source in [["raw_lmdb"], ["raw_leveldb_ldb"], ["raw_leveldb_log"]] {
        for access in ["auto", "mapped", "read"] {
            assert_eq!(batches(&[&source[..], &["--access", access]].concat()), batches(&source));
        }
    }
    assert!(refuse(&["raw_lmdb", "--access", "pread"], 2).contains("[possible values: auto, mapped, read]"));
    let digest_of = |source: [&str; 1], access: &str| {
        let output = command_with("digest", &[source[0], "--access", access]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    for source in [["raw_lmdb"], ["raw_leveldb_ldb"]] {
        assert_eq!(digest_of(source, "read"), digest_of(source, "mapped"));
    }
}

#[test]
fn a_named_database_is_read_where_the_command_is_told_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("lmdb{number}"));
    for number in 0..2 {
        fs::create_dir(path(number)).unwrap();
        let env = lmdb::Environment::new().set_max_dbs(2).open(&path(number)).unwrap();
        for (name, side) in [("train", 5), ("test", 7)] {
            let database = env.create_db(Some(name), lmdb::DatabaseFlags::empty()).unwrap();
            let mut transaction = env.begin_rw_txn().unwrap();
            for index in 0..9 {
                let (key, value) = common::image(index, 3, side, side);
                transaction.put(database, &key, &value, lmdb::WriteFlags::empty()).unwrap();
            }
            lmdb::Transaction::commit(transaction).unwrap();
        }
    }
    let [one, other] = [0, 1].map(|number| path(number).to_str().unwrap().to_owned());
    let said = |args: &[&str]| {
        let output = feed(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let of_one = said(&[&one, "--database", "test", "--access", "read"]);
    assert!(of_one.contains("9 records") && of_one.contains("3x7x7"), "{of_one}");
    let of_both = said(&[&one, &other, "--database", "train"]);
    assert!(of_both.contains("18 records") && of_both.contains("3x5x5"), "{of_both}");
    let message = refuse(&[&one], 2);
    assert!(message.contains("\"test\", \"train\"; name one of them"), "{message}");
    assert!(refuse(&[&one, "--database", "val"], 2).contains("there is no database \"val\""));
    let message = refuse(&["raw_leveldb_ldb", "--database", "train"], 2);
    assert!(message.contains("--database names a database of an LMDB"), "{message}");
    let plan = [&*one, &*other, "--database", "train", "--access", "read", "--global-batch-size", "6"];
    let output = command_with("plan", &plan).output().unwrap();
    let planned = String::from_utf8(output.stdout).unwrap();
    assert!(
        planned.contains("18 records in 2 files"),
        "{planned}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_global_batch_goes_before_the_batch_size_of_a_net() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = "layer { name: 'data' type: 'Data' top: 'data' \
                 data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";
    std::fs::write(&net, layer).unwrap();
    let net = net.to_str().unwrap();
    assert_eq!(batches(&[net]), batches(&["raw_lmdb", "--batch-size", "4"]));
    let divided = batches(&[net, "--global-batch-size", "6", "--devices", "host:0,host:1"]);
    assert_eq!(divided, batches(&["raw_lmdb", "--batch-size", "3"]));
}

#[test]
fn options_for_kinds_of_data_still_work_and_say_that_a_path_is_enough() {
    let former = ["--lmdb", "raw_lmdb", "--leveldb", "raw_leveldb_log"];
    let output = feed(&former);
    assert!(output.status.success(), "{output:?}");
    let note = |option: &str| format!("percolator: note: {option} PATH is now just PATH\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), note("--lmdb") + &note("--leveldb"));
    for quiet in [&[&former[..], &["--json"]].concat()[..], &["raw_lmdb", "raw_leveldb_log"]] {
        let output = feed(quiet);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    for (args, due) in [
        (&["--lmdb", "raw_lmdb", "--net", "none.prototxt"][..], "cannot be used with"),
        (&["none.prototxt", "--lmdb", "raw_lmdb"], "a net cannot be combined with other data sets"),
        (&["none", "--leveldb", "raw_leveldb_log"], "none: cannot find it: No such file or directory"),
        (&["--lmdb", "raw_leveldb_log"], "not an LMDB: it is a LevelDB"),
        (&["--lmdb", "raw_lmdb", "--level", "0"], "select a layer of a net, and no net is given"),
        (&["--lmdb", "raw_lmdb", "--allow-log-gaps"], "--allow-log-gaps is for a LevelDB"),
        (&["--leveldb", "raw_leveldb_log", "--database", "x"], "--database names a database of an LMDB"),
        (&["--lmdb"], "a value is required for '--lmdb <PATH>'"),
        (&["none.prototxt", "--color", "native"], "such as --crop, cannot be used with a net"),
    ] {
        let message = refuse(args, 2);
        assert!(message.contains(due), "{args:?}: {message}");
    }
}

#[test]
fn what_is_logged_is_as_verbose_as_asked_for() {
    let said = |args: &[&str], filter: Option<&str>| {
        let mut command = command_with("feed", &["raw_lmdb", "--batches", "2"]);
        let output = command.args(args).envs(filter.map(|filter| ("RUST_LOG", filter))).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&[], None), "");
    let info = said(&["-v"], None);
    assert!(info.contains("the feed starts") && !info.contains("DEBUG"), "{info}");
    assert!(said(&["-vv"], None).contains("DEBUG"));
    assert_eq!(said(&["-v"], Some("error")), "", "RUST_LOG goes before it");
    // Also before the command's name.
    for args in [["digest", "raw_lmdb", "-q", "-v"], ["-v", "digest", "raw_lmdb", "--quiet"]] {
        let output = command(args[0]).args(&args[1..]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("'--verbose' cannot be used with '--quiet'"), "{message}");
    }
}

#[test]
fn what_is_below_the_root_goes_before_a_net_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(&folder.path().join("r/x"), 3, 1, 2, 2);
    fs::write(folder.path().join("x"), "name: \"a net\"\n").unwrap();
    let run = |path: &str| {
        let mut command = command("feed");
        command.args(["--root", "r", "--batches", "1", path]).current_dir(folder.path());
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [printed, message] = run("x");
    assert!(printed.contains("3 records"), "{printed}{message}");
    let [printed, message] = run("gone");
    assert!(printed.is_empty() && message.contains("r/gone: cannot find it: No such file"), "{message}");
}

#[test]
fn a_global_batch_that_cannot_be_is_refused() {
    let source = ["raw_lmdb", "--global-batch-size", "7"];
    let message = refuse(&[&source[..], &["--devices", "host:0,host:1"]].concat(), 2);
    assert!(message.contains("a global batch of 7 records is not a multiple of 2 ranks"), "{message}");
    let message = refuse(&[&source[..], &["--batch-size", "4"]].concat(), 2);
    assert!(message.contains("cannot be used with"), "{message}");
    assert!(refuse(&["raw_lmdb", "--global-batch-size", "0"], 2).contains("batch_size"));
}

#[test]
fn images_are_resized_and_may_be_decoded_smaller() {
    let source = ["raw_lmdb", "--resize"];
    let resized = batches(&[&source[..], &["20x30"]].concat());
    assert!(resized.contains("3x20x30"), "{resized}");
    assert_eq!(batches(&[&source[..], &["20x30", "--scaled-decode"]].concat()), resized);
    for size in ["20", "20x", "0x30", "20x30x3", "-1x3"] {
        let message = refuse(&["raw_lmdb", &format!("--resize={size}")], 2);
        assert!(message.contains("not a height and a width"), "{size}: {message}");
    }
}

#[test]
fn a_net_may_have_its_files_decoded_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let photos = common::repository().join("tests/data/photos");
    let list = folder.path().join("list.txt");
    std::fs::write(&list, format!("{}/coffee.jpg 1\n", photos.display())).unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' \
         image_data_param {{ source: '{}' batch_size: 4 new_height: 60 new_width: 70 }} }}",
        list.display()
    );
    std::fs::write(&net, layer).unwrap();
    let said = batches(&[net.to_str().unwrap(), "--scaled-decode"]);
    assert!(said.contains("3x60x70"), "{said}");
}

/// The command prints nothing about pixels, but its feed logs a warning if the option has no effect.
#[test]
fn smaller_decoding_is_asked_of_the_feed_where_the_command_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net.prototxt");
    let layer = "layer { name: 'data' type: 'Data' top: 'data' \
                 data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";
    std::fs::write(&net, layer).unwrap();
    let said = |args: &[&str]| {
        let output = feed(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{message}");
        message.contains("scaled_decode has no effect: nothing is resized")
    };
    for source in [&[net.to_str().unwrap()][..], &["raw_lmdb"]] {
        assert!(said(&[source, &["--scaled-decode"]].concat()), "{source:?}");
        assert!(!said(source), "{source:?}");
    }
    assert!(!said(&["raw_lmdb", "--resize", "20x30", "--scaled-decode"]));
}

/// A run of two epochs over the golden records, for tests that end it early.
fn run_of(args: &[&str]) -> Command {
    let mut command = command("feed");
    command.args(["raw_lmdb", "--index", "memory", "--batch-size", "4"]).args(args);
    command
}

/// Checks that the receipts prove these epochs.
#[track_caller]
fn verify(receipts: &[&Path], epochs: &str) {
    let output = command("verify-run").args(receipts).args(["--epochs", epochs]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_is_written_follows_links_and_replaces_nothing_but_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("elsewhere")).unwrap();
    symlink("elsewhere/r", at("r")).unwrap();
    symlink("elsewhere/s", at("s")).unwrap();
    let [receipt, snapshot] = ["r", "s"].map(|name| at(name).to_str().unwrap().to_owned());
    let output = run_of(&["--epochs", "1", "--receipt", &receipt, "--snapshot", &snapshot]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(at("r").is_symlink() && at("s").is_symlink());
    verify(&[&at("elsewhere/r")], "1");
    assert!(fs::read_to_string(at("elsewhere/s")).unwrap().starts_with("percolator snapshot"));

    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink("/dev/full", at("device")).unwrap();
    for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket"), ("device", "a character device")] {
        for option in ["--receipt", "--snapshot"] {
            let path = at(name);
            let output = run_of(&["--epochs", "1", option, path.to_str().unwrap()]).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains(kind) && message.contains("only a regular file"), "{message}");
            assert!(output.stdout.is_empty(), "before anything is fed");
            assert!(fs::metadata(&path).is_ok_and(|found| !found.is_file()), "{name} is what it was");
        }
    }
    let none = at("none/r");
    let message = refuse(&["raw_lmdb", "--epochs", "1", "--receipt", none.to_str().unwrap()], 2);
    let due = format!("none/r: cannot write the receipt: {}", words_of(Errno::NOENT));
    assert!(message.contains(&due), "{message}");
    let both = ["raw_lmdb", "--epochs", "1", "--receipt", &receipt, "--snapshot", &receipt];
    assert!(refuse(&both, 2).contains("give each a file of its own"));
}

/// `feed ... | head -1`.
#[test]
fn whoever_closes_the_pipe_has_the_receipt_even_so() {
    let folder = tempfile::tempdir().unwrap();
    let [receipt, snapshot] = ["r", "s"].map(|name| folder.path().join(name));
    let paths = [receipt.to_str().unwrap(), snapshot.to_str().unwrap()];
    let mut child = run_of(&["--epochs", "2", "--receipt", paths[0], "--snapshot", paths[1]])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    verify(&[&receipt], "2");
    assert!(snapshot.exists());
    // The verdict does not depend on a reader either.
    let mut child = command("verify-run").args([&receipt, &receipt]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Nor does the run depend on a reader of what is said beside the output.
#[test]
fn whoever_closes_the_standard_error_has_the_run_even_so() {
    let folder = tempfile::tempdir().unwrap();
    let receipt = folder.path().join("r");
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let args = ["--epochs", "2", "--json", "--metrics", "0", "--receipt", receipt.to_str().unwrap()];
    let output = run_of(&args).stderr(closed()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok(), "{output:?}");
    verify(&[&receipt], "2");
    let no_terminal = run_of(&["--watch"]).stdout(Stdio::piped()).stderr(closed()).output().unwrap();
    assert_eq!(no_terminal.status.code(), Some(2));
}

/// A standard output that cannot be written to is an error, but only once the rest is done.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_words_costs_no_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let receipt = folder.path().join("r");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output =
        run_of(&["--epochs", "2", "--receipt", receipt.to_str().unwrap()]).stdout(full).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && message.contains("cannot write to the standard output"),
        "{message}"
    );
    verify(&[&receipt], "2");
}

#[test]
fn a_signal_stops_the_run_at_a_batch_and_both_are_written() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let name = |name: &str| at(name).to_str().unwrap().to_owned();
        // Steps that last an hour: the run stops within the first.
        let args = ["--epochs", "0", "--step-ms", "3600000", "--devices", "host:0,host:1"];
        let both = ["--receipt", &name("0"), "--snapshot", &name("s")];
        let mut child = run_of(&[&args[..], &both].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        // The command catches signals before it prints its first line.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let sent =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert_eq!(message, format!("percolator: stopped by SIG{signal}\n"));
        let goes_on =
            ["--epochs", "2", "--devices", "host:0,host:1", "--resume", &name("s"), "--receipt", &name("1")];
        let output = run_of(&goes_on).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        verify(&[&at("0"), &at("1")], "2");
    }
}

/// Files of somebody else come to the paths of the snapshot and the receipt while the run lasts, and once
/// more when it goes on from what was kept.
#[test]
fn what_comes_to_the_paths_meanwhile_stays_and_the_run_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let name = |name: &str| at(name).to_str().unwrap().to_owned();
    let outputs = ["--receipt", &name("0"), "--snapshot", &name("s"), "--trace", &name("t"), "--force"];
    let mut kept = Vec::new();
    for ending in ["percolator-kept", "2.percolator-kept"] {
        let mut command = run_of(&[&["--epochs", "0", "--step-ms", "3600000"], &outputs[..]].concat());
        if let Some((_, snapshot)) = kept.last() {
            command.arg("--resume").arg(snapshot);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The command catches signals before it prints its first line.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        // Where nothing was, even a file of the same kind is somebody's, as another rank's.
        let others = [
            ("0", "receipt", "percolator receipt 1\n"),
            ("s", "snapshot", "somebody's"),
            ("t", "trace", "somebody's"),
        ];
        others.iter().for_each(|(path, _, content)| fs::write(at(path), content).unwrap());
        let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        for (path, kind, content) in others {
            assert_eq!(fs::read_to_string(at(path)).unwrap(), content);
            let said = format!("the {kind} is in {}.{ending}", name(path));
            assert!(message.contains(&said), "{message}");
            fs::remove_file(at(path)).unwrap();
        }
        assert!(fs::read(at(&format!("t.{ending}"))).unwrap().starts_with(b"{\"displayTimeUnit\""));
        kept.push((at(&format!("0.{ending}")), at(&format!("s.{ending}"))));
    }
    let mut goes_on = run_of(&["--epochs", "2", "--receipt", &name("1")]);
    let output = goes_on.arg("--resume").arg(&kept[1].1).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    verify(&[&kept[0].0, &kept[1].0, &at("1")], "2");
}

#[test]
fn a_step_ends_when_the_time_is_over() {
    for [step, limit] in [["3600000", "0.1"], ["1h", "100ms"]] {
        let output = run_of(&["-j", "1", "--step-ms", step, "--seconds", limit]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    for step in ["18446744073709551615", "3600001", "61m", "-1", "inf", "nan", "x"] {
        let message = refuse(&["raw_lmdb", &format!("--step-ms={step}")], 2);
        assert!(message.contains("not a"), "{step}: {message}");
    }
}

/// A run that was fed ends successfully, whatever the memory limit.
#[cfg(target_os = "linux")]
#[test]
fn what_was_fed_within_a_limit_of_memory_ends_well() {
    let (mut fed, mut refused) = (0, 0);
    for megabytes in (8..400).step_by(28) {
        let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", megabytes * 1000);
        let args = ["feed", "raw_lmdb", "--once", "--threads", "1"];
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_percolator")]).args(args);
        command.current_dir(common::repository().join("tests/data/golden"));
        without_backtraces(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("what held the others up") {
            assert!(output.status.success(), "{megabytes} MB: {output:?}");
            fed += 1;
        } else {
            refused += 1;
        }
    }
    assert!(fed > 0 && refused > 0, "fed within {fed} limits, and not within {refused}");
}

/// Under a limit on processes, which the system does not apply to root.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_cannot_be_started_is_an_error_that_says_so() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("percolator");
    copy_command(&program);
    common::write_images(&folder.path().join("db"), 64, 1, 4, 4);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (mut started, mut refused) = (0, 0);
    for processes in 1..16 {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -u {processes} && exec \"$0\" \"$@\"")]).arg(&program);
        command.args(["feed", "db", "--once", "--threads", "1", "--devices", "host:0,host:1,host:2"]);
        command.current_dir(folder.path()).env("RUST_LOG", "error");
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        let Ok(output) = command.output() else {
            return missing("USERS", "this process cannot become another user");
        };
        let message = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => started += 1,
            Some(2) => {
                assert!(message.contains("cannot start the "), "{processes}: {message}");
                refused += 1;
            }
            // Even the shell could not start it.
            Some(126 | 127) | None if message.contains("bash: ") => {}
            code => panic!("{processes} processes: {code:?}: {message}"),
        }
    }
    println!("with {refused} limits no thread, with {started} all of them");
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let list_net = |list: &Path| {
        let net = folder.path().join("net.prototxt");
        let layer = format!(
            "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' \
             image_data_param {{ source: '{}' batch_size: 4 }} }}",
            list.display()
        );
        fs::write(&net, layer).unwrap();
        net.to_str().unwrap().to_owned()
    };
    for (path, kind) in [(&*fifo, "a FIFO"), (Path::new("/dev/zero"), "a character device")] {
        let name = path.to_str().unwrap();
        let net = list_net(path);
        let reads = [
            run_of(&["--resume", name]),
            command_with("feed", &[name]),
            command_with("feed", &[&net]),
            command_with("feed", &["raw_lmdb", "--once", "--mean-file", name]),
            command_with("plan", &["--records", "9", "--global-batch-size", "3", "--resume", name]),
            command_with("verify-run", &[name]),
        ];
        for mut command in reads {
            let output = command.output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {message}");
            assert!(message.contains(name) && message.contains(kind), "{command:?}: {message}");
        }
    }
}

fn command_with(name: &str, args: &[&str]) -> Command {
    let mut command = command(name);
    command.args(args);
    command
}

#[test]
fn what_others_wrote_is_shown_on_one_line_and_not_at_length() {
    let folder = tempfile::tempdir().unwrap();
    // A path that would clear a terminal and forge a line.
    let hostile = folder.path().join("db\u{1b}[2J\npercolator: all is well");
    let message = refuse(&[hostile.to_str().unwrap()], 2);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(!message.contains('\u{1b}') && message.contains("db\\u{1b}[2J\\npercolator"), "{message}");
    // Also in output that is not an error, and in warnings.
    common::write_images(&hostile, 8, 1, 4, 4);
    let output = command_with("feed", &["--once", "--scaled-decode"])
        .arg(&hostile)
        .env("RUST_LOG", "debug")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for said in [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()) {
        assert!(said.contains("db\\u{1b}[2J\\npercolator") && !said.contains('\u{1b}'), "{said}");
    }
    // A file of random bytes instead of a list: names, and invalid labels.
    let list = folder.path().join("list");
    let mut random = rand_mt::Mt::new(1);
    let bytes: Vec<u8> = (0..1 << 18).flat_map(|_| random.next_u32().to_le_bytes()).collect();
    let bytes: Vec<u8> = bytes.into_iter().map(|byte| if byte == b'\n' { b'x' } else { byte }).collect();
    let net = folder.path().join("net.prototxt");
    let layer = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' \
         image_data_param {{ source: '{}' batch_size: 4 }} }}",
        list.display()
    );
    fs::write(&net, layer).unwrap();
    for bytes in [&bytes[..], b"\x1b[31m 99999999999"] {
        fs::write(&list, bytes).unwrap();
        let output = command_with("feed", &[net.to_str().unwrap(), "--once"]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{} bytes", message.len());
        assert!(
            message.len() < 20_000 && !message.contains('\u{1b}'),
            "{} bytes: {message:.2000}",
            message.len()
        );
    }
    // A snapshot with a very long line and a wrong checksum.
    let snapshot = folder.path().join("snapshot");
    fs::write(
        &snapshot,
        format!("percolator snapshot 1\n{}\nchecksum {}\n", "x".repeat(1 << 20), "0".repeat(1 << 20)),
    )
    .unwrap();
    let message = refuse(&["raw_lmdb", "--resume", snapshot.to_str().unwrap()], 2);
    assert!(message.contains("it was changed") && message.len() < 2000, "{}", message.len());
}

#[test]
fn numbers_that_no_pixel_survives_are_refused() {
    for option in ["--scale=nan", "--scale=inf", "--scale=1e39", "--mean-value=1,nan", "--mean-value=-inf"] {
        let message = refuse(&["raw_lmdb", option], 2);
        assert!(message.contains("not a finite 32-bit number"), "{option}: {message}");
    }
    assert!(feed(&["raw_lmdb", "--scale", "-0.5"]).status.success());
}
