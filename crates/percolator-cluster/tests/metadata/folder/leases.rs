//! Time, reboots, and removals that are no longer remembered.

use std::time::Duration;

use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Revision, Transaction};

use super::commit;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_lease_that_is_not_kept_alive_ends_with_its_records_for_all() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let open = || FolderMetadata::options().clock(clock.clone()).open(folder.path()).unwrap();
    let (one, other) = (open(), open());
    let lease = one.grant(10 * SECOND).unwrap();
    let last = commit(&one, &Transaction::new().put_under(lease, "a", "1").put("b", "2"));
    clock.advance(9 * SECOND);
    assert_eq!(other.keep_alive(lease).unwrap(), 10 * SECOND);
    clock.advance(9 * SECOND);
    assert_eq!(one.read("").unwrap().records.len(), 2);
    assert!(!other.wait("a", last, Duration::ZERO).unwrap());
    clock.advance(SECOND);
    assert!(other.wait("a", last, Duration::ZERO).unwrap(), "a look ends it");
    assert_eq!(one.read("").unwrap().records.len(), 1);
    let found = one.keep_alive(lease);
    assert!(matches!(found, Err(MetadataError::LeaseExpired { lease: found }) if found == lease));
    // Its number is not given again.
    drop((one, other));
    assert!(open().grant(SECOND).unwrap() > lease);
}

#[test]
fn the_longest_lease_does_not_end() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let records = FolderMetadata::options().clock(clock.clone()).open(folder.path()).unwrap();
    clock.advance(SECOND);
    let lease = records.grant(Duration::MAX).unwrap();
    clock.advance(1_000_000_000 * SECOND);
    assert!(records.keep_alive(lease).is_ok());
}

#[test]
fn all_leases_have_ended_after_a_reboot() {
    let folder = tempfile::tempdir().unwrap();
    let open = |boot| FolderMetadata::options().boot(boot).open(folder.path()).unwrap();
    let before = open(1);
    let lease = before.grant(Duration::MAX).unwrap();
    let last = commit(&before, &Transaction::new().put_under(lease, "a", "1").put("b", "2"));
    drop(before);
    let same = open(1);
    assert_eq!(same.read("").unwrap().records.len(), 2);
    drop(same);
    let after = open(2);
    let found = after.read("").unwrap();
    assert_eq!((found.records.len(), found.records[0].key.as_str()), (1, "b"));
    assert!(found.revision > last && after.wait("a", last, Duration::ZERO).unwrap());
    assert!(after.keep_alive(lease).is_err() && after.grant(SECOND).unwrap() > lease);
}

#[test]
fn another_machine_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let open = |boot| FolderMetadata::options().boot(boot).open(folder.path()).unwrap();
    let (here, _there) = (open(1), open(2));
    for found in [
        here.read("").map(drop),
        here.grant(SECOND).map(drop),
        here.transact(&Transaction::new().put("a", "1")).map(drop),
    ] {
        let error = found.unwrap_err();
        assert!(matches!(&error, MetadataError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("another machine uses the folder as well"), "{error}");
    }
}

/// Old removals are dropped; whoever waits for a change since then is told that there may have been one.
#[test]
fn removals_are_not_remembered_for_ever() {
    const EACH: usize = 128;
    const REMEMBERED: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let keys = || (0..EACH).map(|key| format!("/b/{key}"));
    let start = commit(&records, &Transaction::new().put("/a", "1"));
    let all =
        |transaction: fn(Transaction, String) -> Transaction| keys().fold(Transaction::new(), transaction);
    let mut last = start;
    for _ in 0..REMEMBERED / EACH {
        commit(&records, &all(|all, key| all.put(key, "")));
        last = commit(&records, &all(Transaction::remove));
    }
    assert!(!records.wait("/a", start, Duration::ZERO).unwrap(), "all are remembered");
    assert!(records.wait("/b/", start, Duration::ZERO).unwrap());
    commit(&records, &Transaction::new().put("/c", "1"));
    commit(&records, &Transaction::new().remove("/c"));
    assert!(records.wait("/a", start, Duration::ZERO).unwrap(), "the first are not");
    assert!(!records.wait("/a", last, Duration::ZERO).unwrap());
    assert!(records.wait("/c", last, Duration::ZERO).unwrap());
    let now = records.read("").unwrap().revision;
    assert!(!records.wait("", now, Duration::ZERO).unwrap());
    assert!(!records.wait("", Revision(i64::MAX), Duration::ZERO).unwrap());
    assert!(records.wait("", Revision(i64::MIN), Duration::ZERO).unwrap());
}
