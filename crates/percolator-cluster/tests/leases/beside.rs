//! What is said to the records is said beside the training: a consumer waits for data alone.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use percolator::FeedError;
use percolator::source::FnSource;
use percolator_cluster::clock::ManualClock;
use percolator_cluster::leases::{Confirm, Job, LeaseError, LeasedFeed};
use percolator_cluster::metadata::{
    Change, LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};

use crate::faults::{Faulty, TTL, of, unreachable};
use crate::process::must_end;
use crate::{RECORDS, assert_proven, counts, each_once, feed, feed_of, records};

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
    passes_on!(records: grant keep_alive revoke wait);

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

    fn place(&self) -> String {
        "the records that hang".to_owned()
    }
}

/// Nobody answers that the first block is done: steps of the next one come all the same, and nothing is said
/// to count.
#[test]
fn the_next_block_comes_while_nobody_answers_for_the_one_before() {
    must_end("records that hang", || {
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
    });
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

/// Waits until its reading thread has taken so many blocks.
fn wait_until_taken(leased: &LeasedFeed, blocks: u64) {
    while leased.stats().taken < blocks {
        thread::yield_now();
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
        // Until it has asked again, it may say the same once more.
        for step in leased.by_ref() {
            match step {
                Ok(step) => seen.extend(records(&step)),
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
        }
        assert_eq!(counts(seen), each_once());
        assert!(leased.next().is_none());
        assert_proven(&shared);
    }
}

/// The disk is slow while the records cannot be reached: a consumer without any patience waits for the data
/// all the same, and gets every step that was taken before it hears of the records.
#[test]
fn a_slow_disk_is_not_blamed_on_the_records() {
    must_end("a slow disk in an outage", || {
        let cable = Faulty::new(&MemoryMetadata::new(), 0);
        let disk = Arc::new((Mutex::new(RECORDS), Condvar::new()));
        let gate = disk.clone();
        let source = FnSource::new("numbers", RECORDS, move |position, value| {
            let (left, changed) = &*gate;
            let mut left = changed.wait_while(left.lock().unwrap(), |left| *left == 0).unwrap();
            *left -= 1;
            value.extend(position.to_le_bytes());
            Ok(())
        });
        let leases = of(cable.clone()).steps_per_block(26).acknowledge_every(1).patience(Duration::ZERO);
        let mut leased = leases.feed(feed_of(source, 1)).unwrap();
        let mut seen = records(&leased.next().unwrap().unwrap());
        cable.cut_off();
        *disk.0.lock().unwrap() = 0;
        let (more, error) = thread::scope(|scope| {
            let waits = scope.spawn(|| until_error(&mut leased));
            // What was read before comes at once. Meanwhile the records are asked in vain, with pauses that
            // grow.
            while cable.refused("transact") < 8 && !waits.is_finished() {
                thread::yield_now();
            }
            *disk.0.lock().unwrap() = u64::MAX;
            disk.1.notify_all();
            waits.join().unwrap()
        });
        seen.extend(more);
        assert!(error.may_pass(), "{error}");
        assert_eq!(seen.len() as u64, RECORDS, "{error}");
        assert_eq!(leased.stats().taken, 1);
    });
}

/// The metadata are a user's own, and panic: whoever waits for what they say gets an error with the panic's
/// message, as often as it asks.
#[test]
fn a_panic_of_the_metadata_is_an_error() {
    must_end("metadata that panic", || {
        for confirm in [Confirm::ByCall, Confirm::ByAsking] {
            let cable = Faulty::new(&MemoryMetadata::new(), 0);
            let leases = of(cable.clone()).steps_per_block(26).acknowledge_every(1).confirm(confirm);
            let mut leased = leases.feed(feed(1).epochs(1)).unwrap();
            leased.next().unwrap().unwrap();
            cable.panics.store(true, Ordering::SeqCst);
            if confirm == Confirm::ByCall {
                for _ in 0..2 {
                    let error = leased.confirm().unwrap_err().to_string();
                    assert!(error.ends_with("the cable is on fire"), "{error}");
                }
            }
            let error = until_error(&mut leased).1;
            assert!(matches!(&error, LeaseError::Panicked { message } if message == "the cable is on fire"));
            assert!(leased.next().is_none());
            assert_eq!(leased.settle().unwrap_err().to_string(), error.to_string());
        }
    });
}

/// A worker that waits for a block in an outage can be stopped, whatever the records do.
#[test]
fn a_wait_in_an_outage_is_ended_at_once() {
    must_end("a wait that is cancelled", || {
        let shared = MemoryMetadata::new();
        let cable = Faulty::new(&shared, 0);
        let mut leased = of(cable.clone()).patience(Duration::from_secs(100_000)).feed(feed(1)).unwrap();
        let handle = leased.feed().handle();
        leased.next().unwrap().unwrap();
        cable.cut_off();
        let error = thread::scope(|scope| {
            let waits = scope.spawn(|| until_error(&mut leased).1);
            handle.cancel();
            waits.join().unwrap()
        });
        assert!(matches!(error, LeaseError::Of(FeedError::Cancelled)), "{error}");
        assert!(leased.next().is_none());
    });
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

/// A worker that leaves in an outage asks nobody any more: what was said and not heard is lost, and given out
/// again when the lease has ended.
#[test]
fn a_worker_that_leaves_in_an_outage_does_not_wait_for_its_end() {
    must_end("leaving in an outage", || {
        let clock = ManualClock::new();
        let shared = MemoryMetadata::with_clock(clock.clone());
        let cable = Faulty::new(&shared, 0);
        let forever = Duration::from_secs(100_000);
        let mut leased = of(cable.clone()).steps_per_block(2).patience(forever).feed(feed(1)).unwrap();
        let taken = leased.next().unwrap().unwrap().step;
        wait_until_taken(&leased, 2);
        cable.cut_off();
        // Two more, and the first block is confirmed. A second refusal comes after the first one was noted.
        (0..2).for_each(|_| drop(leased.next().unwrap().unwrap()));
        while cable.refused("transact") < 2 {
            thread::yield_now();
        }
        drop(leased);
        assert_eq!(cable.refused("revoke"), 0);
        clock.advance(TTL);
        let mut rest = of(Arc::new(shared.clone())).steps_per_block(2).feed(feed(1)).unwrap();
        assert_eq!(rest.next().unwrap().unwrap().step, taken, "it is given out again");
        assert!(rest.all(|step| step.is_ok()));
        assert_proven(&(Arc::new(shared) as Arc<dyn Metadata>));
    });
}

/// Who wants to leave nothing behind waits for the end of the outage.
#[test]
fn what_was_confirmed_is_settled_after_an_outage() {
    must_end("settling after an outage", || {
        let shared = MemoryMetadata::new();
        let cable = Faulty::new(&shared, 0);
        let mut leased = of(cable.clone()).steps_per_block(2).feed(feed(1)).unwrap();
        leased.next().unwrap().unwrap();
        wait_until_taken(&leased, 2);
        cable.cut_off();
        (0..2).for_each(|_| drop(leased.next().unwrap().unwrap()));
        let error = leased.settle().unwrap_err();
        assert!(error.may_pass(), "{error}");
        cable.refuse(None);
        let settled = loop {
            match leased.settle() {
                Ok(settled) => break settled,
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
        };
        // The third step was not confirmed.
        assert_eq!((settled.steps, settled.lost), (2, vec![]));
        assert_eq!(leased.stats().finished, 1);
        assert!(leased.all(|step| step.is_ok()));
        assert_proven(&(Arc::new(shared) as Arc<dyn Metadata>));
    });
}

/// What does not pass by itself is the feed's end as well, though who confirmed has seen it before.
#[test]
fn an_error_that_does_not_pass_is_said_by_the_next_step_too() {
    let shared: Arc<dyn Metadata> = Arc::new(MemoryMetadata::new());
    let mut leased = of(shared.clone()).confirm(Confirm::ByCall).feed(feed(1)).unwrap();
    (0..3).for_each(|_| drop(leased.next().unwrap().unwrap()));
    leased.confirm().unwrap();
    let receipts = shared.read("/leases/numbers/receipts/").unwrap().records;
    let key = &receipts[0].key;
    shared.transact(&Transaction::new().put(&**key, "{")).unwrap();
    (0..7).for_each(|_| drop(leased.next().unwrap().unwrap()));
    let confirmed = leased.confirm().unwrap_err().to_string();
    assert!(confirmed.contains(key), "{confirmed}");
    // Asked again, it says it again.
    assert_eq!(leased.confirm().unwrap_err().to_string(), confirmed);
    assert_eq!(leased.next().unwrap().unwrap_err().to_string(), confirmed);
    assert!(leased.next().is_none());
}

/// A worker that joins waits for whatever passes: records that are full, or refuse it, for a while.
#[test]
fn who_joins_waits_for_what_passes() {
    must_end("joining", || {
        let place = || "the cut cable".to_owned();
        for refusal in [
            unreachable(),
            MetadataError::Full { place: place(), message: "it is full".to_owned() },
            MetadataError::Denied { place: place(), what: "ask", message: "user name is empty".to_owned() },
        ] {
            let cable = Faulty::new(&MemoryMetadata::new(), 0);
            cable.refuse(Some(refusal));
            thread::scope(|scope| {
                let joins = scope.spawn(|| of(cable.clone()).patience(TTL).feed(feed(1)).map(drop));
                while cable.refused("transact") < 2 && !joins.is_finished() {
                    thread::yield_now();
                }
                cable.refuse(None);
                joins.join().unwrap().unwrap();
            });
        }
    });
}

/// Records that hold what a worker asks for at three gates.
#[derive(Debug)]
struct Gated {
    records: MemoryMetadata,
    gates: Mutex<[Gate; 3]>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    /// How many it lets through.
    left: usize,
    waiting: usize,
}

/// Before a block is taken, after steps were acknowledged, and before a lease is granted.
const TAKES: usize = 0;
const ACKNOWLEDGED: usize = 1;
const GRANTS: usize = 2;

impl Gated {
    fn new(records: MemoryMetadata) -> Self {
        let open = Gate { left: usize::MAX, waiting: 0 };
        Gated { records, gates: Mutex::new([open; 3]), changed: Condvar::new() }
    }

    fn lets_through(&self, gate: usize, left: usize) {
        self.gates.lock().unwrap()[gate].left = left;
        self.changed.notify_all();
    }

    fn pass(&self, gate: usize) {
        let mut gates = self.gates.lock().unwrap();
        gates[gate].waiting += 1;
        self.changed.notify_all();
        gates = self.changed.wait_while(gates, |gates| gates[gate].left == 0).unwrap();
        gates[gate].waiting -= 1;
        gates[gate].left -= 1;
    }

    fn wait_for_somebody(&self, gate: usize) {
        let gates = self.gates.lock().unwrap();
        let is_due = |gates: &mut [Gate; 3]| gates[gate].left > 0 || gates[gate].waiting == 0;
        drop(self.changed.wait_while(gates, is_due).unwrap());
    }
}

impl Metadata for Gated {
    passes_on!(records: keep_alive revoke wait);

    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.records.read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let puts = |part: &str| {
            let is_it =
                |change: &&Change| matches!(change, Change::Put { .. }) && change.key().contains(part);
            transaction.changes().iter().any(|change| is_it(&change))
        };
        if puts("/held/") {
            self.pass(TAKES);
        }
        let outcome = self.records.transact(transaction);
        if puts("/receipts/") {
            self.pass(ACKNOWLEDGED);
        }
        outcome
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.pass(GRANTS);
        self.records.grant(ttl)
    }

    fn place(&self) -> String {
        "the gated records".to_owned()
    }
}

/// A lease ends while steps of its block wait for the answer that they count, which comes before the worker
/// has another lease: the rest of the block is lost, and comes once, under the new lease.
#[test]
fn a_block_that_was_in_doubt_when_its_lease_ended_is_lost() {
    must_end("a block in doubt", || {
        let clock = ManualClock::new();
        let shared = MemoryMetadata::with_clock(clock.clone());
        let gated = Arc::new(Gated::new(shared.clone()));
        let leases = of(gated.clone()).steps_per_block(20).confirm(Confirm::ByCall).acknowledge_every(1);
        gated.lets_through(TAKES, 1);
        let mut leased = leases.patience(TTL).feed(feed(1).prefetch(40)).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(records(&leased.next().unwrap().unwrap()));
        }
        // The reading thread asks for the second block.
        gated.wait_for_somebody(TAKES);
        gated.lets_through(ACKNOWLEDGED, 0);
        gated.lets_through(GRANTS, 0);
        thread::scope(|scope| {
            let confirms = scope.spawn(|| leased.confirm().unwrap());
            gated.wait_for_somebody(ACKNOWLEDGED);
            clock.advance(TTL);
            gated.lets_through(TAKES, usize::MAX);
            gated.wait_for_somebody(GRANTS);
            gated.lets_through(ACKNOWLEDGED, usize::MAX);
            assert_eq!(confirms.join().unwrap().steps, 2);
        });
        let taken = leased.stats().taken + 1;
        gated.lets_through(GRANTS, usize::MAX);
        wait_until_taken(&leased, taken);
        assert_eq!(leased.stats().lost, 1);
        while let Some(step) = leased.next() {
            seen.extend(records(&step.unwrap()));
            leased.confirm().unwrap();
        }
        assert_eq!(counts(seen), each_once());
        drop(leased);
        assert_proven(&(Arc::new(shared) as Arc<dyn Metadata>));
    });
}
