//! The metadata are not those that name the store's files, or are an old copy of them: no file is removed,
//! and the restart says so.

use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Archive, Checkpoints, CleanOptions, Fault, Left, Origin};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Transaction};
use percolator_cluster::store::{Id, Store as _, StoreError};
use uuid::Uuid;

use crate::memory_store::MemoryStore;

const LONG: Duration = Duration::from_secs(600);
const RECORD: &str = "/checkpoints/shard";

fn begin(store: &MemoryStore, metadata: &MemoryMetadata) -> Checkpoints<Vec<u8>> {
    let how = Checkpointer::new(Arc::new(store.clone()), Arc::new(metadata.clone()), "shard").unwrap();
    how.every(LONG).ttl(LONG).wait(Duration::ZERO).restore(|| b"initial".to_vec()).unwrap()
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Uuid {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().unwrap().uuid
}

fn id() -> Id {
    Id::new("shard").unwrap()
}

fn files(store: &MemoryStore) -> Vec<Uuid> {
    let mut files = store.list(&id()).unwrap();
    files.sort();
    files
}

fn sorted(mut uuids: Vec<Uuid>) -> Vec<Uuid> {
    uuids.sort();
    uuids
}

fn clean(store: &MemoryStore, metadata: &MemoryMetadata, without_record: bool) -> (Vec<Uuid>, Option<Left>) {
    let archive = Archive::new(Arc::new(store.clone()), Arc::new(metadata.clone()));
    let cleaned = archive.clean(&id(), &CleanOptions { without_record, ..CleanOptions::default() }).unwrap();
    (cleaned.removed, cleaned.left)
}

/// As with a wrong prefix, or after the metadata have lost their data.
#[test]
fn files_that_other_metadata_name_stay() {
    let (store, right, wrong) =
        (MemoryStore::default(), MemoryMetadata::default(), MemoryMetadata::default());
    let trained = save(&begin(&store, &right), b"trained");
    for run in 0..3_u8 {
        let checkpoints = begin(&store, &wrong);
        let restored = checkpoints.restored();
        if run == 0 {
            assert_eq!(restored.origin, Origin::Initial);
            let fault = &restored.rejected[0].fault;
            assert!(matches!(fault, Fault::NoRecord { files: 1, .. }), "{restored}");
            assert!(restored.to_string().contains("end this process if these are not their metadata"));
        } else {
            assert!(matches!(restored.origin, Origin::Newest(_)), "{restored}");
        }
        assert!(files(&store).contains(&trained), "run {run}");
        // It goes on all the same, and removes what is its own.
        save(&checkpoints, &[run, 0]);
        let newest = save(&checkpoints, &[run, 1]);
        drop(checkpoints);
        assert_eq!(files(&store), sorted(vec![trained, newest]), "run {run}");
    }
    let (removed, left) = clean(&store, &wrong, false);
    assert!(removed.is_empty() && matches!(left, Some(Left::Unreadable(_))), "{left:?}");
    let checkpoints = begin(&store, &right);
    assert!(matches!(checkpoints.restored().origin, Origin::Newest(_)));
    assert_eq!(*checkpoints.state().read(), b"trained");
}

/// A first process that is killed before its first record leaves a file, which is not somebody else's.
#[test]
fn files_of_a_first_process_that_was_killed_go() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    drop(begin(&store, &metadata));
    store.files.lock().insert((id(), Uuid::new_v4()), b"no record names it".to_vec());
    let checkpoints = begin(&store, &metadata);
    assert!(checkpoints.restored().rejected.is_empty(), "{}", checkpoints.restored());
    assert!(files(&store).is_empty());
    // Once there has been a record, a lost one is noticed.
    let kept = save(&checkpoints, b"kept");
    drop(checkpoints);
    metadata.transact(&Transaction::new().remove(RECORD)).unwrap();
    let (removed, left) = clean(&store, &metadata, false);
    assert_eq!((removed, left), (vec![], Some(Left::NoRecord { files: 1 })));
    let checkpoints = begin(&store, &metadata);
    assert!(matches!(checkpoints.restored().rejected[0].fault, Fault::NoRecord { files: 1, .. }));
    assert_eq!(files(&store), [kept]);
    drop(checkpoints);
    let (removed, left) = clean(&store, &metadata, true);
    assert_eq!((removed, left), (vec![kept], None), "somebody has said that it is to go");
}

/// As after etcd, or its machine, was set back to a copy.
#[test]
fn files_that_an_older_record_does_not_name_stay() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    let checkpoints = begin(&store, &metadata);
    save(&checkpoints, b"first");
    let copy = metadata.read(RECORD).unwrap().records[0].value.clone();
    let second = save(&checkpoints, b"second");
    drop(checkpoints);
    metadata.transact(&Transaction::new().put(RECORD, copy)).unwrap();
    let (removed, left) = clean(&store, &metadata, false);
    assert!(removed.is_empty() && matches!(left, Some(Left::NewestMissing(_))), "{left:?}");
    for run in 0..2_u8 {
        let checkpoints = begin(&store, &metadata);
        if run == 0 {
            let fault = &checkpoints.restored().rejected[0].fault;
            assert!(matches!(fault, Fault::Store(StoreError::Missing { .. })), "{fault}");
        }
        let newest = save(&checkpoints, &[run]);
        assert_eq!(files(&store), sorted(vec![second, newest]), "run {run}");
    }
}
