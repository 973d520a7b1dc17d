//! A job is removed, under living workers as well; nothing of it reaches the next one of its name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use percolator_cluster::leases::{Job, LeaseError};
use percolator_cluster::metadata::{MemoryMetadata, Metadata, Transaction};

use crate::faults::Faulty;
use crate::{assert_proven, feed, leases, memory};

#[test]
fn a_job_is_reset_under_a_worker_only_by_force() {
    let metadata = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    assert!(matches!(job.clone().reset(false), Err(LeaseError::InUse { workers: 1, .. })));
    job.clone().reset(true).unwrap();
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
    Job::open(metadata.clone(), "numbers").unwrap().reset(true).unwrap();
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
        let job = Job::open(cable.clone(), "numbers").unwrap();
        let outcome = job.reset(false);
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
        Job::open(metadata.clone(), "numbers").unwrap().reset(false).unwrap();
        assert_eq!(metadata.read("").unwrap().records, []);
    }
}
