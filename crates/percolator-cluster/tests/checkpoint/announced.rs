//! What is announced is never taken back by somebody who is late: a file that its metadata would not know
//! stays for ever, and one whose name has two files is lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, CheckpointRecord, Checkpoints};
use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{MemoryMetadata, Metadata, Transaction};
use percolator_cluster::store::{Id, Store};
use uuid::Uuid;

use crate::faults::{Faulty, Judge, Operation, Verdict};
use crate::memory_store::MemoryStore;

const LONG: Duration = Duration::from_secs(600);

#[derive(Clone)]
struct Place {
    store: MemoryStore,
    metadata: MemoryMetadata,
    later: Arc<Mutex<Vec<Transaction>>>,
    /// What does not go well.
    faults: Arc<Mutex<Vec<(Operation, Verdict)>>>,
}

impl Place {
    fn new() -> Self {
        Place {
            store: MemoryStore::default(),
            metadata: MemoryMetadata::with_clock(ManualClock::new()),
            later: Arc::default(),
            faults: Arc::default(),
        }
    }

    fn set(&self, faults: &[(Operation, Verdict)]) {
        *self.faults.lock() = faults.to_vec();
    }

    fn begin(&self, judge: Judge) -> Result<Checkpoints<Vec<u8>>, CheckpointError> {
        let store: Arc<dyn Store> = Arc::new(self.store.clone());
        let metadata: Arc<dyn Metadata> = Arc::new(self.metadata.clone());
        let store = Arc::new(Faulty::new(store, judge.clone()));
        let metadata = Arc::new(Faulty { later: self.later.clone(), ..Faulty::new(metadata, judge) });
        let how = Checkpointer::new(store, metadata, "shard")?.every(LONG).ttl(LONG).wait(Duration::ZERO);
        how.pauses(LONG, LONG).restore(|| b"initial".to_vec())
    }

    /// A process to which the faults happen.
    fn begin_with_faults(&self) -> Checkpoints<Vec<u8>> {
        let faults = self.faults.clone();
        let verdict = move |operation| {
            let faults = faults.lock();
            faults.iter().find(|&&(of, _)| of == operation).map_or(Verdict::Go, |&(_, verdict)| verdict)
        };
        self.begin(Arc::new(verdict)).unwrap()
    }

    /// The lease of whoever has the id ends.
    fn end_hold(&self) {
        let held = self.metadata.read("/checkpoints-held/").unwrap();
        self.metadata.revoke(held.records[0].lease.unwrap()).unwrap();
    }

    fn files(&self) -> Vec<Uuid> {
        let mut files = self.store.list(&Id::new("shard").unwrap()).unwrap();
        files.sort();
        files
    }

    fn named(&self) -> Vec<Uuid> {
        let found = self.metadata.read("/checkpoints/shard").unwrap();
        let record = CheckpointRecord::parse(&found.records[0].value).unwrap();
        record.entries().map(|entry| entry.uuid).collect()
    }
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Result<Uuid, CheckpointError> {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().map(|entry| entry.uuid)
}

#[test]
fn a_late_transaction_takes_no_name_back() {
    for late in [Operation::Announce, Operation::Put] {
        let place = Place::new();
        let checkpoints = place.begin_with_faults();
        let first = save(&checkpoints, b"one").unwrap();
        // Three names were announced, and go to files whose records are not put.
        let puts = if late == Operation::Put { Verdict::Later } else { Verdict::Fail };
        place.set(&[(Operation::Put, puts)]);
        for state in [b"a", b"b", b"c"] {
            assert!(matches!(save(&checkpoints, state), Err(CheckpointError::NotRecorded { .. })));
        }
        if late == Operation::Announce {
            place.set(&[(late, Verdict::Later)]);
            assert!(matches!(save(&checkpoints, b"none"), Err(CheckpointError::Metadata(_))));
        }
        // More names are announced before the fourth file.
        place.set(&[(Operation::Put, Verdict::Fail), (Operation::Revoke, Verdict::Fail)]);
        assert!(matches!(save(&checkpoints, b"d"), Err(CheckpointError::NotRecorded { .. })));
        // It is killed.
        drop(checkpoints);
        assert_eq!(place.files().len(), 5);
        let _ = place.metadata.transact(&place.later.lock()[0]).unwrap();
        place.end_hold();
        place.set(&[]);
        drop(place.begin_with_faults());
        assert_eq!((place.named(), place.files()), (vec![first], vec![first]), "late: {late:?}");
    }
}

/// Whoever had the id for a while has listed what it is about to remove.
#[test]
fn a_name_that_somebody_else_has_listed_goes_to_no_other_file() {
    let place = Place::new();
    let checkpoints = place.begin_with_faults();
    save(&checkpoints, b"one").unwrap();
    // Of two files no record is put; what is sent for the first may happen, and for the second nothing is.
    place.set(&[(Operation::Put, Verdict::Fail)]);
    save(&checkpoints, b"a").unwrap_err();
    place.set(&[(Operation::Look, Verdict::Fail)]);
    save(&checkpoints, b"b").unwrap_err();
    assert_eq!(place.files().len(), 3);
    place.set(&[]);
    place.end_hold();
    let (own, other_place) = (Mutex::new(Some(checkpoints)), place.clone());
    // Another process takes the id, lists the files, and pauses before it removes the first one, for longer
    // than its lease.
    let judge = move |operation| {
        let paused = (operation == Operation::Remove).then(|| own.lock().take()).flatten();
        if let Some(checkpoints) = paused {
            let place = &other_place;
            place.end_hold();
            save(&checkpoints, b"c").unwrap();
            assert_eq!(checkpoints.stats().holds_lost, 1);
            // The second file's name would be given again after the free ones that no file has had.
            place.set(&[(Operation::Put, Verdict::Fail)]);
            for state in [b"d", b"e"] {
                assert!(matches!(save(&checkpoints, state), Err(CheckpointError::NotRecorded { .. })));
            }
            place.set(&[]);
            save(&checkpoints, b"f").unwrap();
        }
        Verdict::Go
    };
    let _ = place.begin(Arc::new(judge));
    assert_eq!(place.files(), place.named(), "the file that the record names is there, and nothing else");
}
