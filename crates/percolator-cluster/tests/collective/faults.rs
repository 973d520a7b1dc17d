//! Processes that die or are cut off within a round, and records that cannot be reached for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use percolator_cluster::metadata::{LeaseId, MetadataError, Outcome, Records, Revision, Transaction};
use percolator_distribute::{Collective as _, CollectiveError};

use super::*;
use crate::collectives::{rounds_bring_what_each_gave, run};

/// Records whose answers get lost, before or after what was asked for has happened, and which can be shut.
#[derive(Debug)]
struct Unreliable {
    inner: Arc<dyn Metadata>,
    /// Every so many calls one is lost; 0 for none.
    every: u64,
    count: AtomicU64,
    is_shut: AtomicBool,
}

impl Unreliable {
    fn new(inner: &Arc<dyn Metadata>, every: u64) -> Arc<Self> {
        let (count, is_shut) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Unreliable { inner: inner.clone(), every, count, is_shut })
    }

    fn ask<T>(&self, ask: impl Fn(&dyn Metadata) -> Result<T, MetadataError>) -> Result<T, MetadataError> {
        while self.is_shut.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        if self.every == 0 || !count.is_multiple_of(self.every) {
            return ask(&*self.inner);
        }
        if (count / self.every).is_multiple_of(2) {
            ask(&*self.inner)?;
        }
        let (place, waited) = ("nowhere".to_owned(), Duration::ZERO);
        Err(MetadataError::Unreachable { place, what: "answer", waited, source: None })
    }
}

impl Metadata for Unreliable {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.ask(|inner| inner.read(prefix))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        // What is shut does not answer, but what was asked for happens.
        if self.is_shut.load(Ordering::SeqCst) {
            return self.inner.transact(transaction);
        }
        self.ask(|inner| inner.transact(transaction))
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        // etcd's limit.
        if ttl > Duration::from_secs(9_000_000_000) {
            let source = Arc::new(std::io::Error::other("too large lease TTL"));
            return Err(MetadataError::Failed { place: self.place(), what: "grant a lease", source });
        }
        self.ask(|inner| inner.grant(ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.inner.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.inner.revoke(lease)
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.ask(|inner| inner.wait(prefix, revision, at_most))
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

#[test]
fn answers_that_are_lost_change_nothing() {
    for every in [2, 3, 5] {
        let metadata = memory();
        let ends = join_all(3, |_| Group::of(Unreliable::new(&metadata, every), "digits"));
        run(ends, |end| rounds_bring_what_each_gave(&end));
    }
}

#[test]
fn a_process_that_is_slow_to_read_a_round_gets_it_although_the_others_have_left() {
    let metadata = memory();
    let slow = Unreliable::new(&metadata, 0);
    let mut ends = join_all(2, |rank| match rank {
        // Who has no limit leaves as well as others.
        0 => Group::of(Unreliable::new(&metadata, 0), "digits").timeout(Duration::MAX),
        _ => Group::of(slow.clone(), "digits"),
    });
    let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    for words in [2, 3000] {
        slow.is_shut.store(true, Ordering::SeqCst);
        let mine = vec![2; words];
        thread::scope(|scope| {
            let slowly = scope.spawn(|| second.all_gather(&mine));
            // It has entered the round, and reads nothing yet.
            assert_eq!(first.all_gather(&vec![1; words]).unwrap().len(), 2 * words);
            if words == 3000 {
                first.resign("it is done");
            }
            slow.is_shut.store(false, Ordering::SeqCst);
            assert_eq!(slowly.join().unwrap().unwrap(), [vec![1; words], mine.clone()].concat());
        });
    }
    match second.all_gather(&[1]).unwrap_err() {
        CollectiveError::Left { rank: 0, reason, .. } => assert_eq!(reason.as_deref(), Some("it is done")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_that_was_cut_off_and_the_others_hear_of_it() {
    let metadata = memory();
    let found = run(join_all(3, |_| group(&metadata)), {
        let metadata = metadata.clone();
        let meet = Arc::new(std::sync::Barrier::new(3));
        move |end| {
            end.all_gather(&[1]).unwrap();
            meet.wait();
            if end.rank() == 2 {
                let_die(&metadata, 2);
            }
            meet.wait();
            end.all_gather(&[1]).unwrap_err()
        }
    });
    for error in &found[..2] {
        assert!(matches!(error, CollectiveError::Left { rank: 2, reason: None, .. }), "{error:?}");
    }
    assert!(found[2].to_string().contains("it was not kept alive in time"), "{}", found[2]);
}

#[test]
fn who_left_because_of_another_is_not_the_one_that_is_named() {
    let metadata = memory();
    let found = run(join_all(3, |_| group(&metadata)), {
        let metadata = metadata.clone();
        move |end| match end.rank() {
            0 => {
                until("the other has left", || {
                    keys(&metadata).iter().any(|key| key.ends_with("left/000001"))
                });
                drop(end);
                None
            }
            1 => {
                end.resign("the disk is full");
                until("the first has gone", || {
                    !keys(&metadata).iter().any(|key| key.ends_with("ranks/000000"))
                });
                None
            }
            _ => {
                until("both have gone", || !keys(&metadata).iter().any(|key| key.ends_with("ranks/000000")));
                Some(end.all_gather(&[1]).unwrap_err())
            }
        }
    });
    match &found[2] {
        Some(CollectiveError::Left { rank: 1, reason: Some(reason), .. }) => {
            assert_eq!(&**reason, "the disk is full")
        }
        other => panic!("{other:?}"),
    }
}
