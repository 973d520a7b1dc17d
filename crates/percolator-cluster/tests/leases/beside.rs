//! What is said to the records is said beside the training: a consumer waits for data alone.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use percolator::FeedError;
use percolator_cluster::leases::{Confirm, Job, LeaseError, LeasedFeed};
use percolator_cluster::metadata::{
    Change, LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};

use crate::faults::{Faulty, of, unreachable};
use crate::{assert_proven, counts, each_once, feed, records};

/// Records that do not answer when a block is said to be done, until they are let go on.
#[derive(Debug, Default)]
struct Hanging {
    records: MemoryMetadata,
    state: Mutex<Hung>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Hung {
    is_free: bool,
    waiting: usize,
}

impl Hanging {
    fn wait_for_waiting(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    fn go_on(&self) {
        self.state.lock().unwrap().is_free = true;
        self.changed.notify_all();
    }
}

impl Metadata for Hanging {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.records.read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let is_done =
            |change: &Change| matches!(change, Change::Remove { .. }) && change.key().contains("/open/");
        if transaction.changes().iter().any(is_done) {
            let mut state = self.state.lock().unwrap();
            state.waiting += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.is_free).unwrap());
        }
        self.records.transact(transaction)
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.records.grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.records.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.records.revoke(lease)
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.records.wait(prefix, revision, at_most)
    }

    fn place(&self) -> String {
        "the records that hang".to_owned()
    }
}

/// Nobody answers that the first block is done: steps of the next one come all the same, and nothing is said
/// to count.
#[test]
fn the_next_block_comes_while_nobody_answers_for_the_one_before() {
    let metadata = Arc::new(Hanging::default());
    let mut leased = of(metadata.clone()).feed(feed(1)).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(records(&leased.next().unwrap().unwrap()));
    }
    metadata.wait_for_waiting();
    for _ in 0..2 {
        seen.extend(records(&leased.next().unwrap().unwrap()));
    }
    assert_eq!(leased.stats().finished, 0);
    let shared: Arc<dyn Metadata> = Arc::new(metadata.records.clone());
    assert_eq!(Job::open(shared.clone(), "numbers").unwrap().status().unwrap().done, 0);
    metadata.go_on();
    seen.extend(leased.by_ref().flat_map(|step| records(&step.unwrap())));
    assert_eq!(leased.stats().finished, 18);
    assert_eq!(counts(seen), each_once());
    assert_proven(&shared);
}

/// The steps that a feed hands over until it has an error, and the error.
fn until_error(leased: &mut LeasedFeed) -> (Vec<(u64, u64)>, LeaseError) {
    let mut seen = Vec::new();
    loop {
        match leased.next().unwrap() {
            Ok(step) => seen.extend(records(&step)),
            Err(error) => return (seen, error),
        }
    }
}

/// Whatever the records say for a while, what was taken is handed over, and the feed can be gone on with.
#[test]
fn what_was_taken_is_handed_over_in_an_outage_and_the_feed_goes_on_after_it() {
    let place = || "the cut cable".to_owned();
    for refusal in [
        unreachable(),
        MetadataError::Full { place: place(), message: "it is full".to_owned() },
        MetadataError::Denied { place: place(), what: "ask", message: "user name is empty".to_owned() },
    ] {
        let shared = MemoryMetadata::new();
        let cable = Faulty::new(&shared, 0);
        let shared: Arc<dyn Metadata> = Arc::new(shared);
        let leases = of(cable.clone()).steps_per_block(6).patience(Duration::from_millis(50));
        let mut leased = leases.feed(feed(1)).unwrap();
        let mut seen = records(&leased.next().unwrap().unwrap());
        cable.refuse(Some(refusal.clone()));
        let (more, error) = until_error(&mut leased);
        seen.extend(more);
        assert_eq!(error.to_string(), refusal.to_string());
        assert!(error.may_pass());
        // All steps of all blocks that it has taken: the last record may be the short one of the epoch.
        let taken = leased.stats().taken;
        assert_eq!(seen.len() as u64, taken * 24, "{:?}", leased.stats());
        assert_eq!(leased.stats().finished, 0);
        // It says so as often as it is asked.
        let again = leased.next().unwrap().unwrap_err();
        assert_eq!(again.to_string(), refusal.to_string());
        cable.refuse(None);
        seen.extend(leased.by_ref().flat_map(|step| records(&step.unwrap())));
        assert_eq!(counts(seen), each_once());
        assert!(leased.next().is_none());
        assert_proven(&shared);
    }
}

/// Who waits for a block in an outage can be stopped, whatever the records do.
#[test]
fn a_wait_in_an_outage_is_ended_at_once() {
    let shared = MemoryMetadata::new();
    let cable = Faulty::new(&shared, 0);
    let mut leased = of(cable.clone()).patience(Duration::from_secs(100_000)).feed(feed(1)).unwrap();
    let canceller = leased.feed().canceller();
    leased.next().unwrap().unwrap();
    cable.cut_off();
    let error = thread::scope(|scope| {
        let waits = scope.spawn(|| until_error(&mut leased).1);
        canceller.cancel();
        waits.join().unwrap()
    });
    assert!(matches!(error, LeaseError::Of(FeedError::Cancelled)), "{error}");
    assert!(leased.next().is_none());
}

/// What was confirmed counts when the worker leaves, though nobody has waited for it.
#[test]
fn what_is_confirmed_counts_when_the_worker_leaves() {
    let shared: Arc<dyn Metadata> = Arc::new(MemoryMetadata::new());
    for leaves_after in [4, 1, 7] {
        let mut leased = of(shared.clone()).acknowledge_every(1).feed(feed(1)).unwrap();
        (0..leaves_after).for_each(|_| drop(leased.next().unwrap().unwrap()));
    }
    // The last step of each was not confirmed.
    let mut rest = of(shared.clone()).confirm(Confirm::ByCall).feed(feed(1)).unwrap();
    assert_eq!(rest.next().unwrap().unwrap().step.step, 3 + 6);
}
