//! A job from its beginning to its end, as its workers and as others see it.

use std::thread;

use percolator::source::FnSource;
use percolator::{Feed, LastBatch, RawBytes, Shuffle};
use percolator_cluster::leases::{BlockId, Confirm, Job, LeaseError, LeaseStats, Leases};
use percolator_cluster::metadata::Transaction;

use crate::{assert_proven, counts, each_once, feed, leases, memory, records, wait_until_done};

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
    drop(leaves);
    let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
    assert_eq!((status.done, status.workers.len()), (1, 0));
    assert!(status.open.iter().all(|open| open.holders.is_empty() && open.acknowledged == 0));
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
    wait_until_done(&metadata, 1);
    let job = Job::open(metadata.clone(), "numbers").unwrap();
    let status = job.status().unwrap();
    assert_eq!((status.epochs, status.steps_per_epoch, status.blocks_per_epoch), (Some(2), 26, 9));
    assert_eq!((status.blocks(), status.done, status.is_done()), (Some(18), 1, false));
    assert_eq!(status.workers[0].worker, "me");
    assert_eq!(status.workers[0].pid, std::process::id());
    let open = &status.open[0];
    assert_eq!((open.block, open.times), (BlockId { epoch: 0, number: 1 }, 1));
    assert_eq!((open.holders.len(), &*open.holders[0].worker), (1, "me"));
    assert!(open.holders[0].since >= status.workers[0].since);
    assert_eq!(job.receipts().unwrap().len(), 1);

    // Drained, it ends after what it has.
    job.drain().unwrap();
    assert!(job.status().unwrap().is_drained);
    assert!(leased.all(|step| step.is_ok()));
    let status = job.status().unwrap();
    assert!(status.open.is_empty() && !status.is_done(), "{status:?}");
    assert_eq!(leases(&metadata).feed(feed(1)).unwrap().count(), 0);
    job.undrain().unwrap();

    let refused = Job::reset(&metadata, "numbers").unwrap_err();
    assert!(matches!(refused, LeaseError::InUse { workers: 1, .. }), "{refused}");
    drop(leased);
    assert!(leases(&metadata).feed(feed(1)).unwrap().all(|step| step.is_ok()));
    assert_proven(&metadata);
    Job::reset(&metadata, "numbers").unwrap();
    assert_eq!(metadata.read("").unwrap().records, []);
}

/// Who watches a feed keeps neither it nor its blocks.
#[test]
fn a_watched_feed_gives_its_blocks_back() {
    let metadata = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    leased.next().unwrap().unwrap();
    let handle = leased.feed().handle();
    drop(leased);
    let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
    assert_eq!(status.workers, []);
    assert!(status.open.iter().all(|open| open.holders.is_empty()));
    assert!(handle.stats().lanes[0].batches > 0);
}

/// What is judged of a job under way is what is done of it: nothing looks as if it were missing.
#[test]
fn epochs_are_judged_once_they_are_done() {
    let metadata = memory();
    let mut leased = leases(&metadata).feed(feed(1)).unwrap();
    let verdict = || Job::open(metadata.clone(), "numbers").unwrap().verdict(None).unwrap();
    let none = verdict();
    assert_eq!((none.done, none.is_sound(), none.verdict.epochs.len()), (0, true, 0));
    // The first epoch has 26 steps in 9 blocks; two steps of the second are not confirmed.
    for _ in 0..28 {
        leased.next().unwrap().unwrap();
    }
    wait_until_done(&metadata, 9);
    let found = verdict();
    assert_eq!((found.done, found.is_sound(), found.verdict.epochs.len()), (1, true, 1));
    assert_eq!((found.under_way[0].epoch, found.under_way[0].done, found.under_way[0].blocks), (1, 0, 9));
    // The first epoch has lost its receipts: that is seen although it is the last one that is judged.
    let receipts = metadata.read("/leases/numbers/receipts/0000000000/").unwrap().records;
    assert_eq!(receipts.len(), 1);
    metadata.transact(&Transaction::new().remove(&*receipts[0].key)).unwrap();
    assert!(!verdict().is_sound());
}

/// A receipt is left once it is large, and the next one begins.
#[test]
fn receipts_stay_small() {
    let metadata = memory();
    let source = FnSource::new("numbers", 20_000, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let feed = || {
        let feed = Feed::builder().source(source.clone()).decoder(RawBytes::fixed()).batch_size(1);
        feed.shuffle(Shuffle::Global).last_batch(LastBatch::Keep).epochs(1)
    };
    // Workers that end when there is nothing to take: they can be asked in turn, so that seldom two blocks of
    // a receipt follow each other. A worker may take several ahead; there are enough blocks for that.
    let join = || {
        let leases = Leases::of(metadata.clone(), "numbers").steps_per_block(1).confirm(Confirm::ByCall);
        leases.feed(feed()).unwrap()
    };
    let mut workers = [join(), join()];
    loop {
        let came = workers.each_mut().map(|worker| worker.next().transpose().unwrap().is_some());
        workers.iter_mut().for_each(|worker| drop(worker.confirm().unwrap()));
        if !came.contains(&true) {
            break;
        }
    }
    let receipts = metadata.read("/leases/numbers/receipts/").unwrap().records;
    let largest = receipts.iter().map(|record| record.value.len()).max().unwrap();
    assert!(receipts.len() > 2 && largest < 30_000, "{} receipts, at most {largest} bytes", receipts.len());
    let verdict = Job::open(metadata.clone(), "numbers").unwrap().verdict(None).unwrap();
    assert!(verdict.is_sound() && verdict.done == 1, "{verdict:?}");
}
