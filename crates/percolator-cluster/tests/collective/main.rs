//! Processes that agree through records: every round brings what each gave; whoever dies, leaves, is cut off
//! or does not come ends the others' rounds with an error that names it; and nothing stays.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-distribute/tests/common/collectives.rs"]
mod collectives;
mod contract;
mod faults;
mod joining;
mod killed;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod refused;

use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::collective::{Group, MetadataCollective};
use percolator_cluster::metadata::{MemoryMetadata, Metadata};

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(50);

fn memory() -> Arc<dyn Metadata> {
    Arc::new(MemoryMetadata::new())
}

fn group(metadata: &Arc<dyn Metadata>) -> Group {
    Group::of(metadata.clone(), "digits").timeout(PATIENCE)
}

/// The ends of a group of threads, by rank.
fn join_all(size: usize, group: impl Fn(usize) -> Group) -> Vec<MetadataCollective> {
    let start = |rank| {
        let group = group(rank);
        std::thread::spawn(move || group.join(rank, size).unwrap())
    };
    let threads: Vec<_> = (0..size).map(start).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// The keys of all records.
fn keys(metadata: &Arc<dyn Metadata>) -> Vec<String> {
    metadata.read("").unwrap().records.into_iter().map(|record| record.key).collect()
}

/// Lets a process of the group die, as others see it: its lease ends.
fn let_die(metadata: &Arc<dyn Metadata>, rank: usize) {
    let end = format!("/live/ranks/{rank:06}");
    let records = metadata.read("").unwrap().records;
    let record = records.iter().find(|record| record.key.ends_with(&end)).expect("it is there");
    metadata.revoke(record.lease.unwrap()).unwrap();
}

/// Looks until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it does not come to this: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
