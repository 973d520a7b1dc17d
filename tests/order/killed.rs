//! A training process that is killed at random moments, and resumes from the snapshot it saved with its
//! model, misses no record and sees none twice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use percolator::record::RecordId;
use percolator::{Device, Feed, LastBatch, Shuffle, Snapshot, Transform};

use crate::common;
use crate::common::process::{child_command, role, this_test};

const RECORDS: u64 = 300;
const EPOCHS: u64 = 3;
/// The model is saved after this many steps.
const SAVED_EVERY: usize = 3;

/// What a model has learned: the records that it was trained on, in order, and where its run is.
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

/// Trains until the end on this many devices, and prints a line for each step.
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
    let test = this_test!();
    let (mut killed, mut is_trained) = (0, false);
    for session in 0..200_usize {
        if is_trained {
            break;
        }
        // Each session runs in another world than the one before.
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
            // SIGKILL, whatever the child is doing.
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
