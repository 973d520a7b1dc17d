//! Processes that are killed, at each operation of the protocol and at random moments in the middle of one.
//! Each time the next process restores the last checkpoint whose record was put, bit for bit, and leaves no
//! file that the record does not name.
//!
//! PERCOLATOR_KILLS says how many are killed; CI kills 160.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointRecord, Checkpoints, Mode, Origin};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _};
use percolator_cluster::store::FolderStore;
use rustix::process::{Signal, getpid, kill_process};
use uuid::Uuid;

use crate::faults::{Verdict, faulty};
use crate::numbered_state::{mixed, number_of, state_of};
use crate::process::sample::times;
use crate::process::{child_command, role, this_test};

const ID: &str = "shard";
const KILLS: u64 = 160;
/// Processes that are killed beside one another, each line of them in a folder of its own.
const LINES: u64 = 2;
const NEVER: u64 = u64::MAX;

/// The metadata that processes share.
fn metadata(folder: &Path) -> FolderMetadata {
    FolderMetadata::open(folder).unwrap()
}

/// Dies before this operation, counted from the start.
fn begin(place: &Path, keep: usize, mode: Mode, dies_at: u64) -> Checkpoints<Vec<u8>> {
    let count = AtomicU64::new(0);
    let judge = move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == dies_at {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        Verdict::Go
    };
    let store = FolderStore::open(place.join("store")).unwrap();
    let (store, metadata) = faulty(store, metadata(&place.join("metadata")), judge);
    let how = Checkpointer::new(store, metadata, ID).unwrap().keep(keep).mode(mode);
    how.ttl(Duration::from_secs(60)).wait(Duration::ZERO).restore(|| state_of(0)).unwrap()
}

/// Saves state after state until it is killed, and prints a line before and after each.
fn write_on(place: &Path, keep: usize, mode: Mode, dies_at: u64) {
    let checkpoints = begin(place, keep, mode, dies_at);
    let mut number = number_of(&checkpoints.state().read());
    println!("\nready");
    loop {
        number += 1;
        *checkpoints.state().write() = state_of(number);
        println!("\nbegun {number}");
        checkpoints.save_now().unwrap();
        println!("\nsaved {number}");
    }
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

fn record(place: &Path) -> Option<CheckpointRecord> {
    let found = metadata(&place.join("metadata")).read("/checkpoints/shard").unwrap();
    found.records.first().map(|record| CheckpointRecord::parse(&record.value).unwrap())
}

/// Restores what a process left that was killed, which had begun and saved these states.
fn check(place: &Path, keep: usize, begun: u64, saved: u64) -> u64 {
    let before = record(place);
    // The process is known to be dead, so its lease need not run out.
    let records = metadata(&place.join("metadata"));
    for held in records.read("/checkpoints-held/").unwrap().records {
        records.revoke(held.lease.unwrap()).unwrap();
    }
    let checkpoints = begin(place, keep, Mode::Copy, NEVER);
    let number = number_of(&checkpoints.state().read());
    assert!((saved..=begun).contains(&number), "{number} was restored; begun {begun}, saved {saved}");
    match (&checkpoints.restored().origin, &before) {
        (Origin::Newest(entry), Some(record)) => assert_eq!(*entry, record.newest),
        (Origin::Initial, None) => assert_eq!(number, 0),
        found => panic!("{found:?}"),
    }
    let named: BTreeSet<OsString> = before
        .iter()
        .flat_map(CheckpointRecord::entries)
        .map(|entry| entry.uuid.to_string().into())
        .collect();
    assert_eq!(names(&place.join("store").join(ID)), named, "what the record names, and nothing else");
    number
}

/// Kills processes one after the other. Half of them die by their own hand before an operation, the others
/// are killed at a moment that nobody has chosen.
fn kill_in_line(test: &'static str, line: u64, kills: u64) -> BTreeSet<Uuid> {
    let folder = tempfile::tempdir().unwrap();
    let place: PathBuf = folder.path().to_owned();
    for name in ["store", "metadata"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let keep = usize::try_from(1 + line % 3).unwrap();
    let (mut newest, mut number) = (BTreeSet::new(), 0);
    for kill in 0..kills {
        let random = mixed(line * 1_000_000 + kill);
        let dies_at = if kill % 2 == 0 { random % 60 } else { NEVER };
        let mode = if random.is_multiple_of(3) { "hold" } else { "copy" };
        let role = format!("{keep} {mode} {dies_at} {}", place.display());
        let mut child = child_command(test, &role).stdout(Stdio::piped()).spawn().unwrap();
        let (mut begun, mut saved) = (number, number);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut is_killed = false;
        let mut stays = 1 + random % 4;
        // The pipe ends when the child does.
        while let Some(Ok(line)) = lines.next() {
            let counted = |start| line.strip_prefix(start).map(|number: &str| number.parse::<u64>().unwrap());
            begun = counted("begun ").unwrap_or(begun);
            saved = counted("saved ").unwrap_or(saved);
            stays = stays.saturating_sub(u64::from(line.starts_with("begun ")));
            if dies_at == NEVER && stays == 0 && !is_killed {
                // A moment in the midst of a checkpoint. It is no signal of anything.
                thread::sleep(Duration::from_micros(mixed(random) % 6000));
                child.kill().unwrap();
                is_killed = true;
            }
        }
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        number = check(&place, keep, begun, saved);
        newest.extend(record(&place).map(|record| record.newest.uuid));
    }
    newest
}

#[test]
fn whoever_is_killed_loses_nothing_that_counts() {
    if let Some(role) = role() {
        let mut words = role.splitn(4, ' ');
        let mut next = || words.next().unwrap();
        let (keep, mode, dies_at, place) = (next(), next(), next(), next());
        let mode = if mode == "hold" { Mode::Hold } else { Mode::Copy };
        write_on(Path::new(place), keep.parse().unwrap(), mode, dies_at.parse().unwrap());
        return;
    }
    let kills = std::env::var("PERCOLATOR_KILLS");
    let kills = kills.map_or(times(KILLS, 32), |kills| kills.parse().unwrap());
    let test = this_test!();
    let lines: Vec<_> = (0..LINES)
        .map(|line| thread::spawn(move || kill_in_line(test, line, kills.div_ceil(LINES))))
        .collect();
    let counted: usize = lines.into_iter().map(|line| line.join().unwrap().len()).sum();
    // Most of them got as far as a checkpoint.
    assert!(counted as u64 > kills / 3, "{counted} checkpoints of {kills} processes");
}
