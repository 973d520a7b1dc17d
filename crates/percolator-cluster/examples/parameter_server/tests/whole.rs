//! The show in a small configuration: what it shows is so.

use std::sync::Arc;

use percolator::receipt::EpochState;
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointRecord, Origin};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _};
use percolator_cluster::store::FolderStore;

use super::process::this_test;
use super::{etcd, spawn, take_role};
use crate::digits::Test;
use crate::model::WEIGHTS;
use crate::options::AllOptions;
use crate::server::State;
use crate::show::{self, Shown};

const EPOCHS: u64 = 8;
const SERVERS: u32 = 2;

fn options() -> AllOptions {
    AllOptions {
        etcd: Vec::new(),
        folder: None,
        servers: SERVERS,
        trainers: 2,
        kill_trainer: true,
        epochs: EPOCHS,
        ttl: 1.0,
        checkpoint_every: 0.05,
    }
}

/// The server came back with its checkpoint, the model learned, and each epoch had every record once,
/// although a server and a trainer were killed.
fn check(shown: &Shown) {
    let Shown { killed, back, at_first, before, restored, at_last, verdict, status, .. } = shown;
    assert_ne!(killed.pid, back.pid);
    assert_ne!(killed.address, back.address, "it is not where it was");
    assert_eq!((killed.restored, killed.updates), (None, 0), "it had begun anew");
    assert!(back.restored.is_some() && back.updates > 0, "and goes on with its checkpoint: {back:?}");
    assert!(*at_first < 0.4, "nothing was learned at first: {at_first}");
    // How much was learned by then depends on how fast the trainers are.
    let (learned, kept) = (before - at_first, restored - at_first);
    assert!(kept > learned / 3.0, "the model is not lost: {restored}; {at_first} at first, {before} before");
    assert!(at_last > before, "the accuracy rises: {before} before the kill, {at_last} at last");
    assert!(*at_last > 0.85, "the model has learned: {at_last}");
    let states: Vec<_> = verdict.verdict.epochs.iter().map(|epoch| (epoch.epoch, epoch.state)).collect();
    let covered: Vec<_> = (0..EPOCHS).map(|epoch| (epoch, EpochState::Covered)).collect();
    assert_eq!(states, covered, "{verdict:?}");
    assert!(verdict.is_sound() && verdict.verdict.epochs.iter().all(|epoch| epoch.due == 1437));
    assert!(status.is_done() && status.open.is_empty(), "{status:?}");
}

#[test]
fn a_killed_server_comes_back_from_a_folder() {
    take_role();
    let folder = tempfile::tempdir().unwrap();
    let options = AllOptions { folder: Some(folder.path().to_owned()), ..options() };
    let shown = show::run(&options, &spawn(this_test!())).unwrap();
    check(&shown);

    // The servers were asked to end, and their last checkpoints are the model as it was at last.
    let records = Arc::new(FolderMetadata::open(folder.path().join("records")).unwrap());
    let store = Arc::new(FolderStore::open(folder.path().join("checkpoints")).unwrap());
    let (mut weights, mut updates) = (Vec::new(), Vec::new());
    for found in records.read("/checkpoints/").unwrap().records {
        let id = found.key.strip_prefix("/checkpoints/").unwrap();
        let entry = CheckpointRecord::parse(&found.value).unwrap().newest;
        let length = WEIGHTS / SERVERS as usize;
        let checkpoints = Checkpointer::new(store.clone(), records.clone(), id).unwrap();
        let checkpoints = checkpoints.restore(|| State::new(&vec![0.0; length])).unwrap();
        assert_eq!(checkpoints.restored().origin, Origin::Newest(entry));
        weights.extend(checkpoints.state().read().weights());
        updates.push(checkpoints.state().read().updates());
    }
    assert_eq!(updates.len(), 2, "one of each shard");
    assert_eq!(Test::new().unwrap().accuracy(&weights).unwrap(), shown.at_last);
    // The second shard lost a few, and got some twice: those of the trainer that was killed within a block.
    assert!(updates[0] >= EPOCHS * 45, "the first shard has all of them: {updates:?}");
}

#[test]
fn a_killed_server_comes_back_from_etcd() {
    take_role();
    let Some(etcd) = etcd::Etcd::start(&[]) else { return };
    let options = AllOptions { etcd: vec![etcd.url.clone()], ..options() };
    let shown = show::run(&options, &spawn(this_test!())).unwrap();
    check(&shown);
    assert_eq!(etcd.control(&["get", "", "--prefix", "--keys-only"]).trim(), "", "nothing stays in it");
}
