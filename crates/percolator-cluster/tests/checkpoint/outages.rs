//! The metadata cannot be reached for a while, or answers get lost: training goes on, and the newest file
//! counts as soon as that can be said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, Checkpoints, Origin};
use percolator_cluster::metadata::{MemoryMetadata, Metadata as _};

use crate::faults::{Operation, Verdict, faulty};
use crate::memory_store::MemoryStore;
use crate::process::settles;

const ID: &str = "shard";
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(1);

#[derive(Clone, Default)]
struct Place {
    store: MemoryStore,
    metadata: MemoryMetadata,
    /// 0: it answers; 1: it cannot be reached; 2: what it puts is not heard of; 3: the same, and after it, it
    /// cannot be reached; 4: after the id is taken, it cannot be reached.
    outage: Arc<AtomicU8>,
}

impl Place {
    fn begin(&self, pause: Duration) -> Checkpoints<Vec<u8>> {
        let outage = self.outage.clone();
        let judge = move |operation| {
            use Operation::{Announce, Grant, KeepAlive, Look, Put, Read, Revoke, Take, Wait};
            let is_metadata =
                matches!(operation, Announce | Grant | KeepAlive | Look | Put | Read | Revoke | Take | Wait);
            match outage.load(Ordering::Relaxed) {
                1 if is_metadata => Verdict::Fail,
                2 if operation == Put => Verdict::Lost,
                3 if operation == Put => {
                    outage.store(1, Ordering::Relaxed);
                    Verdict::Lost
                }
                4 if operation == Take => {
                    outage.store(1, Ordering::Relaxed);
                    Verdict::Go
                }
                _ => Verdict::Go,
            }
        };
        let (store, metadata) = faulty(self.store.clone(), self.metadata.clone(), judge);
        let how = Checkpointer::new(store, metadata, ID).unwrap().every(LONG).ttl(LONG).wait(Duration::ZERO);
        how.pauses(pause, pause).restore(|| b"initial".to_vec()).unwrap()
    }

    fn set(&self, outage: u8) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    fn files(&self) -> usize {
        self.store.names(ID).len()
    }
}

fn save(checkpoints: &Checkpoints<Vec<u8>>, state: &[u8]) -> Result<(), CheckpointError> {
    *checkpoints.state().write() = state.to_vec();
    checkpoints.save_now().map(drop)
}

#[test]
fn a_file_waits_until_its_record_can_be_put() {
    let place = Place::default();
    let checkpoints = place.begin(SHORT);
    save(&checkpoints, b"one").unwrap();
    place.set(1);
    let error = save(&checkpoints, b"two").unwrap_err();
    assert!(matches!(error, CheckpointError::NotRecorded { .. }), "{error}");
    assert!(error.to_string().contains("will be put when that is possible"), "{error}");
    checkpoints.step().unwrap();
    settles(|| checkpoints.stats().puts_failed > 5, &true, "tries");
    let stats = checkpoints.stats();
    assert!(stats.is_waiting && stats.written == 1 && stats.failed == 0 && place.files() == 2, "{stats:?}");
    place.set(0);
    settles(|| checkpoints.stats().written, &2, "checkpoints that count");
    settles(|| place.files(), &1, "files");
    assert!(!checkpoints.stats().is_waiting);
    drop(checkpoints);
    assert_eq!(*place.begin(SHORT).state().read(), b"two");
}

#[test]
fn of_files_that_wait_the_newest_counts_and_the_others_go() {
    let place = Place::default();
    // Nothing is tried again but by asking.
    let checkpoints = place.begin(LONG);
    save(&checkpoints, b"one").unwrap();
    place.set(1);
    for number in 0..20_u8 {
        assert!(save(&checkpoints, &[number; 9]).is_err());
        // One counts, the first was sent, and one is the newest.
        assert!(place.files() <= 3, "{}", place.files());
    }
    drop(checkpoints);
    // The first was sent for all that its writer knows, so its file stays until somebody knows better.
    assert_eq!(place.files(), 2);
    // Its hold could not be given back either.
    let lease = place.metadata.read("/checkpoints-held/").unwrap().records[0].lease.unwrap();
    place.metadata.revoke(lease).unwrap();
    place.set(0);
    let checkpoints = place.begin(LONG);
    assert_eq!((&*checkpoints.state().read(), place.files()), (&b"one".to_vec(), 1));
}

#[test]
fn a_put_that_nobody_heard_of_is_found() {
    let place = Place::default();
    let checkpoints = place.begin(SHORT);
    place.set(2);
    // It may have been found by the time that the caller looks.
    let saved = save(&checkpoints, b"one");
    assert!(matches!(saved, Ok(()) | Err(CheckpointError::NotRecorded { .. })), "{saved:?}");
    settles(|| checkpoints.stats().written, &1, "checkpoints that count");
    // A newer file over one that counts although nobody heard of it.
    let quiet = place.clone();
    drop(checkpoints);
    let checkpoints = quiet.begin(LONG);
    assert!(matches!(save(&checkpoints, b"two"), Err(CheckpointError::NotRecorded { .. })));
    quiet.set(0);
    save(&checkpoints, b"three").unwrap();
    assert_eq!((quiet.files(), checkpoints.stats().written), (1, 1));
    drop(checkpoints);
    assert_eq!(*quiet.begin(LONG).state().read(), b"three");
}

/// A put of which its writer does not know that it happened, and whose file its successor keeps.
#[test]
fn a_file_that_may_count_is_not_removed_by_one_that_is_superseded() {
    let place = Place::default();
    let old = place.begin(SHORT);
    place.set(3);
    assert!(matches!(save(&old, b"one"), Err(CheckpointError::NotRecorded { .. })));
    let lease = place.metadata.read("/checkpoints-held/").unwrap().records[0].lease.unwrap();
    place.metadata.revoke(lease).unwrap();
    let how = Checkpointer::new(Arc::new(place.store.clone()), Arc::new(place.metadata.clone()), ID).unwrap();
    let new = how.keep(2).restore(|| -> Vec<u8> { Vec::new() }).unwrap();
    assert_eq!(*new.state().read(), b"one");
    save(&new, b"two").unwrap();
    place.set(0);
    settles(|| matches!(old.step(), Err(CheckpointError::Superseded { .. })), &true, "superseded");
    drop(old);
    // The newest, and the one before it.
    assert_eq!(place.files(), 2);
}

/// As long as nobody knows which of several files counts, all of them stay; so there are only so many.
#[test]
fn files_whose_records_are_in_doubt_are_few() {
    let place = Place::default();
    let later = Arc::new(AtomicUsize::new(0));
    let counted = later.clone();
    // Reads are answered, puts never are.
    let judge = move |operation| match operation {
        Operation::Put if counted.fetch_add(1, Ordering::Relaxed) < 100 => Verdict::Fail,
        _ => Verdict::Go,
    };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let how = Checkpointer::new(store, metadata, ID).unwrap().every(LONG).ttl(LONG).pauses(LONG, LONG);
    let checkpoints = how.restore(Vec::new).unwrap();
    for number in 0..20_u8 {
        let error = save(&checkpoints, &[number; 9]).unwrap_err();
        match number {
            0..4 => assert!(matches!(error, CheckpointError::NotRecorded { .. }), "{error}"),
            _ => assert!(matches!(error, CheckpointError::InDoubt { files: 4, .. }), "{error}"),
        }
        assert!(place.files() <= 4, "{}", place.files());
    }
    assert_eq!(checkpoints.stats().failed, 16);
    assert!(later.load(Ordering::Relaxed) >= 20);
    later.store(100, Ordering::Relaxed);
    save(&checkpoints, b"new").unwrap();
    assert_eq!(place.files(), 1);
}

#[test]
fn the_lease_ends_during_an_outage_and_nobody_else_came() {
    let place = Place::default();
    let checkpoints = place.begin(LONG);
    save(&checkpoints, b"one").unwrap();
    place.set(1);
    assert!(save(&checkpoints, b"two").is_err());
    let lease = place.metadata.read("/checkpoints-held/").unwrap().records[0].lease.unwrap();
    place.metadata.revoke(lease).unwrap();
    place.set(0);
    save(&checkpoints, b"three").unwrap();
    let stats = checkpoints.stats();
    assert_eq!((stats.holds_lost, stats.written, place.files()), (1, 2, 1), "{stats:?}");
    let held = place.metadata.read("/checkpoints-held/").unwrap();
    assert!(held.records[0].lease.is_some_and(|new| new != lease));
}

#[test]
fn a_file_is_written_in_an_outage_that_begins_once_the_id_is_taken_again() {
    let place = Place::default();
    let checkpoints = place.begin(LONG);
    save(&checkpoints, b"one").unwrap();
    let lease = place.metadata.read("/checkpoints-held/").unwrap().records[0].lease.unwrap();
    place.metadata.revoke(lease).unwrap();
    place.set(4);
    let error = save(&checkpoints, b"two").unwrap_err();
    assert!(matches!(error, CheckpointError::NotRecorded { .. }), "{error}");
    assert_eq!((checkpoints.stats().holds_lost, place.files()), (1, 2));
    place.set(0);
    save(&checkpoints, b"three").unwrap();
    assert_eq!(place.files(), 1);
}

#[test]
fn nothing_begins_while_nobody_knows_whether_there_is_a_checkpoint() {
    let place = Place::default();
    save(&place.begin(SHORT), b"one").unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let all = asked.clone();
    let judge = move |operation| {
        all.lock().push(operation);
        if operation == Operation::Look { Verdict::Fail } else { Verdict::Go }
    };
    let (store, metadata) = faulty(place.store.clone(), place.metadata.clone(), judge);
    let how = Checkpointer::new(store, metadata, ID).unwrap();
    let error = how.restore(|| -> Vec<u8> { panic!("it must not start over") }).unwrap_err();
    assert!(matches!(error, CheckpointError::Metadata(_)), "{error}");
    assert!(!asked.lock().contains(&Operation::Put));
    let again = place.begin(SHORT);
    assert!(matches!(again.restored().origin, Origin::Newest(_)));
}

/// Who wants no tries by itself asks for a pause that no clock can count.
#[test]
fn a_pause_without_an_end_is_only_that() {
    let place = Place::default();
    let checkpoints = place.begin(Duration::MAX);
    place.set(1);
    let error = save(&checkpoints, b"one").unwrap_err();
    assert!(matches!(error, CheckpointError::NotRecorded { .. }), "{error}");
    checkpoints.step().unwrap();
    place.set(0);
    save(&checkpoints, b"two").unwrap();
}
