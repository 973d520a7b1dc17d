//! Processes that are killed at random moments while they write checkpoints whose records are in etcd. The
//! next process restores the last one whose put succeeded, bit for bit, and no file is left over.
//!
//! PERCOLATOR_KILLS says how many are killed; CI kills 24.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointRecord, Checkpoints, Origin};
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Metadata as _};
use percolator_cluster::store::FolderStore;

use crate::numbered_state::{mixed, number_of, state_of};
use crate::process::sample::times;
use crate::process::{child_command, role, this_test};
use crate::server::Etcd;

const ID: &str = "shard";
const KILLS: u64 = 24;
/// A checkpoint over etcd takes about as long.
const LATEST_KILL_MICROSECONDS: u64 = 20_000;

fn records(url: &str) -> EtcdMetadata {
    EtcdMetadata::connect(&EtcdOptions::new([url])).unwrap()
}

fn begin(url: &str, store: &Path, keep: usize) -> Checkpoints<Vec<u8>> {
    let store = Arc::new(FolderStore::open(store).unwrap());
    let how = Checkpointer::new(store, Arc::new(records(url)), ID).unwrap().keep(keep);
    how.ttl(Duration::from_secs(60)).wait(Duration::ZERO).restore(|| state_of(0)).unwrap()
}

/// Saves state after state until it is killed, and prints a line before and after each.
fn write_on(url: &str, store: &Path, keep: usize) {
    let checkpoints = begin(url, store, keep);
    let mut number = number_of(&checkpoints.state().read());
    loop {
        number += 1;
        *checkpoints.state().write() = state_of(number);
        println!("\nbegun {number}");
        checkpoints.save_now().unwrap();
        println!("\nsaved {number}");
    }
}

/// Restores what a process left that was killed, which had begun and saved these states.
fn check(url: &str, store: &Path, keep: usize, begun: u64, saved: u64) -> u64 {
    let records = records(url);
    // The process is known to be dead, so its lease need not run out. From then on, what it had asked for and
    // etcd has not done yet is refused.
    for held in records.read("/checkpoints-held/").unwrap().records {
        records.revoke(held.lease.unwrap()).unwrap();
    }
    let found = records.read("/checkpoints/shard").unwrap();
    let before = found.records.first().map(|record| CheckpointRecord::parse(&record.value).unwrap());
    let checkpoints = begin(url, store, keep);
    let number = number_of(&checkpoints.state().read());
    assert!((saved..=begun).contains(&number), "{number} was restored; begun {begun}, saved {saved}");
    match (&checkpoints.restored().origin, &before) {
        (Origin::Newest(entry), Some(record)) => assert_eq!(*entry, record.newest),
        (Origin::Initial, None) => assert_eq!(number, 0),
        found => panic!("{found:?}"),
    }
    let names = std::fs::read_dir(store.join(ID)).into_iter().flatten();
    let names: BTreeSet<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let named =
        before.iter().flat_map(CheckpointRecord::entries).map(|entry| entry.uuid.to_string()).collect();
    assert_eq!(names, named, "what the record names, and nothing else");
    number
}

#[test]
fn whoever_is_killed_loses_nothing_that_counts() {
    if let Some(role) = role() {
        let mut words = role.splitn(3, ' ');
        let mut next = || words.next().unwrap();
        let (url, keep, store) = (next(), next().parse().unwrap(), Path::new(next()));
        write_on(url, store, keep);
        return;
    }
    let Some(etcd) = Etcd::start(&[]) else { return };
    let kills = std::env::var("PERCOLATOR_KILLS").map_or(times(KILLS, 6), |kills| kills.parse().unwrap());
    let store = tempfile::tempdir().unwrap();
    let mut number = 0;
    for kill in 0..kills {
        let random = mixed(kill);
        let keep = usize::try_from(1 + random % 3).unwrap();
        let role = format!("{} {keep} {}", etcd.url, store.path().display());
        let mut child = child_command(this_test!(), &role).stdout(Stdio::piped()).spawn().unwrap();
        let (mut begun, mut saved, mut is_killed) = (number, number, false);
        let mut stays = 1 + random % 4;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The pipe ends when the child does.
        while let Some(Ok(line)) = lines.next() {
            let counted = |start| line.strip_prefix(start).map(|number: &str| number.parse::<u64>().unwrap());
            begun = counted("begun ").unwrap_or(begun);
            saved = counted("saved ").unwrap_or(saved);
            stays = stays.saturating_sub(u64::from(line.starts_with("begun ")));
            if stays == 0 && !is_killed {
                // A moment in the midst of a checkpoint. It is no signal of anything.
                thread::sleep(Duration::from_micros(mixed(random) % LATEST_KILL_MICROSECONDS));
                child.kill().unwrap();
                is_killed = true;
            }
        }
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        number = check(&etcd.url, store.path(), keep, begun, saved);
    }
    assert!(number > 0, "no process got as far as a checkpoint");
}
