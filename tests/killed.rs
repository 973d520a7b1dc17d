//! A training process that is killed at random moments, and starts again from the snapshot it saved with its model, misses no
//! record and has none twice.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::process::{child_command, role};
use percolator::{Device, Feed, LastBatch, RecordId, Shuffle, Snapshot, Transform};

const RECORDS: u64 = 300;
const EPOCHS: u64 = 3;
/// After how many steps the model is saved.
const SAVED_EVERY: usize = 3;

/// What a model has learned: the records that it was trained on, one behind the other, and where its run is.
#[derive(Default)]
struct Model {
    seen: Vec<RecordId>,
    snapshot: Option<Snapshot>,
}

impl Model {
    fn load(path: &Path) -> Self {
        let Ok(text) = std::fs::read_to_string(path) else { return Model::default() };
        let (seen, snapshot) = text.split_once("\n\n").unwrap();
        let id = |line: &str| {
            let (epoch, index) = line.split_once(' ').unwrap();
            RecordId { epoch: epoch.parse().unwrap(), index: index.parse().unwrap() }
        };
        Model { seen: seen.lines().map(id).collect(), snapshot: Some(snapshot.parse().unwrap()) }
    }

    fn save(&self, path: &Path) {
        let mut text = String::new();
        for RecordId { epoch, index } in &self.seen {
            writeln!(text, "{epoch} {index}").unwrap();
        }
        writeln!(text, "\n{}", self.snapshot.as_ref().unwrap()).unwrap();
        text.truncate(text.len() - 1);
        let partial = path.with_extension("partial");
        std::fs::write(&partial, text).unwrap();
        std::fs::rename(&partial, path).unwrap();
    }
}

/// Trains until the end, on so many devices, saying each step.
fn train(folder: &Path, devices: usize) {
    let path = folder.join("model");
    let mut model = Model::load(&path);
    let feed = Feed::builder().lmdb(folder.join("db")).batch_size(4).devices((0..devices).map(Device::host));
    let feed = feed.transform(Transform::new().mirror(true)).shuffle(Shuffle::Global).seed(5).epochs(EPOCHS);
    let feed = feed.last_batch(LastBatch::Keep);
    let feed = match &model.snapshot {
        Some(snapshot) => feed.resume(snapshot),
        None => feed,
    };
    let mut feed = feed.build().unwrap();
    let mut steps = feed.steps();
    let mut since_saved = 0;
    println!("ready");
    while let Some(step) = steps.next() {
        model.seen.extend(step.unwrap().iter().flat_map(|batch| batch.records().to_vec()));
        since_saved += 1;
        if since_saved == SAVED_EVERY {
            model.snapshot = Some(steps.snapshot().unwrap());
            model.save(&path);
            since_saved = 0;
        }
        println!("step");
    }
    model.snapshot = Some(steps.snapshot().unwrap());
    model.save(&path);
    println!("trained");
}

#[test]
fn a_process_that_is_killed_again_and_again_trains_on_every_record_once() {
    if let Some(role) = role() {
        let (devices, folder) = role.split_once(' ').unwrap();
        return train(&PathBuf::from(folder), devices.parse().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(&folder.path().join("db"), usize::try_from(RECORDS).unwrap(), 1, 8, 8);
    let test = "a_process_that_is_killed_again_and_again_trains_on_every_record_once";
    let (mut killed, mut is_trained) = (0, false);
    for session in 0..200_usize {
        if is_trained {
            break;
        }
        // Each session in another world than the one before.
        let role = format!("{} {}", 1 + session % 3, folder.path().display());
        let mut child = child_command(test, &role).stdout(Stdio::piped()).spawn().unwrap();
        let patience = 1 + session * 7 % 13;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said =
            lines.filter(|line| ["ready", "step", "trained"].iter().any(|word| line.ends_with(word)));
        let last = said.by_ref().take(patience).last();
        is_trained = last.is_some_and(|line| line.ends_with("trained"));
        if is_trained {
            assert!(child.wait().unwrap().success());
        } else {
            // SIGKILL: in whatever it is at.
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
        }
    }
    assert!(is_trained && killed >= 10, "killed {killed} times");
    let mut seen = Model::load(&folder.path().join("model")).seen;
    let of_epoch = |epoch: &RecordId| epoch.epoch;
    assert!(seen.is_sorted_by_key(of_epoch), "one epoch after the other");
    seen.sort_unstable();
    let all = (0..EPOCHS).flat_map(|epoch| (0..RECORDS).map(move |index| RecordId { epoch, index }));
    assert!(seen.into_iter().eq(all), "each record of each epoch once");
}

#[cfg(feature = "cli")]
mod command {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::Path;
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    /// How the sessions of a command have ended.
    #[derive(Debug, Default)]
    struct Ends {
        by_themselves: usize,
        killed: usize,
        stopped: usize,
        /// Those after which the snapshot carries the receipt.
        between: usize,
    }

    /// When a session is killed, if it has not ended by itself.
    enum Moment {
        /// As soon as the snapshot's file is another one.
        SnapshotChanged,
        After(Duration),
    }

    fn percolator(folder: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(args).current_dir(folder).env_remove("RUST_LOG");
        command
    }

    fn session(folder: &Path, receipt: &str, more: &[&str]) -> Command {
        let mut args = vec!["feed", "--lmdb", "db", "--batch-size", "4", "--shuffle", "global"];
        args.extend(["--threads", "1", "--snapshot", "s", "--receipt", receipt]);
        if folder.join("s").exists() {
            args.extend(["--resume", "s"]);
        }
        percolator(folder, &[&args, more].concat())
    }

    /// Runs a session that may be killed, or stopped by SIGTERM; what it said of an error.
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

    /// Goes on to the end of the epoch that the run is in, and has all receipts that are there proven.
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

    /// `percolator feed`, killed at random moments, many of them while it writes what it leaves: the receipts
    /// that are there, and none beside them, are of the run that goes on from the snapshot, or the whole
    /// would not verify. `PERCOLATOR_KILLS=1000` for more of them.
    fn kill_again_and_again(receipt_of: impl Fn(usize) -> String) {
        let kills = std::env::var("PERCOLATOR_KILLS").map_or(60, |kills| kills.parse().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        super::common::write_images(&folder.join("db"), 90, 1, 4, 4);
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
}
