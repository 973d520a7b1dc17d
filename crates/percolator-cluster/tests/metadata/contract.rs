//! What holds for every implementation. None of the checks waits for a lease to end by itself: how long that
//! takes is not the same everywhere.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use percolator_cluster::metadata::{
    KEY_BYTES_MAX, LeaseId, Metadata, MetadataError, OPERATIONS_MAX, Outcome, Records, Revision, Transaction,
    VALUE_BYTES_MAX, VALUES_BYTES_MAX,
};

const LONG: Duration = Duration::from_secs(60);

/// Checks an implementation; `new` returns one without records.
pub(crate) fn check(new: &dyn Fn() -> Arc<dyn Metadata>) {
    records_are_read_by_prefix_in_order(&*new());
    a_transaction_changes_all_or_nothing(&*new());
    conditions_are_compared_at_once(&new());
    a_lease_takes_its_records_with_it(&*new());
    changes_are_waited_for(&new());
    what_cannot_be_is_refused(&*new());
    what_cannot_hold_does_not(&*new());
    a_refusal_comes_before_the_end_of_a_lease(&*new());
    what_happened_is_seen_at_once(&*new());
    the_largest_transaction_is_taken(&*new());
}

fn committed(found: Result<Outcome, MetadataError>) -> Revision {
    match found.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Refused(records) => panic!("refused: {records:?}"),
    }
}

fn refused(found: Result<Outcome, MetadataError>) -> Records {
    match found.unwrap() {
        Outcome::Committed(revision) => panic!("committed at {revision}"),
        Outcome::Refused(records) => records,
    }
}

fn keys(records: &Records) -> Vec<&str> {
    records.records.iter().map(|record| record.key.as_str()).collect()
}

fn records_are_read_by_prefix_in_order(metadata: &dyn Metadata) {
    assert_eq!(metadata.read("").unwrap().records, []);
    committed(metadata.transact(&Transaction::new().put("/b/2", "x").put("/a", "").put("/b/10", [0, 255])));
    let last = committed(metadata.transact(&Transaction::new().put("/b0", "y")));
    let found = metadata.read("/b/").unwrap();
    assert_eq!(keys(&found), ["/b/10", "/b/2"]);
    assert_eq!((found.revision, &found.records[0].value[..]), (last, &[0, 255][..]));
    assert_eq!(found.get("/b/2").unwrap().value, b"x");
    assert!(found.get("/a").is_none());
    assert_eq!(keys(&metadata.read("").unwrap()), ["/a", "/b/10", "/b/2", "/b0"]);
    assert_eq!(keys(&metadata.read("/c").unwrap()), [""; 0]);
}

fn a_transaction_changes_all_or_nothing(metadata: &dyn Metadata) {
    let first = committed(metadata.transact(&Transaction::new().when_missing("a").put("a", "1")));
    let record = metadata.read("a").unwrap().records[0].clone();
    assert_eq!((record.created, record.modified, record.lease), (first, first, None));
    let second = committed(
        metadata.transact(&Transaction::new().when_modified("a", first).put("a", "2").put("b", "2")),
    );
    assert!(second > first);
    let found = metadata.read("").unwrap();
    assert_eq!((found.records[0].created, found.records[0].modified), (first, second));
    assert_eq!((found.records[1].created, found.records[1].modified), (second, second));

    let stale = Transaction::new().when_modified("a", first).when_missing("c").put("c", "3").remove("b");
    let found = refused(metadata.transact(&stale));
    assert_eq!(keys(&found), ["a"], "the records of the conditions");
    assert_eq!((found.revision, &found.records[0].value[..]), (second, &b"2"[..]));
    assert_eq!(keys(&metadata.read("").unwrap()), ["a", "b"]);

    let third = committed(metadata.transact(&Transaction::new().remove("a").remove("nothing")));
    let again = committed(metadata.transact(&Transaction::new().when_missing("a").put("a", "4")));
    assert_eq!(metadata.read("a").unwrap().records[0].created, again);
    assert!(again > third && third > second);
    // Without changes it only compares.
    assert_eq!(committed(metadata.transact(&Transaction::new().when_modified("a", again))), again);
    assert_eq!(committed(metadata.transact(&Transaction::new().remove("nothing"))), again);
    assert_eq!(refused(metadata.transact(&Transaction::new().when_modified("z", again))).records, []);
}

/// Of many that count up one record, none is lost.
fn conditions_are_compared_at_once(metadata: &Arc<dyn Metadata>) {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let count_up = |metadata: &dyn Metadata| loop {
        let transaction = match metadata.read("count").unwrap().get("count") {
            None => Transaction::new().when_missing("count").put("count", "1"),
            Some(record) => {
                let count: usize = str::from_utf8(&record.value).unwrap().parse().unwrap();
                Transaction::new()
                    .when_modified("count", record.modified)
                    .put("count", (count + 1).to_string())
            }
        };
        if let Outcome::Committed(_) = metadata.transact(&transaction).unwrap() {
            return;
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..EACH).for_each(|_| count_up(&**metadata)));
        }
    });
    assert_eq!(metadata.read("count").unwrap().records[0].value, (THREADS * EACH).to_string().as_bytes());
}

fn a_lease_takes_its_records_with_it(metadata: &dyn Metadata) {
    let (one, other) = (metadata.grant(LONG).unwrap(), metadata.grant(LONG).unwrap());
    assert_ne!(one, other);
    assert!(metadata.keep_alive(one).unwrap() >= LONG);
    committed(metadata.transact(&Transaction::new().put_under(one, "a", "1").put_under(other, "b", "2")));
    committed(metadata.transact(&Transaction::new().put_under(one, "c", "3").put("d", "4")));
    let found = metadata.read("").unwrap();
    let leases: Vec<_> = found.records.iter().map(|record| record.lease).collect();
    assert_eq!(leases, [Some(one), Some(other), Some(one), None]);
    committed(metadata.transact(&Transaction::new().when_held_by("a", one).put("d", "5")));
    refused(metadata.transact(&Transaction::new().when_held_by("a", other).put("d", "6")));
    refused(metadata.transact(&Transaction::new().when_held_by("d", one).put("d", "6")));
    refused(metadata.transact(&Transaction::new().when_held_by("z", one).put("d", "6")));
    // A record that is put without the lease is no longer removed with it.
    committed(metadata.transact(&Transaction::new().put("c", "7")));
    let before = metadata.read("").unwrap().revision;
    metadata.revoke(one).unwrap();
    let found = metadata.read("").unwrap();
    assert_eq!(keys(&found), ["b", "c", "d"]);
    assert!(found.revision > before);
    metadata.revoke(one).unwrap();
    metadata.revoke(LeaseId(0x7fff_1234)).unwrap();
    let ended = |found: Result<(), MetadataError>, lease: LeaseId| match found {
        Err(MetadataError::LeaseExpired { lease: found }) => assert_eq!(found, lease),
        found => panic!("{found:?}"),
    };
    ended(metadata.keep_alive(one).map(drop), one);
    ended(metadata.transact(&Transaction::new().put_under(one, "e", "8")).map(drop), one);
    assert_eq!(keys(&metadata.read("").unwrap()), ["b", "c", "d"]);
    metadata.revoke(other).unwrap();
    // One for ever is granted or refused.
    if let Ok(longest) = metadata.grant(Duration::MAX) {
        assert!(metadata.keep_alive(longest).unwrap() >= LONG);
        metadata.revoke(longest).unwrap();
    }
}

fn changes_are_waited_for(metadata: &Arc<dyn Metadata>) {
    let start = committed(metadata.transact(&Transaction::new().put("/w/a", "1").put("/x", "1")));
    let before = Revision(start.0 - 1);
    assert!(metadata.wait("/w/", before, LONG).unwrap(), "it has happened already");
    committed(metadata.transact(&Transaction::new().put("/x", "2")));
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            // It may say so although nothing has changed.
            while metadata.read("/w/").unwrap().records.len() == 1 {
                metadata.wait("/w/", start, LONG).unwrap();
            }
        });
        committed(metadata.transact(&Transaction::new().put("/w/b", "1")));
        waits.join().unwrap();
    });
    let now = metadata.read("").unwrap().revision;
    let lease = metadata.grant(LONG).unwrap();
    let held = committed(metadata.transact(&Transaction::new().put_under(lease, "/w/c", "1")));
    assert!(held > now);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            while metadata.read("/w/c").unwrap().records.len() == 1 {
                metadata.wait("/w/", held, LONG).unwrap();
            }
        });
        metadata.revoke(lease).unwrap();
        waits.join().unwrap();
    });
    committed(metadata.transact(&Transaction::new().remove("/w/a")));
    assert!(metadata.wait("/w/", held, LONG).unwrap(), "removals count");
}

fn what_cannot_be_is_refused(metadata: &dyn Metadata) {
    let twice = Transaction::new().put("a", "1").put("a", "2");
    assert!(matches!(metadata.transact(&twice), Err(MetadataError::Transaction { .. })));
    assert_eq!(metadata.read("").unwrap().records, []);
    assert!(!metadata.place().is_empty());
}

/// No record was ever put at such a revision, or is held by such a lease: not even one that is not there.
fn what_cannot_hold_does_not(metadata: &dyn Metadata) {
    committed(metadata.transact(&Transaction::new().put("a", "1")));
    for key in ["a", "z"] {
        for revision in [0, -1, i64::MIN, i64::MAX] {
            let never = Transaction::new().when_modified(key, Revision(revision)).put("b", "2");
            refused(metadata.transact(&never));
        }
        for lease in [0, -1, i64::MIN, i64::MAX] {
            refused(metadata.transact(&Transaction::new().when_held_by(key, LeaseId(lease)).put("b", "2")));
        }
    }
    for lease in [0, -1, i64::MIN, i64::MAX].map(LeaseId) {
        let put = metadata.transact(&Transaction::new().put_under(lease, "b", "2"));
        assert!(
            matches!(put, Err(MetadataError::LeaseExpired { lease: found }) if found == lease),
            "{put:?}"
        );
        let kept = metadata.keep_alive(lease);
        assert!(
            matches!(kept, Err(MetadataError::LeaseExpired { lease: found }) if found == lease),
            "{kept:?}"
        );
        metadata.revoke(lease).unwrap();
    }
    assert_eq!(keys(&metadata.read("").unwrap()), ["a"]);
}

/// Conditions are compared first. The records of their keys come once each, in order.
fn a_refusal_comes_before_the_end_of_a_lease(metadata: &dyn Metadata) {
    let ended = metadata.grant(LONG).unwrap();
    metadata.revoke(ended).unwrap();
    let first =
        committed(metadata.transact(&Transaction::new().put("b", "1").put("a", "2").put("\u{fc}", "3")));
    let stale = Transaction::new()
        .when_modified("\u{fc}", first)
        .when_missing("b")
        .when_missing("x")
        .when_modified("b", first)
        .when_missing("a")
        .put_under(ended, "c", "4");
    assert_eq!(keys(&refused(metadata.transact(&stale))), ["a", "b", "\u{fc}"]);
    let ends = Transaction::new().when_modified("b", first).put("d", "5").put_under(ended, "c", "4");
    assert!(matches!(metadata.transact(&ends), Err(MetadataError::LeaseExpired { .. })));
    assert_eq!(keys(&metadata.read("").unwrap()), ["a", "b", "\u{fc}"], "nothing was changed");
}

fn what_happened_is_seen_at_once(metadata: &dyn Metadata) {
    let first = committed(metadata.transact(&Transaction::new().put("a", "1")));
    let last = committed(metadata.transact(&Transaction::new().remove("a")));
    for revision in [first, Revision(first.0 - 1), Revision(0), Revision(-5), Revision(i64::MIN)] {
        assert!(metadata.wait("", revision, Duration::ZERO).unwrap(), "after {revision}");
    }
    assert!(!metadata.wait("", Revision(i64::MAX), Duration::ZERO).unwrap());
    assert!(!metadata.wait("", last, Duration::ZERO).unwrap());
}

fn the_largest_transaction_is_taken(metadata: &dyn Metadata) {
    let key = |number: usize| format!("{number:03}").repeat(KEY_BYTES_MAX / 3);
    let rest = (VALUES_BYTES_MAX - VALUE_BYTES_MAX) / (OPERATIONS_MAX - 1);
    let largest = (0..OPERATIONS_MAX).fold(Transaction::new(), |largest, number| {
        let bytes = if number == 0 { VALUE_BYTES_MAX } else { rest };
        largest.when_missing(key(number)).put(key(number), vec![1; bytes])
    });
    committed(metadata.transact(&largest));
    assert_eq!(refused(metadata.transact(&largest)).records.len(), OPERATIONS_MAX);
    let larger = Transaction::new().put("a", vec![1; VALUE_BYTES_MAX]).put("b", vec![1; VALUE_BYTES_MAX]);
    assert!(matches!(metadata.transact(&larger), Err(MetadataError::Transaction { .. })));
}
