//! How many records may be bad: per epoch, in every order, and after a resume.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use percolator::bad::BadRecords;
use percolator::order::Ranks;
use percolator::record::RecordId;
use percolator::source::FnSource;
use percolator::{Device, Feed, FeedBuilder, FeedError, LastBatch, Snapshot};

use crate::bad_policy::{decode, feed, fields, steps};
use crate::common::process::must_end;

/// A feed of so many lanes that skips bad records, of which each epoch may have some in a lane.
fn limited(feed: FeedBuilder, lanes: usize, size: usize, at_most: u64) -> FeedBuilder {
    let policy = BadRecords::skip().at_most_rate(1.0).at_most(at_most);
    feed.devices((0..lanes).map(Device::host)).batch_size(size).bad_records(policy)
}

#[test]
fn more_than_may_be_bad_end_the_feed_at_the_same_batch_for_any_number_of_threads() {
    let bad: BTreeSet<u64> = [3, 4, 9, 15, 22].into();
    let error = |policy: BadRecords, threads: usize| {
        let (seen, error) = steps(feed(40, &bad).epochs(1).threads(threads).bad_records(policy), usize::MAX);
        (seen.len(), error.unwrap())
    };
    for threads in [1, 2, 4] {
        let (batches, found) = error(BadRecords::skip().at_most(3), threads);
        assert_eq!(batches, 3, "the batches before the record that is one too many");
        let FeedError::TooManyBad(too_many) = &found else { panic!("{found}") };
        assert_eq!((too_many.records, too_many.bad, too_many.allowed), (16, 4, 3));
        assert_eq!((found.record(), found.file()), (Some(15), Some(Path::new("made"))));
        let text = found.to_string();
        assert!(
            text.starts_with("lane 0: 4 of the first 16 records of epoch 0 are bad, and 3 may be"),
            "{text}"
        );
        assert!(text.contains("made: epoch 0, record 15, key \"00000015\": it says 1"), "{text}");
    }
    // A share is of 1,000 records at least.
    let (batches, found) = error(BadRecords::skip().at_most_rate(0.004), 2);
    assert!(matches!(found, FeedError::TooManyBad(_)), "{found}");
    assert_eq!(batches, 5);
    let (seen, none) = steps(feed(40, &bad).epochs(1).bad_records(BadRecords::skip()), usize::MAX);
    assert_eq!((seen.len(), none), (10, None), "5 of 1,000 are fewer than a hundredth");
}

#[test]
fn an_epoch_that_ends_inside_a_batch_has_its_own_count() {
    // Batches of 4 over 10 records: the last of each second epoch straddle.
    let bad = BTreeSet::from([9]);
    let limited = |most| feed(10, &bad).bad_records(BadRecords::skip().at_most(most));
    let (seen, error) = steps(limited(0), 20);
    assert!(matches!(error, Some(FeedError::TooManyBad(_))), "{error:?}");
    assert_eq!(seen.len(), 2);
    let (seen, error) = steps(limited(1), 20);
    assert_eq!((seen.len(), error), (20, None));
}

/// In a mixture the smaller database is passed over again and again within an epoch.
#[test]
fn limits_in_a_mixture_are_of_its_own_epochs() {
    let made = |name: &'static str, records: u64, bad: u64| {
        FnSource::new(name, records, move |position, to| {
            to.extend([0, u8::from(position == bad)]);
            Ok(())
        })
    };
    // An epoch of the mixture has 40 records of each, so the bad one comes four times.
    let mixed = |most| {
        let builder = Feed::builder().source(made("small", 10, 3)).source(made("large", 40, 100));
        let builder = builder.decode(fields(), decode).batch_size(8).mix([1, 1]).epochs(2);
        builder.last_batch(LastBatch::Wrap).bad_records(BadRecords::skip().at_most(most).at_most_rate(1.0))
    };
    let (whole, error) = steps(mixed(4), usize::MAX);
    assert_eq!((whole.len(), error), (20, None));
    let (_, error) = steps(mixed(3), usize::MAX);
    let Some(FeedError::TooManyBad(excess)) = error else { panic!("{error:?}") };
    assert_eq!((excess.epoch, excess.bad, excess.allowed), (0, 4, 3));
    // A run that resumes goes on with the count.
    let mut feed = mixed(4).build().unwrap();
    feed.steps().take(5).for_each(|step| drop(step.unwrap()));
    let snapshot = feed.snapshot().unwrap();
    assert_eq!(snapshot.bad_records(), 2);
    assert_eq!(steps(mixed(4).resume(&snapshot), usize::MAX).1, None);
    let (_, error) = steps(mixed(3).resume(&snapshot), usize::MAX);
    assert!(matches!(error, Some(FeedError::TooManyBad(excess)) if excess.bad == 4));
}

/// In round-robin order, where a snapshot counts steps and its records count passes.
#[test]
fn a_rank_that_resumes_from_another_ones_snapshot_goes_on_with_its_count_of_the_pass() {
    must_end("two ranks of four records a pass each", || {
        let rank = |rank: usize, at_most| {
            let policy = BadRecords::skip().at_most_rate(1.0).at_most(at_most);
            feed(8, &[0, 7].into()).share(Ranks { first: rank, of: 2 }).batch_size(2).bad_records(policy)
        };
        let mut before = rank(0, 1).build().unwrap();
        // The first step of the second pass has record 0.
        let seen: Vec<usize> = before.steps().take(3).map(|step| step.unwrap()[0].len()).collect();
        assert_eq!(seen, [1, 2, 1]);
        let snapshot = before.snapshot().unwrap();
        let resumed = |at_most| rank(1, at_most).resume(&snapshot).build().unwrap().steps().next().unwrap();
        let step = resumed(2).unwrap();
        assert_eq!(step[0].records(), [RecordId { epoch: 1, index: 5 }]);
        let error = resumed(1).unwrap_err();
        assert!(matches!(&error, FeedError::TooManyBad(error) if error.bad == 2), "{error}");
    });
}

/// Lanes may be some steps apart, and then in different passes.
#[test]
fn a_job_that_takes_over_in_round_robin_order_counts_from_the_pass_that_it_begins_in() {
    must_end("two lanes, then others", || {
        let feed = |lanes, size, at_most| limited(feed(5, &[0].into()), lanes, size, at_most);
        let mut before = feed(2, 2, 1).build().unwrap();
        let mut lanes = before.take_lanes().unwrap();
        // The first one has record 0, which is bad, of the passes 0 and 2; the second has that of pass 1 to
        // come.
        for (lane, batches) in [(0, 3), (1, 1)] {
            lanes[lane].by_ref().take(batches).for_each(|batch| drop(batch.unwrap()));
        }
        let snapshot = before.snapshot().unwrap();
        assert_eq!(snapshot.bad_records(), 1);
        drop((lanes, before));
        for (lanes, size) in [(1, 2), (1, 4), (2, 1)] {
            let first = |at_most| {
                let mut resumed = feed(lanes, size, at_most).resume(&snapshot).build().unwrap();
                resumed.take_lanes().unwrap()[0].next().unwrap()
            };
            let bad = first(1).unwrap().bad_records()[0].id;
            assert_eq!(bad, RecordId { epoch: 1, index: 0 }, "{lanes} lanes");
            // Of two lanes the other one's error may come first, and ends both.
            if lanes == 1 {
                let error = first(0).unwrap_err();
                let FeedError::TooManyBad(excess) = &error else { panic!("{error}") };
                assert_eq!((excess.epoch, excess.bad), (1, 1), "{error}");
            }
        }
    });
}

/// What one job leaves to another may have records of two passes, in steps of the first.
#[test]
fn a_job_that_is_cut_in_what_another_one_left_goes_on_with_its_own_count() {
    must_end("two lanes, then one, twice", || {
        let feed = |lanes, size, at_most| limited(feed(10, &[1, 3].into()), lanes, size, at_most);
        let mut first = feed(2, 4, 2).build().unwrap();
        let mut lanes = first.take_lanes().unwrap();
        for (lane, batches) in [(0, 2), (1, 1)] {
            lanes[lane].by_ref().take(batches).for_each(|batch| drop(batch.unwrap()));
        }
        let left = first.snapshot().unwrap();
        drop((lanes, first));
        // Record 9 of pass 0, and 1 and 3 of pass 1, which are bad.
        let go_on = |from: &Snapshot, steps: usize| {
            let mut feed = feed(1, 1, 1).resume(from).build().unwrap();
            let seen: Vec<bool> = feed.steps().take(steps).map(|step| step.is_ok()).collect();
            (seen, feed.snapshot().unwrap())
        };
        assert_eq!(go_on(&left, 3).0, [true, true, false]);
        let (seen, cut) = go_on(&left, 2);
        assert_eq!((seen, cut.bad_records()), (vec![true, true], 1));
        assert_eq!(go_on(&cut, 1).0, [false], "the second bad record of pass 1");
    });
}

#[test]
fn counts_of_a_snapshot_are_refused_beyond_all_bounds_and_are_no_panic_below() {
    let policy = BadRecords::skip().at_most_rate(1.0);
    let feed = || {
        let devices = [0, 1].map(Device::host);
        feed(16, &[0, 4].into()).devices(devices).epochs(1).bad_records(policy.clone())
    };
    let mut before = feed().build().unwrap();
    before.steps().next().unwrap().unwrap();
    let text = before.snapshot().unwrap().to_string();
    let (stated, _) = text.rsplit_once("checksum ").unwrap();
    let of = |most: u64| {
        let stated = stated.replace("bad 1 of 4 records", &format!("bad {most} of {most} records"));
        assert_eq!(stated.matches(&most.to_string()).count(), 4, "two replicas: {text}");
        format!("{stated}checksum {:08x}\n", crc32c::crc32c(stated.as_bytes())).parse::<Snapshot>()
    };
    assert!(of(u64::MAX).is_err() && of((1 << 43) + 1).is_err());
    let snapshot = of(1 << 43).unwrap();
    assert_eq!(snapshot.bad_records(), 1 << 44);
    let mut resumed = feed().resume(&snapshot).build().unwrap();
    assert_eq!(resumed.steps().flat_map(Result::unwrap).map(|batch| batch.len()).sum::<usize>(), 8);
    // One replica that takes over from two.
    let alone = feed().devices([Device::host(0)]).batch_size(8).resume(&snapshot).build();
    assert_eq!(alone.unwrap().steps().flat_map(Result::unwrap).map(|batch| batch.len()).sum::<usize>(), 8);
}
