//! How a group begins: whoever comes in whatever order, dies before it begins, or starts again.

use std::thread;

use percolator_cluster::collective::GroupError;
use percolator_distribute::{Collective as _, CollectiveError};

use super::*;

fn join(
    metadata: &Arc<dyn Metadata>,
    rank: usize,
    size: usize,
) -> thread::JoinHandle<Result<MetadataCollective, GroupError>> {
    let group = group(metadata).ttl(Duration::from_secs(3));
    thread::spawn(move || group.join(rank, size))
}

fn is_enlisted(metadata: &Arc<dyn Metadata>, rank: usize) -> bool {
    keys(metadata).iter().any(|key| key.ends_with(&format!("/live/ranks/{rank:06}")))
}

#[test]
fn a_process_that_dies_while_others_are_waited_for_may_start_again() {
    for is_last in [false, true] {
        let metadata = memory();
        let first = join(&metadata, 0, 3);
        until("the first has come", || is_enlisted(&metadata, 0));
        let dead = join(&metadata, 1, 3);
        until("the second has come", || is_enlisted(&metadata, 1));
        let_die(&metadata, 1);
        // It starts again before the group is complete, or when it seems to be.
        let again = (!is_last).then(|| join(&metadata, 1, 3));
        if !is_last {
            until("the second has come again", || is_enlisted(&metadata, 1));
        }
        let third = join(&metadata, 2, 3);
        let again = again.unwrap_or_else(|| join(&metadata, 1, 3));
        let [first, third] = [first, third].map(|thread| thread.join().unwrap().unwrap());
        // The one that died may have seen in time that its lease is gone, and joined once more: one of the
        // two is the second process.
        let [dead, again] = [dead, again].map(|thread| thread.join().unwrap());
        let second = match (dead, again) {
            (Ok(second), Err(_)) | (Err(_), Ok(second)) => second,
            both => panic!("{both:?}"),
        };
        let ends = [first, second, third];
        collectives::run(ends.into(), |end| {
            assert_eq!(end.all_gather(&[end.rank() as u64]).unwrap(), [0, 1, 2]);
        });
    }
}

#[test]
fn a_group_whose_maker_dies_before_it_begins_is_made_again() {
    let metadata = memory();
    let maker = join(&metadata, 0, 2);
    until("it has come", || is_enlisted(&metadata, 0));
    let_die(&metadata, 0);
    // It was only cut off, and makes the group anew when it sees that.
    let ends = [maker, join(&metadata, 1, 2)].map(|thread| thread.join().unwrap().unwrap());
    collectives::run(ends.into(), |end| assert_eq!(end.all_gather(&[3]).unwrap(), [3, 3]));
}

#[test]
fn processes_start_again_while_those_before_them_still_leave() {
    let metadata = memory();
    for round in 0..20_u64 {
        let ends = join_all(3, |_| group(&metadata));
        collectives::run(ends, move |end| {
            assert_eq!(end.all_gather(&[round, end.rank() as u64]).unwrap(), [round, 0, round, 1, round, 2]);
        });
    }
}

#[test]
fn two_jobs_do_not_see_each_other() {
    let metadata = memory();
    let ends = |job: &'static str| join_all(2, |_| Group::of(metadata.clone(), job));
    let (one, other) = (ends("one"), ends("other"));
    drop(other);
    collectives::run(one, |end| assert_eq!(end.all_gather(&[1]).unwrap(), [1, 1]));
}

#[test]
fn a_process_that_does_not_come_is_named() {
    let metadata = memory();
    let alone = group(&metadata).timeout(Duration::from_millis(50)).join(1, 4).unwrap_err();
    assert_eq!(
        alone.to_string(),
        "3 of the 4 processes of the job \"digits\" did not come within 50.0ms: 0, 2, 3"
    );
    assert_eq!(keys(&metadata), [""; 0]);
    // One that has come, and is not there when all meet.
    let mut ends = join_all(2, |_| group(&metadata).timeout(Duration::from_secs(2)));
    let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let late = first.all_gather(&[1]).unwrap_err();
    assert!(matches!(&late, CollectiveError::Late { missing, size: 2, .. } if *missing == [1]), "{late:?}");
    match second.all_gather(&[1]).unwrap_err() {
        CollectiveError::Left { rank: 0, reason: Some(reason), .. } => {
            assert!(reason.starts_with("process 1 of 2 did not come to the round within 2.0s"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_lives_under_a_rank_or_with_another_size_is_named() {
    let metadata = memory();
    let ttl = Duration::from_millis(200);
    let ends = join_all(2, |_| group(&metadata));
    let again = group(&metadata).ttl(ttl).join(1, 2).unwrap_err();
    let (host, pid) = match &again {
        GroupError::SameRank { rank: 1, host, pid, .. } => (host, *pid),
        other => panic!("{other:?}"),
    };
    assert_eq!(pid, std::process::id());
    assert!(!host.is_empty() && again.to_string().contains("has a process 1 already"), "{again}");
    let third = group(&metadata).ttl(ttl).join(2, 3).unwrap_err();
    assert!(matches!(third, GroupError::OtherSize { found: 3, stated: 2, .. }), "{third:?}");
    let due = "was begun with 2 process(es)";
    assert!(third.to_string().contains(due), "{third}");
    // Both went without a trace, and the group goes on.
    collectives::run(ends, |end| assert_eq!(end.all_gather(&[3]).unwrap(), [3, 3]));
}
