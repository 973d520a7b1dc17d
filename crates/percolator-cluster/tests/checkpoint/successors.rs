//! Two processes with one id: one holds it, the other is told who, or waits; and one that was cut off learns
//! that its place is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, Checkpoints, Origin, Writer};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _, Outcome, Transaction};

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;
use crate::process::{must_end, settles};

const LONG: Duration = Duration::from_secs(600);

#[derive(Clone, Default)]
struct Place {
    store: MemoryStore,
    metadata: MemoryMetadata,
}

impl Place {
    fn how(&self, id: &str) -> Checkpointer {
        let how = Checkpointer::new(Arc::new(self.store.clone()), Arc::new(self.metadata.clone()), id);
        how.unwrap().every(LONG).ttl(LONG).wait(Duration::ZERO)
    }

    fn begin(&self) -> Result<Checkpoints<Vec<u8>>, CheckpointError> {
        self.how("shard").restore(|| b"initial".to_vec())
    }

    /// The lease of whoever holds the id ends: it was paused for too long.
    fn end_hold(&self) {
        let lease = self.metadata.read("/checkpoints-held/shard").unwrap().records[0].lease.unwrap();
        self.metadata.revoke(lease).unwrap();
    }
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Result<(), CheckpointError> {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().map(drop)
}

#[test]
fn the_second_is_told_who_holds_the_id() {
    let place = Place::default();
    let first = place.begin().unwrap();
    let error = place.begin().unwrap_err();
    match &error {
        CheckpointError::Held { by, since, .. } => {
            assert_eq!(**by, Writer::this());
            assert!(since.elapsed().unwrap() < LONG);
        }
        other => panic!("{other}"),
    }
    let message = error.to_string();
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    // Ids that begin alike are others.
    let [_longer, _shorter] = ["shard 2", "shar"].map(|id| place.how(id).restore(Vec::new).unwrap());
    save(&first, b"one").unwrap();
    drop(first);
    assert_eq!(*place.begin().unwrap().state().read(), b"one");
}

#[test]
fn the_second_may_wait() {
    must_end("waiting for an id", || {
        let place = Place::default();
        let first = place.begin().unwrap();
        save(&first, b"one").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| place.how("shard").wait(LONG).restore(Vec::new).unwrap());
            // It waits, or will: either way it gets the id when the first lets go.
            save(&first, b"two").unwrap();
            drop(first);
            assert_eq!(*second.join().unwrap().state().read(), b"two");
        });
        // The lease of one that died ends by itself.
        let dead = place.how("shard").ttl(Duration::from_millis(300)).restore(Vec::new).unwrap();
        place.end_hold();
        assert!(place.begin().is_ok());
        drop(dead);
    });
}

#[test]
fn one_that_was_cut_off_cannot_write_over_its_successor() {
    let place = Place::default();
    let old = place.begin().unwrap();
    save(&old, b"old").unwrap();
    place.end_hold();
    let new = place.begin().unwrap();
    assert!(matches!(new.restored().origin, Origin::Newest(_)));
    save(&new, b"new").unwrap();
    let error = save(&old, b"older").unwrap_err();
    match &error {
        CheckpointError::Superseded { by: Some(by), .. } => assert_eq!(**by, Writer::this()),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("its state no longer counts"), "{error}");
    // For good.
    assert!(matches!(old.step(), Err(CheckpointError::Superseded { .. })));
    assert!(matches!(save(&old, b"oldest"), Err(CheckpointError::Superseded { .. })));
    settles(|| place.store.names("shard").len(), &1, "files");
    save(&new, b"newer").unwrap();
    drop((old, new));
    assert_eq!(*place.begin().unwrap().state().read(), b"newer");
}

/// A successor that has begun has restored what there was, so the one before it may not write any more.
#[test]
fn a_successor_that_has_not_written_yet_counts() {
    let place = Place::default();
    let old = place.begin().unwrap();
    save(&old, b"old").unwrap();
    place.end_hold();
    let new = place.begin().unwrap();
    assert!(matches!(save(&old, b"older"), Err(CheckpointError::Superseded { .. })));
    save(&new, b"new").unwrap();
    drop((old, new));
    assert_eq!(*place.begin().unwrap().state().read(), b"new");
}

#[test]
fn a_paused_process_without_a_successor_goes_on() {
    let place = Place::default();
    let checkpoints = place.begin().unwrap();
    for number in 0..5_u8 {
        place.end_hold();
        save(&checkpoints, &[number; 3]).unwrap();
        assert_eq!(checkpoints.stats().holds_lost, u64::from(number) + 1);
        assert_eq!(place.store.names("shard").len(), 1);
    }
    // One that came, wrote nothing and went makes no difference.
    place.end_hold();
    drop(place.begin().unwrap());
    save(&checkpoints, b"last").unwrap();
    drop(checkpoints);
    assert_eq!(*place.begin().unwrap().state().read(), b"last");
}

/// Somebody changes the record by hand.
#[test]
fn a_record_that_changes_under_its_holder_is_not_written_over() {
    let place = Place::default();
    let checkpoints = place.begin().unwrap();
    save(&checkpoints, b"one").unwrap();
    let put = Transaction::new().put("/checkpoints/shard", "by hand");
    assert!(matches!(place.metadata.transact(&put), Ok(Outcome::Committed(_))));
    let error = save(&checkpoints, b"two").unwrap_err();
    assert!(error.to_string().contains("a process that is not known"), "{error}");
    let found = place.metadata.read("/checkpoints/shard").unwrap();
    assert_eq!(found.records[0].value, b"by hand");
}

/// While the first restored its state, its lease ended, and the second began to write.
#[test]
fn one_that_lost_the_id_while_it_began_leaves_the_files_of_its_successor() {
    let place = Place::default();
    save(&place.begin().unwrap(), b"one").unwrap();
    let looked = Arc::new(AtomicBool::new(false));
    let has_looked = looked.clone();
    let judge = move |operation| {
        if operation == Operation::RemoveAbandoned {
            looked.store(true, Ordering::Relaxed);
        }
        Verdict::Go
    };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let first = Checkpointer::new(store, metadata, "shard").unwrap().every(LONG).ttl(LONG);
    let mut second = None;
    let initial = || {
        place.end_hold();
        second = Some(place.begin().unwrap());
        Vec::new()
    };
    let first = first.wait(Duration::ZERO).restore(initial).unwrap();
    assert!(!has_looked.load(Ordering::Relaxed), "only whoever holds the id may ask");
    assert!(first.stats().last_error.is_some());
    save(&second.unwrap(), b"two").unwrap();
    assert!(matches!(save(&first, b"three"), Err(CheckpointError::Superseded { .. })));
}
