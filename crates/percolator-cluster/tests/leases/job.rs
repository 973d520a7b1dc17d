//! A job from its beginning to its end, as its workers and as others see it.

use std::sync::Arc;
use std::thread;

use percolator_cluster::leases::{BlockId, Job, LeaseError, LeaseStats};
use percolator_cluster::metadata::Metadata;

use crate::{assert_proven, counts, each_once, feed, leases, memory, records};

#[test]
fn one_worker_gets_every_record_of_every_epoch_once() {
    for lanes in [1, 2] {
        let metadata = memory();
        let mut leased = leases(&metadata).feed(feed(lanes)).unwrap();
        let mut seen = Vec::new();
        let mut blocks = Vec::new();
        for step in leased.by_ref() {
            let step = step.unwrap();
            assert_eq!(step.batches.len(), lanes);
            seen.extend(records(&step));
            blocks.push(step.block);
        }
        assert_eq!(counts(seen), each_once());
        assert!(blocks.is_sorted(), "one worker gets the blocks in order");
        let due = if lanes == 1 { 2 * 9 } else { 2 * 5 };
        blocks.dedup();
        assert_eq!(blocks.len(), due);
        let LeaseStats { taken, finished, lost, .. } = leased.stats();
        assert_eq!((taken, finished, lost), (due as u64, due as u64, 0));
        assert_proven(&metadata);
        drop(leased);
        // Who comes late gets nothing.
        assert_eq!(leases(&metadata).feed(feed(lanes)).unwrap().count(), 0);
        assert_proven(&metadata);
    }
}

#[test]
fn workers_share_the_blocks() {
    let metadata = memory();
    let seen: Vec<_> = thread::scope(|scope| {
        let work = || {
            let leased = leases(&metadata).feed(feed(1)).unwrap();
            leased.flat_map(|step| records(&step.unwrap())).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(counts(seen), each_once());
    assert_proven(&metadata);
}

#[test]
fn a_block_of_a_worker_that_leaves_is_dealt_anew_from_its_beginning() {
    let metadata = memory();
    let mut leaves = leases(&metadata).feed(feed(1)).unwrap();
    for _ in 0..5 {
        leaves.next().unwrap().unwrap();
    }
    // Four steps are confirmed: the first block, and a part of the second, which does not count.
    assert_eq!(leaves.stats().finished, 1);
    drop(leaves);
    let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
    assert_eq!((status.done, status.workers.len()), (1, 0));
    assert!(status.open.iter().all(|open| open.holder.is_none() && open.acknowledged == 0));
    assert_eq!(status.open[0].block, BlockId { epoch: 0, number: 1 });
    let mut stays = leases(&metadata).feed(feed(1)).unwrap();
    let first = stays.next().unwrap().unwrap();
    assert_eq!((first.block.number, first.step.step), (1, 3));
    assert!(stays.all(|step| step.is_ok()));
    assert_proven(&metadata);
}

#[test]
fn acknowledged_steps_are_not_dealt_anew() {
    let metadata = memory();
    let leased = || leases(&metadata).steps_per_block(10).acknowledge_every(2).feed(feed(1)).unwrap();
    let mut leaves = leased();
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.extend(records(&leaves.next().unwrap().unwrap()));
    }
    // Five are confirmed, of which four are acknowledged.
    drop(leaves);
    seen.truncate(4 * 4);
    let mut stays = leased();
    let first = stays.next().unwrap().unwrap();
    assert_eq!((first.block.number, first.step.step), (0, 4));
    seen.extend(records(&first));
    seen.extend(stays.by_ref().flat_map(|step| records(&step.unwrap())));
    assert_eq!(counts(seen), each_once());
    assert_proven(&metadata);
}

#[test]
fn a_job_says_how_far_it_is() {
    let metadata = memory();
    let none = Job::open(metadata.clone(), "numbers").unwrap_err();
    assert!(matches!(none, LeaseError::NoJob { .. }), "{none}");
    let mut leased = leases(&metadata).worker("me").feed(feed(1)).unwrap();
    for _ in 0..4 {
        leased.next().unwrap().unwrap();
    }
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    let status = job.status().unwrap();
    assert_eq!((status.epochs, status.steps_per_epoch, status.blocks_per_epoch), (Some(2), 26, 9));
    assert_eq!((status.blocks(), status.done, status.is_done()), (Some(18), 1, false));
    assert_eq!(status.workers[0].worker, "me");
    assert_eq!(status.workers[0].pid, std::process::id());
    let open = &status.open[0];
    assert_eq!((open.block, open.times), (BlockId { epoch: 0, number: 1 }, 1));
    assert_eq!(open.holder.as_ref().unwrap().worker, "me");
    assert_eq!(job.receipts().unwrap().len(), 1);

    // Drained, it ends after what it has.
    job.drain().unwrap();
    assert!(job.status().unwrap().is_drained);
    assert!(leased.all(|step| step.is_ok()));
    let status = job.status().unwrap();
    assert!(status.open.is_empty() && !status.is_done(), "{status:?}");
    assert_eq!(leases(&metadata).feed(feed(1)).unwrap().count(), 0);
    job.undrain().unwrap();

    let refused = job.clone().reset(false).unwrap_err();
    assert!(matches!(refused, LeaseError::InUse { workers: 1, .. }), "{refused}");
    drop(leased);
    assert!(leases(&metadata).feed(feed(1)).unwrap().all(|step| step.is_ok()));
    assert_proven(&metadata);
    job.reset(false).unwrap();
    assert_eq!(metadata.read("").unwrap().records, []);
}

/// Who watches a feed keeps neither it nor its blocks.
#[test]
fn a_watched_feed_gives_its_blocks_back() {
    let metadata = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    let watch = leased.feed().watch();
    drop(leased);
    let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
    assert_eq!(status.workers, []);
    assert!(status.open.iter().all(|open| open.holder.is_none()));
    assert!(watch.stats().lanes[0].batches > 0);
}

#[test]
fn a_job_is_reset_under_a_worker_only_by_force() {
    let metadata: Arc<dyn Metadata> = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    Job::open(metadata.clone(), "numbers").unwrap().reset(true).unwrap();
    // What it has is lost, and there are no more blocks: it ends, and says why if it asks for another.
    for error in leased.filter_map(Result::err) {
        assert!(error.to_string().contains("the job was reset while it ran"), "{error}");
    }
    assert_eq!(metadata.read("").unwrap().records, [], "nothing comes back");
}
