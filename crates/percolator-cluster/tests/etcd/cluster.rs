//! Three members, of which some fail: calls go on, and no record that was committed is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Lease, Metadata, MetadataError, Outcome, Transaction};

use crate::server::{Etcd, Stop, control, until};

/// Which member leads.
pub(crate) fn leader(members: &[Etcd]) -> usize {
    let all: Vec<_> = members.iter().collect();
    let status = control(&all, &["endpoint", "status", "-w", "simple"]);
    // endpoint, member, version, size, does it lead?
    let line = status.lines().find(|line| line.split(", ").nth(4) == Some("true")).expect("one leads");
    let url = line.split(", ").next().unwrap();
    members.iter().position(|member| member.url == url).unwrap()
}

/// Puts record after record, each once, until it is told to stop. Returns those that were certainly put.
fn write(records: &EtcdMetadata, count: &AtomicUsize, stop: &AtomicBool) -> BTreeSet<String> {
    let mut committed = BTreeSet::new();
    for number in 0.. {
        let key = format!("n/{number:05}");
        let once = Transaction::new().when_missing(&key).put(&key, "");
        let mut is_tried = false;
        loop {
            match records.transact(&once) {
                Ok(Outcome::Committed(_)) => break,
                Ok(Outcome::Refused(_)) => {
                    assert!(is_tried, "nobody else puts {key}");
                    break;
                }
                // It may have happened: trying again tells.
                Err(MetadataError::Unreachable { .. }) => is_tried = true,
                Err(error) => panic!("{key}: {error:?}"),
            }
        }
        committed.insert(key);
        count.fetch_add(1, Ordering::Relaxed);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    committed
}

#[test]
fn members_fail_and_no_record_is_lost() {
    let Some(mut members) = Etcd::start_cluster::<3>() else { return };
    let urls: Vec<_> = members.iter().map(|member| member.url.clone()).collect();
    let options = EtcdOptions::new(urls).deadline(Duration::from_secs(2));
    let records = Arc::new(EtcdMetadata::connect(&options).unwrap());
    let lease = Lease::keep(records.clone(), Duration::from_secs(30)).unwrap();
    records.transact(&Transaction::new().put_under(lease.id(), "held", "")).unwrap();
    let count = AtomicUsize::new(0);
    let goes_on = |what: &str| {
        let before = count.load(Ordering::Relaxed);
        until(what, || count.load(Ordering::Relaxed) > before + 20);
    };
    let committed = thread::scope(|scope| {
        let stop = Stop::default();
        let flag = stop.flag();
        let (records, count) = (&records, &count);
        let writer = scope.spawn(move || write(records, count, &flag));
        goes_on("all are there");
        let follower = (leader(&members) + 1) % 3;
        members[follower].kill();
        goes_on("a follower is killed");
        members[follower].run();
        let alone = members[follower].options();
        assert!(members[follower].is_ready(&alone));
        goes_on("it is back");
        let first = leader(&members);
        members[first].kill();
        goes_on("the leader is killed");
        members[first].run();
        let alone = members[first].options();
        assert!(members[first].is_ready(&alone));
        let second = leader(&members);
        members[second].pause();
        goes_on("the leader is paused");
        members[second].go_on();
        goes_on("it goes on");
        drop(stop);
        writer.join().unwrap()
    });
    assert!(lease.is_alive() && !lease.has_ended());
    for member in &members {
        let alone = member.records("");
        let mut found = alone.read("n/");
        until("it answers", || {
            found = alone.read("n/");
            found.is_ok()
        });
        let found: BTreeSet<_> = found.unwrap().records.into_iter().map(|record| record.key).collect();
        assert!(committed.is_subset(&found), "lost: {:?}", committed.difference(&found).collect::<Vec<_>>());
        assert!(found.len() <= committed.len() + 1, "only the last may be uncertain");
        assert!(alone.read("held").unwrap().get("held").is_some());
    }
}
