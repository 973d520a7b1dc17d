//! Processes that agree through a real etcd.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use percolator_cluster::collective::{Group, MetadataCollective};
use percolator_cluster::metadata::{EtcdMetadata, Metadata as _};
use percolator_distribute::{Collective as _, CollectiveError};

use crate::collectives::{rounds_bring_what_each_gave, run, who_has_given_may_leave};
use crate::server::{Etcd, until};

/// The ends of a group, each with a client of its own.
fn join_all(etcd: &Etcd, size: usize) -> Vec<MetadataCollective> {
    let start = |rank| {
        let records: EtcdMetadata = etcd.records("/jobs/");
        let group = Group::of(Arc::new(records), "digits").ttl(Duration::from_secs(5));
        thread::spawn(move || group.join(rank, size).unwrap())
    };
    let threads: Vec<_> = (0..size).map(start).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn rounds_go_through_etcd_and_nothing_grows() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    run(join_all(&etcd, 4), |end| rounds_bring_what_each_gave(&end));
    run(join_all(&etcd, 3), |end| who_has_given_may_leave(end, Some("the disk is full")));
    run(join_all(&etcd, 3), |end| who_has_given_may_leave(end, None));
    let records = etcd.records("/jobs/").read("/collective/").unwrap().records;
    // What was brought to the last rounds, and a word of each that left.
    assert!(records.len() <= 10 * 3, "{records:?}");
    assert!(records.iter().all(|record| record.lease.is_some()), "{records:?}");
}

#[test]
fn a_process_whose_lease_ends_is_named_and_a_pause_of_etcd_is_not_the_end() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut ends = join_all(&etcd, 3);
    let last = ends.pop().unwrap();
    let meet = |ends: &[MetadataCollective]| {
        thread::scope(|scope| {
            let enter = |end| scope.spawn(move || MetadataCollective::all_gather(end, &[5; 70]));
            let threads: Vec<_> = ends.iter().map(enter).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    };
    thread::scope(|scope| {
        // It has entered the round, and waits for the others while etcd is paused for less than a lease.
        let entered = scope.spawn(|| last.all_gather(&[5; 70]));
        let records = etcd.records("/jobs/");
        until("it has entered", || {
            let found = records.read("/collective/").unwrap().records;
            found.iter().any(|record| record.key.ends_with("/rounds/00000000000000000001/000002"))
        });
        etcd.pause();
        thread::sleep(Duration::from_millis(300));
        etcd.go_on();
        assert!(meet(&ends).into_iter().all(|found| found.unwrap() == [5; 210]));
        assert_eq!(entered.join().unwrap().unwrap(), [5; 210]);
    });
    let records = etcd.records("/jobs/");
    let found = records.read("/collective/").unwrap().records;
    let rank = found.iter().find(|record| record.key.ends_with("/ranks/000002")).unwrap();
    records.revoke(rank.lease.unwrap()).unwrap();
    for found in meet(&ends) {
        let error = found.unwrap_err();
        assert!(matches!(error, CollectiveError::Left { rank: 2, reason: None, .. }), "{error:?}");
    }
    let error = last.all_gather(&[5; 70]).unwrap_err();
    assert!(matches!(error, CollectiveError::Failed(_)), "{error:?}");
}
