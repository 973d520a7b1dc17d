//! The command on a machine that runs out of file handles, threads or memory, or has no `/proc`. Each tool
//! does its work as it does elsewhere, or ends with code 2 and a line that says why. No output has its name
//! before it is whole, and the same task can be done later, whatever is left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use rustix::io::Errno;
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::need::missing;
use crate::common::process::must_end;
use crate::common::sample::some_of;
use crate::common::words_of;
use crate::{copy_command, without_backtraces};

/// What the tools do. `db` is an LMDB, `ldb` the same as a LevelDB, `records` as a TFRecord file.
const TASKS: [&str; 16] = [
    "feed db --once --batch-size 7",
    "feed ldb --epochs 1 --shuffle global --batch-size 7",
    "feed records --epochs 1 --shuffle global --batch-size 7",
    "digest db",
    "digest ldb",
    "digest records",
    "verify db",
    "verify ldb",
    "verify records",
    "inspect ldb",
    "mean db out",
    "mean records out",
    "convert records db out --backend lmdb",
    "convert records db out --backend leveldb",
    "convert records ldb out --backend tfrecord",
    "verify db --repair out",
];

/// The data sets, and the command, where everybody may use them.
fn place() -> TempDir {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    copy_command(&at("percolator"));
    common::write_images(&at("db"), 40, 3, 16, 16);
    for (name, backend) in [("ldb", "leveldb"), ("records", "tfrecord")] {
        let convert = format!("convert records db {name} --backend {backend} --quiet");
        let output = Command::new(at("percolator")).args(convert.split(' ')).current_dir(&folder).output();
        assert!(output.unwrap().status.success(), "{convert}");
    }
    let mut paths = vec![folder.path().to_owned()];
    while let Some(path) = paths.pop() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    folder
}

/// Removes what the last task wrote.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            _ if !name.starts_with("out") && !name.contains("percolator-") && name != ".cache" => {}
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

/// The names in the folder that a task added.
fn outputs(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("out"));
    names
}

/// Runs a task after some words of a shell. A task that hangs fails the test.
fn run(folder: &Path, words: &str, task: &str, prepare: fn(&mut Command)) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{words}; exec ./percolator \"$@\""), "bash"]).args(task.split(' '));
    command.current_dir(folder).env("RUST_LOG", "error").env("XDG_CACHE_HOME", folder.join(".cache"));
    without_backtraces(&mut command);
    prepare(&mut command);
    must_end(&format!("{words}: {task}"), move || command.output().unwrap())
}

/// What came of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Done,
    /// The command said why not.
    Ended,
    /// The shell, the loader, the allocator or libc ended it. What they say, and with which code or signal,
    /// is not for a test to list.
    Aborted,
}

/// Whatever came of a task: a success has its output, and nothing else has one under its name. An end of the
/// command's own says why. A panic is none, and nothing is found that is not there.
fn outcome(folder: &Path, task: &str, what: &str, output: &Output) -> Outcome {
    const FOUND: i32 = 1;
    const PANIC: i32 = 101;

    let said = String::from_utf8_lossy(&output.stderr);
    let has_output = folder.join("out").exists();
    assert!(![Some(FOUND), Some(PANIC)].contains(&output.status.code()), "{what}: {said}");
    if output.status.success() {
        let names_one = task.split(' ').any(|word| word == "out");
        assert_eq!(has_output, names_one, "{what}: {said}");
        return Outcome::Done;
    }
    // What is not whole has not its name, and what is said to be gone is.
    assert!(!has_output, "{what}: {said}");
    let left = outputs(folder);
    assert!(left.is_empty() || !said.contains("nothing is left"), "{what}: {left:?}: {said}");
    match output.status.code() {
        Some(2) if said.starts_with("percolator: ") => {
            assert!(!said.contains("panicked"), "{what}: {said}");
            Outcome::Ended
        }
        _ => Outcome::Aborted,
    }
}

/// Every task under every limit, or a sample of them. Of those that say why, one of `reasons` is why.
fn sweep(words: impl Fn(u64) -> String, limits: &[u64], reasons: &[&str], prepare: fn(&mut Command)) {
    let place = place();
    let folder = place.path();
    let mut counts = BTreeMap::new();
    for task in TASKS {
        for limit in some_of(limits, 4) {
            clear(folder);
            let words = words(*limit);
            let what = format!("{words}: {task}");
            let output = run(folder, &words, task, prepare);
            assert!(output.status.code().is_some(), "{what}: {}", output.status);
            let outcome = outcome(folder, task, &what, &output);
            if outcome == Outcome::Ended {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(reasons.iter().any(|reason| said.contains(reason)), "{what}: {said}");
            }
            *counts.entry(outcome).or_insert(0) += 1;
        }
        // Whatever the last one left, the task can be done once there is room.
        fs::remove_dir_all(folder.join("out")).or_else(|_| fs::remove_file(folder.join("out"))).ok();
        let output = run(folder, "true", task, prepare);
        assert!(output.status.success(), "{task}: {}", String::from_utf8_lossy(&output.stderr));
    }
    println!("{counts:?}");
    assert!(counts.contains_key(&Outcome::Done) && counts.contains_key(&Outcome::Ended), "{counts:?}");
}

#[test]
fn few_open_files() {
    let limits: Vec<u64> = (3..20).collect();
    sweep(|limit| format!("ulimit -n {limit}"), &limits, &[&words_of(Errno::MFILE)], |_| {});
}

#[test]
fn few_threads() {
    const NOBODY: u32 = 65534;
    // The system does not hold root to this limit.
    let be_nobody = |command: &mut Command| {
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
    };
    let mut probe = Command::new("true");
    be_nobody(&mut probe);
    if let Err(error) = probe.output() {
        return missing("USERS", format_args!("this process cannot become another user: {error}"));
    }
    let reasons = ["cannot start", "cannot be started"];
    sweep(|limit| format!("ulimit -u {limit}"), &[1, 2, 3, 4, 5, 8], &reasons, be_nobody);
}

/// A lack of memory says nothing of an image: no tool counts it as damaged, or makes an output without it.
#[test]
fn an_image_that_there_is_no_memory_for_is_not_damaged() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    copy_command(&at("percolator"));
    fs::write(at("giant.jpg"), crate::giant::giant_jpeg()).unwrap();
    fs::write(at("list.txt"), "giant.jpg 1\n").unwrap();
    let refused = "there is no memory to decode the image: the system refused 2147483648 bytes";
    for task in [
        "verify list.txt --threads 1",
        "verify list.txt --threads 1 --repair out",
        "inspect list.txt --threads 1 --all",
        "inspect list.txt --threads 1 --html out",
        "convert list ./ list.txt out --threads 1 --gray",
    ] {
        let output = run(folder.path(), "ulimit -v 1500000", task, |_| {});
        assert_eq!(outcome(folder.path(), task, task, &output), Outcome::Ended, "{task}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(refused), "{task}: {said}");
    }
}

/// The allocator of small things has no error, nor has the start of a thread once the system has made it, nor
/// the loader: then the program is aborted, and leaves no output under its name.
#[test]
fn little_memory() {
    let place = place();
    let folder = place.path();
    let mut counts = BTreeMap::new();
    for task in TASKS {
        for megabytes in some_of((20..140).step_by(10), 4) {
            clear(folder);
            let words = format!("ulimit -v {}", megabytes * 1000);
            let output = run(folder, &words, task, |_| {});
            *counts.entry(outcome(folder, task, &format!("{words}: {task}"), &output)).or_insert(0) += 1;
        }
    }
    println!("{counts:?}");
    assert!(counts.contains_key(&Outcome::Done) && counts.contains_key(&Outcome::Ended), "{counts:?}");
}

#[test]
fn no_proc() {
    let place = place();
    let folder = place.path();
    for task in TASKS {
        clear(folder);
        let hidden = "mount -t tmpfs none /proc && mount -t tmpfs none /sys || exit 77";
        let mut command = Command::new("unshare");
        let script = format!("{hidden}; exec ./percolator {task}");
        command.args(["--mount", "--map-root-user", "sh", "-c", &script]).current_dir(folder);
        match command.output() {
            Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare") => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{task}: {said}");
            }
            output => return missing("NAMESPACES", format_args!("/proc cannot be hidden here: {output:?}")),
        }
    }
}
