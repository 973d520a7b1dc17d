//! The metadata lose their data under workers: these neither wait for ever, nor go on in a later job.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_cluster::leases::{Confirm, Job, LeaseError, Leases};
use percolator_cluster::metadata::{
    Change, LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Record, Records, Revision, Transaction,
};

use crate::feed;
use crate::process::must_end;

const TTL: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(1000);

/// Metadata that can be set up anew.
#[derive(Debug, Default)]
struct Lossy(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    now: MemoryMetadata,
    /// All that they were asked to change, which makes the same again of empty ones.
    asked: Vec<Asked>,
    /// How much of it there was when a block was taken last.
    copied: usize,
    /// How often they were read since they were set back.
    reads: usize,
}

#[derive(Clone, Debug)]
enum Asked {
    Grant(Duration),
    Change(Transaction),
}

impl Kept {
    fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.asked.push(Asked::Change(transaction.clone()));
        self.now.transact(transaction)
    }
}

impl Lossy {
    fn now(&self) -> MemoryMetadata {
        self.0.lock().unwrap().now.clone()
    }

    /// Sets them back to a copy of a time when this worker had another lease, and nobody held a block.
    fn set_back(&self, worker: &str) {
        let mut all = self.0.lock().unwrap();
        let copy = MemoryMetadata::new();
        // The lease of then has a number of its own, and the later ones are not known.
        let leases = [(); 8].map(|()| copy.grant(TTL).unwrap());
        leases[..7].iter().for_each(|lease| copy.revoke(*lease).unwrap());
        for Record { key, value, lease, .. } in all.now.read("").unwrap().records {
            let transaction = match lease {
                None => Transaction::new().put(key, value),
                Some(_) if key.ends_with(&format!("/workers/{worker}")) => {
                    Transaction::new().put_under(leases[7], key, value)
                }
                Some(_) => continue,
            };
            assert!(matches!(copy.transact(&transaction), Ok(Outcome::Committed(_))));
        }
        all.now = copy;
    }

    /// Sets them back to a copy of the moment when a block was taken last. Others have changed them since.
    fn set_back_to_the_last_block(&self) {
        let mut all = self.0.lock().unwrap();
        let copy = MemoryMetadata::new();
        for asked in &all.asked[..all.copied] {
            match asked {
                Asked::Grant(ttl) => drop(copy.grant(*ttl).unwrap()),
                Asked::Change(transaction) => drop(copy.transact(transaction).unwrap()),
            }
        }
        (all.now, all.reads) = (copy, 0);
    }

    fn lose_all(&self) {
        self.0.lock().unwrap().now = MemoryMetadata::new();
    }
}

impl Metadata for Lossy {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.0.lock().unwrap().reads += 1;
        self.now().read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let mut all = self.0.lock().unwrap();
        let outcome = all.transact(transaction)?;
        let takes = |change: &Change| matches!(change, Change::Put { .. }) && change.key().contains("/held/");
        if transaction.changes().iter().any(takes) {
            all.copied = all.asked.len();
            for number in 0..5 {
                all.transact(&Transaction::new().put(format!("/others/{number}"), ""))?;
            }
        }
        Ok(outcome)
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        let mut all = self.0.lock().unwrap();
        all.asked.push(Asked::Grant(ttl));
        all.now.grant(ttl)
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

/// The last thing that a worker says is taken by a copy, in which its block is as it was: it says so all the
/// same before it is told that its steps count.
#[test]
fn a_worker_that_sees_it_with_its_last_word_says_so() {
    let metadata = Arc::new(Lossy::default());
    let leases = leases(&metadata, "me", 26).ttl(LONG).confirm(Confirm::ByCall);
    let mut leased = leases.feed(feed(1).epochs(1)).unwrap();
    leased.by_ref().for_each(|step| drop(step.unwrap()));
    metadata.set_back_to_the_last_block();
    assert_eq!(leased.confirm().unwrap().steps, 26);
    let verdict = Job::open(metadata.clone(), "numbers").unwrap().verdict(None).unwrap();
    assert!(verdict.was_set_back && verdict.done == 1 && !verdict.is_sound(), "{verdict:?}");
}

/// A worker that has nothing more to say sees it: it says so when it leaves.
#[test]
fn a_worker_that_sees_it_and_leaves_says_so() {
    must_end("seeing that the metadata were set back", || {
        let metadata = Arc::new(Lossy::default());
        // It looks whether others have finished its block.
        let leases = leases(&metadata, "me", 26).confirm(Confirm::ByCall).duplicate_slow();
        let mut leased = leases.feed(feed(1).epochs(1)).unwrap();
        leased.by_ref().for_each(|step| drop(step.unwrap()));
        metadata.set_back_to_the_last_block();
        while metadata.0.lock().unwrap().reads < 2 {
            std::thread::yield_now();
        }
        drop(leased);
        assert!(Job::open(metadata, "numbers").unwrap().status().unwrap().was_set_back);
    });
}
