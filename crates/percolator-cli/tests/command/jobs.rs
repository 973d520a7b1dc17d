//! `percolator feed` over several databases, and as a worker of a job.

use std::process::Command;

use crate::common;

#[test]
fn the_command_takes_several_databases() {
    let run = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
            .arg("feed")
            .args(arguments.split_whitespace())
            .current_dir(common::repository().join("tests/data/golden"))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.success(), text)
    };
    let two = "raw_lmdb jpg_color_lmdb --index memory --crop 10 --batch-size 8";
    let (is_well, text) = run(&format!("{two} --once"));
    assert!(is_well && text.starts_with("raw_lmdb, jpg_color_lmdb: "), "{text}");
    let records =
        |text: &str| text.split(" records, ").next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let all: u64 = records(&text).parse().unwrap();
    let (is_well, text) = run("jpg_color_lmdb --once --crop 10");
    let second: u64 = records(&text).parse().unwrap();
    assert!(is_well && all == 64 + second, "{all}, {second}");
    // Each worker has its own database.
    let (is_well, text) = run(&format!("{two} --epochs 1 --workers 2 --worker 1"));
    assert!(is_well && text.contains(&format!(" {second} records ")), "{text}");
    let (is_well, text) = run("raw_leveldb_log raw_leveldb_ldb --once --batch-size 8");
    assert!(is_well && text.contains("128 records"), "{text}");
    let (is_well, text) = run("raw_lmdb raw_leveldb_log --once");
    assert!(is_well && text.contains("128 records"), "{text}");
    let (is_well, text) = run("raw_lmdb nowhere --once");
    assert!(!is_well && text.contains("nowhere: cannot find it: No such file or directory"), "{text}");
}

#[test]
fn the_command_feeds_epochs_of_a_job() {
    let run_as = |variables: &[(&str, &str)], arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_percolator"))
            .env_clear()
            .envs(variables.iter().copied())
            .args(["feed", "tests/data/golden/raw_lmdb"])
            .args(arguments.split_whitespace())
            .current_dir(common::repository())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.success(), text)
    };
    let run = |arguments: &str| run_as(&[], arguments);
    // 64 records, 10 per step for each of two lanes: three whole steps and one of 4.
    let (is_well, text) =
        run("--epochs 3 --shuffle global --index memory --batch-size 10 --devices host:0,host:1");
    assert!(is_well && text.contains("12 batches") && text.contains("192 records"), "{text}");
    let (is_well, text) =
        run("--epochs 1 --global-batch-size 16 --workers 2 --worker 1 --policy hint --index memory");
    assert!(is_well && text.contains("4 batches") && text.contains("32 records"), "{text}");
    let from_environment = "--epochs 1 --batch-size 8 --job-from-environment --index memory";
    let (is_well, text) = run_as(&[("RANK", "1"), ("WORLD_SIZE", "2")], from_environment);
    assert!(is_well && text.contains("4 batches") && text.contains("32 records"), "{text}");
    let (is_well, text) = run_as(&[("RANK", "2"), ("WORLD_SIZE", "2")], from_environment);
    assert!(!is_well && text.contains("RANK=2 and WORLD_SIZE=2: there is no process 2"), "{text}");
    for (arguments, due) in [
        (from_environment, "no launcher says which process this is"),
        ("--epochs 1 --workers 2", "--worker <N>"),
        ("--epochs 0 --workers 2 --worker 2 --index memory", "there is no worker 2 in a job of 2"),
        ("--epochs 0 --workers 0 --worker 0 --index memory", "workers is 0"),
        (
            "--epochs 0 --last-batch drop --batch-size 65",
            "64 records as sharded, but one step of all replicas takes 65",
        ),
        // Without epochs none of them would have a meaning.
        (
            "--shuffle global",
            "--shuffle needs epochs, and the feed deals in Caffe's round-robin order, which has none: set \
             --epochs N, or --epochs 0 for no end",
        ),
        ("--shuffle window:1MiB", "--shuffle needs epochs"),
        ("--mix 1", "--mix needs epochs"),
        ("--last-batch drop", "--last-batch needs epochs"),
        ("--assignment caffe", "--assignment needs epochs"),
        ("--policy data", "--policy needs epochs"),
        ("--workers 2 --worker 1", "--workers (or --job-from-environment) needs epochs"),
        ("--once --shuffle global", "Caffe's order, which has none: set --epochs 1 instead"),
    ] {
        let (is_well, text) = run(arguments);
        assert!(!is_well && text.contains(due), "{arguments}: {text}");
    }
}
