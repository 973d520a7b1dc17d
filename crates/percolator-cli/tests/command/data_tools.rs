//! `mean`, `inspect` and `verify`: what they print, write and return, and what they make of bad input.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::io::Errno;
use serde_json::Value;
use tempfile::tempdir;

use crate::common;
use crate::common::words_of;
use crate::pty::Pty;

fn golden(name: &str) -> PathBuf {
    common::repository().join("tests/data/golden").join(name)
}

fn command(arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// Runs a command; words in the text are arguments, and `@` stands for the paths, in order.
fn run(text: &str, paths: &[&Path]) -> Output {
    let mut paths = paths.iter();
    let arguments: Vec<&OsStr> = text
        .split_whitespace()
        .map(|word| if word == "@" { paths.next().unwrap().as_os_str() } else { OsStr::new(word) })
        .collect();
    command(&arguments).output().unwrap()
}

#[track_caller]
fn pass(text: &str, paths: &[&Path]) -> String {
    let output = run(text, paths);
    assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that exits with this code; returns what it prints, and what it says about it.
#[track_caller]
fn exits(code: i32, text: &str, paths: &[&Path]) -> (String, String) {
    let output = run(text, paths);
    assert_eq!(output.status.code(), Some(code), "{text}: {output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A database in which record 2 is damaged.
fn damaged(folder: &Path) -> PathBuf {
    let path = folder.join("damaged_lmdb");
    let good = |label| common::datum(1, 2, 2, label, vec![9; 4]);
    let records = [good(0), good(1), b"\xff".to_vec(), good(3)];
    common::write_lmdb(&path, records.into_iter().enumerate().map(|(at, value)| (common::key(at), value)));
    path
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn mean_writes_caffes_file_and_prints_what_others_want() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("mean.binaryproto");
    for (name, extra) in [("jpg_color", ""), ("float", ""), ("raw", "--caffe"), ("gray", "--threads 1")] {
        let printed = pass(&format!("mean @ @ --force {extra}"), &[&golden(&format!("{name}_lmdb")), &out]);
        let wanted = fs::read(golden(&format!("{name}_mean.binaryproto"))).unwrap();
        assert_eq!(fs::read(&out).unwrap(), wanted, "{name}");
        assert!(printed.contains("  mean_value: ") && printed.contains("  std = ["), "{printed}");
    }
    let (_, error) = exits(2, "mean @ @", &[&golden("raw_lmdb"), &out]);
    assert!(error.contains("it already exists; give another path, or --force"), "{error}");
    let printed: Value = serde_json::from_str(&pass("mean @ --json", &[&golden("raw_lmdb")])).unwrap();
    assert_eq!(printed["records"], 64);
    assert_eq!(printed["channels"].as_array().unwrap().len(), 3);
    let rgb: Value =
        serde_json::from_str(&pass("mean @ --json --channels rgb", &[&golden("raw_lmdb")])).unwrap();
    let of_pytorch =
        |printed: &Value| -> Vec<f64> { serde_json::from_value(printed["pytorch"]["mean"].clone()).unwrap() };
    let reversed: Vec<_> = of_pytorch(&printed).into_iter().rev().collect();
    assert_eq!(of_pytorch(&rgb), reversed);
    assert_eq!(names(folder.path()), ["mean.binaryproto"]);
}

#[test]
fn inspect_reports_and_shows() {
    let folder = tempdir().unwrap();
    let page = folder.path().join("report.html");
    let path = golden("jpg_color_lmdb");
    let printed = pass("inspect @ --all --pictures 9 --html @", &[&path, &page]);
    for said in
        ["LMDB of Datum", "%08d_NAME", "12 JPEG", "12 of 3x75x53", "backend: LMDB", "no pixels come twice"]
    {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    assert!(!printed.contains('\x1b'));
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.contains("12 of 3x75x53") && written.matches("<img ").count() == 9);
    let report: Value = serde_json::from_str(&pass("inspect @ --json --sample 5", &[&path])).unwrap();
    assert_eq!((&report["records"], &report["looked_at"]), (&12.into(), &5.into()));
    assert_eq!(report["keys"]["pattern"], "%08d_NAME");
    assert_eq!(report["shapes"][0]["shape"], serde_json::json!([3, 75, 53]));
    let (_, error) = exits(2, "inspect @ --html @", &[&path, &page]);
    assert!(error.contains("it already exists"), "{error}");
}

/// What a list of the report leaves out is counted.
#[test]
fn inspect_counts_what_it_leaves_out() {
    let folder = tempdir().unwrap();
    let (path, page) = (folder.path().join("many_lmdb"), folder.path().join("report.html"));
    // 30 labels and 30 shapes; each image is there 10 times.
    let value = |rows: usize| {
        let [height, label] = [rows, rows - 1].map(|number| i32::try_from(number).unwrap());
        common::datum(1, height, 1, label, vec![7; rows])
    };
    let keys = (0..300).map(|at| (common::key(at), value(1 + at % 30)));
    common::write_lmdb(&path, keys);
    let said = pass("inspect @ --html @", &[&path, &page]);
    for line in [
        "  ...  15 more labels, and the least frequent:\n",
        "  and 22 more shapes\n",
        "  records 0, 30, 60, 90, 120, 150, 180, 210 and 2 more\n",
        "  and 25 more groups\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("and 10 more shapes") && page.contains("and 10 more groups"), "{page}");
}

#[test]
fn inspect_shows_one_record() {
    let folder = tempdir().unwrap();
    let image = folder.path().join("one.png");
    let path = golden("jpg_color_lmdb");
    let third = pass("inspect @ --record 3", &[&path]);
    assert!(third.contains("record 3, key \"00000003_") && third.contains("3x75x53"), "{third}");
    assert!(!third.contains('\x1b'), "there is no terminal");
    let key = third.split('"').nth(1).unwrap().to_owned();
    assert_eq!(pass(&format!("inspect @ --record {key}"), &[&path]), third);
    let printed = pass(&format!("inspect @ --record {key} --out @"), &[&path, &image]);
    assert!(printed.contains("its image"), "{printed}");
    assert_eq!(fs::read(&image).unwrap()[..4], *b"\x89PNG");
    let shown: Value = serde_json::from_str(&pass("inspect @ --record 3 --json", &[&path])).unwrap();
    assert_eq!((&shown["record"], shown["key"].as_str()), (&3.into(), Some(&*key)));
    let (_, error) = exits(2, "inspect @ --record 12", &[&path]);
    assert!(error.contains("and none with that number: the last is 11"), "{error}");
}

#[test]
fn inspect_lists_a_models_tensors() {
    let data = common::repository().join("crates/percolator-tensorflow/tests/data");
    let manifest: Value = serde_json::from_slice(&fs::read(data.join("manifest.json")).unwrap()).unwrap();
    let prefix = data.join(manifest["checkpoints"][0]["prefix"].as_str().unwrap());
    for how in ["", "--json"] {
        assert_eq!(
            pass(&format!("inspect @ {how}"), &[&prefix]),
            pass(&format!("model list @ {how}"), &[&prefix])
        );
    }
    let (_, error) = exits(2, "inspect @ --record 0", &[&prefix]);
    assert!(error.contains("have no records"), "{error}");
    let (_, error) = exits(2, "verify @", &[&prefix]);
    assert!(error.contains("a model's files"), "{error}");
}

#[test]
fn verify_lists_what_is_wrong_and_writes_a_clean_copy() {
    let folder = tempdir().unwrap();
    let path = damaged(folder.path());
    let said = pass("verify @", &[&golden("raw_leveldb_ldb")]);
    assert!(said.contains("64 records are whole (Datum); nothing is wrong"), "{said}");
    let (printed, _) = exits(1, "verify @", &[&path]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("record 2, key \"00000002\": "), "{printed}");
    assert!(lines[1].ends_with("3 records are whole (Datum); 1 damaged"), "{printed}");
    let (printed, _) = exits(1, "verify @ --json", &[&path]);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["schema"] == "percolator.verify.fault/1", "{printed}");
    assert_eq!((&lines[0]["record"], &lines[0]["fault"]), (&2.into(), &"damaged".into()));
    assert_eq!((&lines[1]["whole"], &lines[1]["is_whole"]), (&3.into(), &false.into()));
    let copy = folder.path().join("clean_lmdb");
    let (printed, _) = exits(1, "verify @ --repair @", &[&path, &copy]);
    assert!(printed.contains("a clean copy with 3 records"), "{printed}");
    assert!(pass("verify @", &[&copy]).contains("3 records are whole"));
    let (_, error) = exits(2, "verify @ --repair @", &[&path, &copy]);
    assert!(error.contains("it already exists"), "{error}");
    exits(1, "verify @ --force --repair @", &[&path, &copy]);
    assert_eq!(names(folder.path()), ["clean_lmdb", "damaged_lmdb"]);
}

/// On a terminal, a fault's line begins where the bar was cleared, and not behind it.
#[test]
fn faults_and_the_bar_do_not_mix() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("long_lmdb");
    let jpeg = fs::read(common::repository().join("tests/data/images/444.jpg")).unwrap();
    let good = percolator::proto::Datum { data: Some(jpeg), encoded: Some(true), ..Default::default() };
    let good = prost::Message::encode_to_vec(&good);
    let value = |at: usize| if at % 50 == 49 { b"\xff".to_vec() } else { good.clone() };
    common::write_lmdb(&path, (0..10_000).map(|at| (common::key(at), value(at))));
    let words: [&OsStr; 4] = ["verify".as_ref(), path.as_ref(), "--threads".as_ref(), "1".as_ref()];
    let mut terminal = Pty::start(command(&words), 100, 30);
    assert_eq!(terminal.end().code(), Some(1));
    let end = terminal.wait_for("9800 records are whole", 0);
    let written = &terminal.written()[..end];
    let bar = written.find("records/s").expect("the bar is drawn before the end");
    let is_fault =
        |at: &usize| written[at + "record ".len()..].starts_with(|next: char| next.is_ascii_digit());
    let faults: Vec<usize> = written.match_indices("record ").map(|(at, _)| at).filter(is_fault).collect();
    assert_eq!(faults.len(), 200);
    assert!(faults.last() > Some(&bar));
    for fault in faults {
        let before = &written[..fault];
        assert!(before.is_empty() || before.ends_with(['\n', '\r', 'K', 'J']), "{:?}", &written[bar..end]);
    }
}

/// What the values are is stated where they do not tell, and verify says that it does not know.
#[test]
fn what_values_are_can_be_stated() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("bytes_lmdb");
    common::write_lmdb(&path, (0..3).map(|at| (common::key(at), b"\xff\xff".to_vec())));
    let said = pass("verify @", &[&path]);
    assert!(said.contains("3 records are whole (bytes)"), "{said}");
    assert!(said.contains("nothing is known of what is in them") && said.contains("--content"), "{said}");
    let stated = pass("verify @ --content bytes", &[&path]);
    assert!(!stated.contains("--content"), "{stated}");
    let (said, _) = exits(1, "verify @ --content datum", &[&path]);
    assert!(said.contains("0 records are whole (Datum); 3 damaged"), "{said}");
    let (_, error) = exits(2, "mean @ --content datum", &[&path]);
    assert!(error.contains("record 0, key"), "{error}");
    let said = pass("inspect @ --content datum", &[&path]);
    assert!(said.contains("LMDB of Datum") && said.contains("damaged    3"), "{said}");
    let said = pass("inspect @ --record 1 --content datum", &[&path]);
    assert!(said.contains("image            not a Caffe Datum"), "{said}");
    exits(2, "verify @ --content png", &[&path]);
}

#[test]
fn bad_input_is_refused_and_named() {
    let folder = tempdir().unwrap();
    let empty = folder.path().join("an empty folder");
    fs::create_dir(&empty).unwrap();
    for tool in ["mean", "inspect", "verify"] {
        exits(2, tool, &[]);
        let (_, error) = exits(2, &format!("{tool} @"), &[&folder.path().join("missing")]);
        assert!(error.contains("missing: cannot find it"), "{error}");
        let (_, error) = exits(2, &format!("{tool} @"), &[&empty]);
        assert!(error.contains("an empty folder"), "{error}");
        // Spaces, and bytes that are no UTF-8.
        let odd = folder.path().join(OsStr::from_bytes(b"a b\xff\n.lmdb"));
        fs::create_dir_all(&odd).unwrap();
        fs::copy(golden("raw_lmdb").join("data.mdb"), odd.join("data.mdb")).unwrap();
        let printed = pass(&format!("{tool} @"), &[&odd]);
        assert!(printed.contains("64") && !printed.contains("a b\u{fffd}\n"), "{printed}");
    }
    let (_, error) =
        exits(2, "mean @ @", &[&golden("raw_lmdb"), &folder.path().join("none/mean.binaryproto")]);
    assert!(error.contains("cannot write the mean"), "{error}");
    exits(2, "inspect @ --pictures 0", &[&empty]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    for tool in ["mean", "inspect", "verify"] {
        let path = golden("raw_lmdb");
        let mut child = command(&[tool.as_ref(), path.as_ref()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success() && said.is_empty(), "{tool}: {said}");
    }
}

/// A file may not grow beyond some blocks, as on a disk that is full. Nothing is left behind.
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (folder, data) = (tempdir().unwrap(), tempdir().unwrap());
    fs::copy(golden("png_color_lmdb").join("data.mdb"), data.path().join("data.mdb")).unwrap();
    // LMDB's own lock file would be too large, too. It is there from now on.
    pass("inspect @", &[data.path()]);
    for (tool, options) in [("mean", "out"), ("inspect", "--html out"), ("verify", "--repair out")] {
        let script = format!("ulimit -f 8; exec \"$0\" {tool} \"$1\" {options}",);
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_percolator")])
            .arg(data.path())
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{tool}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        // An LMDB says it in its own words.
        let is_full = [Errno::FBIG, Errno::NOSPC].iter().any(|full| said.contains(&words_of(*full)));
        assert!(said.contains("out") && is_full, "{tool}: {said}");
        assert!(names(folder.path()).is_empty(), "{tool}: {:?}", names(folder.path()));
    }
}

/// A database that takes some seconds to decode.
fn long(folder: &Path) -> PathBuf {
    let path = folder.join("long_lmdb");
    let jpeg = fs::read(common::repository().join("tests/data/images/444.jpg")).unwrap();
    let value = prost::Message::encode_to_vec(&percolator::proto::Datum {
        data: Some(jpeg),
        encoded: Some(true),
        ..Default::default()
    });
    common::write_lmdb(&path, (0..20_000).map(|at| (common::key(at), value.clone())));
    path
}

/// Waits until a process catches a signal: INT or TERM.
pub(crate) fn wait_until_it_catches(signal: &str, child: &mut Child) {
    assert!(catches_before_it_ends(signal, child), "it has ended before");
}

/// Waits until a process catches a signal, or has ended.
pub(crate) fn catches_before_it_ends(signal: &str, child: &mut Child) -> bool {
    let signal = if signal == "INT" { libc::SIGINT } else { libc::SIGTERM };
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        if u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal - 1) != 0 {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    let folder = tempdir().unwrap();
    let path = long(folder.path());
    for (arguments, signal, code) in [
        ("mean @ out", "INT", 130),
        ("inspect --all --html out @", "TERM", 143),
        ("verify --repair out @", "INT", 130),
    ] {
        let words =
            arguments.split(' ').map(|word| if word == "@" { path.as_os_str() } else { word.as_ref() });
        let mut child = command(&words.collect::<Vec<_>>())
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_catches(signal, &mut child);
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments}: {said}");
        assert!(said.contains("stopped before the end"), "{arguments}: {said}");
        assert_eq!(names(folder.path()), ["long_lmdb"], "{arguments}");
    }
}
