//! `percolator feed --snapshot` and `--resume`: a stopped run resumes, also with another number of workers.

use std::process::Command;

use crate::common;

/// Runs a percolator command with these arguments. Returns whether it succeeded, and its output.
fn command(arguments: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(common::repository()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), text)
}

#[test]
fn the_command_stops_and_goes_on_in_another_world_and_its_receipts_prove_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let feed = "feed tests/data/golden/raw_lmdb --index memory --epochs 2 --shuffle global --seed 5";
    let run = |arguments: &str| {
        let (is_well, text) = command(&format!("{feed} {arguments}"));
        assert!(is_well, "{text}");
        text
    };
    let (snapshot, first, second) = (at("run.snapshot"), at("first.receipt"), at("second.receipt"));
    run(&format!(
        "--batch-size 5 --devices host:0,host:1 --batches 9 --snapshot {snapshot} --receipt {first}"
    ));
    // 90 of 128 records; the second epoch resumes at its third step.
    let (is_well, text) = command(&format!(
        "plan tests/data/golden/raw_lmdb --per-replica-batch 7 --replicas 3 --shuffle global \
         --seed 5 --resume {snapshot} --json"
    ));
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let left: usize = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step.as_array().unwrap())
        .map(|share| share.as_array().unwrap().len())
        .sum();
    assert!(is_well && plan["epoch"] == 1 && left == 128 - 90 + 6, "{text}");
    let others = "--batch-size 7 --devices host:0,host:1,host:2";
    run(&format!("{others} --resume {snapshot} --receipt {second}"));
    let (is_well, text) = command(&format!("verify-run {first} {second}"));
    assert!(is_well, "{text}");
    let (is_well, text) = command(&format!("verify-run {first} {second} {second}"));
    assert!(!is_well, "{text}");
    for (arguments, due) in [
        (format!("{others} --resume {snapshot} --seed 6"), "seed"),
        (format!("--batch-size 7 --resume {first}"), "it is not a snapshot"),
        (format!("--batch-size 7 --resume {}", at("none")), "cannot read the snapshot"),
    ] {
        let (is_well, text) = command(&format!("{} {arguments}", feed.replace(" --seed 5", "")));
        assert!(!is_well && text.contains(due), "{text}");
    }
}
