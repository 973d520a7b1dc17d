//! One etcd that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use percolator_cluster::metadata::{
    EtcdMetadata, Lease, Metadata, MetadataError, Outcome, Revision, Transaction, VALUE_BYTES_MAX,
};

use crate::contract;
use crate::server::{Etcd, Stop, until};

const LONG: Duration = Duration::from_secs(60);

fn put(records: &dyn Metadata, key: &str, value: &str) -> Revision {
    match records.transact(&Transaction::new().put(key, value)).unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Refused(_) => unreachable!("it has no conditions"),
    }
}

#[test]
fn etcd_keeps_the_contract() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let jobs = AtomicUsize::new(0);
    // The prefix is as long as it may be, so the largest transaction is.
    let prefix = || format!("/{:0>478}/", jobs.fetch_add(1, Ordering::Relaxed));
    contract::check(&|| Arc::new(etcd.records(&prefix())));
}

#[test]
fn a_prefix_sees_its_own_records() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let (all, one, other) = (etcd.records(""), etcd.records("/a/"), etcd.records("/b/"));
    put(&one, "x", "1");
    put(&other, "x", "2");
    assert_eq!(one.read("").unwrap().get("x").unwrap().value, b"1");
    let found = all.read("").unwrap();
    let keys: Vec<_> = found.records.iter().map(|record| &*record.key).collect();
    assert_eq!(keys, ["/a/x", "/b/x"]);
    assert_eq!(etcd.control(&["get", "--print-value-only", "/b/x"]), "2\n", "etcd's own command finds it");
    // What others put there is read, or refused.
    etcd.control(&["put", "/a/y", "3"]);
    assert_eq!(one.read("y").unwrap().records[0].value, b"3");
    etcd.control(&["put", "/a/", ""]);
    assert_eq!(one.read("").unwrap().records[0].key, "");
}

#[test]
fn calls_may_come_from_another_runtime() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = || {
        let records = etcd.records("");
        put(&records, "a", "1");
        assert_eq!(records.read("").unwrap().records.len(), 1);
        // The client ends on the runtime's thread, too.
    };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { records() });
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    many.block_on(async { records() });
    let shared = Arc::new(etcd.records(""));
    let (one, other) = (shared.clone(), shared.clone());
    // Both wait on the same client while a third changes what they wait for.
    let waits = [one, other].map(|records| {
        many.spawn_blocking(move || {
            while records.read("b").unwrap().records.is_empty() {
                records.wait("b", Revision(0), LONG).unwrap();
            }
        })
    });
    put(&*shared, "b", "1");
    waits.into_iter().for_each(|wait| many.block_on(wait).unwrap());
}

#[test]
fn a_lease_that_is_not_kept_ends_with_its_records() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = Arc::new(etcd.records(""));
    let kept = Lease::keep(records.clone(), Duration::from_secs(1)).unwrap();
    let lost = records.grant(Duration::from_millis(1)).unwrap();
    let held = Transaction::new().put_under(kept.id(), "kept", "").put_under(lost, "lost", "");
    let Outcome::Committed(revision) = records.transact(&held).unwrap() else { panic!() };
    let mut seen = revision;
    while records.read("lost").unwrap().get("lost").is_some() {
        records.wait("lost", seen, LONG).unwrap();
        seen = records.read("lost").unwrap().revision;
    }
    assert!(matches!(records.keep_alive(lost), Err(MetadataError::LeaseExpired { lease }) if lease == lost));
    let both = Transaction::new().put_under(kept.id(), "a", "").put_under(lost, "b", "");
    assert!(matches!(records.transact(&both), Err(MetadataError::LeaseExpired { lease }) if lease == lost));
    // The other has been kept for at least as long.
    assert!(kept.is_alive() && records.read("kept").unwrap().get("kept").is_some());
    drop(kept);
    assert_eq!(records.read("").unwrap().records, []);
    assert!(matches!(records.grant(Duration::MAX), Err(MetadataError::Failed { .. })));
}

#[test]
fn many_and_large_records_are_read_page_by_page() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = etcd.records("/many/");
    for from in (0..1000).step_by(100) {
        let some = (from..from + 100).fold(Transaction::new(), |some, n| some.put(format!("n/{n:04}"), "v"));
        records.transact(&some).unwrap();
    }
    // Among the small ones are some as large as they may be.
    for n in [10, 500, 501, 999] {
        records.transact(&Transaction::new().put(format!("n/{n:04}"), vec![7; VALUE_BYTES_MAX])).unwrap();
    }
    let found = records.read("n/").unwrap();
    assert_eq!(found.records.len(), 1000);
    for (n, record) in found.records.iter().enumerate() {
        assert_eq!(record.key, format!("n/{n:04}"));
        let due = if [10, 500, 501, 999].contains(&n) { VALUE_BYTES_MAX } else { 1 };
        assert_eq!(record.value.len(), due);
    }
}

/// While pages are read, others move a mark from record to record: each read sees it exactly once.
#[test]
fn all_pages_are_of_one_moment() {
    const RECORDS: usize = 100;
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = etcd.records("");
    let all = (0..RECORDS).fold(Transaction::new(), |all, n| all.put(format!("{n:03}"), ""));
    records.transact(&all).unwrap();
    put(&records, "000", "here");
    thread::scope(|scope| {
        let stop = Stop::default();
        let (is_done, records) = (stop.flag(), &records);
        scope.spawn(move || {
            for step in 1.. {
                let (from, to) = ((step - 1) * 37 % RECORDS, step * 37 % RECORDS);
                let moved = Transaction::new().put(format!("{from:03}"), "").put(format!("{to:03}"), "here");
                records.transact(&moved).unwrap();
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..50 {
            let found = records.read("").unwrap();
            assert_eq!(found.records.len(), RECORDS);
            assert_eq!(found.records.iter().filter(|record| record.value == b"here").count(), 1);
        }
    });
}

#[test]
fn what_was_compacted_counts_as_a_change() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let records = etcd.records("");
    let first = put(&records, "a", "1");
    let last = (0..5).fold(first, |_, _| put(&records, "b", "1"));
    assert!(!records.wait("a", first, Duration::from_secs(1)).unwrap(), "nothing has changed");
    etcd.control(&["compact", &last.to_string()]);
    assert!(records.wait("a", first, LONG).unwrap(), "nobody knows any more");
    assert!(!records.wait("a", last, Duration::from_secs(1)).unwrap());
}

#[test]
fn a_full_etcd_says_so_and_still_removes() {
    let Some(etcd) = Etcd::start(&["--quota-backend-bytes=8000000"]) else { return };
    let records = etcd.records("");
    let mut number = 0;
    let error = loop {
        number += 1;
        let large = Transaction::new().put(format!("large{number}"), vec![1; VALUE_BYTES_MAX]);
        match records.transact(&large) {
            Ok(_) => assert!(number < 50, "it has no limit"),
            Err(error) => break error,
        }
    };
    let MetadataError::Full { message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("space exceeded") && message.contains("alarm disarm"), "{message}");
    assert!(matches!(records.grant(LONG), Err(MetadataError::Full { .. })));
    assert!(!records.read("large").unwrap().records.is_empty());
    records.transact(&Transaction::new().remove("large1")).unwrap();
    assert!(records.read("").unwrap().get("large1").is_none());
}

#[test]
fn endpoints_of_two_clusters_are_refused() {
    let (Some(mut one), Some(other)) = (Etcd::start(&[]), Etcd::start(&[])) else { return };
    let options = percolator_cluster::etcd::EtcdOptions::new([&*one.url, &*other.url]);
    let records = EtcdMetadata::connect(&options).unwrap();
    put(&records, "a", "1");
    one.kill();
    let mut found = records.read("");
    until("the other is asked", || {
        found = records.read("");
        !matches!(found, Err(MetadataError::Unreachable { .. }))
    });
    let error = found.unwrap_err();
    let MetadataError::Damaged { message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains(&other.url) && message.contains("endpoints of one cluster"), "{message}");
}
