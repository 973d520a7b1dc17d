//! The metadata are not those that name the store's files, or are an old copy of them: no file is removed,
//! and the restart says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{
    Archive, CheckpointError, Checkpoints, CleanOptions, Fault, Left, Origin,
};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Transaction};
use percolator_cluster::store::{Id, Store as _, StoreError};
use uuid::Uuid;

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;

const LONG: Duration = Duration::from_secs(600);
const RECORD: &str = "/checkpoints/shard";
const BEGUN: &str = "/checkpoints-begun/shard";

fn begin(store: &MemoryStore, metadata: &MemoryMetadata) -> Checkpoints<Vec<u8>> {
    begin_with(store, metadata, 1)
}

fn begin_with(store: &MemoryStore, metadata: &MemoryMetadata, keep: usize) -> Checkpoints<Vec<u8>> {
    let how = Checkpointer::new(Arc::new(store.clone()), Arc::new(metadata.clone()), "shard").unwrap();
    let how = how.every(LONG).ttl(LONG).wait(Duration::ZERO).keep(keep);
    how.restore(|| b"initial".to_vec()).unwrap()
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

fn announced(metadata: &MemoryMetadata) -> Vec<Uuid> {
    let names = metadata.read(BEGUN).unwrap().records[0].value.clone();
    String::from_utf8(names).unwrap().lines().map(|name| name.parse().unwrap()).collect()
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

/// A first process that is killed before its first record leaves a file that it has announced, and that is
/// not somebody else's.
#[test]
fn files_of_a_first_process_that_was_killed_go() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    drop(begin(&store, &metadata));
    let announced = announced(&metadata)[0];
    let leave = |name| store.files.lock().insert((id(), name), b"no record names it".to_vec());
    leave(announced);
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

/// A process began with metadata before others put a record of its files elsewhere.
#[test]
fn files_that_were_not_announced_stay_with_those_that_were() {
    let (store, right, wrong) =
        (MemoryStore::default(), MemoryMetadata::default(), MemoryMetadata::default());
    drop(begin(&store, &wrong));
    let trained = save(&begin(&store, &right), b"trained");
    let checkpoints = begin(&store, &wrong);
    let fault = &checkpoints.restored().rejected[0].fault;
    assert!(matches!(fault, Fault::NoRecord { files: 1, .. }), "{fault}");
    let wrongly = save(&checkpoints, b"anew");
    assert_eq!(files(&store), sorted(vec![trained, wrongly]));
    drop(checkpoints);
    assert!(matches!(begin(&store, &right).restored().origin, Origin::Newest(_)));
}

/// Of two processes with one id and different metadata, neither removes what is the other's, be it that both
/// have a record.
#[test]
fn nobody_removes_what_other_metadata_know() {
    let (store, metadata) = (MemoryStore::default(), [(); 2].map(|()| MemoryMetadata::default()));
    let both = metadata.each_ref().map(|metadata| begin(&store, metadata));
    for number in 0..3 {
        let saved = both.each_ref().map(|checkpoints| save(checkpoints, &[number]));
        assert_eq!(files(&store), sorted(saved.to_vec()));
    }
    drop(both);
    let newest = metadata.each_ref().map(|metadata| {
        let checkpoints = begin(&store, metadata);
        assert!(matches!(checkpoints.restored().origin, Origin::Newest(_)), "{}", checkpoints.restored());
        checkpoints.restored().entry().unwrap().uuid
    });
    let (removed, left) = clean(&store, &metadata[0], false);
    assert_eq!((removed, left), (vec![], Some(Left::Unknown { files: 1 })));
    let (removed, left) = clean(&store, &metadata[0], true);
    assert_eq!((removed, left), (vec![newest[1]], None), "somebody has said that it is to go");
}

/// Each file is announced before it is there, and as long as the record does not name it.
#[test]
fn every_file_is_announced_until_the_record_names_it() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    let fails = Arc::new(AtomicBool::new(true));
    let asked = fails.clone();
    let judge = move |operation| match operation {
        Operation::Put if asked.load(Ordering::Relaxed) => Verdict::Fail,
        _ => Verdict::Go,
    };
    let (faulty_store, faulty_metadata) = faulty(store.clone(), metadata.clone(), judge);
    let how = Checkpointer::new(faulty_store, faulty_metadata, "shard").unwrap();
    let checkpoints = how.every(LONG).ttl(LONG).pauses(LONG, LONG).restore(Vec::new).unwrap();
    for state in 0..6_u8 {
        *checkpoints.state().write() = vec![state];
        checkpoints.save_now().unwrap_err();
        assert!(files(&store).iter().all(|file| announced(&metadata).contains(file)));
    }
    fails.store(false, Ordering::Relaxed);
    let first = save(&checkpoints, b"counts");
    let second = save(&checkpoints, b"counts too");
    let announced = announced(&metadata);
    assert!(announced.contains(&first) && !announced.contains(&second), "{announced:?}");
}

/// As with a store that is full or read-only for long.
#[test]
fn files_that_cannot_be_written_leave_no_names() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    for (failing, names_max) in [(Operation::Create, 3), (Operation::Write, 3), (Operation::Finish, 1024)] {
        let judge = move |operation| if operation == failing { Verdict::Full } else { Verdict::Go };
        let (faulty_store, faulty_metadata) = faulty(store.clone(), metadata.clone(), judge);
        let how = Checkpointer::new(faulty_store, faulty_metadata, "shard").unwrap();
        let checkpoints = how.every(LONG).ttl(LONG).restore(|| b"state".to_vec()).unwrap();
        for _ in 0..3 * 1024 {
            let error = checkpoints.save_now().unwrap_err();
            assert!(matches!(error, CheckpointError::Store(_)), "{error}");
        }
        drop(checkpoints);
        let names = announced(&metadata).len();
        assert!(names <= names_max, "{failing:?}: {names} names");
        metadata.transact(&Transaction::new().remove(BEGUN)).unwrap();
    }
}

/// As after etcd has lost its data while a process goes on.
#[test]
fn a_process_whose_record_is_gone_says_so_and_removes_nothing() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    let checkpoints = begin(&store, &metadata);
    let kept = save(&checkpoints, b"kept");
    metadata.transact(&Transaction::new().remove(RECORD)).unwrap();
    let error = checkpoints.save_now().unwrap_err();
    assert!(matches!(error, CheckpointError::RecordLost { .. }), "{error}");
    assert!(error.to_string().contains("somebody removed it, or the metadata were set back"), "{error}");
    assert!(matches!(checkpoints.step(), Err(CheckpointError::RecordLost { .. })));
    drop(checkpoints);
    // The newest state is in a file, too.
    let files = files(&store);
    assert!(files.len() == 2 && files.contains(&kept), "{files:?}");
}

/// As after etcd, or its machine, was set back to a copy.
#[test]
fn files_that_an_older_record_does_not_name_stay() {
    for keep in [1, 3] {
        let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
        let checkpoints = begin_with(&store, &metadata, keep);
        let saved: Vec<_> = (0..keep).map(|number| save(&checkpoints, &number.to_le_bytes())).collect();
        let copies = [RECORD, BEGUN].map(|key| metadata.read(key).unwrap().records[0].clone());
        let last = save(&checkpoints, b"last");
        drop(checkpoints);
        let back = copies.into_iter().fold(Transaction::new(), |all, copy| all.put(copy.key, copy.value));
        metadata.transact(&back).unwrap();
        let (removed, left) = clean(&store, &metadata, false);
        assert!(removed.is_empty() && left == Some(Left::Missing(saved[0])), "{left:?}");
        for run in 0..2_u8 {
            let checkpoints = begin_with(&store, &metadata, keep);
            let restored = checkpoints.restored();
            match (keep, run) {
                (1, 0) => {
                    let fault = &restored.rejected[0].fault;
                    assert!(matches!(fault, Fault::Store(StoreError::Missing { .. })), "{fault}");
                }
                _ => assert!(restored.rejected.is_empty(), "{restored}"),
            }
            save(&checkpoints, &[run]);
            assert!(files(&store).contains(&last), "keep {keep}, run {run}");
        }
        let (removed, left) = clean(&store, &metadata, false);
        assert!(removed.is_empty() && matches!(left, Some(Left::Unreadable(_))), "{left:?}");
    }
}

/// The missing file that shows it is the one of a checkpoint that is taken out.
#[test]
fn what_shows_that_a_record_is_old_is_not_taken_out() {
    let (store, metadata) = (MemoryStore::default(), MemoryMetadata::default());
    let checkpoints = begin_with(&store, &metadata, 3);
    (0..3_u8).for_each(|number| _ = save(&checkpoints, &[number]));
    let copies = [RECORD, BEGUN].map(|key| metadata.read(key).unwrap().records[0].clone());
    let last = save(&checkpoints, b"last");
    drop(checkpoints);
    let back = copies.into_iter().fold(Transaction::new(), |all, copy| all.put(copy.key, copy.value));
    metadata.transact(&back).unwrap();
    let archive = Archive::new(Arc::new(store.clone()), Arc::new(metadata.clone()));
    for _ in 0..2 {
        let options = CleanOptions { keep: Some(2), ..CleanOptions::default() };
        let cleaned = archive.clean(&id(), &options).unwrap();
        assert!(cleaned.left.is_some() && !cleaned.removed.contains(&last), "{cleaned:?}");
    }
    drop(begin_with(&store, &metadata, 3));
    assert!(files(&store).contains(&last));
}
