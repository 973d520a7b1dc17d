//! What cannot be leased, or is not the same job.

use std::sync::Arc;
use std::time::Duration;

use percolator::order::{Assignment, JobWorker, World};
use percolator::{FeedError, LastBatch, Shuffle};
use percolator_cluster::clock::ManualClock;
use percolator_cluster::leases::{Job, LeaseError, Leases};
use percolator_cluster::metadata::{MemoryMetadata, Metadata, Transaction};

use crate::faults::Faulty;
use crate::{feed, leases, memory};

#[test]
fn another_job_of_the_same_name_is_refused() {
    let metadata = memory();
    let first = leases(&metadata).feed(feed(1)).unwrap();
    let refused = |leases: Leases, feed, due: &str| match leases.feed(feed) {
        Err(LeaseError::OtherJob { what, .. }) => assert_eq!(what, due),
        other => panic!("{other:?}"),
    };
    let same = || leases(&metadata);
    refused(same(), feed(1).epochs(3), "number of epochs");
    refused(same().steps_per_block(4), feed(1), "size of a block in steps");
    refused(same(), feed(2), "number of steps of an epoch");
    refused(same().duplicate_slow(), feed(1), "share below which slow blocks are duplicated");
    refused(same(), feed(1).seed(4), "data set, or order of it");
    refused(same(), feed(1).shuffle(Shuffle::No), "data set, or order of it");
    drop(first);
}

#[test]
fn two_workers_have_two_names() {
    let metadata = memory();
    let first = leases(&metadata).worker("one").feed(feed(1)).unwrap();
    let second = leases(&metadata).worker("one").patience(Duration::from_millis(50));
    let error = second.feed(feed(1)).unwrap_err();
    assert!(matches!(&error, LeaseError::SameName { pid, .. } if *pid == std::process::id()), "{error}");
    drop(first);
    assert!(leases(&metadata).worker("one").feed(feed(1)).is_ok(), "it has gone");
    for (job, worker) in [("a/b", "one"), ("", "one"), ("numbers", "a/b"), ("numbers", "\n")] {
        let leases = Leases::of(metadata.clone(), job).worker(worker);
        assert!(matches!(leases.feed(feed(1)), Err(LeaseError::Name { .. })), "{job:?} {worker:?}");
    }
}

#[test]
fn a_feed_that_cannot_be_leased_is_refused() {
    let metadata = memory();
    let refused = |feed| leases(&metadata).feed(feed).unwrap_err();
    let error = refused(feed(1).last_batch(LastBatch::Wrap));
    assert!(matches!(error, LeaseError::Feed { .. }), "{error}");
    // Caffe's order wraps if nothing else is said; `feed` says so.
    let source = percolator::source::FnSource::new("numbers", 103, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let caffes = percolator::Feed::builder().source(source).decoder(percolator::RawBytes::fixed());
    let error = refused(caffes.batch_size(4).assignment(Assignment::Caffe).epochs(5));
    assert!(matches!(error, LeaseError::Feed { .. }), "{error}");
    let error = refused(feed(1).share(JobWorker { world: World::new(2, 2).unwrap(), number: 1 }));
    assert!(matches!(error, LeaseError::Of(FeedError::Config(_))), "{error}");
    let zero = |found: Result<_, LeaseError>| assert!(matches!(found, Err(LeaseError::Zero { .. })));
    zero(leases(&metadata).steps_per_block(0).feed(feed(1)).map(drop));
    zero(leases(&metadata).acknowledge_every(0).feed(feed(1)).map(drop));
    zero(leases(&metadata).ttl(Duration::ZERO).feed(feed(1)).map(drop));
    for share in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
        let error = leases(&metadata).duplicate_below(share).feed(feed(1)).unwrap_err();
        assert!(matches!(error, LeaseError::Share { .. }), "{error}");
    }
    assert_eq!(metadata.read("").unwrap().records, [], "nothing was begun");
}

/// Each record in turn is damaged: an error that names it, or the record does not matter any more.
#[test]
fn damaged_records_are_named() {
    let damages = [&b"{"[..], b"[]", b"\xff", b"{\"version\":2}", b""];
    for (damage, place) in damages.into_iter().flat_map(|damage| (0..4).map(move |place| (damage, place))) {
        let metadata = memory();
        let mut leased = leases(&metadata).feed(feed(1)).unwrap();
        for _ in 0..4 {
            leased.next().unwrap().unwrap();
        }
        drop(leased);
        // The job, the next block, an open one, a receipt.
        let mut keys: Vec<_> =
            metadata.read("").unwrap().records.into_iter().map(|record| record.key).collect();
        keys.dedup_by(|next, before| [next, before].iter().all(|key| key.contains("/open/")));
        let key = &keys[place];
        metadata.transact(&Transaction::new().put(&**key, damage)).unwrap();
        let job = Job::open(metadata.clone(), "numbers");
        let errors = [
            job.as_ref().err().map(ToString::to_string),
            job.as_ref().ok().and_then(|job| job.status().err()).map(|error| error.to_string()),
            job.as_ref().ok().and_then(|job| job.receipts().err()).map(|error| error.to_string()),
        ];
        let error = errors.into_iter().flatten().next().unwrap_or_else(|| panic!("{key} {damage:?}"));
        assert!(error.contains(&format!("{key:?}")), "{error}");
        if key.contains("/receipts/") {
            continue;
        }
        let error = match leases(&metadata).feed(feed(1)) {
            Err(error) => error.to_string(),
            Ok(leased) => leased.filter_map(Result::err).next().unwrap().to_string(),
        };
        assert!(error.contains(key), "{error}");
    }
}

/// A worker that died without a word, and is started again at once, finds its own name.
#[test]
fn a_name_is_waited_for() {
    let clock = ManualClock::new();
    let shared = MemoryMetadata::with_clock(clock.clone());
    let cable = Faulty::new(&shared, 0);
    let ttl = Duration::from_secs(100_000);
    let join =
        |metadata: Arc<dyn Metadata>| leases(&metadata).worker("one").ttl(ttl).patience(ttl).feed(feed(1));
    let died = join(cable.clone()).unwrap();
    cable.cut_off();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| join(Arc::new(shared)).map(|leased| leased.worker().to_owned()));
        clock.advance(ttl);
        assert_eq!(again.join().unwrap().unwrap(), "one");
    });
    drop(died);
}

/// Numbers that were put there by hand, and would end the job early, or hand out what it has not.
#[test]
fn forged_numbers_are_refused() {
    let forged = [
        (
            "next",
            r#"{"epoch":0,"number":9}"#,
            "block 9 of epoch 0 is next, and the job has 2 epochs of 9 blocks",
        ),
        ("next", r#"{"epoch":2,"number":1}"#, "block 1 of epoch 2 is next"),
        ("next", r#"{"epoch":3,"number":0}"#, "block 0 of epoch 3 is next"),
        ("next", r#"{"epoch":18446744073709551615,"number":0}"#, "is next"),
        ("next", r#"{"epoch":0,"number":18446744073709551615}"#, "is next"),
        ("next", r#"{"epoch":-1,"number":0}"#, "invalid value"),
        (
            "open/0000000000-000000000009",
            r#"{"times":1,"acknowledged":0}"#,
            "the job has no block 9 of epoch 0",
        ),
        (
            "open/0000000002-000000000000",
            r#"{"times":1,"acknowledged":0}"#,
            "the job has no block 0 of epoch 2",
        ),
        (
            "open/0000000000-000000000008",
            r#"{"times":1,"acknowledged":2}"#,
            "2 steps of it are acknowledged, and it has 2",
        ),
        (
            "open/0000000000-000000000001",
            r#"{"times":1,"acknowledged":18446744073709551615}"#,
            "and it has 3",
        ),
        (
            "job",
            r#"{"version":1,"schedule":"","source":"","epochs":2,"steps_per_block":0,"steps":26}"#,
            "no steps",
        ),
    ];
    for (key, value, due) in forged {
        let metadata = memory();
        drop(leases(&metadata).feed(feed(1)).unwrap());
        let key = format!("/leases/numbers/live/{key}");
        metadata.transact(&Transaction::new().put(&*key, value)).unwrap();
        let error =
            Job::open(metadata.clone(), "numbers").and_then(|job| job.status()).unwrap_err().to_string();
        assert!(error.contains(due) && error.contains(&key), "{error}");
        let error = match leases(&metadata).feed(feed(1)) {
            Err(LeaseError::OtherJob { .. }) => continue,
            Err(error) => panic!("{error}"),
            Ok(leased) => leased.filter_map(Result::err).next().unwrap().to_string(),
        };
        assert!(error.contains(due) && error.contains(&key), "{error}");
    }
}
