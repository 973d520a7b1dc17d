//! A training run cannot see that a batch is wrong: a record twice, a label beside another record's pixels, a
//! crop that depends on the number of threads. These tests compare what lanes deliver with a plain
//! computation over the same records, for any number of lanes, threads and buffers, and whatever the consumer
//! does with its batches and lanes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::TryNext;
use percolator::order::Ranks;
use percolator::record::RecordId;
use percolator::{Batch, Device, Epochs, Feed, FeedBuilder, FeedError, Lane, Transform};

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::lanes::{SHAPE, check, due, hosts, images, only_lane, over};

#[test]
fn one_pass_brings_every_record_once_in_short_last_batches() {
    for lanes in [1, 2, 3] {
        for records in [1, 2, 10, 25, 48] {
            for batch_size in [1, 4, 8, 100] {
                let builder = over(images("once", records)).batch_size(batch_size).devices(hosts(lanes));
                let mut feed = builder.epochs(Epochs::OnePass).build().unwrap();
                std::thread::scope(|scope| {
                    for (number, mut lane) in feed.take_lanes().unwrap().into_iter().enumerate() {
                        assert_eq!((lane.number(), lane.device()), (number, &*format!("host:{number}")));
                        let due = due(records, number, lanes, batch_size, records);
                        scope.spawn(move || {
                            for names in due {
                                let batch = lane.next().unwrap().unwrap();
                                check(&batch);
                                assert_eq!((batch.lane(), batch.records()), (number, &names[..]));
                            }
                            assert!(lane.next().is_none());
                        });
                    }
                });
            }
        }
    }
}

#[test]
fn lanes_on_their_own_threads_get_their_shares() {
    for (lanes, records, batch_size, prefetch) in [(2, 25, 4, 1), (3, 100, 8, 2), (4, 7, 3, 4)] {
        let passes = 6;
        let builder = over(images("threads", records)).batch_size(batch_size).prefetch(prefetch);
        let mut feed = builder.devices(hosts(lanes)).build().unwrap();
        std::thread::scope(|scope| {
            for mut lane in feed.take_lanes().unwrap() {
                scope.spawn(move || {
                    let due = due(records, lane.number(), lanes, batch_size, passes * records);
                    // The end of the expected list may cut its last batch short; the feed does not end there.
                    for names in &due[..due.len() - 1] {
                        let batch = lane.next().unwrap().unwrap();
                        check(&batch);
                        assert_eq!(batch.records(), names);
                    }
                });
            }
        });
    }
}

#[test]
fn batches_run_on_from_the_last_record_to_the_first() {
    let mut feed = over(images("wrap", 10)).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let third = lane.nth(2).unwrap().unwrap();
    check(&third);
    let names: Vec<_> = third.records().iter().map(|id| (id.epoch, id.index)).collect();
    assert_eq!(names, [(0, 8), (0, 9), (1, 0), (1, 1)]);
}

#[test]
fn steps_bring_all_lanes_together_and_end_short() {
    let mut feed =
        over(images("steps", 11)).batch_size(2).devices(hosts(3)).epochs(Epochs::OnePass).build().unwrap();
    let steps: Vec<Vec<(usize, Vec<u64>)>> = feed
        .steps()
        .map(|step| {
            let name = |batch: Batch| (batch.lane(), batch.records().iter().map(|id| id.index).collect());
            step.unwrap().into_iter().map(name).collect()
        })
        .collect();
    let lists = |lists: &[(usize, &[u64])]| -> Vec<(usize, Vec<u64>)> {
        lists.iter().map(|(lane, list)| (*lane, list.to_vec())).collect()
    };
    assert_eq!(steps[0], lists(&[(0, &[0, 3]), (1, &[1, 4]), (2, &[2, 5])]));
    assert_eq!(steps[1], lists(&[(0, &[6, 9]), (1, &[7, 10]), (2, &[8])]));
    assert_eq!(steps.len(), 2);
    let mut feed =
        over(images("steps that run out", 5)).devices(hosts(2)).epochs(Epochs::OnePass).build().unwrap();
    let last = feed.steps().last().unwrap().unwrap();
    assert_eq!(last.iter().map(Batch::lane).collect::<Vec<_>>(), [0]);
    assert!(feed.steps().next().is_none());
}

/// Bytes, labels and records of the first `batches` batches of each lane.
fn stream(
    folder: &std::path::Path,
    configure: impl Fn(FeedBuilder) -> FeedBuilder,
    batches: usize,
) -> Vec<(Vec<u8>, Vec<i32>, Vec<RecordId>)> {
    let transform = Transform::new().crop(9).mirror(true).mean_values([1.0, 2.0, 3.0]).scale(0.5);
    let builder = Feed::builder().lmdb(folder).batch_size(16).transform(transform).seed(7);
    let mut feed = configure(builder).build().unwrap();
    let mut lanes = feed.take_lanes().unwrap();
    let mut stream = Vec::new();
    for _ in 0..batches {
        for lane in &mut lanes {
            let batch = lane.next().unwrap().unwrap();
            stream.push((batch.bytes().to_vec(), batch.labels().unwrap().to_vec(), batch.records().to_vec()));
        }
    }
    stream
}

#[test]
fn threads_and_buffers_do_not_change_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 50, 3, 12, 12);
    let first = stream(folder.path(), |feed| feed.threads(1).prefetch(1), 20);
    for threads in [1, 2, 3, 8] {
        for prefetch in 1..=4 {
            let again = stream(folder.path(), |feed| feed.threads(threads).prefetch(prefetch), 20);
            assert!(first == again, "{threads} threads, {prefetch} buffers");
        }
    }
    let other_seed = stream(folder.path(), |feed| feed.seed(8), 20);
    assert!(
        first.iter().zip(&other_seed).all(|(a, b)| a.0 != b.0 && a.2 == b.2),
        "a seed changes crops alone"
    );
    // With 50 records and batches of 16, batch 25 is batch 0 again, 8 epochs later.
    let long = stream(folder.path(), |feed| feed, 26);
    let names = |at: usize| long[at].2.iter().map(|id| id.index).collect::<Vec<_>>();
    assert_eq!(names(0), names(25));
    assert_ne!(long[0].0, long[25].0, "another epoch, other crops");
}

#[test]
fn lanes_do_not_change_what_becomes_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 50, 3, 12, 12);
    let by_record = |lanes: usize| {
        let mut records = std::collections::BTreeMap::new();
        for (bytes, _, names) in stream(folder.path(), |feed| feed.devices(hosts(lanes)), 24 / lanes) {
            for (pixels, name) in bytes.chunks(bytes.len() / names.len()).zip(names) {
                records.insert(name, pixels.to_vec());
            }
        }
        records
    };
    let one = by_record(1);
    assert_eq!(one.len(), 24 * 16);
    for lanes in [2, 3] {
        assert!(one == by_record(lanes), "{lanes} lanes");
    }
}

#[test]
fn a_batch_that_is_held_stays_as_it_is_while_others_come() {
    let mut feed = over(images("held", 30)).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let held = [lane.next().unwrap().unwrap(), lane.next().unwrap().unwrap()];
    let before: Vec<Vec<u8>> = held.iter().map(|batch| batch.bytes().to_vec()).collect();
    for _ in 0..40 {
        check(&lane.next().unwrap().unwrap());
    }
    assert_eq!(feed.stats().lanes[0].held, 2);
    for (batch, before) in held.iter().zip(before) {
        check(batch);
        assert_eq!(batch.bytes(), before);
    }
}

#[test]
fn batches_may_go_back_in_any_order_and_on_any_thread() {
    let mut feed = over(images("back", 30)).batch_size(4).prefetch(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    for round in 0..20 {
        let mut held: Vec<Batch> = lane.by_ref().take(4).map(Result::unwrap).collect();
        held.iter().for_each(check);
        assert_eq!(held[0].records()[0].index, round * 16 % 30);
        held.rotate_left(usize::try_from(round % 4).unwrap());
        std::thread::spawn(move || drop(held)).join().unwrap();
    }
}

#[test]
fn a_batch_outlives_its_lane_and_its_feed() {
    let folder = tempfile::tempdir().unwrap();
    let [c, h, w] = SHAPE;
    common::write_images(folder.path(), 10, c, h, w);
    let mut feed = Feed::builder().lmdb(folder.path()).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let batches: Vec<Batch> = lane.by_ref().take(3).map(Result::unwrap).collect();
    drop(lane);
    drop(feed);
    batches.iter().for_each(check);
}

#[test]
fn lanes_are_handed_over_once_and_whoever_asks_again_is_told() {
    let mut feed = over(images("twice", 10)).devices(hosts(2)).build().unwrap();
    // Using steps leaves the lanes usable.
    assert_eq!(feed.steps().next().unwrap().unwrap().len(), 2);
    let mut lanes = feed.take_lanes().unwrap();
    assert_eq!(lanes[0].next().unwrap().unwrap().records()[0].index, 2);
    let said: Vec<_> = feed.steps().map(Result::err).collect();
    assert_eq!(said, [Some(FeedError::LanesTaken)], "and not a run without steps");
    assert_eq!(feed.take_lanes().unwrap_err(), FeedError::LanesTaken);
    assert!(lanes[1].next().unwrap().is_ok(), "the lanes that there are go on");
    assert_eq!(feed.stats().lanes[1].batches, 2);
    feed.seek((0, 7)).unwrap();
    assert_eq!(feed.steps().next().unwrap().unwrap()[0].records()[0].index, 14 % 10, "seek makes new ones");
}

#[test]
fn a_handle_sees_the_feed_from_anywhere_and_keeps_nothing_open() {
    must_end("a handle beside the steps", || {
        let source = images("watched", 12);
        let probe = source.probe();
        let mut feed = over(source).devices(hosts(2)).batch_size(2).epochs(2).build().unwrap();
        let handle = feed.handle();
        let next = |epoch, step| vec![percolator::record::StepId { epoch, step }; 2];
        assert_eq!(handle.next_steps(), next(0, 0));
        let (to_watcher, steps) = std::sync::mpsc::channel();
        let elsewhere = handle.clone();
        let watcher = std::thread::spawn(move || {
            steps.iter().map(|()| (elsewhere.stats().records(), elsewhere.next_steps())).collect::<Vec<_>>()
        });
        let mut taken = 0;
        for step in feed.steps() {
            drop(step.unwrap());
            taken += 1;
            assert_eq!(handle.stats().records(), 4 * taken);
            assert_eq!(handle.next_steps(), next(taken / 3, taken % 3));
            to_watcher.send(()).unwrap();
        }
        assert_eq!(taken, 6);
        assert_eq!(handle.plan().map(|plan| plan.steps(0).unwrap()), Some(3));
        assert_eq!(feed.plan(), handle.plan().as_deref());
        drop((to_watcher, feed));
        assert!(probe.is_dropped(), "what only observes keeps no source");
        let seen = watcher.join().unwrap();
        assert_eq!(seen.last(), Some(&(24, next(2, 0))));
        assert_eq!(handle.stats().records(), 24);
    });
}

#[test]
fn try_next_never_waits_and_misses_nothing() {
    must_end("a lane that is polled", || {
        let (source, mut stall) = images("polled", 6).stall_at(4);
        let mut feed = over(source).batch_size(2).epochs(Epochs::OnePass).build().unwrap();
        let mut lane = only_lane(&mut feed);
        let mut seen = Vec::new();
        let mut poll = |until: usize| {
            while seen.len() < until {
                match lane.try_next().unwrap() {
                    TryNext::Batch(batch) => seen.push(batch.records()[0].index),
                    TryNext::NotYet => std::thread::yield_now(),
                    TryNext::Ended => panic!("it ended after {seen:?}"),
                }
            }
        };
        poll(2);
        stall.wait();
        stall.release();
        poll(3);
        assert_eq!(seen, [0, 2, 4]);
        assert!(lane.next().is_none());
        assert!(matches!(lane.try_next().unwrap(), TryNext::Ended));
    });
}

/// The positions of a lane's first records, counted on through all passes.
fn indices(lane: Lane, batches: usize) -> Vec<u64> {
    lane.take(batches)
        .flat_map(|batch| {
            batch.unwrap().records().iter().map(|id| id.epoch * 7 + id.index).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_ranks_of_a_job_get_what_caffes_solvers_get() {
    for (first, lanes, of) in [(0, 1, 1), (2, 1, 3), (1, 2, 3), (3, 1, 8), (0, 5, 5)] {
        let mut feed = Feed::builder()
            .source(MemorySource::images("ranks", 7, 1, 2, 2))
            .devices((0..lanes).map(Device::host))
            .share(Ranks { first, of })
            .batch_size(3)
            .build()
            .unwrap();
        let found: Vec<_> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                feed.take_lanes().unwrap().into_iter().map(|lane| scope.spawn(|| indices(lane, 4))).collect();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        for (lane, found) in found.iter().enumerate() {
            let wanted: Vec<u64> = (0..12).map(|step| (step * of + first + lane) as u64).collect();
            assert_eq!(found, &wanted, "rank {} of {of}", first + lane);
        }
    }
}
