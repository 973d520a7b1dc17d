//! Each command that reads or writes files is driven through the same bad input: it says what is wrong in one
//! line that names the path, exits with a code that means something, and replaces nothing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::{TempDir, tempdir};

use crate::common;
use crate::pty::Pty;

/// A command line: `IN` and `OUT` stand for paths, and `MODEL` for a text model.
struct Tool {
    words: &'static str,
    input: Input,
    /// Whether a file that exists at OUT is replaced only with --force.
    keeps_output: bool,
}

/// What a command reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Lmdb,
    /// What `bench --json` printed.
    Result,
    /// A text, whose path must be UTF-8: it is a pattern.
    Text,
}

const TOOLS: [Tool; 8] = [
    Tool { words: "convert records IN OUT --quiet", input: Input::Lmdb, keeps_output: true },
    Tool { words: "mean IN OUT --quiet", input: Input::Lmdb, keeps_output: true },
    Tool { words: "inspect IN --html OUT --quiet", input: Input::Lmdb, keeps_output: true },
    Tool { words: "verify IN --repair OUT --quiet", input: Input::Lmdb, keeps_output: true },
    Tool {
        words: "doctor IN --batch-size 2 --seconds 0.01 --at-most 0 --quiet",
        input: Input::Lmdb,
        keeps_output: false,
    },
    Tool {
        words: "bench IN --batch-size 2 --seconds 0.01 --rounds 1 --quiet",
        input: Input::Lmdb,
        keeps_output: false,
    },
    Tool { words: "bench --compare IN IN", input: Input::Result, keeps_output: false },
    Tool {
        words: "prepare xlnet --input IN --sp-model MODEL --out OUT --bsz-per-host 2 --num-core-per-host 1 \
                --seq-len 8 --reuse-len 4 --num-predict 2 --quiet",
        input: Input::Text,
        keeps_output: false,
    },
];

impl Tool {
    fn command(&self, input: &Path, output: &Path) -> Command {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-text/tests/data/spiece.model");
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(self.words.split_whitespace().map(|word| match word {
            "IN" => input.as_os_str(),
            "OUT" => output.as_os_str(),
            "MODEL" => model.as_os_str(),
            word => OsStr::new(word),
        }));
        // A lane that waits long on a machine that is busy warns.
        command.env("RUST_LOG", "error").stdin(Stdio::null());
        command
    }

    fn run(&self, input: &Path, output: &Path) -> Output {
        self.command(input, output).output().unwrap()
    }

    /// Makes good input of this name in a folder.
    fn write_input(&self, folder: &Path, name: &OsStr) -> PathBuf {
        let path = folder.join(name);
        match self.input {
            Input::Lmdb => {
                let record = |number: usize| {
                    let label = i32::try_from(((number * 7919) >> 3) % 10).unwrap();
                    (common::key(number), common::datum(3, 4, 4, label, (0..48).collect()))
                };
                common::write_lmdb(&path, (0..64).map(record));
            }
            Input::Result => {
                let round =
                    r#"{"records_per_s": 9.0, "cpu_s_per_1000": 1.0, "first_batch_ms": 2.0, "limits": {},
                    "share_of": {}}"#
                        .replace('\n', "");
                let line = format!(r#"{{"job": "a", "rounds": 1, "threads": 1, "each_round": [{round}]}}"#);
                fs::write(&path, line + "\n").unwrap();
            }
            Input::Text => {
                let text = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../percolator-text/tests/data/text/part0.txt");
                fs::copy(text, &path).unwrap();
            }
        }
        path
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that a command has refused its input in one line that has these words, and wrote nothing.
#[track_caller]
fn check_refused(tool: &Tool, output: &Output, words: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(2), "{}: {said}", tool.words);
    assert!(said.starts_with("percolator: ") && said.lines().count() == 1, "{}: {said}", tool.words);
    for word in words {
        assert!(said.contains(word), "{}: {word:?} is not in {said}", tool.words);
    }
    assert!(!said.contains('\x1b') && !said.contains('\r'), "{}: {said:?}", tool.words);
    assert!(output.stdout.is_empty(), "{}: {}", tool.words, String::from_utf8_lossy(&output.stdout));
}

/// Checks that a command has done its work and printed no progress, as it must without a terminal.
#[track_caller]
fn check_done(tool: &Tool, output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}: {}", tool.words, said(output));
    assert_eq!(said(output), "", "{}", tool.words);
    assert!(!output.stdout.contains(&b'\x1b') && !output.stdout.contains(&b'\r'), "{}", tool.words);
}

fn names(folder: &TempDir) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn without_arguments_the_usage_is_shown() {
    for name in ["convert", "mean", "inspect", "verify", "doctor", "serve", "watch", "bench", "prepare"] {
        let output = Command::new(env!("CARGO_BIN_EXE_percolator")).arg(name).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(&format!("Usage: percolator {name}")), "{name}: {said}");
        assert!(output.stdout.is_empty(), "{name}");
    }
}

#[test]
fn a_missing_path_is_named() {
    for tool in &TOOLS {
        let folder = tempdir().unwrap();
        // What a terminal would interpret is escaped.
        for name in ["none", "no such \x1b[31mpath"] {
            let output = tool.run(&folder.path().join(name), &folder.path().join("out"));
            check_refused(tool, &output, &[&name[..2]]);
        }
        assert!(names(&folder).is_empty(), "{}: {:?}", tool.words, names(&folder));
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    for tool in &TOOLS {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        for name in ["file/below", "loop"] {
            check_refused(tool, &tool.run(&at(name), &at("out")), &[name]);
        }
        let closed = tool.write_input(folder.path(), OsStr::new("closed"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: nothing is closed to root, who runs this test");
        } else {
            check_refused(tool, &tool.run(&closed, &at("out")), &["closed"]);
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!at("out").exists(), "{}", tool.words);
    }
}

#[test]
fn an_output_that_exists_is_replaced_only_on_request() {
    for tool in TOOLS.iter().filter(|tool| tool.keeps_output) {
        let folder = tempdir().unwrap();
        let input = tool.write_input(folder.path(), OsStr::new("in"));
        let output = folder.path().join("out");
        fs::write(&output, "mine").unwrap();
        check_refused(tool, &tool.run(&input, &output), &["out: "]);
        assert_eq!(fs::read(&output).unwrap(), b"mine", "{}", tool.words);
        fs::remove_file(&output).unwrap();
        check_done(tool, &tool.run(&input, &output));
        let inode = || fs::metadata(&output).unwrap().ino();
        let first = inode();
        check_refused(tool, &tool.run(&input, &output), &["out: ", "--force"]);
        assert_eq!(inode(), first, "{}", tool.words);
        check_done(tool, &tool.command(&input, &output).arg("--force").output().unwrap());
        assert_ne!(inode(), first, "{}: it is another one", tool.words);
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for tool in &TOOLS {
        let folder = tempdir().unwrap();
        let input = tool.write_input(folder.path(), OsStr::new("in"));
        let mut child = tool
            .command(&input, &folder.path().join("out"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        check_done(tool, &child.wait_with_output().unwrap());
        assert_eq!(folder.path().join("out").exists(), tool.words.contains("OUT"), "{}", tool.words);
    }
}

#[test]
fn paths_may_have_spaces_and_any_bytes() {
    for tool in &TOOLS {
        let folder = tempdir().unwrap();
        let name = OsString::from_vec(b"my data \xff".to_vec());
        let output = folder.path().join(OsStr::from_bytes(b"its copy \xfe"));
        let input = tool.write_input(folder.path(), &name);
        let done = tool.run(&input, &output);
        if tool.words.starts_with("prepare xlnet") {
            // What names the records is JSON.
            check_refused(tool, &done, &["the path is not UTF-8"]);
            continue;
        }
        check_done(tool, &done);
        assert_eq!(output.exists(), tool.words.contains("OUT"), "{}", tool.words);
    }
}

#[test]
fn a_narrow_terminal_is_written_to() {
    for tool in &TOOLS {
        let folder = tempdir().unwrap();
        let input = tool.write_input(folder.path(), OsStr::new("in"));
        let mut command = tool.command(&input, &folder.path().join("out"));
        // With its progress bar.
        let words: Vec<OsString> =
            command.get_args().filter(|word| *word != "--quiet").map(OsStr::to_owned).collect();
        let mut loud = Command::new(command.get_program());
        loud.args(words).env("RUST_LOG", "error").env("TERM", "xterm");
        command = loud;
        let mut terminal = Pty::start(command, 40, 20);
        let status = terminal.end();
        let written = terminal.written();
        assert_eq!(status.code(), Some(0), "{}: {written}", tool.words);
        assert!(!written.contains("panicked"), "{}: {written}", tool.words);
    }
}

#[test]
fn the_diagnosis_is_as_wide_as_the_terminal() {
    let doctor = TOOLS.iter().find(|tool| tool.words.starts_with("doctor")).unwrap();
    let folder = tempdir().unwrap();
    let input = doctor.write_input(folder.path(), OsStr::new("in"));
    let mut terminal = Pty::start(doctor.command(&input, Path::new("")), 40, 20);
    assert_eq!(terminal.end().code(), Some(0), "{}", terminal.written());
    terminal.wait_for("spread over all.", 0);
    let written = terminal.written();
    let path = input.display().to_string();
    let is_short = |line: &str| line.trim_end().chars().count() <= 40 || line.contains(&path);
    assert!(written.lines().all(is_short), "{written}");
}

#[test]
fn nobody_to_watch_is_named() {
    // Nobody listens at port 1.
    let watch = |words: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.arg("watch").args(words).env("RUST_LOG", "error").output().unwrap()
    };
    let address = OsStr::new("http://127.0.0.1:1");
    let output = watch(&[address, OsStr::new("--json")]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.lines().count() == 1 && text.contains("127.0.0.1:1"), "{text}");
    let output = watch(&[address]);
    assert_eq!(output.status.code(), Some(2), "no terminal: {}", said(&output));
    assert!(said(&output).contains("--json"), "{}", said(&output));
    let output = watch(&[OsStr::from_bytes(b"http://a b\xff"), OsStr::new("--json")]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(output.stdout.is_empty() && !said(&output).contains("panicked"), "{}", said(&output));
}
