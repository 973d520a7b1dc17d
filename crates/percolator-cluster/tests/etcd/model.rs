//! etcd and the records in memory, side by side: whatever is asked of both, both say the same, but for where
//! revisions begin and which numbers leases have.

use std::cell::Cell;
use std::time::Duration;

use percolator_cluster::metadata::{
    LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Record, Revision, Transaction,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::server::Etcd;

const KEYS: [&str; 5] = ["a", "a/b", "a/c", "b", "\u{fc}"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "b", "\u{fc}", "z"];
const LONG: Duration = Duration::from_secs(600);

/// Keys, leases and revisions by their places among those that are known.
#[derive(Clone, Debug)]
enum Step {
    Transact(Vec<(usize, Condition)>, Vec<(usize, Option<Option<usize>>, u8)>),
    Grant,
    KeepAlive(usize),
    Revoke(usize),
    Read(usize),
    Wait(usize, usize),
}

#[derive(Clone, Debug)]
enum Condition {
    Missing,
    /// As it is, or as it was.
    Modified(usize),
    HeldBy(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = 0..8usize;
    let condition = prop_oneof![
        2 => Just(Condition::Missing),
        3 => (0..40usize).prop_map(Condition::Modified),
        1 => place.clone().prop_map(Condition::HeldBy),
    ];
    let conditions = vec((0..KEYS.len(), condition), 0..3);
    let put = prop_oneof![2 => Just(None), 1 => place.clone().prop_map(Some)];
    let change = prop_oneof![3 => put.prop_map(Some), 1 => Just(None)];
    let changes = vec((0..KEYS.len(), change, any::<u8>()), 0..4);
    let step = prop_oneof![
        8 => (conditions, changes).prop_map(|(conditions, changes)| Step::Transact(conditions, changes)),
        1 => Just(Step::Grant),
        1 => place.clone().prop_map(Step::KeepAlive),
        1 => place.prop_map(Step::Revoke),
        2 => (0..PREFIXES.len()).prop_map(Step::Read),
        1 => (0..PREFIXES.len(), 0..40usize).prop_map(|(prefix, revision)| Step::Wait(prefix, revision)),
    ];
    vec(step, 1..25)
}

/// One of the two, with the numbers that it gave.
struct Side<'a> {
    metadata: &'a dyn Metadata,
    /// Its revision at the start.
    start: i64,
    leases: Vec<LeaseId>,
}

/// What a side says, without the numbers that are its own.
#[derive(Debug, PartialEq)]
enum Said {
    Committed(i64),
    /// Revisions count from the start, and leases by their places.
    Records(i64, Vec<Record>),
    Expired(usize),
    Refused(String),
    Done,
}

impl<'a> Side<'a> {
    fn new(metadata: &'a dyn Metadata) -> Self {
        // The first is never given.
        Side { metadata, start: metadata.read("").unwrap().revision.0, leases: vec![LeaseId(0)] }
    }

    fn lease(&self, place: usize) -> LeaseId {
        self.leases[place % self.leases.len()]
    }

    fn place(&self, lease: LeaseId) -> usize {
        self.leases.iter().position(|&known| known == lease).unwrap()
    }

    /// A revision since the start, or shortly before it.
    fn revision(&self, place: usize) -> Revision {
        Revision(self.start - 1 + i64::try_from(place).unwrap())
    }

    fn records(&self, revision: Revision, records: Vec<Record>) -> Said {
        let since = |revision: Revision| Revision(revision.0 - self.start);
        let place = |lease| LeaseId(i64::try_from(self.place(lease)).unwrap());
        let records = records.into_iter().map(|Record { key, value, created, modified, lease }| {
            let (created, modified) = (since(created), since(modified));
            Record { key, value, created, modified, lease: lease.map(place) }
        });
        Said::Records(revision.0 - self.start, records.collect())
    }

    fn failed(&self, error: MetadataError) -> Said {
        match error {
            MetadataError::LeaseExpired { lease } => Said::Expired(self.place(lease)),
            MetadataError::Transaction { message } => Said::Refused(message),
            error => panic!("{error:?}"),
        }
    }

    fn take(&mut self, step: &Step) -> Said {
        match step {
            Step::Transact(conditions, changes) => {
                let mut transaction = Transaction::new();
                for (key, condition) in conditions {
                    let key = KEYS[*key];
                    transaction = match condition {
                        Condition::Missing => transaction.when_missing(key),
                        Condition::Modified(place) => transaction.when_modified(key, self.revision(*place)),
                        Condition::HeldBy(place) => transaction.when_held_by(key, self.lease(*place)),
                    };
                }
                for (key, change, value) in changes {
                    let key = KEYS[*key];
                    transaction = match change {
                        None => transaction.remove(key),
                        Some(None) => transaction.put(key, [*value]),
                        Some(Some(lease)) => transaction.put_under(self.lease(*lease), key, [*value]),
                    };
                }
                match self.metadata.transact(&transaction) {
                    Ok(Outcome::Committed(revision)) => Said::Committed(revision.0 - self.start),
                    Ok(Outcome::Refused(found)) => self.records(found.revision, found.records),
                    Err(error) => self.failed(error),
                }
            }
            Step::Grant => {
                let lease = self.metadata.grant(LONG).unwrap();
                assert!(!self.leases.contains(&lease));
                self.leases.push(lease);
                Said::Done
            }
            Step::KeepAlive(place) => match self.metadata.keep_alive(self.lease(*place)) {
                Ok(ttl) => {
                    assert_eq!(ttl, LONG);
                    Said::Done
                }
                Err(error) => self.failed(error),
            },
            Step::Revoke(place) => {
                self.metadata.revoke(self.lease(*place)).unwrap();
                Said::Done
            }
            Step::Read(prefix) => {
                let found = self.metadata.read(PREFIXES[*prefix]).unwrap();
                self.records(found.revision, found.records)
            }
            Step::Wait(..) => Said::Done,
        }
    }
}

#[test]
fn etcd_and_memory_say_the_same() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let cases = Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let result = runner.run(&steps(), |steps| {
        let prefix = format!("/{}/", cases.replace(cases.get() + 1));
        let (model, records) = (MemoryMetadata::new(), etcd.records(&prefix));
        let (mut model, mut records) = (Side::new(&model), Side::new(&records));
        for step in &steps {
            let (due, found) = (model.take(step), records.take(step));
            match (&found, &due, step) {
                // Either may be named of two that have ended.
                (Said::Expired(found), Said::Expired(_), Step::Transact(..)) => {
                    let lease = model.lease(*found);
                    assert!(model.metadata.keep_alive(lease).is_err(), "{step:?}: {lease} lasts");
                }
                _ => assert_eq!(found, due, "{step:?}"),
            }
            if let Step::Wait(prefix, place) = step {
                let waited = |side: &Side<'_>| {
                    side.metadata.wait(PREFIXES[*prefix], side.revision(*place), Duration::ZERO).unwrap()
                };
                // It may say so where nothing has changed, but not the other way round.
                assert!(waited(&records) || !waited(&model), "{step:?}");
            }
        }
        for lease in records.leases.clone() {
            records.metadata.revoke(lease).unwrap();
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
