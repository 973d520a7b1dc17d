//! The show with few epochs: what it shows is so.

use std::sync::Arc;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointRecord, Origin};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _};
use percolator_cluster::store::FolderStore;
use percolator_proof::EpochState;

use super::process::this_test;
use super::{etcd, spawn, take_role};
use crate::data;
use crate::options::ShowOptions;
use crate::report::Report;
use crate::server::State;
use crate::shards::Shard;
use crate::show::{self, SHARDS};

const EPOCHS: u64 = 8;

/// The model learned, and each epoch had every record once, although a server and a trainer were killed.
fn check(report: &Report) {
    assert!(report.accuracy > 0.85, "the model has learned: {report}");
    let (verdict, status) = (&report.verdict, &report.status);
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
    let options = ShowOptions { etcd: vec![], folder: Some(folder.path().to_owned()), epochs: EPOCHS };
    let report = show::run(&options, &spawn(this_test!())).unwrap();
    check(&report);

    // The servers were asked to end, and their last checkpoints are the model as it was at last.
    let records = Arc::new(FolderMetadata::open(folder.path().join("records")).unwrap());
    let store = Arc::new(FolderStore::open(folder.path().join("checkpoints")).unwrap());
    let (mut weights, mut updates) = (Vec::new(), Vec::new());
    for shard in Shard::all(&report.job, SHARDS) {
        let key = format!("/checkpoints/{}", shard.id());
        let entry =
            CheckpointRecord::parse(&records.read(&key).unwrap().get(&key).unwrap().value).unwrap().newest;
        let checkpoints = Checkpointer::new(store.clone(), records.clone(), &shard.id()).unwrap();
        let checkpoints = checkpoints.restore(|| State::new(shard.weights().len())).unwrap();
        assert_eq!(checkpoints.restored().origin, Origin::Newest(entry));
        let state = checkpoints.state().read();
        weights.extend(&state.weights);
        updates.push(state.updates);
    }
    assert_eq!(data::accuracy(weights).unwrap().to_bits(), report.accuracy.to_bits());
    // The second shard lost a few, and got some twice: those of the trainer that was killed within a block.
    assert!(updates[0] >= EPOCHS * 45, "the first shard has all of them: {updates:?}");
}

#[test]
fn a_killed_server_comes_back_from_etcd() {
    take_role();
    let Some(etcd) = etcd::Etcd::start(&[]) else { return };
    let options = ShowOptions { etcd: vec![etcd.url.clone()], folder: None, epochs: EPOCHS };
    let report = show::run(&options, &spawn(this_test!())).unwrap();
    check(&report);
    assert_eq!(etcd.control(&["get", "", "--prefix", "--keys-only"]).trim(), "", "nothing stays in it");
}
