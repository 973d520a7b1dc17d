//! A job is removed, under living workers as well; nothing of it reaches the next one of its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percolator_cluster::leases::{Confirm, Job, JobStatus, LeaseError, Leases};
use percolator_cluster::metadata::{
    LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};

use crate::faults::Faulty;
use crate::{assert_proven, feed, leases, memory};

#[test]
fn a_job_is_reset_under_a_worker_only_by_force() {
    let metadata = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    assert!(matches!(Job::reset(&metadata, "numbers"), Err(LeaseError::InUse { workers: 1, .. })));
    Job::force_reset(&metadata, "numbers").unwrap();
    let error = leased.find_map(Result::err).unwrap();
    assert!(matches!(error, LeaseError::Reset { .. }), "{error}");
    assert!(matches!(leased.confirm(), Ok(_) | Err(LeaseError::Reset { .. })));
    drop(leased);
    assert_eq!(metadata.read("").unwrap().records, [], "nothing comes back");
    assert!(matches!(job.status(), Err(LeaseError::Reset { .. })));
    assert!(matches!(job.drain(), Err(LeaseError::Reset { .. })));
}

/// A worker of the removed job is in the middle of a block when another one begins the job anew.
#[test]
fn a_worker_of_the_removed_job_changes_nothing_of_the_next() {
    let metadata = memory();
    let mut old = leases(&metadata).feed(feed(1)).unwrap();
    for _ in 0..4 {
        old.next().unwrap().unwrap();
    }
    Job::force_reset(&metadata, "numbers").unwrap();
    let mut new = leases(&metadata).feed(feed(1)).unwrap();
    new.next().unwrap().unwrap();
    let error = old.find_map(Result::err).unwrap();
    assert!(matches!(error, LeaseError::Reset { .. }), "{error}");
    drop(old);
    new.by_ref().for_each(|step| drop(step.unwrap()));
    assert_proven(&metadata);
}

/// More records than a transaction takes, and the reset fails at each of its transactions in turn.
#[test]
fn a_reset_that_was_cut_short_is_made_again() {
    for fails_at in 0..8 {
        let shared = MemoryMetadata::new();
        let metadata: Arc<dyn Metadata> = Arc::new(shared.clone());
        leases(&metadata).feed(feed(1)).unwrap().for_each(|step| drop(step.unwrap()));
        let receipts = metadata.read("/leases/numbers/receipts/").unwrap().records;
        for number in 0..300 {
            let key = format!("/leases/numbers/receipts/0000000001/other/1-{number:06}");
            metadata.transact(&Transaction::new().put(key, &*receipts[0].value)).unwrap();
        }
        let cable = Faulty::new(&shared, 0);
        cable.fails_at.store(fails_at, Ordering::SeqCst);
        let cable: Arc<dyn Metadata> = cable;
        let outcome = Job::reset(&cable, "numbers");
        if fails_at >= 6 {
            outcome.unwrap();
            assert_eq!(metadata.read("").unwrap().records, []);
            continue;
        }
        assert!(outcome.unwrap_err().to_string().contains("did not answer"));
        if fails_at > 0 {
            // Nobody joins it, and its state is shown.
            let error = leases(&metadata).feed(feed(1)).unwrap_err();
            assert!(matches!(error, LeaseError::Reset { .. }), "{error}");
            assert!(Job::open(metadata.clone(), "numbers").unwrap().status().unwrap().is_removed);
        }
        Job::reset(&metadata, "numbers").unwrap();
        assert_eq!(metadata.read("").unwrap().records, []);
    }
}

/// A reset stands still; another one is made, and workers begin the job anew. The first one goes on.
#[test]
fn a_reset_that_comes_late_removes_nothing_of_the_next_job() {
    for stands_at in 1..6 {
        let shared = MemoryMetadata::new();
        let metadata: Arc<dyn Metadata> = Arc::new(shared.clone());
        leases(&metadata).feed(feed(1)).unwrap().for_each(|step| drop(step.unwrap()));
        let late: Arc<dyn Metadata> = Arc::new(Late {
            records: shared.clone(),
            transactions: AtomicU64::new(0),
            stands_at,
            meanwhile: |metadata| {
                Job::reset(metadata, "numbers").unwrap();
                leases(metadata).feed(feed(1)).unwrap().for_each(|step| drop(step.unwrap()));
            },
        });
        match Job::reset(&late, "numbers") {
            Err(LeaseError::Reset { .. }) => assert_proven(&metadata),
            // It had fewer transactions to make.
            Ok(()) => assert!(stands_at > 3),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Something happens before the transaction of this number, counted from 0.
struct Late {
    records: MemoryMetadata,
    transactions: AtomicU64,
    stands_at: u64,
    meanwhile: fn(&Arc<dyn Metadata>),
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.records.fmt(f)
    }
}

impl Metadata for Late {
    passes_on!(records: grant keep_alive revoke wait place);

    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.records.read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        if self.transactions.fetch_add(1, Ordering::SeqCst) == self.stands_at {
            (self.meanwhile)(&(Arc::new(self.records.clone()) as Arc<dyn Metadata>));
        }
        self.records.transact(transaction)
    }
}

/// Whatever is wrong with its records, a job can be removed.
#[test]
fn a_damaged_job_is_reset() {
    for key in ["job", "next", "open/0000000000-000000000001", "workers/me"] {
        let metadata = memory();
        drop(leases(&metadata).feed(feed(1)).unwrap());
        metadata.transact(&Transaction::new().put(format!("/leases/numbers/live/{key}"), "{")).unwrap();
        match Job::reset(&metadata, "numbers") {
            Err(LeaseError::InUse { .. }) => Job::force_reset(&metadata, "numbers").unwrap(),
            done => done.unwrap(),
        }
        assert_eq!(metadata.read("").unwrap().records, []);
        assert!(matches!(Job::reset(&metadata, "numbers"), Err(LeaseError::NoJob { .. })));
    }
}

/// A worker that waits for the block of another is told by the same error as one that works.
#[test]
fn a_worker_that_waits_is_told() {
    let metadata = memory();
    // It has every block that there is, and confirms none.
    let mut has = Leases::of(metadata.clone(), "numbers").steps_per_block(26).confirm(Confirm::ByCall);
    has = has.worker("has");
    let mut has = has.feed(feed(1).prefetch(1)).unwrap();
    drop(has.next().unwrap().unwrap());
    let seen = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let waits = Leases::of(metadata.clone(), "numbers").steps_per_block(26).worker("waits");
            let mut waits = waits.feed(feed(1)).unwrap();
            waits.find_map(Result::err)
        });
        let job = Job::open(metadata.clone(), "numbers").unwrap();
        let is_waiting = |status: &JobStatus| {
            let held = |worker: &str| {
                status.open.iter().any(|open| open.holders.iter().any(|held| held.worker == worker))
            };
            status.workers.len() == 2 && held("has") && !held("waits") && status.next.epoch == 2
        };
        while !is_waiting(&job.status().unwrap()) {
            std::thread::yield_now();
        }
        Job::force_reset(&metadata, "numbers").unwrap();
        waits.join().unwrap()
    });
    assert!(matches!(seen, Some(LeaseError::Reset { .. })), "{seen:?}");
}
