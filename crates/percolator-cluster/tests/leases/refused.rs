//! What cannot be leased, or is not the same job.

use percolator::order::{Assignment, World};
use percolator::{FeedError, LastBatch, Shuffle};
use percolator_cluster::leases::{Job, LeaseError, Leases};
use percolator_cluster::metadata::Transaction;

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
    refused(same(), feed(1).seed(4), "data set, or order of it");
    refused(same(), feed(1).shuffle(Shuffle::No), "data set, or order of it");
    drop(first);
}

#[test]
fn two_workers_have_two_names() {
    let metadata = memory();
    let first = leases(&metadata).worker("one").feed(feed(1)).unwrap();
    let error = leases(&metadata).worker("one").feed(feed(1)).unwrap_err();
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
    let error = refused(feed(1).worker(World::new(2, 2).unwrap(), 1));
    assert!(matches!(error, LeaseError::Of(FeedError::Config(_))), "{error}");
    let zero = |found: Result<_, LeaseError>| assert!(matches!(found, Err(LeaseError::Zero { .. })));
    zero(leases(&metadata).steps_per_block(0).feed(feed(1)).map(drop));
    zero(leases(&metadata).acknowledge_every(0).feed(feed(1)).map(drop));
    zero(leases(&metadata).ttl(std::time::Duration::ZERO).feed(feed(1)).map(drop));
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
