//! The command prepares XLNet's data as the script does, and leaves no half-written file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use percolator_tfrecord::Reader;
use rustix::io::Errno;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::{TempDir, tempdir};

use crate::common::words_of;
use crate::examples;

/// The data of the tests of percolator-text: the text, the model, and what the script made of them.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-text/tests/data").join(name)
}

/// A folder with the text and the model where the script had them.
fn folder() -> TempDir {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("text")).unwrap();
    for name in ["spiece.model", "text/empty.txt", "text/ids.ids", "text/part0.txt", "text/part1.txt"] {
        fs::copy(data(name), folder.path().join(name)).unwrap();
    }
    fs::copy(data("text/part2.txt"), folder.path().join("text/part2.txt")).unwrap();
    folder
}

fn command(folder: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(["prepare", "xlnet"]).args(arguments).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn run(folder: &Path, arguments: &str) -> Output {
    let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
    command(folder, &arguments).output().unwrap()
}

/// The names in a folder, sorted; none if there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The flags of a golden case as the command takes them: the script's names, with underscores or hyphens.
fn flags(case: &Value, underscores: bool) -> Vec<String> {
    let flags = case["flags"].as_object().unwrap().iter().map(|(name, value)| {
        let name = if underscores { name.clone() } else { name.replace('_', "-") };
        match value {
            Value::Null => format!("--no-{name}"),
            Value::String(text) => format!("--{name}={text}"),
            value => format!("--{name}={value}"),
        }
    });
    flags.chain([format!("--python-seed={}", case["python_seed"])]).collect()
}

#[test]
fn what_was_written_is_said_as_json_as_well() {
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(data("cases.json")).unwrap()).unwrap();
    let case = &cases[0];
    let folder = folder();
    let arguments = [flags(case, true), vec!["--json".to_owned(), "--quiet".to_owned()]].concat();
    let output = command(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["schema"], "percolator.prepare.xlnet/1");
    let pass = &said["passes"][0];
    assert_eq!(pass["records"], case["count"]);
    let records = Path::new(pass["records_path"].as_str().unwrap());
    assert_eq!(records.file_name().unwrap().to_str(), case["records"].as_str());
    assert!(folder.path().join(records).is_file());
    assert!(said["tokens"].as_u64().unwrap() > 0 && said["files"].as_u64().unwrap() > 0, "{said}");
}

#[test]
fn paths_need_not_be_text() {
    let folder = folder();
    let odd = folder.path().join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    fs::rename(folder.path().join("spiece.model"), odd.join("model")).unwrap();
    fs::rename(folder.path().join("text/part0.txt"), odd.join("part0.txt")).unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--use-tpu=false", "--bsz-per-host=8", "--seq-len=128", "--reuse-len=64"]);
    command.args(["--num-predict=21", "--input"]).arg(odd.join("*.txt"));
    command.arg("--sp-model").arg(odd.join("model"));
    let output = command.args(["--out", "out"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(&folder.path().join("out/tfrecords")).len(), 2);
    // What names the records is JSON, and would name others.
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let (last, before) = words.split_last().unwrap();
    assert_eq!(last, "out");
    let mut again = Command::new(command.get_program());
    again.current_dir(folder.path()).args(before).arg(odd.join("out"));
    let output = again.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && message.contains("the path is not UTF-8"), "{message}");
    assert_eq!(names(&odd.join("out/tfrecords")), [""; 0]);
}

/// An empty path is the current folder to the script, and names no file.
#[test]
fn a_path_may_be_empty() {
    let folder = folder();
    for (option, code) in [("--input", 2), ("--sp-model", 2), ("--out", 0)] {
        let mut words: Vec<_> = SMALL.split_whitespace().map(str::to_owned).collect();
        let at = words.iter().position(|word| word == option).unwrap();
        words[at + 1].clear();
        let output = command(folder.path(), &words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{option}: {output:?}");
    }
    assert!(names(&folder.path().join("tfrecords")).iter().any(|name| name.ends_with(".tfrecords")));
}

#[test]
fn the_scripts_flags_give_the_scripts_files() {
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(data("cases.json")).unwrap()).unwrap();
    assert!(cases.len() > 10);
    for (number, case) in cases.iter().enumerate() {
        let name = &case["name"];
        let folder = folder();
        let output = command(folder.path(), &flags(case, number % 2 == 0)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let out = folder.path().join(case["flags"]["save_dir"].as_str().unwrap());
        let records =
            examples::records(&fs::read(out.join("tfrecords").join(text(&case["records"]))).unwrap());
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(records.len() as u64, case["count"].as_u64().unwrap(), "{name}");
        assert!(printed.contains(&format!("{} records in ", records.len())), "{name}: {printed}");
        assert_eq!(digest(&records), text(&case["sha256"]), "{name}");
        let info = fs::read_to_string(out.join("tfrecords").join(text(&case["info"][0]))).unwrap();
        // The last field is not the script's.
        let (scripts, _) = info.split_once(", \"preparation\": {").unwrap();
        assert_eq!(format!("{scripts}}}"), text(&case["info"][1]), "{name}");
        let corpus = fs::read_to_string(out.join("corpus_info.json")).ok();
        assert_eq!(corpus.as_deref(), case["corpus_info"].as_str(), "{name}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The digest of all values, as the golden cases have it: feature by feature in the order of their names.
fn digest(records: &[std::collections::BTreeMap<String, Vec<u64>>]) -> String {
    let mut digest = Sha256::new();
    for (name, values) in records.iter().flatten() {
        digest.update(name);
        digest.update((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| digest.update(value.to_le_bytes()));
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

const SMALL: &str = "--input text/*.txt --sp-model spiece.model --out out --bsz-per-host 4 \
                     --num-core-per-host 1 --seq-len 64 --reuse-len 32 --num-predict 10 --use-tpu=false";

#[test]
fn passes_and_tasks_are_written_at_once() {
    let folder = folder();
    let at_once = run(folder.path(), &format!("{SMALL} --num-task 2 --all-tasks --num-passes 2"));
    assert!(at_once.status.success(), "{}", String::from_utf8_lossy(&at_once.stderr));
    let written = names(&folder.path().join("out/tfrecords"));
    assert_eq!(written.len(), 8, "a file of records and a record_info for each: {written:?}");
    let printed = String::from_utf8(at_once.stdout).unwrap();
    assert!(printed.contains("skipped: 1 empty file"), "{printed}");
    // One by one they are the same.
    for (task, pass) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let one = format!("{SMALL} --num-task 2 --task {task} --pass-id {pass} --threads 1")
            .replace("--out out", "--out one");
        assert!(run(folder.path(), &one).status.success());
    }
    for name in &written {
        let [one, all] =
            ["one", "out"].map(|out| fs::read(folder.path().join(out).join("tfrecords").join(name)).unwrap());
        let (one, all) = match Path::new(name).extension() {
            // It has the path of the records, as it was given.
            Some(extension) if extension == "json" => {
                (String::from_utf8(one).unwrap().replace("one/", "out/").into_bytes(), all)
            }
            _ => (one, all),
        };
        assert!(one == all, "{name}");
    }
}

/// Task 0 would have all the text, and the old task 1 a half of it once more.
#[test]
fn a_folder_with_more_tasks_is_not_prepared_again_with_fewer() {
    let folder = folder();
    let out = folder.path().join("out/tfrecords");
    assert!(run(folder.path(), &format!("{SMALL} --num-task 2 --all-tasks --num-passes 2")).status.success());
    let before = names(&out);
    let fewer = run(folder.path(), &format!("{SMALL} --num-task 1 --all-tasks"));
    let message = String::from_utf8(fewer.stderr).unwrap();
    assert_eq!(fewer.status.code(), Some(2), "{message}");
    assert!(
        message.contains("is of another preparation: its num_task is 2 and not 1: nothing was"),
        "{message}"
    );
    assert!(message.contains("out/tfrecords/record_info-train-"), "{message}");
    assert_eq!(names(&out), before);
}

#[test]
fn what_cannot_be_prepared_is_said_and_leaves_nothing() {
    for (arguments, message) in [
        ("--input none/*.txt --sp-model spiece.model --out out", "no file matches the input none/*.txt"),
        ("--input text/*.txt --sp-model text/part0.txt --out out", "the model text/part0.txt cannot be used"),
        ("--input text/part0.txt --sp-model spiece.model --out out", "too few for one batch"),
        ("--input text/*.txt --sp-model spiece.model --out out --seq-len 100", "--reuse-len"),
        (
            "--input text/*.txt --sp-model spiece.model --num-predict 3 --no-num-predict",
            "cannot be used with",
        ),
        ("--input text/*.txt --out out", "--sp-model"),
    ] {
        let folder = folder();
        let output = run(folder.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(message), "{arguments}: {error}");
        assert!(names(&folder.path().join("out/tfrecords")).is_empty(), "{arguments}");
        assert!(!folder.path().join("out/corpus_info.json").exists(), "{arguments}");
    }
}

#[test]
fn what_is_read_is_never_replaced() {
    let folder = folder();
    let folder = folder.path();
    let job = "--sp-model spiece.model --out out --bsz-per-host 4 --num-core-per-host 1 --seq-len 16 \
               --reuse-len 8 --num-predict 3";
    fs::create_dir_all(folder.join("out/tfrecords")).unwrap();
    let info = folder.join("out/corpus_info.json");
    // Somebody's own file of that name, and then text that lies there.
    for (content, input, said) in [
        ("{\"corpus\": \"mine\"}", "text/part*.txt", "it is no corpus_info.json of XLNet's"),
        ("Some text.\n", "out/*.json", "it is read, and would be replaced"),
    ] {
        fs::write(&info, content).unwrap();
        let output = run(folder, &format!("{job} --input {input}"));
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("out/corpus_info.json: {said}")), "{message}");
        assert_eq!(fs::read_to_string(&info).unwrap(), content);
        assert_eq!(names(&folder.join("out/tfrecords")), [""; 0]);
    }
    fs::remove_file(&info).unwrap();
    let first = run(folder, &format!("{job} --input text/part*.txt"));
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let records = names(&folder.join("out/tfrecords"));
    let records = records.iter().find(|name| name.ends_with(".tfrecords")).unwrap();
    fs::write(folder.join("out/tfrecords").join(records), fs::read(folder.join("text/part0.txt")).unwrap())
        .unwrap();
    let output = run(folder, &format!("{job} --input out/tfrecords/*.tfrecords"));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains(".tfrecords: it is read, and would be replaced"), "{message}");
    assert_eq!(
        fs::read(folder.join("out/tfrecords").join(records)).unwrap(),
        fs::read(folder.join("text/part0.txt")).unwrap()
    );
}

#[test]
fn an_interrupt_leaves_complete_files_only() {
    let folder = folder();
    // It would take days.
    let arguments: Vec<_> = format!("{SMALL} --quiet --num-passes 1000000 --threads 2")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut child =
        command(folder.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let out = folder.path().join("out/tfrecords");
    while names(&out).len() < 5 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
        std::thread::yield_now();
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("SIGINT") && error.contains("no half-written file is left"), "{error}");
    let written = names(&out);
    assert!(written.len() >= 4 && !folder.path().join("out/corpus_info.json").exists(), "{written:?}");
    for name in written {
        match name.rsplit_once('.') {
            Some((_, "tfrecords")) => {
                let mut reader = Reader::open(out.join(&name)).unwrap();
                let mut records = 0;
                while reader.advance().unwrap().is_some() {
                    records += 1;
                }
                assert!(records > 0 && records % 4 == 0, "{name}: {records} records");
            }
            Some((_, "json")) => {
                let info: Value = serde_json::from_slice(&fs::read(out.join(&name)).unwrap()).unwrap();
                assert!(folder.path().join(text(&info["filenames"][0])).exists(), "{name}");
            }
            _ => panic!("{name} is left over"),
        }
    }
}

#[test]
fn a_full_disk_leaves_nothing() {
    // Files of this process may have this many blocks of 512 bytes: too few for the tokens, or for the
    // records.
    let tokens = "cannot write the temporary file of tokens in out/tfrecords";
    for (blocks, what) in [(20, tokens), (200, ".tfrecords: cannot")] {
        let folder = folder();
        let script = format!("ulimit -f {blocks}; exec \"$0\" prepare xlnet \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_percolator")])
            .args(SMALL.split_whitespace())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(what) && error.contains(&words_of(Errno::FBIG)), "{error}");
        assert_eq!(names(&folder.path().join("out/tfrecords")), [""; 0]);
        assert_eq!(names(&folder.path().join("out")), ["tfrecords"]);
    }
}
