//! A folder does what the records in memory do, revisions and leases included, whatever is asked of it.

use std::time::Duration;

use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{
    Condition, FolderMetadata, LeaseId, MemoryMetadata, Metadata, MetadataError, Outcome, Revision,
    Transaction,
};
use proptest::prelude::*;

use crate::process::sample::times;

const KEYS: [&str; 6] = ["/a", "/a/1", "/a/2", "/b", "/b\u{fc}", "c"];
const PREFIXES: [&str; 6] = ["", "/", "/a", "/a/", "/b", "x"];

#[derive(Clone, Debug)]
enum Step {
    /// Conditions, each with a key and a number; changes, each with a key, a lease and the bytes of a value.
    Transact(Vec<(u8, usize, i64)>, Vec<(u8, usize, i64, usize)>),
    Grant(u64),
    KeepAlive(i64),
    Revoke(i64),
    Pass(u64),
    Read(usize),
    Wait(usize, i64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let condition = (0..3_u8, 0..KEYS.len(), 0..4_i64);
    // Some values have pages of their own.
    let bytes = prop_oneof![0..40_usize, 4000..20_000_usize];
    let change = (0..3_u8, 0..KEYS.len(), 1..6_i64, bytes);
    let transact = (prop::collection::vec(condition, 0..2), prop::collection::vec(change, 0..5));
    let step = prop_oneof![
        8 => transact.prop_map(|(conditions, changes)| Step::Transact(conditions, changes)),
        2 => (0..6_u64).prop_map(Step::Grant),
        2 => (1..6_i64).prop_map(Step::KeepAlive),
        1 => (1..6_i64).prop_map(Step::Revoke),
        2 => (1..3_u64).prop_map(Step::Pass),
        2 => (0..PREFIXES.len()).prop_map(Step::Read),
        2 => (0..PREFIXES.len(), 0..6_i64).prop_map(|(prefix, ago)| Step::Wait(prefix, ago)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// The transaction of a step, when the last revision is `now`.
fn transaction(
    conditions: &[(u8, usize, i64)],
    changes: &[(u8, usize, i64, usize)],
    now: Revision,
) -> Transaction {
    let mut transaction = Transaction::new();
    for &(kind, key, number) in conditions {
        let key = KEYS[key].to_owned();
        transaction = transaction.when(match kind {
            0 => Condition::Missing(key),
            1 => Condition::Modified(key, Revision(now.0 - number)),
            _ => Condition::HeldBy(key, LeaseId(number)),
        });
    }
    for &(kind, key, lease, bytes) in changes {
        let value = vec![u8::try_from(bytes % 251).unwrap(); bytes];
        transaction = match kind {
            0 => transaction.put(KEYS[key], value),
            1 => transaction.put_under(LeaseId(lease), KEYS[key], value),
            _ => transaction.remove(KEYS[key]),
        };
    }
    transaction
}

/// Results in a form that can be compared.
fn shown<T: std::fmt::Debug>(found: Result<T, MetadataError>) -> String {
    match found {
        Ok(found) => format!("{found:?}"),
        Err(error) => error.to_string(),
    }
}

fn result(records: &dyn Metadata, step: &Step, now: Revision) -> String {
    match step {
        Step::Transact(conditions, changes) => {
            shown(records.transact(&transaction(conditions, changes, now)))
        }
        Step::Grant(seconds) => shown(records.grant(Duration::from_secs(*seconds))),
        Step::KeepAlive(lease) => shown(records.keep_alive(LeaseId(*lease))),
        Step::Revoke(lease) => shown(records.revoke(LeaseId(*lease))),
        Step::Read(prefix) => shown(records.read(PREFIXES[*prefix])),
        Step::Wait(prefix, ago) => {
            shown(records.wait(PREFIXES[*prefix], Revision(now.0 - ago), Duration::ZERO))
        }
        Step::Pass(_) | Step::Reopen => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(100, 30), ..ProptestConfig::default() })]

    #[test]
    fn a_folder_matches_the_records_in_memory(steps in steps()) {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let open = || FolderMetadata::options().clock(clock.clone()).open(folder.path()).unwrap();
        let (mut records, other) = (open(), open());
        let mut other = Some(other);
        let model = MemoryMetadata::with_clock(clock.clone());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Pass(seconds) => clock.advance(Duration::from_secs(*seconds)),
                // In half of the cases no other handle keeps the environment open.
                Step::Reopen => {
                    other = other.take().map_or_else(|| Some(open()), |_| None);
                    let place = records.place();
                    drop(records);
                    records = open();
                    prop_assert_eq!(records.place(), place);
                }
                step => {
                    let used = other.as_ref().filter(|_| number % 2 == 0).unwrap_or(&records);
                    let now = match model.transact(&Transaction::new()).unwrap() {
                        Outcome::Committed(now) => now,
                        Outcome::Refused(found) => panic!("{found:?}"),
                    };
                    prop_assert_eq!(result(used, step, now), result(&model, step, now), "step {}", number);
                }
            }
        }
        prop_assert_eq!(records.read("").unwrap(), model.read("").unwrap());
    }
}
