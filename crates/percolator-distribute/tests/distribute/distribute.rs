//! A job of many workers gives each replica what the plan says, or what its function describes. Its parts add
//! up, and all replicas end at the same step.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use percolator::order::{AutoShardPolicy, BatchSize, InputContext, Job, OrderError, World};
use percolator::record::RecordId;
use percolator::source::{Cursor, Matching, Source, SourceError};
use percolator::{BadRecords, Batch, Dtype, Epochs, FeedBuilder, LastBatch, Shuffle, Snapshot, Target};
use percolator_distribute::{
    Collective, CollectiveError, InputOptions, InputReplicationMode, LocalCollective, distribute,
    distribute_from_fn,
};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::jobs::{Given, all_here, feed, given, hosts, images, processes, some_here};

#[test]
fn the_parts_of_a_global_batch_add_up_to_it() {
    must_end("a job of two workers", || {
        let job = distribute(feed(images("parts", 13)).epochs(1), 9, &all_here(2, 2), InputOptions::new());
        let steps = given(job.unwrap());
        let sizes: Vec<Vec<u64>> = steps.iter().map(|(_, counts)| counts.clone()).collect();
        assert_eq!(sizes, [[3, 3, 3, 0], [1, 1, 1, 1]]);
        let mut seen: Vec<u64> =
            steps.iter().flat_map(|(of_each, _)| of_each.iter().flatten()).map(|id| id.index).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..13));
    });
}

#[test]
fn processes_tell_each_other_what_is_left_of_batches_with_bad_records() {
    let records = |name: &str| {
        let records = (0..24_usize).map(|index| {
            let (key, value) = common::image(index, 1, 2, 2);
            // All records of one replica at the first step, and one of another.
            (key, if [4, 5, 6, 7, 9].contains(&index) { vec![0xff] } else { value })
        });
        MemorySource::new(name, records)
    };
    let run = move |here: Range<usize>, end: Option<LocalCollective>| {
        let dataset = feed(records("torn")).epochs(1).policy(AutoShardPolicy::Data);
        let dataset = dataset.bad_records(BadRecords::skip().at_most_rate(1.0));
        let mut of_job = some_here(2, 2, here);
        if let Some(end) = end {
            of_job = of_job.collective(end);
        }
        given(distribute(dataset, 16, &of_job, InputOptions::new()).unwrap())
    };
    let whole = must_end("a job with bad records", move || run(0..2, None));
    let counts: Vec<Vec<u64>> = whole.iter().map(|(_, counts)| counts.clone()).collect();
    assert_eq!(counts.concat().iter().sum::<u64>(), 19);
    let split = processes(2, move |rank, end| run(rank..rank + 1, Some(end)));
    for steps in split {
        assert_eq!(steps.into_iter().map(|(_, counts)| counts).collect::<Vec<_>>(), counts);
    }
}

/// What a plan assigns to these replicas.
fn due(job: &Job, replicas: Range<usize>, epochs: u64) -> Given {
    let plan = job.plan().unwrap();
    let share = |epoch, step, replica| plan.share(epoch, step, replica).unwrap().collect::<Vec<_>>();
    let at = |epoch, step| {
        let of_each = replicas.clone().map(|replica| share(epoch, step, replica)).collect();
        let all = 0..plan.world().replicas();
        (of_each, all.map(|replica| share(epoch, step, replica).len() as u64).collect())
    };
    (0..epochs)
        .flat_map(|epoch| (0..plan.steps(epoch).unwrap()).map(move |step| (epoch, step)))
        .map(|(epoch, step)| at(epoch, step))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn a_job_gives_what_its_plan_says_whichever_workers_are_here(
        records in 1_usize..40, workers in 1_usize..4, each in 1_usize..4, global in 1_usize..13,
        policy in 0_usize..3,
        last in 0_usize..3, shuffles: bool, seed: u64, first in 0_usize..4, len in 1_usize..4,
    ) {
        let world = World::new(workers, workers * each).unwrap();
        let policy = [AutoShardPolicy::Data, AutoShardPolicy::Off, AutoShardPolicy::Hint][policy];
        let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad][last];
        let shuffle = if shuffles { Shuffle::Global } else { Shuffle::No };
        let job = Job::new([records as u64], BatchSize::Global(global as u64), world)
            .policy(policy)
            .last_batch(last);
        let job = job.shuffle(shuffle).seed(seed);
        prop_assume!(job.plan().unwrap().steps(0).unwrap() > 0);
        let first = first % workers;
        let here = first..(first + len).min(workers);
        let dataset = feed(images("planned", records))
            .policy(policy)
            .last_batch(last)
            .shuffle(shuffle)
            .seed(seed)
            .epochs(2);
        let these = here.clone();
        let found = must_end("a random job", move || {
            given(distribute(dataset, global, &some_here(workers, each, these), InputOptions::new()).unwrap())
        });
        prop_assert_eq!(found, due(&job, here.start * each..here.end * each, 2));
    }

    #[test]
    fn feeds_of_any_lengths_end_at_the_same_step(
        lengths in prop::collection::vec(1_usize..12, 1..4), each in 1_usize..3, size in 1_usize..4,
        per_replica: bool,
        split: bool,
    ) {
        let workers = lengths.len();
        let mode =
            if per_replica { InputReplicationMode::PerReplica } else { InputReplicationMode::PerWorker };
        // Naively: record `g` of a feed goes to its lane `g mod lanes`.
        let count_at = |replica: usize, step: usize| {
            let (length, lane, lanes) = match per_replica {
                true => (lengths[replica / each], 0, 1),
                false => (lengths[replica / each], replica % each, each),
            };
            let of_lane = (0..length).filter(|record| record % lanes == lane).count();
            of_lane.saturating_sub(step * size).min(size) as u64
        };
        let counts_at =
            |step| (0..workers * each).map(|replica| count_at(replica, step)).collect::<Vec<u64>>();
        let due: Vec<Vec<u64>> =
            (0..).map(counts_at).take_while(|counts| counts.iter().any(|&count| count > 0)).collect();
        let lengths = Arc::new(lengths.clone());
        let run = move |here: Range<usize>, end: Option<LocalCollective>| {
            let lengths = lengths.clone();
            let described = move |context: InputContext| {
                let worker = context.input_pipeline_id * workers / context.num_input_pipelines;
                let feed = feed(images("length", lengths[worker])).batch_size(size);
                Ok::<_, OrderError>(feed.epochs(Epochs::OnePass))
            };
            let mut of_job = some_here(workers, each, here);
            if let Some(end) = end {
                of_job = of_job.collective(end);
            }
            let job =
                distribute_from_fn(&of_job, InputOptions::new().replication_mode(mode), described).unwrap();
            drop(of_job);
            given(job)
        };
        let found = match split {
            true => processes(workers, move |rank, end| run(rank..rank + 1, Some(end))),
            false => vec![must_end("feeds of several lengths", move || run(0..workers, None))],
        };
        for steps in found {
            let counts: Vec<Vec<u64>> = steps.into_iter().map(|(_, counts)| counts).collect();
            prop_assert_eq!(&counts, &due);
        }
    }

    /// Threads that leave after some rounds: all of them complete the rounds that all of them joined, and no
    /// others.
    #[test]
    fn as_many_rounds_are_complete_as_all_have_come_to(rounds in prop::collection::vec(0_usize..20, 1..5)) {
        let due = rounds.iter().copied().min().unwrap();
        let size = rounds.len();
        let plans = rounds.clone();
        let found = processes(size, move |rank, end| {
            let words = |round: usize| [round as u64, rank as u64];
            let come_to = (0..plans[rank]).map(|round| end.all_gather(&words(round)));
            come_to.map(|gathered| gathered.map_err(|error| error.to_string())).collect::<Vec<_>>()
        });
        for (rank, gathered) in found.iter().enumerate() {
            prop_assert_eq!(gathered.len(), rounds[rank]);
            for (round, words) in gathered.iter().enumerate() {
                let all: Vec<u64> = (0..size).flat_map(|rank| [round as u64, rank as u64]).collect();
                prop_assert_eq!(words.as_ref().ok(), (round < due).then_some(&all));
            }
        }
    }
}

/// A source that does not report how many records it has.
#[derive(Debug)]
struct Unknown(MemorySource);

impl Source for Unknown {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        None
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

/// A feed of its own for each worker: the first has two records, the second seven.
fn uneven(context: InputContext) -> Result<FeedBuilder, OrderError> {
    let records = [2, 7][context.input_pipeline_id];
    Ok(feed(Unknown(images("uneven", records))).batch_size(2).epochs(Epochs::OnePass))
}

#[test]
fn a_replica_that_has_no_data_gets_empty_batches_of_the_right_shape_while_others_have() {
    must_end("feeds of unknown lengths", || {
        let described = |context: InputContext| {
            let target = Target::paired(images("uneven", 7), Matching::Keys).dtype(Dtype::U8);
            let target = if context.input_pipeline_id == 1 { Some(target) } else { None };
            let described = uneven(context)?.dtype(Dtype::F16);
            Ok::<_, OrderError>(match target {
                Some(target) => described.target(target),
                None => described,
            })
        };
        let mut job = distribute_from_fn(&all_here(2, 2), InputOptions::new(), described).unwrap();
        let mut steps = 0;
        for step in &mut job {
            let step = step.unwrap();
            assert_eq!(step.step, None);
            for (replica, batch) in step.batches.into_iter().enumerate() {
                let (shape, count) = (batch.shape(), step.weights.counts()[replica]);
                assert_eq!(shape.dims(), [usize::try_from(count).unwrap(), 1, 2, 2], "replica {replica}");
                assert_eq!((shape.dtype, batch.lane()), (Dtype::F16, replica % 2));
                assert_eq!(
                    (batch.labels().unwrap().len(), batch.bytes().len()),
                    (batch.len(), batch.len() * 8)
                );
                assert_eq!(batch.target_shape().map(|shape| shape.dtype), (replica > 1).then_some(Dtype::U8));
                assert_eq!(batch.mask().count(), batch.len());
                batch.wait().unwrap();
                let tensor = batch.into_dlpack().unwrap().take("data").unwrap();
                assert_eq!(tensor.tensor().ndim, 4);
            }
            steps += 1;
        }
        assert_eq!(steps, 2);
        assert!(job.next().is_none());
        // Stand-in batches are not batches of the feed.
        let records: Vec<u64> =
            job.feeds().flat_map(|(_, feed)| feed.stats().lanes).map(|lane| lane.batches).collect();
        assert_eq!(records, [1, 1, 2, 2]);
    });
}

#[test]
fn where_batches_are_padded_so_are_those_that_stand_in() {
    must_end("padded feeds of several lengths", || {
        let described = |context: InputContext| {
            let records = [1, 5][context.input_pipeline_id];
            let feed = feed(images("padded", records)).batch_size(2).last_batch(LastBatch::Pad).epochs(1);
            Ok::<_, OrderError>(feed)
        };
        let steps: Vec<Vec<(usize, usize, bool)>> =
            distribute_from_fn(&all_here(2, 1), InputOptions::new(), described)
                .unwrap()
                .map(|step| {
                    let look = |batch: Batch| {
                        let padding = &batch.pixels::<f32>().unwrap()[batch.len() * 4..];
                        (batch.len(), batch.shape().records, padding.iter().all(|&pixel| pixel == 0.0))
                    };
                    step.unwrap().batches.map(look).into_iter().collect()
                })
                .collect();
        let rows = |of_each: [usize; 2]| of_each.map(|len| (len, 2, true)).to_vec();
        assert_eq!(steps, [rows([1, 2]), rows([0, 2]), rows([0, 1])]);
    });
}

#[test]
fn a_function_is_told_which_call_it_is_and_nothing_is_done_behind_its_back() {
    must_end("a job from a function", || {
        let calls = |mode, here: Range<usize>| {
            let mut seen = Vec::new();
            let (workers, here) = (some_here(2, 2, here.clone()), here);
            let described = |context: InputContext| {
                seen.push(context);
                let size = context.per_replica_batch_size(8)?;
                Ok::<_, OrderError>(
                    feed(images("told", 6))
                        .batch_size(usize::try_from(size).unwrap())
                        .epochs(Epochs::OnePass),
                )
            };
            let options = InputOptions::new().replication_mode(mode);
            let workers = if here.len() < 2 { workers.collective(Alone) } else { workers };
            let _ = distribute_from_fn(&workers, options, described).map(given);
            let of = |context: &InputContext| (context.num_input_pipelines, context.input_pipeline_id);
            assert!(seen.iter().all(|context| context.num_replicas_in_sync == 4));
            seen.iter().map(of).collect::<Vec<_>>()
        };
        use InputReplicationMode::{PerReplica, PerWorker};
        assert_eq!(calls(PerWorker, 0..2), [(2, 0), (2, 1)]);
        assert_eq!(calls(PerReplica, 0..2), [(4, 0), (4, 1), (4, 2), (4, 3)]);
        assert_eq!(calls(PerWorker, 1..2), [(2, 1)]);
        assert_eq!(calls(PerReplica, 1..2), [(4, 2), (4, 3)]);

        let described = |_: InputContext| {
            Ok::<_, OrderError>(feed(images("whole", 3)).batch_size(2).epochs(Epochs::OnePass))
        };
        let options = InputOptions::new().replication_mode(PerReplica);
        let steps = given(distribute_from_fn(&all_here(1, 2), options, described).unwrap());
        let of = |indices: &[u64]| -> Vec<RecordId> {
            indices.iter().map(|&index| RecordId { epoch: 0, index }).collect()
        };
        let each_has_all = |indices: &[u64]| vec![of(indices); 2];
        assert_eq!(steps, [(each_has_all(&[0, 1]), vec![2, 2]), (each_has_all(&[2]), vec![1, 1])]);
    });
}

/// A process of a job whose others never come.
#[derive(Debug)]
struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        1
    }

    fn size(&self) -> usize {
        2
    }

    fn all_gather(&self, _words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        Err(CollectiveError::Left { rank: 0, size: 2, reason: None })
    }

    fn resign(&self, _reason: &str) {}
}

#[test]
fn processes_agree_on_the_step_at_which_all_end() {
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 2, rank..rank + 1).collective(end);
        given(distribute_from_fn(&workers, InputOptions::new(), uneven).unwrap())
    });
    let counts = |steps: &Given| steps.iter().map(|(_, counts)| counts.clone()).collect::<Vec<_>>();
    assert_eq!(counts(&found[0]), [[1, 1, 2, 2], [0, 0, 2, 1]]);
    assert_eq!(counts(&found[1]), counts(&found[0]));
    let lens = |(of_each, _): &(Vec<Vec<RecordId>>, _)| of_each.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(found[0].iter().map(lens).collect::<Vec<_>>(), [[1, 1], [0, 0]]);
}

#[test]
fn a_job_goes_on_from_a_snapshot_unless_its_replicas_are_apart() {
    must_end("a job that goes on", || {
        let describe = || feed(images("apart", 23)).epochs(2);
        let whole = given(distribute(describe(), 6, &all_here(1, 2), InputOptions::new()).unwrap());
        let after = |batches: [usize; 2]| {
            let mut feed = describe().batch_size(BatchSize::Global(6)).devices(hosts(0..2)).build().unwrap();
            let mut lanes = feed.take_lanes().unwrap();
            for (lane, batches) in lanes.iter_mut().zip(batches) {
                lane.take(batches).for_each(|batch| drop(batch.unwrap()));
            }
            feed.snapshot().unwrap()
        };
        let job = |snapshot: Snapshot| {
            distribute(describe().resume(&snapshot), 6, &all_here(1, 2), InputOptions::new())
        };
        assert_eq!(given(job(after([3, 3])).unwrap()), whole[3..]);
        let error = job(after([3, 2])).unwrap_err();
        let is_told = error.to_string().contains("epoch 0, step 3 and another at epoch 0, step 2");
        assert!(is_told, "{error}");
    });
}
