//! Checkpoints whose records are in a real etcd.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{
    CheckpointError, CheckpointRecord, Checkpoints, Fault, Origin, RecordError,
};
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Lease, Metadata as _};
use percolator_cluster::store::FolderStore;

use crate::process::{child_command, role, this_test};
use crate::server::{Etcd, control, leader, until};

const ID: &str = "shard";
const LONG: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// One process's way to the checkpoints: a connection of its own.
fn how(options: &EtcdOptions, store: &Path) -> Checkpointer {
    let metadata = EtcdMetadata::connect(&options.clone().prefix("/job")).unwrap();
    let store = FolderStore::open(store).unwrap();
    let how = Checkpointer::new(Arc::new(store), Arc::new(metadata), ID).unwrap();
    how.every(LONG).wait(Duration::ZERO)
}

fn begin(options: &EtcdOptions, store: &Path) -> Checkpoints<Vec<u8>> {
    how(options, store).restore(|| b"initial".to_vec()).unwrap()
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Result<(), CheckpointError> {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().map(drop)
}

fn files(store: &Path) -> usize {
    std::fs::read_dir(store.join(ID)).unwrap().count()
}

/// The process that has the id is taken for dead.
fn end_hold(etcd: &Etcd) {
    let records = etcd.records("/job");
    let held = records.read("/checkpoints-held/").unwrap();
    records.revoke(held.records[0].lease.unwrap()).unwrap();
}

#[test]
fn a_state_is_written_and_restored() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let store = tempfile::tempdir().unwrap();
    let first = begin(&etcd.options(), store.path());
    assert_eq!(first.restored().origin, Origin::Initial);
    save(&first, b"one").unwrap();
    save(&first, b"two").unwrap();
    first.step().unwrap();
    // The record is where the design has it, and its fields are in the design's order.
    let text = etcd.control(&["get", "--print-value-only", "/job/checkpoints/shard"]);
    let record = CheckpointRecord::parse(text.trim().as_bytes()).unwrap();
    let front = format!(r#"{{"uuid":"{}","md5":"{}","timestamp":"#, record.newest.uuid, record.newest.md5);
    assert!(text.starts_with(&front), "{text}");
    assert_eq!(files(store.path()), 1);
    drop(first);
    assert_eq!(etcd.control(&["get", "--keys-only", "--prefix", "/job/checkpoints-held/"]).trim(), "");
    let second = begin(&etcd.options(), store.path());
    assert!(matches!(&second.restored().origin, Origin::Newest(entry) if *entry == record.newest));
    assert_eq!(*second.state().read(), b"two");
}

#[test]
fn a_successor_gets_in_and_the_one_before_it_is_superseded() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let store = tempfile::tempdir().unwrap();
    let old = begin(&etcd.options(), store.path());
    save(&old, b"old").unwrap();
    end_hold(&etcd);
    let new = begin(&etcd.options(), store.path());
    assert_eq!(*new.state().read(), b"old");
    assert!(matches!(save(&old, b"older"), Err(CheckpointError::Superseded { by: Some(_), .. })));
    assert!(matches!(old.step(), Err(CheckpointError::Superseded { .. })));
    save(&new, b"new").unwrap();
    drop((old, new));
    assert_eq!(*begin(&etcd.options(), store.path()).state().read(), b"new");
    assert_eq!(files(store.path()), 1);
}

#[test]
fn a_paused_etcd_does_not_stop_the_training() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let store = tempfile::tempdir().unwrap();
    let options = etcd.options().deadline(Duration::from_millis(300));
    let how = how(&options, store.path()).ttl(SECOND);
    let checkpoints = how.pauses(Duration::from_millis(20), Duration::from_millis(100));
    let checkpoints = checkpoints.restore(Vec::new).unwrap();
    save(&checkpoints, b"one").unwrap();
    // As long as the one that has the id, and begun after it.
    let lease = Lease::keep(Arc::new(etcd.records("/other")), SECOND).unwrap();
    etcd.pause();
    assert!(matches!(save(&checkpoints, b"two"), Err(CheckpointError::NotRecorded { .. })));
    let mut steps = 0;
    until("the lease has run out, and the put was tried again", || {
        checkpoints.step().unwrap();
        steps += 1;
        !lease.is_alive() && checkpoints.stats().puts_failed > 2
    });
    let stats = checkpoints.stats();
    assert!(stats.is_waiting && stats.written == 1 && stats.failed == 0, "{stats:?}");
    assert_eq!(files(store.path()), 2);
    etcd.go_on();
    until("the checkpoint counts", || checkpoints.stats().written == 2);
    assert!(steps > 1 && checkpoints.steps() == steps);
    // If the lease ends, or etcd is late, after the record was put and before the older file was removed,
    // that file goes with a later checkpoint.
    until("what is not needed is gone", || save(&checkpoints, b"two").is_ok() && files(store.path()) == 1);
    drop(checkpoints);
    assert_eq!(*begin(&etcd.options(), store.path()).state().read(), b"two");
}

#[test]
fn the_leader_of_three_is_killed_and_nothing_is_lost() {
    let Some(mut members) = Etcd::start_cluster::<3>() else { return };
    let store = tempfile::tempdir().unwrap();
    let urls: Vec<_> = members.iter().map(|member| member.url.clone()).collect();
    let options = EtcdOptions::new(urls).deadline(Duration::from_secs(2));
    let how = how(&options, store.path()).ttl(Duration::from_secs(30));
    let pauses = how.pauses(Duration::from_millis(20), Duration::from_millis(200));
    let checkpoints = pauses.restore(Vec::new).unwrap();
    for round in 0..3_u8 {
        save(&checkpoints, &[round, 0]).unwrap();
        let first = leader(&members);
        members[first].kill();
        // It counts at once, or as soon as there is a leader again.
        match save(&checkpoints, &[round, 1]) {
            Ok(()) => {}
            Err(CheckpointError::NotRecorded { .. }) => {
                until("the checkpoint counts", || !checkpoints.stats().is_waiting);
            }
            Err(error) => panic!("{error}"),
        }
        members[first].run();
        let alone = members[first].options();
        assert!(members[first].is_ready(&alone));
    }
    drop(checkpoints);
    let all: Vec<_> = members.iter().collect();
    let text = control(&all, &["get", "--print-value-only", "/job/checkpoints/shard"]);
    assert!(CheckpointRecord::parse(text.trim().as_bytes()).is_ok(), "{text}");
    assert_eq!(*begin(&options, store.path()).state().read(), [2, 1]);
    assert_eq!(files(store.path()), 1);
}

#[test]
fn of_two_processes_with_one_id_the_second_is_told_who_has_it() {
    if let Some(role) = role() {
        let (url, store) = role.split_once(' ').unwrap();
        let checkpoints = begin(&EtcdOptions::new([url]), Path::new(store));
        save(&checkpoints, b"the first").unwrap();
        println!("\nready");
        // Until the test has looked.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let Some(etcd) = Etcd::start(&[]) else { return };
    let store = tempfile::tempdir().unwrap();
    let role = format!("{} {}", etcd.url, store.path().display());
    let mut first =
        child_command(this_test!(), &role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap() == "ready"));
    let second = how(&etcd.options(), store.path());
    let error = second.restore(|| -> Vec<u8> { panic!("it must not begin") }).unwrap_err();
    let CheckpointError::Held { by, .. } = &error else { panic!("{error}") };
    assert_eq!(by.pid, first.id());
    assert!(error.to_string().contains(&format!("process {}", first.id())), "{error}");
    drop(first.stdin.take());
    assert!(lines.all(|line| line.is_ok()) && first.wait().unwrap().success());
    assert_eq!(*begin(&etcd.options(), store.path()).state().read(), b"the first");
}

#[test]
fn records_of_unknown_versions_are_kept() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let store = tempfile::tempdir().unwrap();
    let first = begin(&etcd.options(), store.path());
    save(&first, b"one").unwrap();
    drop(first);
    for (number, text) in [r#"{"version":2,"shards":[]}"#, "no JSON"].into_iter().enumerate() {
        etcd.control(&["put", "/job/checkpoints/shard", text]);
        let checkpoints = begin(&etcd.options(), store.path());
        let restored = checkpoints.restored();
        assert_eq!(restored.origin, Origin::Initial);
        let Fault::Record(error) = &restored.rejected[0].fault else { panic!("{restored}") };
        assert_eq!(matches!(error, RecordError::Version { .. }), number == 0, "{error}");
        // Nothing has changed yet.
        let found = etcd.control(&["get", "--print-value-only", "/job/checkpoints/shard"]);
        assert_eq!(found.trim(), text);
        save(&checkpoints, b"anew").unwrap();
        drop(checkpoints);
        let kept = ["get", "--print-value-only", "--prefix", "/job/checkpoints-unreadable/shard/"];
        assert!(etcd.control(&kept).contains(text));
        // That of the first, which nobody can name any more, and the newest.
        assert_eq!(files(store.path()), 2 + number);
        assert_eq!(*begin(&etcd.options(), store.path()).state().read(), b"anew");
    }
}
