//! Slow workers: the end of an epoch does not wait for them, and each step counts once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use percolator_cluster::leases::{Holder, Job, LeasedFeed, LeasedStep};

use crate::process::must_end;
use crate::{assert_proven, counts, each_once, feed, leases, memory, records};

/// Its progress is looked at every 100 ms.
const TTL: Duration = Duration::from_secs(1);

/// A worker stands still with blocks in its hands, and lives. The other one does them all the same, and ends.
#[test]
fn a_second_worker_finishes_what_a_slow_one_has() {
    must_end("a slow worker", || {
        for acknowledge_every in [None, Some(1)] {
            let metadata = memory();
            let join = |worker: &str| -> LeasedFeed {
                let leases = leases(&metadata).worker(worker).ttl(TTL).duplicate_slow();
                let leases = match acknowledge_every {
                    None => leases,
                    Some(steps) => leases.acknowledge_every(steps),
                };
                leases.feed(feed(1)).unwrap()
            };
            let mut slow = join("slow");
            // Its first block is under way, and others are taken ahead.
            let first = slow.next().unwrap().unwrap();
            let (block, first) = (first.block, records(&first));
            drop(slow.next().unwrap().unwrap());
            let job = Job::open(metadata.clone(), "numbers").unwrap();
            while job.status().unwrap().open[0].acknowledged < acknowledge_every.unwrap_or(0) {
                thread::yield_now();
            }
            let fast: Vec<_> = thread::scope(|scope| {
                let fast = scope.spawn(|| {
                    let mut fast = join("fast");
                    let seen: Vec<_> = fast.by_ref().flat_map(|step| records(&step.unwrap())).collect();
                    assert_eq!(fast.stats().lost, 0);
                    seen
                });
                // The slow one asks for nothing meanwhile.
                fast.join().unwrap()
            });
            let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
            assert!(status.is_done(), "{status:?}");
            // It is told: at the latest by the answer to what it says of its block.
            let mut seen: Vec<_> = Vec::new();
            if acknowledge_every.is_some() {
                // Its first step was acknowledged before it stood still, and is the only one that counts.
                seen.extend(first);
            }
            let told: Vec<_> = slow.by_ref().flat_map(|step| step.unwrap().lost).collect();
            let told: Vec<_> = told.into_iter().chain(slow.confirm().unwrap().lost).collect();
            assert!(told.contains(&block), "{told:?} {:?}", slow.stats());
            assert!(slow.stats().lost >= 1 && slow.stats().finished == 0, "{:?}", slow.stats());
            seen.extend(fast);
            assert_eq!(counts(seen), each_once());
            assert_proven(&metadata);
            drop(slow);
            // Nothing is left of what it held.
            let left = metadata.read("/leases/numbers/live/held/").unwrap().records;
            assert_eq!(left, []);
        }
    });
}

/// Two workers have a block, and the one that was slow is faster in the end: the other one is told.
#[test]
fn whoever_finishes_first_has_the_block() {
    must_end("two workers with one block", || {
        let metadata = memory();
        let join =
            |worker: &str| leases(&metadata).worker(worker).ttl(TTL).duplicate_slow().feed(feed(1)).unwrap();
        let mut slow = join("slow");
        // Blocks have three steps, and the last one of an epoch of 26 has two.
        let is_last = |step: &LeasedStep| step.step.step % 3 == 2 || step.step.step == 25;
        let mut ended = u64::from(is_last(&slow.next().unwrap().unwrap()));
        let mut fast = join("fast");
        let mut lost = Vec::new();
        let first = loop {
            let step = fast.next().unwrap().unwrap();
            lost.extend(step.lost);
            let status = Job::open(metadata.clone(), "numbers").unwrap().status().unwrap();
            let shared = status.open.iter().find(|open| open.holders.len() == 2);
            if let Some(open) = shared
                && step.block == open.block
            {
                assert_eq!(open.times, 2);
                break step.block;
            }
        };
        // The slow one finishes it, while the other one has been handed a step of it.
        loop {
            let step = slow.next().unwrap().unwrap();
            ended += u64::from(is_last(&step));
            if step.block == first && is_last(&step) {
                break;
            }
        }
        assert!(slow.confirm().unwrap().steps > 0);
        assert_eq!((slow.stats().finished, slow.stats().lost), (ended, 0));
        thread::scope(|scope| {
            let rest = scope.spawn(|| fast.by_ref().flat_map(|step| step.unwrap().lost).collect::<Vec<_>>());
            slow.by_ref().for_each(|step| drop(step.unwrap()));
            lost.extend(rest.join().unwrap());
        });
        lost.extend(fast.confirm().unwrap().lost);
        assert!(lost.contains(&first), "{lost:?} {first:?} {:?}", fast.stats());
        assert_proven(&metadata);
    });
}

/// Unless it is asked for, nobody gets what another one has.
#[test]
fn nothing_is_duplicated_by_default() {
    must_end("a slow worker that nobody helps", || {
        let metadata = memory();
        let mut slow = leases(&metadata).ttl(TTL).feed(feed(1)).unwrap();
        slow.next().unwrap().unwrap();
        let was_watched = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut other = leases(&metadata).ttl(TTL).feed(feed(1)).unwrap();
                other.by_ref().for_each(|step| drop(step.unwrap()));
                was_watched.load(Ordering::SeqCst)
            });
            // All that is left is the slow one's, for two of its leases' times.
            let job = Job::open(metadata.clone(), "numbers").unwrap();
            loop {
                let status = job.status().unwrap();
                if status.open.len() as u64 + status.done == status.blocks().unwrap()
                    && status.workers.len() == 2
                {
                    let is_slows = |held: &Holder| held.worker == slow.worker();
                    if status.open.iter().all(|open| open.holders.first().is_some_and(is_slows)) {
                        break;
                    }
                }
                thread::yield_now();
            }
            let before = metadata.read("/leases/numbers/live/open/").unwrap();
            let changed = metadata.wait("/leases/numbers/live/open/", before.revision, 2 * TTL).unwrap();
            assert!(!changed);
            was_watched.store(true, Ordering::SeqCst);
            slow.by_ref().for_each(|step| drop(step.unwrap()));
            assert!(other.join().unwrap(), "it waited until then");
        });
        assert_proven(&metadata);
    });
}
