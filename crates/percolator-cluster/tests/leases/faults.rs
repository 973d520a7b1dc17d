//! Workers that die, are cut off, or get no answer: whatever is done twice, each record counts once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_cluster::clock::ManualClock;
use percolator_cluster::leases::{Confirm, LeasedFeed, Leases};
use percolator_cluster::metadata::{
    LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};
use proptest::prelude::*;

use crate::process::sample::times;
use crate::{assert_proven, counts, each_once, feed, leases, records};

/// Records that a worker can be cut off from, and whose answers can be lost.
#[derive(Debug)]
pub(crate) struct Faulty {
    records: MemoryMetadata,
    /// What everything fails with.
    refusal: Mutex<Option<MetadataError>>,
    /// Everything happens, and no answer comes.
    is_mute: AtomicBool,
    /// Every so many transactions, the answer is lost; 0 for never.
    loses_every: u64,
    transactions: AtomicU64,
    /// From this transaction on, counted from 0, nothing happens.
    pub(crate) fails_at: AtomicU64,
    /// Transactions panic.
    pub(crate) panics: AtomicBool,
    /// What was refused.
    refused: Mutex<BTreeMap<&'static str, usize>>,
}

impl Faulty {
    pub(crate) fn new(records: &MemoryMetadata, loses_every: u64) -> Arc<Self> {
        Arc::new(Faulty {
            records: records.clone(),
            refusal: Mutex::new(None),
            is_mute: AtomicBool::new(false),
            loses_every,
            transactions: AtomicU64::new(0),
            fails_at: AtomicU64::new(u64::MAX),
            panics: AtomicBool::new(false),
            refused: Mutex::default(),
        })
    }

    pub(crate) fn cut_off(&self) {
        self.refuse(Some(unreachable()));
    }

    /// From now on, everything fails like this, or nothing any more.
    pub(crate) fn refuse(&self, refusal: Option<MetadataError>) {
        *self.refusal.lock().unwrap() = refusal;
    }

    /// The answer to something that has happened, unless it is lost.
    fn answer(&self) -> Result<(), MetadataError> {
        let number = self.transactions.fetch_add(1, Ordering::SeqCst) + 1;
        let is_lost = self.loses_every > 0 && number.is_multiple_of(self.loses_every);
        if is_lost { Err(unreachable()) } else { Ok(()) }
    }

    fn check(&self, what: &'static str) -> Result<(), MetadataError> {
        let Some(refusal) = self.refusal.lock().unwrap().clone() else { return Ok(()) };
        *self.refused.lock().unwrap().entry(what).or_default() += 1;
        Err(refusal)
    }

    /// How often this was asked for and refused.
    pub(crate) fn refused(&self, what: &str) -> usize {
        self.refused.lock().unwrap().get(what).copied().unwrap_or(0)
    }
}

pub(crate) fn unreachable() -> MetadataError {
    let (place, what) = ("the cut cable".to_owned(), "ask");
    MetadataError::Unreachable { place, what, waited: Duration::ZERO, source: None }
}

impl Metadata for Faulty {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.check("read")?;
        match self.is_mute.load(Ordering::SeqCst) && self.transactions.load(Ordering::SeqCst) > 0 {
            true => Err(unreachable()),
            false => self.records.read(prefix),
        }
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.check("transact")?;
        assert!(!self.panics.load(Ordering::SeqCst), "the cable is on fire");
        let number = self.transactions.fetch_add(1, Ordering::SeqCst) + 1;
        if number > self.fails_at.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        let outcome = self.records.transact(transaction)?;
        match self.loses_every > 0 && number.is_multiple_of(self.loses_every) {
            _ if self.is_mute.load(Ordering::SeqCst) => Err(unreachable()),
            true => Err(unreachable()),
            false => Ok(outcome),
        }
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.check("grant")?;
        let lease = self.records.grant(ttl)?;
        self.answer()?;
        Ok(lease)
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.check("keep_alive")?;
        self.records.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.check("revoke")?;
        self.records.revoke(lease)?;
        self.answer()
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.check("wait")?;
        self.records.wait(prefix, revision, at_most)
    }

    fn place(&self) -> String {
        "the cut cable".to_owned()
    }
}

/// Leases last so long that no thread renews one while a test runs: they end when the clock is set.
pub(crate) const TTL: Duration = Duration::from_secs(100_000);

pub(crate) fn of(metadata: Arc<dyn Metadata>) -> Leases {
    leases(&metadata).ttl(TTL).patience(Duration::from_millis(200))
}

#[test]
fn a_worker_that_was_cut_off_loses_its_block_and_goes_on() {
    let clock = ManualClock::new();
    let records_of_job: Arc<dyn Metadata> = Arc::new(MemoryMetadata::with_clock(clock.clone()));
    let mut sleeps = of(records_of_job.clone()).feed(feed(1)).unwrap();
    let before: Vec<_> = (0..2).flat_map(|_| records(&sleeps.next().unwrap().unwrap())).collect();
    assert_eq!(before.len(), 8);
    clock.advance(TTL);
    // Another worker gets the block, and does it.
    let mut other = of(records_of_job.clone()).feed(feed(1)).unwrap();
    (0..4).for_each(|_| drop(other.next().unwrap().unwrap()));
    // The first one has lost what it had prefetched, too: it does not know yet. It goes on with other blocks.
    std::thread::scope(|scope| {
        let works = scope.spawn(|| other.all(|step| step.is_ok()));
        sleeps.by_ref().for_each(|step| drop(step.unwrap()));
        assert!(works.join().unwrap());
    });
    assert!(sleeps.stats().lost >= 1, "{:?}", sleeps.stats());
    assert_proven(&records_of_job);
}

#[test]
fn a_worker_that_cannot_reach_the_records_says_so_in_the_end() {
    let records_of_job = MemoryMetadata::new();
    let cable = Faulty::new(&records_of_job, 0);
    let mut leased = of(cable.clone()).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    cable.cut_off();
    let error = leased.find_map(Result::err).unwrap();
    assert!(error.to_string().contains("the cut cable did not answer"), "{error}");
}

/// What a trainer has trained on since its last checkpoint is lost with it: nothing of that counts.
#[test]
fn steps_count_when_they_are_confirmed_by_call() {
    let records_of_job: Arc<dyn Metadata> = Arc::new(MemoryMetadata::new());
    let by_call = || of(records_of_job.clone()).confirm(Confirm::ByCall).acknowledge_every(1);
    let mut dies = by_call().feed(feed(1)).unwrap();
    let mut kept = Vec::new();
    for step in 0..8 {
        let records = records(&dies.next().unwrap().unwrap());
        if step < 5 {
            kept.extend(records);
        }
        if step == 4 {
            dies.confirm().unwrap();
        }
    }
    assert_eq!(dies.stats().finished, 1);
    drop(dies);
    let mut lives = by_call().feed(feed(1)).unwrap();
    while let Some(step) = lives.next() {
        kept.extend(records(&step.unwrap()));
        lives.confirm().unwrap();
    }
    assert_eq!(counts(kept), each_once());
    assert_proven(&records_of_job);
}

/// A confirmation happens, and nobody answers for so long that it fails. The steps count once.
#[test]
fn a_confirmation_that_failed_and_happened_counts_once() {
    let shared = MemoryMetadata::new();
    let cable = Faulty::new(&shared, 0);
    let by_call = |metadata: Arc<dyn Metadata>| of(metadata).confirm(Confirm::ByCall).acknowledge_every(1);
    let mut leased = by_call(cable.clone()).steps_per_block(10).feed(feed(1)).unwrap();
    for _ in 0..2 {
        leased.next().unwrap().unwrap();
    }
    cable.transactions.store(0, Ordering::SeqCst);
    cable.is_mute.store(true, Ordering::SeqCst);
    let error = leased.confirm().unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    cable.is_mute.store(false, Ordering::SeqCst);
    // The next time, it finds out that they count: the block is still its own.
    let third = leased.next().unwrap().unwrap();
    assert_eq!((third.step.step, leased.confirm().unwrap().steps, leased.stats().lost), (2, 3, 0));
    drop(leased);
    let shared: Arc<dyn Metadata> = Arc::new(shared);
    let mut rest = of(shared.clone()).steps_per_block(10).feed(feed(1)).unwrap();
    let next = rest.next().unwrap().unwrap();
    assert_eq!(next.step.step, 3);
    assert!(rest.all(|step| step.is_ok()));
    assert_proven(&shared);
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It gets its next step.
    Step,
    /// It leaves, and says so.
    Leaves,
    /// Its machine is gone. Its lease stays until its time is over.
    Dies,
    /// Time passes: every lease ends, of the living too.
    Time,
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        20 => Just(Event::Step),
        2 => Just(Event::Leaves),
        2 => Just(Event::Dies),
        1 => Just(Event::Time),
    ];
    prop::collection::vec((0..3_usize, event), 0..60)
}

struct Worker {
    cable: Arc<Faulty>,
    feed: LeasedFeed,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(48, 12)))]

    /// Whatever happens, the last worker finishes the job, and the account proves that each record of each
    /// epoch counts once.
    #[test]
    fn each_record_counts_once_whatever_happens(
        events in events(),
        steps_per_block in 1..6_u64,
        acknowledge_every in prop::option::of(1..4_u64),
        loses_every in prop_oneof![Just(0_u64), 2..6_u64],
        cut_off_after in 0..60_usize,
    ) {
        let clock = ManualClock::new();
        let shared = MemoryMetadata::with_clock(clock.clone());
        let join = || {
            let cable = Faulty::new(&shared, loses_every);
            let leases = of(cable.clone()).steps_per_block(steps_per_block);
            let mut leases = leases.patience(Duration::from_secs(20));
            if let Some(steps) = acknowledge_every {
                leases = leases.acknowledge_every(steps);
            }
            leases.feed(feed(1)).map(|feed| Worker { cable, feed })
        };
        let mut workers: BTreeMap<usize, Worker> = BTreeMap::new();
        for (number, event) in events {
            match event {
                Event::Step => {
                    let worker = match workers.entry(number) {
                        std::collections::btree_map::Entry::Occupied(worker) => worker.into_mut(),
                        std::collections::btree_map::Entry::Vacant(place) => match join() {
                            Ok(worker) => place.insert(worker),
                            Err(error) => return Err(TestCaseError::fail(error.to_string())),
                        },
                    };
                    // It may wait for the blocks of another, which only the end of that one's lease frees.
                    let status = percolator_cluster::leases::Job::open(Arc::new(shared.clone()), "numbers");
                    let status = status.unwrap().status().unwrap();
                    let handed_out = status.done + status.open.len() as u64;
                    // What three feeds may have taken ahead.
                    let ahead = 3 * (5 / steps_per_block + 2);
                    if handed_out + ahead < status.blocks().unwrap() && let Some(step) = worker.feed.next() {
                        step.unwrap();
                    }
                }
                Event::Leaves => drop(workers.remove(&number)),
                Event::Dies => {
                    if let Some(worker) = workers.remove(&number) {
                        worker.cable.cut_off();
                    }
                }
                Event::Time => clock.advance(TTL),
            }
        }
        drop(workers);
        clock.advance(TTL);
        let mut last = join().unwrap();
        // Its own lease ends, too: somewhere on its way, or after it has taken all there is.
        for _ in 0..cut_off_after {
            if let Some(step) = last.feed.next() {
                step.unwrap();
            }
        }
        clock.advance(TTL);
        last.feed.by_ref().for_each(|step| drop(step.unwrap()));
        drop(last);
        let shared: Arc<dyn Metadata> = Arc::new(shared);
        assert_proven(&shared);
    }
}
