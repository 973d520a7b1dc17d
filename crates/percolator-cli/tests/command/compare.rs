//! `percolator bench --compare`: what is beyond the noise of the rounds is said, and nothing else.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

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
    assert!(lines.iter().all(|line| line["schema"] == "percolator.bench.compare/1"), "{lines:?}");
    assert_eq!(of("verdict"), ["better", "worse"]);
    assert_eq!(of("old"), [1000.0, 1000.0]);
    assert_eq!(of("new"), [1500.0, 800.0]);
    let same = said(&compare(folder.path(), &["old.json", "old.json"]), 0);
    assert_eq!(same.matches("No difference in records per second beyond the noise").count(), 3, "{same}");
}

#[test]
fn two_builds_take_turns_in_a_loop() {
    let folder = tempdir().unwrap();
    let measure = "--synthetic small --records 64 --seconds 0.05 --rounds 1 --json --quiet --cache cache";
    let script =
        format!("for round in 1 2; do for b in old new; do $P bench {measure} >>$b.json; done; done");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &script]).env("P", env!("CARGO_BIN_EXE_percolator"));
    assert!(shell.current_dir(folder.path()).status().unwrap().success());
    let output = compare(folder.path(), &["old.json", "new.json", "--json"]);
    let line: Value = serde_json::from_str(&said(&output, 0)).unwrap();
    assert_eq!(line["records_per_s"]["verdict"], "too_few_rounds");
    assert_eq!((&line["old"]["rounds"], &line["new"]["rounds"]), (&json!(2), &json!(2)));
    assert_eq!(line["setup_differs"], json!({}));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = tempdir().unwrap();
    write(&folder, "old.json", &[result("a", &RATES)]);
    write(&folder, "other.json", &[result("b", &RATES)]);
    write(&folder, "empty.json", &[]);
    fs::write(folder.path().join("text"), "a text").unwrap();
    fs::write(folder.path().join("cut.json"), "{\"job\": ").unwrap();
    for (args, due) in [
        (&["old.json", "missing"][..], "missing: cannot read the results"),
        (&["old.json", "text"], "text: line 1 is no result of percolator bench --json"),
        (&["old.json", "empty.json"], "the file has no results"),
        (&["old.json", "."], ".: cannot read the results"),
        (&["old.json", "cut.json"], "cut.json: line 1 is no result"),
        (&["old.json", "other.json"], "have no job in common"),
        (&["old.json", "old.json", "--synthetic", "small"], "leave out what to measure"),
    ] {
        let output = compare(folder.path(), args);
        let text = said(&output, 2);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.is_empty() && message.contains(due) && message.lines().count() == 1,
            "{args:?}: {message}"
        );
    }
    assert_eq!(compare(folder.path(), &["old.json"]).status.code(), Some(2));
}
