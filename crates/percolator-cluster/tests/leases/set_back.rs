//! The metadata lose their data under workers: these neither wait for ever, nor go on in a later job.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_cluster::leases::{Confirm, Job, LeaseError, Leases};
use percolator_cluster::metadata::{
    LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Record, Records, Revision, Transaction,
};

use crate::feed;

const TTL: Duration = Duration::from_millis(300);

/// Metadata that can be set up anew.
#[derive(Debug, Default)]
struct Lossy(Mutex<MemoryMetadata>);

impl Lossy {
    fn now(&self) -> MemoryMetadata {
        self.0.lock().unwrap().clone()
    }

    /// Sets them back to a copy of a time when this worker had another lease, and nobody held a block.
    fn set_back(&self, worker: &str) {
        let mut all = self.0.lock().unwrap();
        let copy = MemoryMetadata::new();
        // The lease of then has a number of its own, and the later ones are not known.
        let leases = [(); 8].map(|()| copy.grant(TTL).unwrap());
        leases[..7].iter().for_each(|lease| copy.revoke(*lease).unwrap());
        for Record { key, value, lease, .. } in all.read("").unwrap().records {
            let transaction = match lease {
                None => Transaction::new().put(key, value),
                Some(_) if key.ends_with(&format!("/workers/{worker}")) => {
                    Transaction::new().put_under(leases[7], key, value)
                }
                Some(_) => continue,
            };
            assert!(matches!(copy.transact(&transaction), Ok(Outcome::Committed(_))));
        }
        *all = copy;
    }

    fn lose_all(&self) {
        *self.0.lock().unwrap() = MemoryMetadata::new();
    }
}

impl Metadata for Lossy {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.now().read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.now().transact(transaction)
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.now().grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.now().keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.now().revoke(lease)
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.now().wait(prefix, revision, at_most)
    }

    fn place(&self) -> String {
        self.now().place()
    }
}

fn leases(metadata: &Arc<Lossy>, worker: &str, steps: u64) -> Leases {
    let metadata: Arc<dyn Metadata> = metadata.clone();
    Leases::of(metadata, "numbers").steps_per_block(steps).ttl(TTL).worker(worker)
}

/// A job that another worker has begun meanwhile has the revision of the first one.
#[test]
fn a_worker_does_not_go_on_in_a_later_job() {
    let metadata = Arc::new(Lossy::default());
    let mut leased = leases(&metadata, "me", 3).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    metadata.lose_all();
    drop(leases(&metadata, "another", 5).feed(feed(1)).unwrap());
    let status = || Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
    let next = status().next;
    let error = leased.find_map(Result::err).unwrap();
    assert!(matches!(error, LeaseError::Reset { .. }), "{error}");
    drop(leased);
    assert_eq!(status().next, next, "it has taken nothing of it");
}

/// The revision that it waits for does not come: the new metadata begin at the first.
#[test]
fn a_worker_that_waits_is_told() {
    let metadata = Arc::new(Lossy::default());
    let has = leases(&metadata, "has", 26).confirm(Confirm::ByCall);
    let mut has = has.feed(feed(1).prefetch(1)).unwrap();
    drop(has.next().unwrap().unwrap());
    let seen = std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| leases(&metadata, "waits", 26).feed(feed(1)).unwrap().find_map(Result::err));
        let job = Job::open(metadata.clone(), "numbers").unwrap();
        while job.status().unwrap().workers.len() < 2 || job.status().unwrap().next.epoch < 2 {
            std::thread::yield_now();
        }
        metadata.lose_all();
        waits.join().unwrap()
    });
    assert!(matches!(seen, Some(LeaseError::Reset { .. })), "{seen:?}");
}

/// Its own name of then is still there, until the lease of then ends.
#[test]
fn a_worker_waits_for_its_own_name() {
    let metadata = Arc::new(Lossy::default());
    let mut leased = leases(&metadata, "me", 3).feed(feed(1)).unwrap();
    drop(leased.next().unwrap().unwrap());
    metadata.set_back("me");
    let failed = leased.find_map(Result::err);
    assert!(failed.is_none(), "{failed:?}");
    assert!(Job::open(metadata, "numbers").unwrap().status().unwrap().is_done());
}
