//! A run resumes from a snapshot as if it had not been cut: bit for bit, in the same world or another,
//! whatever was prefetched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use percolator::feed::ConfigError;
use percolator::order::{Assignment, AutoShardPolicy, JobWorker, OrderError, Ranks, World};
use percolator::record::{RecordId, StepId};
use percolator::snapshot::SnapshotError;
use percolator::source::{IndexPlace, LevelDb, Lmdb};
use percolator::transform::CaffeEra;
use percolator::{Batch, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Seed, Shuffle, Snapshot};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::runs::{check_cut, feed, hosts, images, take, unverified, window};

#[derive(Clone, Debug)]
struct Course {
    records: usize,
    lanes: usize,
    size: usize,
    shuffle: Shuffle,
    last: LastBatch,
    is_caffe: bool,
    epochs: u64,
    threads: usize,
    prefetch: usize,
}

impl Course {
    fn describe(&self) -> FeedBuilder {
        let assignment = if self.is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
        let feed = feed(images(self.records), self.lanes).batch_size(self.size).shuffle(self.shuffle);
        let feed = feed.last_batch(self.last).assignment(assignment).epochs(self.epochs).seed(3);
        feed.threads(self.threads).prefetch(self.prefetch)
    }
}

fn course() -> impl Strategy<Value = Course> {
    let shape = (1_usize..40, 1_usize..4, 1_usize..6, 0_usize..4, 0_usize..3);
    (shape, any::<bool>(), 1_u64..4, 1_usize..17, 1_usize..5).prop_map(
        |((records, lanes, size, last, shuffle), is_caffe, epochs, threads, prefetch)| Course {
            records: records.max(lanes * size),
            lanes,
            size,
            shuffle: [Shuffle::No, Shuffle::Global, window(5)][shuffle],
            last: [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last],
            is_caffe,
            epochs,
            threads,
            prefetch,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_run_that_was_cut_anywhere_equals_one_that_was_not(
        course in course(), cut in 0_usize..12, ahead in prop::collection::vec(0_usize..2, 3),
    ) {
        must_end("a run that was cut", move || {
            let cut: Vec<usize> = ahead[..course.lanes].iter().map(|ahead| cut + ahead).collect();
            check_cut(|| course.describe(), &cut, 40);
        });
    }

    #[test]
    fn a_round_robin_run_that_was_cut_anywhere_equals_one_that_was_not(
        records in 1_usize..30, lanes in 1_usize..4, size in 1_usize..6, once: bool, cut in 0_usize..9,
        ahead in prop::collection::vec(0_usize..2, 3),
        others in 0_usize..3,
    ) {
        must_end("a round-robin run that was cut", move || {
            let cut: Vec<usize> = ahead[..lanes].iter().map(|ahead| cut + ahead).collect();
            let describe = || {
                let round_robin = feed(images(records), lanes).batch_size(size).seed(3);
                let round_robin = match others {
                    0 => round_robin,
                    _ => round_robin.share(Ranks { first: others - 1, of: lanes + others }),
                };
                if once { round_robin.epochs(Epochs::OnePass) } else { round_robin }
            };
            check_cut(describe, &cut, 20);
        });
    }

    /// Each record of a finished epoch comes once, whatever worlds the run goes through.
    #[test]
    fn a_run_that_changes_its_world_delivers_every_record_once(
        records in 1_usize..60,
        worlds in prop::collection::vec(
            (1_usize..4, 1_usize..3, 1_usize..6, 0_usize..6, any::<bool>()), 1..4
        ),
        is_shuffled: bool,
        policy in 0_usize..2,
    ) {
        must_end("a run that changes its world", move || {
            let policy = [AutoShardPolicy::Data, AutoShardPolicy::Hint][policy];
            let shuffle = if is_shuffled { Shuffle::Global } else { Shuffle::No };
            let mut given: BTreeMap<RecordId, usize> = BTreeMap::new();
            let mut snapshot: Option<Snapshot> = None;
            let last = worlds.len() - 1;
            for (leg, (workers, lanes, size, steps, is_uneven)) in worlds.into_iter().enumerate() {
                let world = World::new(workers, workers * lanes).unwrap();
                let mut taken = Vec::new();
                for worker in 0..workers {
                    let feed = feed(images(records), lanes).batch_size(size).policy(policy);
                    let feed = feed.share(JobWorker { world, number: worker });
                    let mut feed = feed.shuffle(shuffle).epochs(2);
                    if let Some(snapshot) = &snapshot {
                        feed = feed.resume(snapshot);
                    }
                    let mut feed = feed.build().unwrap();
                    let uneven = |lane: usize| usize::from(is_uneven && (lane + worker).is_multiple_of(2));
                    let batches = |lane| if leg == last { 1000 } else { steps + uneven(lane) };
                    let batches: Vec<usize> = (0..lanes).map(batches).collect();
                    for seen in take(&mut feed.take_lanes().unwrap(), &batches).concat() {
                        for id in seen.records {
                            *given.entry(id).or_insert(0) += 1;
                        }
                    }
                    taken.push(feed.snapshot().unwrap());
                }
                snapshot = Some(Snapshot::join(&taken).unwrap());
            }
            assert!(given.values().all(|&count| count == 1), "{given:?}");
            assert_eq!(given.len(), 2 * records);
        });
    }
}

fn golden(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name)
}

#[test]
fn databases_are_resumed_in_round_robin_order_and_shuffled() {
    must_end("databases", || {
        let lmdb = || Feed::builder().source(Lmdb::open(golden("raw_lmdb")).unwrap());
        let log = || Feed::builder().source(LevelDb::open(golden("raw_leveldb_log")).unwrap());
        let tables = || Feed::builder().source(LevelDb::open(golden("raw_leveldb_ldb")).unwrap());
        let databases: [&dyn Fn() -> FeedBuilder; 3] = [&lmdb, &log, &tables];
        for database in databases {
            let round_robin = || hosts(database().batch_size(5).index(IndexPlace::Memory), 2);
            check_cut(round_robin, &[9, 9], 20);
            check_cut(|| round_robin().shuffle(Shuffle::Global).epochs(3), &[9, 10], 30);
        }
    });
}

#[test]
fn caffes_random_sequence_goes_on_where_it_was() {
    must_end("Caffe's sequence", || {
        let round_robin =
            || feed(images(23), 2).batch_size(3).seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today });
        check_cut(round_robin, &[7, 8], 20);
        check_cut(|| round_robin().share(Ranks { first: 1, of: 3 }), &[5, 5], 12);
        check_cut(|| round_robin().shuffle(Shuffle::Global).epochs(4), &[9, 9], 30);
        check_cut(|| round_robin().epochs(0).assignment(Assignment::Caffe), &[9, 9], 30);
        let snapshot = {
            let mut first = round_robin().build().unwrap();
            take(&mut first.take_lanes().unwrap(), &[2, 2]);
            first.snapshot().unwrap()
        };
        let other = hosts(round_robin(), 3).resume(&snapshot).build().unwrap_err();
        assert_eq!(other, FeedError::Snapshot(SnapshotError::CaffeRandom));

        // Drawing the numbers of so many records again would take hours.
        let planned = || round_robin().epochs(0).shuffle(Shuffle::Global);
        let text = planned().build().unwrap().snapshot().unwrap().to_string();
        let (body, _) = text.split_at(text.rfind("checksum ").unwrap());
        let far = body.replace("next epoch 0 ", "next epoch 1000000000 ");
        assert_ne!(far, body);
        let error = planned().resume(&unverified(&far).parse().unwrap()).resolve().unwrap_err();
        let FeedError::Config(ConfigError::Order(error)) = error else { panic!("{error}") };
        assert!(matches!(error, OrderError::TooMany { .. }), "{error}");
    });
}

#[test]
fn a_run_that_has_ended_stays_ended() {
    must_end("a run at its end", || {
        for describe in [
            || feed(images(7), 2).batch_size(2).epochs(1),
            || feed(images(7), 2).batch_size(2).epochs(Epochs::OnePass),
        ] {
            let mut first = describe().build().unwrap();
            let given: usize =
                first.steps().map(|step| step.unwrap().iter().map(Batch::len).sum::<usize>()).sum();
            assert_eq!(given, 7);
            let mut second = describe().resume(&first.snapshot().unwrap()).build().unwrap();
            assert!(second.steps().next().is_none());
        }
    });
}

/// Snapshots of earlier releases hold fewer facts about their data.
#[test]
fn snapshots_of_the_first_version_are_gone_on_from() {
    must_end("a snapshot of the first version", || {
        let describe = || hosts(Feed::builder().lmdb(golden("raw_lmdb")).batch_size(3), 1);
        let describe = || describe().index(IndexPlace::Memory).epochs(2).shuffle(Shuffle::Global);
        let mut first = describe().build().unwrap();
        let whole = take(&mut first.take_lanes().unwrap(), &[9]);
        let text = describe().build().unwrap().snapshot().unwrap().to_string();
        assert!(text.contains("\nclue last ") && text.contains("\nclue index "), "{text}");
        let facts = text.lines().filter(|line| !line.starts_with("clue ") && !line.starts_with("checksum "));
        let body: String = facts.map(|line| format!("{line}\n")).collect();
        let snapshot: Snapshot = unverified(&body.replacen("snapshot 2", "snapshot 1", 1)).parse().unwrap();
        let mut again = describe().resume(&snapshot).build().unwrap();
        assert_eq!(take(&mut again.take_lanes().unwrap(), &[9]), whole);
    });
}

#[test]
fn snapshots_of_workers_at_different_steps_are_joined_or_refused() {
    must_end("workers at different steps", || {
        let world = World::new(2, 4).unwrap();
        let worker = |number| feed(images(40), 2).batch_size(2).epochs(1).share(JobWorker { world, number });
        let after = |number, batches: [usize; 2]| {
            let mut feed = worker(number).build().unwrap();
            take(&mut feed.take_lanes().unwrap(), &batches);
            feed.snapshot().unwrap()
        };
        let (first, second) = (after(0, [2, 3]), after(1, [2, 2]));
        let unknown = feed(images(40), 1).batch_size(2).epochs(1).resume(&first).build().unwrap_err();
        assert_eq!(unknown, FeedError::Snapshot(SnapshotError::Unknown { known: 2, replicas: 4 }));
        worker(0).resume(&first).build().expect("it goes on as the worker that it was");
        let joined = Snapshot::join([&first, &second]).unwrap();
        assert_eq!(joined.next(1), Some(StepId { epoch: 0, step: 3 }));
        let mut alone = feed(images(40), 1).batch_size(2).epochs(1).resume(&joined).build().unwrap();
        let rest: usize =
            take(&mut alone.take_lanes().unwrap(), &[100])[0].iter().map(|seen| seen.records.len()).sum();
        assert_eq!(rest, 40 - 9 * 2);
        let twice = Snapshot::join([&first, &after(0, [1, 1])]).unwrap_err();
        assert_eq!(twice, SnapshotError::NotOfOne { what: "the steps of one replica" });
    });
}

#[test]
fn a_run_resumed_past_its_last_epoch_is_reported() {
    let describe = |epochs| feed(images(20), 2).batch_size(3).epochs(epochs);
    let mut first = describe(4).build().unwrap();
    take(&mut first.take_lanes().unwrap(), &[13, 13]);
    let log = common::log::Log::default();
    log.listen(|| {
        let mut second = describe(2).resume(&first.snapshot().unwrap()).build().unwrap();
        assert!(second.steps().next().is_none());
    });
    assert!(log.text().contains("resumes past its last epoch"), "{}", log.text());
}
