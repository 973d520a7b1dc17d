//! `percolator bench --compare`: what is beyond the noise of the rounds is said, and nothing else.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::write_script;

/// A line of a result, whose rounds had these rates.
fn result(job: &str, rates: &[f64]) -> Value {
    let round = |&rate: &f64| {
        json!({
            "records_per_s": rate, "cpu_s_per_1000": 1.0 / rate, "first_batch_ms": 2.0,
            "limits": { "store_n": 5e9 }, "share_of": { "store_n": rate / 1e4 },
        })
    };
    let each_round: Vec<_> = rates.iter().map(round).collect();
    json!({ "job": job, "rounds": rates.len(), "threads": 2, "each_round": each_round })
}

fn write(folder: &TempDir, name: &str, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(folder.path().join(name), text).unwrap();
}

/// A program that prints a line as a bench does, with the next of its rates, and appends its arguments to
/// `said`.
fn program(folder: &TempDir, name: &str, rate: f64) {
    let line = result("made", &[rate]);
    let script = format!("#!/bin/sh\necho {name} \"$@\" >> said\necho '{line}'\n");
    write_script(&folder.path().join(name), &script);
}

fn compare(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["bench", "--compare"])
        .args(args)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

#[track_caller]
fn said(output: &Output, code: i32) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

const RATES: [f64; 5] = [990.0, 995.0, 1000.0, 1005.0, 1010.0];

#[test]
fn two_results_are_compared_job_by_job() {
    let folder = tempdir().unwrap();
    write(&folder, "old.json", &[result("a", &RATES), result("b", &RATES), result("c", &RATES)]);
    let slower = result("b", &RATES.map(|rate| rate * 0.8));
    write(&folder, "new.json", &[result("a", &RATES.map(|rate| rate * 1.5)), slower]);
    let output = compare(folder.path(), &["old.json", "new.json"]);
    let text = said(&output, 1);
    assert!(text.contains("Faster: 1.500 times") && text.contains("Slower: 0.800 times"), "{text}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(message, "percolator: only old.json has the job c\n");
    let lines = said(&compare(folder.path(), &["old.json", "new.json", "--json"]), 1);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| lines.iter().map(|line| line["records_per_s"][name].clone()).collect::<Vec<_>>();
    assert_eq!(of("verdict"), ["better", "worse"]);
    assert_eq!(of("old"), [1000.0, 1000.0]);
    assert_eq!(of("new"), [1500.0, 800.0]);
    let same = said(&compare(folder.path(), &["old.json", "old.json"]), 0);
    assert_eq!(same.matches("No difference in records per second beyond the noise").count(), 3, "{same}");
}

#[test]
fn two_builds_take_turns() {
    let folder = tempdir().unwrap();
    program(&folder, "old", 100.0);
    program(&folder, "new", 130.0);
    // A name without a slash is a file all the same.
    let args = ["old", "./new", "--rounds", "5", "--synthetic", "small", "--crop", "8"];
    let text = said(&compare(folder.path(), &args), 0);
    let due = "Faster: 1.300 times the records per second, 99 % interval 1.300 to 1.300";
    assert!(text.contains(due), "{text}");
    let turns = fs::read_to_string(folder.path().join("said")).unwrap();
    let given = "bench --json --rounds 1 --synthetic small --crop 8";
    let expected: Vec<_> = ["old", "new", "new", "old", "old", "new", "new", "old", "old", "new"]
        .map(|name| format!("./{name} {given}"))
        .into();
    let found: Vec<_> = turns.lines().map(|line| format!("./{line}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn this_build_is_compared_with_itself() {
    let folder = tempdir().unwrap();
    let this = env!("CARGO_BIN_EXE_percolator");
    let measured = ["--synthetic", "small", "--records", "64", "--seconds", "0.05", "--cache", "cache"];
    let output = compare(folder.path(), &[&[this, this, "--rounds", "2", "--json"][..], &measured].concat());
    let line: Value = serde_json::from_str(&said(&output, 0)).unwrap();
    assert_eq!(line["records_per_s"]["verdict"], "too_few_rounds");
    assert_eq!((&line["old"]["rounds"], &line["new"]["rounds"]), (&json!(2), &json!(2)));
    assert_eq!(line["setup_differs"], json!({}));
}

#[test]
fn a_signal_ends_the_build_that_measures() {
    let folder = tempdir().unwrap();
    let script = "#!/bin/sh\ntrap 'touch ended; exit 1' TERM\ntouch started\nwhile :; do sleep 0.01; done\n";
    write_script(&folder.path().join("endless"), script);
    let mut child = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["bench", "--compare", "./endless", "./endless", "--synthetic", "small"])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    while !folder.path().join("started").exists() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(folder.path().join("ended").exists());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = tempdir().unwrap();
    write(&folder, "old.json", &[result("a", &RATES)]);
    write(&folder, "other.json", &[result("b", &RATES)]);
    write(&folder, "empty.json", &[]);
    fs::write(folder.path().join("text"), "a text").unwrap();
    fs::write(folder.path().join("cut.json"), "{\"job\": ").unwrap();
    program(&folder, "good", 1.0);
    for (name, script) in [("failing", "#!/bin/sh\nexit 3\n"), ("silent", "#!/bin/sh\necho hello\n")] {
        write_script(&folder.path().join(name), script);
    }
    for (args, due) in [
        (&["old.json", "missing"][..], "missing: cannot open what to compare"),
        (&["old.json", "text"], "neither a result of percolator bench --json nor a program"),
        (&["old.json", "empty.json"], "neither a result"),
        (&["old.json", "."], "neither a result"),
        (&["old.json", "cut.json"], "cut.json: line 1 is no result"),
        (&["old.json", "other.json"], "have no job in common"),
        (&["old.json", "old.json", "--synthetic", "small"], "leave out what to measure"),
        (&["old.json", "./good"], "needs what to measure"),
        (&["./failing", "./good", "--synthetic", "small"], "its bench has failed: exit status: 3"),
        (&["./silent", "./good", "--synthetic", "small"], "line 1 is no result"),
    ] {
        let output = compare(folder.path(), args);
        let text = said(&output, 2);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.is_empty() && message.contains(due) && message.lines().count() == 1,
            "{args:?}: {message}"
        );
    }
    for args in [&["old.json"][..], &["old.json", "old.json", "--plot", "p.svg"]] {
        assert_eq!(compare(folder.path(), args).status.code(), Some(2), "{args:?}");
    }
}
