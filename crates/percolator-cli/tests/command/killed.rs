//! A command that is killed at random moments and resumed from its snapshot feeds no record twice and misses
//! none.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::sample::times;

/// How the sessions of a command have ended.
#[derive(Debug, Default)]
struct Ends {
    by_themselves: usize,
    killed: usize,
    stopped: usize,
    /// Sessions after which the snapshot carries the receipt.
    between: usize,
}

/// When a session is killed, if it has not ended by itself.
enum Moment {
    /// As soon as the snapshot's file is replaced.
    SnapshotChanged,
    After(Duration),
}

fn percolator(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(args).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn session(folder: &Path, receipt: &str, more: &[&str]) -> Command {
    let mut args = vec!["feed", "db", "--batch-size", "4", "--shuffle", "global"];
    args.extend(["--threads", "1", "--snapshot", "s", "--receipt", receipt]);
    if folder.join("s").exists() {
        args.extend(["--resume", "s"]);
    }
    percolator(folder, &[&args, more].concat())
}

/// Runs a session that may be killed, or stopped by SIGTERM. Returns its status and error output.
fn run(mut session: Command, folder: &Path, moment: &Moment, is_stopped: bool) -> (ExitStatus, String) {
    let inode = || std::fs::metadata(folder.join("s")).map(|found| found.ino()).ok();
    let (before, start) = (inode(), Instant::now());
    let mut child = session.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        let is_now = match moment {
            Moment::SnapshotChanged => inode() != before,
            Moment::After(time) => start.elapsed() >= *time,
        };
        if is_now && is_stopped {
            let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            assert!(sent.unwrap().success());
            break;
        } else if is_now {
            child.kill().unwrap();
            break;
        }
        std::hint::spin_loop();
    }
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Resumes to the end of the current epoch, and verifies all receipts that exist.
fn check(folder: &Path, receipt: &str, ends: &Ends) {
    let text = std::fs::read_to_string(folder.join("s")).unwrap();
    let next = text.lines().find_map(|line| line.strip_prefix("next epoch ")).unwrap();
    let epochs = (next.split(' ').next().unwrap().parse::<u64>().unwrap() + 1).to_string();
    let output = session(folder, receipt, &["--epochs", &epochs]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut receipts = names(folder);
    receipts.retain(|name| name.ends_with(".r"));
    let receipts: Vec<&str> = receipts.iter().map(|name| &**name).collect();
    let mut verify = percolator(folder, &[&["verify-run", "--epochs", &epochs], &receipts[..]].concat());
    let output = verify.output().unwrap();
    assert!(output.status.success(), "{ends:?}: {output:?}");
    let left = names(folder).into_iter().chain(names(&folder.join("db")));
    let left = left.filter(|name| name.contains("partial"));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0], "nothing of those that were killed is left");
}

/// Kills `percolator feed` at random moments, often while it writes its files. The receipts that exist must
/// be exactly those of the run that resumes from the snapshot, or the run does not verify.
/// `PERCOLATOR_KILLS=1000` sets the number.
fn kill_again_and_again(receipt_of: impl Fn(usize) -> String) {
    let kills = std::env::var("PERCOLATOR_KILLS").map_or(times(60, 12), |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    common::write_images(&folder.join("db"), 90, 1, 4, 4);
    let mut random = rand_mt::Mt::new(7);
    let (mut ends, mut length) = (Ends::default(), Duration::from_millis(500));
    for number in 0.. {
        if ends.killed + ends.stopped >= kills {
            break;
        }
        let chance = f64::from(random.next_u32() % 1000) / 800.0;
        let by_chance = Moment::After(length.mul_f64(chance));
        let moment = if number % 2 == 0 { Moment::SnapshotChanged } else { by_chance };
        let session = session(folder, &receipt_of(number), &["--epochs", "0", "--batches", "3"]);
        let start = Instant::now();
        let (status, message) = run(session, folder, &moment, number % 5 == 1);
        match (status.code(), status.signal()) {
            (Some(0), _) => {
                length = start.elapsed();
                ends.by_themselves += 1;
            }
            (Some(143), _) => ends.stopped += 1,
            (None, Some(_)) => ends.killed += 1,
            _ => panic!("{status}: {message}"),
        }
        let text = std::fs::read_to_string(folder.join("s")).unwrap_or_default();
        ends.between += usize::from(text.contains("\npercolator carried-receipt"));
    }
    println!("{ends:?}");
    check(folder, &receipt_of(usize::MAX), &ends);
}

#[test]
fn a_command_that_is_killed_at_any_moment_goes_on_and_verifies() {
    kill_again_and_again(|session| format!("{session}.r"));
}

#[test]
fn the_one_receipt_of_a_command_that_is_killed_at_any_moment_verifies() {
    kill_again_and_again(|_session| "all.r".to_owned());
}

/// Kills `percolator feed` while it makes the index of a file of another library: what is beside the file is
/// an index that serves, or none, and what is left of the killed goes when the next one is made.
#[test]
fn an_index_whose_maker_is_killed_at_any_moment_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines: String = (0..60_000).map(|number| format!("{{\"id\": {number}}}\n")).collect();
    std::fs::write(folder.join("lines.jsonl"), lines).unwrap();
    let feed = |more: &[&str]| {
        let args = ["feed", "lines.jsonl", "--fields", "id:i64", "--shuffle", "global", "--seed", "3"];
        percolator(folder, &[&args, more].concat())
    };
    let indexes = || {
        let mut found = names(folder);
        found.retain(|name| name.contains("index"));
        found
    };
    let one = ["--epochs", "1", "--batches", "1"];
    let start = Instant::now();
    assert!(feed(&one).status().unwrap().success());
    let (length, whole) = (start.elapsed(), indexes());
    assert_eq!(whole.len(), 1, "{whole:?}");
    let index = folder.join(&whole[0]);
    let bytes = std::fs::read(&index).unwrap();
    let (mut random, mut killed) = (rand_mt::Mt::new(7), 0);
    for _ in 0..times(200, 20) {
        let _ = std::fs::remove_file(&index);
        let moment = Moment::After(length.mul_f64(f64::from(random.next_u32() % 1000) / 800.0));
        let (status, message) = run(feed(&one), folder, &moment, false);
        assert!(status.success() || status.signal().is_some(), "{status}: {message}");
        killed += usize::from(status.signal().is_some());
        if index.exists() {
            assert!(std::fs::read(&index).unwrap() == bytes, "an index is whole");
        }
    }
    assert!(killed > 0);
    let _ = std::fs::remove_file(&index);
    let receipts = ["--epochs", "1", "--receipt", "r"];
    let output = feed(&receipts).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = percolator(folder, &["verify-run", "--epochs", "1", "r"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(indexes(), whole, "nothing of those that were killed is left");
}
