//! A job of many workers gives each replica what the plan says, or what its function describes. Its parts add
//! up, and all replicas end at the same step. If a job worker fails or leaves, the others name it in their
//! error and end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::distribute::{
    Collective, CollectiveError, DistributeError, DistributedIterator, DistributedStep, InputOptions,
    InputReplicationMode, InputWorker, InputWorkers, LocalCollective, PerReplica, ReduceOp, distribute,
    distribute_from_fn,
};
use percolator::order::{AutoShardPolicy, BatchSize, InputContext, Job, OrderError, Process, World};
use percolator::reader::{ReaderError, Registry};
use percolator::record::RecordId;
use percolator::source::{Cursor, Matching, Source, SourceError};
use percolator::{
    BadRecords, Batch, Device, DeviceError, Dtype, Feed, FeedBuilder, FeedError, LastBatch, Shuffle,
    Snapshot, Target,
};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn images(name: &str, records: usize) -> MemorySource {
    MemorySource::images(name, records, 1, 2, 2)
}

fn feed(source: impl Source + 'static) -> FeedBuilder {
    Feed::builder().source(source).registry(&Registry::new()).threads(1)
}

fn hosts(range: Range<usize>) -> impl Iterator<Item = Device> {
    range.map(Device::host)
}

fn name(worker: usize) -> String {
    format!("w{worker}")
}

/// All workers in this process, with this many devices each.
fn all_here(workers: usize, each: usize) -> InputWorkers {
    some_here(workers, each, 0..workers)
}

/// Some of the workers in this process, the others elsewhere.
fn some_here(workers: usize, each: usize, here: Range<usize>) -> InputWorkers {
    let worker = |number: usize| match here.contains(&number) {
        true => InputWorker::here(name(number), hosts(number * each..(number + 1) * each)),
        false => InputWorker::elsewhere(name(number), each),
    };
    InputWorkers::new((0..workers).map(worker)).unwrap()
}

/// What a process is given: at each step, the records of each of its replicas, and the record count of each
/// replica of the job.
type Given = Vec<(Vec<Vec<RecordId>>, Vec<u64>)>;

fn look(step: DistributedStep) -> (Vec<Vec<RecordId>>, Vec<u64>) {
    for (&replica, batch) in step.batches.replicas().iter().zip(&step.batches) {
        assert_eq!(batch.len() as u64, step.weights.counts()[replica], "replica {replica}");
    }
    let with_values = step.weights.counts().iter().filter(|&&count| count > 0).count();
    assert_eq!(step.weights.num_replicas_with_values(), with_values);
    let of_each = step.batches.map(|batch| batch.records().to_vec()).into_iter().collect();
    (of_each, step.weights.counts().to_vec())
}

fn given(job: DistributedIterator) -> Given {
    job.map(|step| look(step.unwrap())).collect()
}

/// Runs each of the job's processes on a thread, with its end of the collective.
fn processes<T: Send + 'static>(
    count: usize,
    run: impl Fn(usize, LocalCollective) -> T + Clone + Send + 'static,
) -> Vec<T> {
    must_end("the processes of a job", move || {
        let threads: Vec<_> = LocalCollective::group(count)
            .into_iter()
            .map(|end| {
                let run = run.clone();
                std::thread::spawn(move || run(end.rank(), end))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

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
                Ok::<_, OrderError>(feed(images("length", lengths[worker])).batch_size(size).once())
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
    Ok(feed(Unknown(images("uneven", records))).batch_size(2).once())
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
                assert_eq!((batch.labels().len(), batch.bytes().len()), (batch.len(), batch.len() * 8));
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
                Ok::<_, OrderError>(feed(images("told", 6)).batch_size(usize::try_from(size).unwrap()).once())
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

        let described = |_: InputContext| Ok::<_, OrderError>(feed(images("whole", 3)).batch_size(2).once());
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

    fn leave(&self, _reason: &str) {}
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
fn a_worker_that_fails_ends_the_job_with_an_error_that_names_it() {
    must_end("a worker whose source fails", || {
        let described = |context: InputContext| {
            let source = images("failing", 40);
            let source = if context.input_pipeline_id == 1 { source.fail_at(4) } else { source };
            Ok::<_, OrderError>(feed(source).batch_size(1))
        };
        let mut job = distribute_from_fn(&all_here(3, 1), InputOptions::new(), described).unwrap();
        let mut steps = 0;
        let error = loop {
            match job.next().unwrap() {
                Ok(_) => steps += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(steps, 4);
        match &error {
            DistributeError::Worker { worker, error } => {
                assert_eq!(*worker, name(1));
                assert!(matches!(
                    **error,
                    FeedError::Reader(ReaderError::Source(SourceError::Broken { index: 4, .. }))
                ));
            }
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().starts_with("worker \"w1\": "), "{error}");
        assert!(job.next().is_none() && job.next().is_none());
    });
}

#[test]
fn a_worker_that_fails_in_a_plan_ends_it_too() {
    must_end("a planned worker whose source fails", || {
        let source = images("failing", 40).fail_at(9);
        let job = distribute(feed(source).epochs(1), 4, &all_here(2, 1), InputOptions::new()).unwrap();
        let mut errors: Vec<_> = job.filter_map(Result::err).collect();
        assert_eq!(errors.len(), 1);
        assert!(matches!(errors.remove(0), DistributeError::Worker { worker, .. } if worker == name(0)));
    });
}

#[test]
fn other_processes_are_told_which_worker_failed() {
    let found = processes(3, |rank, end| {
        let workers = some_here(3, 1, rank..rank + 1).collective(end);
        let described = |context: InputContext| {
            let source = images("failing", 40);
            let source = if context.input_pipeline_id == 2 { source.fail_at(3) } else { source };
            Ok::<_, OrderError>(feed(source).batch_size(1))
        };
        let mut job = distribute_from_fn(&workers, InputOptions::new(), described).unwrap();
        let steps = job.by_ref().take_while(Result::is_ok).count();
        assert!(job.next().is_none());
        let mut job = distribute_from_fn(&some_here(1, 1, 0..1), InputOptions::new(), described).unwrap();
        assert!(job.next().unwrap().is_ok(), "the process itself goes on");
        steps
    });
    assert_eq!(found, [3, 3, 3]);

    let found = processes(3, |rank, end| {
        let workers = some_here(3, 1, rank..rank + 1).collective(end);
        let described = |context: InputContext| {
            let source = images("failing", 40);
            let source = if context.input_pipeline_id == 2 { source.fail_at(3) } else { source };
            Ok::<_, OrderError>(feed(source).batch_size(1))
        };
        let job = distribute_from_fn(&workers, InputOptions::new(), described).unwrap();
        job.filter_map(Result::err).map(|error| error.to_string()).collect::<Vec<_>>()
    });
    for told in &found[..2] {
        assert_eq!(told, &["worker \"w2\" failed in another process, which has its error"]);
    }
    assert!(found[2][0].starts_with("worker \"w2\": ") && found[2].len() == 1, "{:?}", found[2]);
}

#[test]
fn a_worker_that_cannot_start_keeps_the_others_from_waiting_for_it() {
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 1, rank..rank + 1).collective(end);
        let described = |context: InputContext| match context.input_pipeline_id {
            0 => Ok(feed(images("fine", 4))),
            _ => Err("no disk today"),
        };
        distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err()
    });
    assert!(matches!(&found[0], DistributeError::Elsewhere { worker } if *worker == name(1)), "{found:?}");
    assert_eq!(found[1].to_string(), "worker \"w1\": its function failed: no disk today");
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 1, rank..rank + 1).collective(end);
        let records = if rank == 0 { 4 } else { 0 };
        distribute(feed(images("none", records)).epochs(1), 2, &workers, InputOptions::new()).unwrap_err()
    });
    assert!(matches!(&found[0], DistributeError::Elsewhere { worker } if *worker == name(1)), "{found:?}");
    assert!(matches!(&found[1], DistributeError::Worker { .. }), "{found:?}");
}

#[test]
fn a_process_that_leaves_without_a_word_is_named_to_the_others() {
    let found = processes(3, |rank, end| {
        // The first process feeds two workers.
        let here = [0..2, 2..3, 3..4][rank].clone();
        let workers = some_here(4, 1, here).collective(end);
        let described = |_: InputContext| Ok::<_, OrderError>(feed(images("leaving", 8)));
        let mut job = distribute_from_fn(&workers, InputOptions::new(), described).unwrap();
        assert!(job.next().unwrap().is_ok());
        if rank == 0 {
            return None;
        }
        job.find_map(Result::err)
    });
    assert!(found[0].is_none());
    for told in &found[1..] {
        match told.as_ref().unwrap() {
            DistributeError::ProcessLeft { rank: 0, workers, reason: None } => {
                assert_eq!(*workers, [name(0), name(1)]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_process_whose_plan_fails_says_why_when_the_others_next_meet_it() {
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 1, rank..rank + 1).collective(end);
        let source = images("failing", 40);
        let source = if rank == 1 { source.fail_at(9) } else { source };
        let mut job = distribute(feed(source).epochs(1), 4, &workers, InputOptions::new()).unwrap();
        job.find_map(|step| {
            let reduced = step.and_then(|step| {
                let counts = step.batches.map(|batch| f64::from(u8::try_from(batch.len()).unwrap()));
                step.weights.reduce(ReduceOp::Sum, &counts)
            });
            let reduced = reduced.map_err(|error| error.to_string());
            reduced.err()
        })
    });
    let told = found[0].as_deref().unwrap();
    let due = "process 1 has left the job, and with it its worker(s) w1: worker \"w1\": ";
    assert!(told.starts_with(due), "{told}");
    assert!(found[1].as_deref().unwrap().starts_with("worker \"w1\": "), "{found:?}");
}

#[test]
fn processes_that_were_told_different_things_are_refused() {
    let described = |_: InputContext| Ok::<_, OrderError>(feed(images("told", 8)).once());
    let found = processes(2, move |rank, end| {
        let workers = some_here(2, [1, 2][rank], rank..rank + 1).collective(end);
        distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err()
    });
    for error in &found {
        let due = "process 1 has 4 replica(s), and process 0 has 2: configure all processes alike";
        assert_eq!(error.to_string(), due);
    }
    let found = processes(2, move |_, end| {
        let workers = some_here(2, 1, 0..1).collective(end);
        distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err()
    });
    assert!(
        matches!(&found[1], DistributeError::NotFedOnce { worker, processes: 2, of: 2 } if *worker == name(0))
    );
    // Copies of a data set that differ.
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 1, rank..rank + 1).collective(end);
        let dataset = feed(images("copies", 8 + rank)).epochs(1);
        distribute(dataset, 4, &workers, InputOptions::new()).unwrap_err()
    });
    let due = DistributeError::NotOneJob { what: "step(s) in the first epoch", rank: 1, found: 3, wanted: 2 };
    assert_eq!(found[0].to_string(), due.to_string());
}

#[test]
fn processes_of_other_orders_or_ends_are_refused() {
    let other_seed: fn(usize) -> FeedBuilder =
        |rank| feed(images("orders", 8)).epochs(1).shuffle(Shuffle::Global).seed(rank as u64);
    let other_end: fn(usize) -> FeedBuilder = |rank| feed(images("orders", 8)).epochs(1 + rank as u64);
    for describe in [other_seed, other_end] {
        let found = processes(2, move |rank, end| {
            let workers = some_here(2, 1, rank..rank + 1).collective(end);
            distribute(describe(rank), 4, &workers, InputOptions::new()).unwrap_err()
        });
        assert!(
            matches!(&found[0], DistributeError::NotOneJob { what, rank: 1, .. } if what.contains("seed")),
            "{}",
            found[0]
        );
    }
}

#[test]
fn a_job_goes_on_from_a_snapshot_unless_its_replicas_are_apart() {
    must_end("a job that goes on", || {
        let describe = || feed(images("apart", 23)).epochs(2);
        let whole = given(distribute(describe(), 6, &all_here(1, 2), InputOptions::new()).unwrap());
        let after = |batches: [usize; 2]| {
            let mut feed = describe().global_batch_size(6).devices(hosts(0..2)).build().unwrap();
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

#[test]
fn a_reduction_weighs_each_replica_by_its_records() {
    must_end("a reduction", || {
        // 5 records for 3 replicas: 2, 2 and 1; the last step has one record, and two replicas have none.
        let mut job =
            distribute(feed(images("reduced", 6)).epochs(1), 5, &all_here(3, 1), InputOptions::new())
                .unwrap();
        let step = job.next().unwrap().unwrap();
        assert_eq!(step.weights.counts(), [2, 2, 1]);
        assert_eq!((0..3).map(|replica| step.weights.weight(replica)).collect::<Vec<_>>(), [0.4, 0.4, 0.2]);
        let losses = [1.0_f32, 2.0, 9.0];
        let mut next = losses.into_iter();
        let losses = step.batches.map(|_| next.next().unwrap());
        assert_eq!(step.weights.reduce(ReduceOp::Mean, &losses).unwrap(), 3.0);
        assert_eq!(step.weights.reduce(ReduceOp::Sum, &losses).unwrap(), 12.0);
        let step = job.next().unwrap().unwrap();
        assert_eq!((step.weights.counts(), step.weights.num_replicas_with_values()), (&[1, 0, 0][..], 1));
        // The mean over an empty batch is NaN, and has weight zero.
        let means: PerReplica<Vec<f64>> = step.batches.map(|batch| {
            let sum = f64::from(batch.labels_f32().iter().sum::<f32>());
            let records = u32::try_from(batch.len()).unwrap();
            vec![sum / f64::from(records), 1.0]
        });
        assert!(means.local()[2][0].is_nan() && means.get(3).is_none());
        assert_eq!(step.weights.reduce(ReduceOp::Mean, &means).unwrap(), [5.0, 1.0]);
        assert_eq!(step.weights.reduce(ReduceOp::Sum, &means).unwrap(), [5.0, 1.0]);
        let mut len = 0;
        let ragged = means.map(|_| {
            len += 1;
            vec![0.0_f32; len]
        });
        let error = step.weights.reduce(ReduceOp::Sum, &ragged).unwrap_err();
        assert!(
            matches!(error, DistributeError::UnevenValues { replica: 1, found: 2, wanted: 1 }),
            "{error}"
        );
    });
}

#[test]
fn a_reduction_over_processes_is_the_same_in_each() {
    let found = processes(2, |rank, end| {
        let workers = some_here(2, 2, rank..rank + 1).collective(end);
        let dataset = feed(images("reduced", 11)).shuffle(Shuffle::Global).seed(3).epochs(1);
        let job = distribute(dataset, 7, &workers, InputOptions::new()).unwrap();
        job.map(|step| {
            let step = step.unwrap();
            let mean =
                |batch: Batch| batch.labels_f32().iter().sum::<f32>() / batch.labels_f32().len() as f32;
            let means = step.batches.map(mean);
            let records = step.weights.records();
            (step.weights.reduce(ReduceOp::Mean, &means).unwrap(), records)
        })
        .collect::<Vec<_>>()
    });
    assert_eq!(found[0], found[1]);
    let sum: f32 = found[0].iter().map(|&(mean, records)| mean * records as f32).sum();
    assert!((sum - 55.0).abs() < 1e-3, "each label once: {sum}");
}

#[test]
fn a_plan_needs_no_way_to_other_processes_and_a_reduction_does() {
    must_end("one process of two", || {
        let workers = some_here(2, 1, 1..2);
        let dataset = feed(images("apart", 8)).epochs(1);
        let mut job = distribute(dataset, 4, &workers, InputOptions::new()).unwrap();
        let step = job.next().unwrap().unwrap();
        assert_eq!((step.weights.counts(), step.batches.replicas()), (&[2, 2][..], &[1][..]));
        let error = step.weights.reduce(ReduceOp::Sum, &step.batches.map(|_| 1.0_f64)).unwrap_err();
        assert!(error.to_string().contains("InputWorkers::collective"), "{error}");
        assert_eq!(job.count(), 1);
        let described = |_: InputContext| Ok::<_, OrderError>(feed(images("apart", 8)).once());
        let error = distribute_from_fn(&workers, InputOptions::new(), described).unwrap_err();
        assert!(matches!(error, DistributeError::NoCollective { .. }), "{error}");
    });
}

#[test]
fn a_map_of_workers_that_cannot_be_is_refused() {
    let here = |name: &str, devices| InputWorker::here(name, hosts(0..devices));
    let refusal = |workers: Vec<InputWorker>| InputWorkers::new(workers).unwrap_err();
    assert!(matches!(refusal(vec![]), DistributeError::Order(OrderError::Zero { option: "workers" })));
    assert!(matches!(
        refusal(vec![here("a", 0)]),
        DistributeError::Order(OrderError::Zero { option: "replicas" })
    ));
    let said = refusal(vec![here("a", 1), here("b", 2)]).to_string();
    assert_eq!(
        said,
        "3 replicas cannot be divided evenly among 2 workers: every worker has the same number of replicas, \
         so give a multiple of 2 as the number of all replicas"
    );
    let said = refusal(vec![here("a", 1), InputWorker::elsewhere("b", 3)]).to_string();
    assert!(said.starts_with("worker \"b\" has 3 device(s), and worker \"a\" has 1"), "{said}");
    assert!(matches!(refusal(vec![here("a", 1), here("a", 1)]), DistributeError::SameName { .. }));
    assert!(matches!(
        refusal(vec![InputWorker::elsewhere("a", 1)]),
        DistributeError::NoneHere { workers: 1 }
    ));
    let options = InputOptions::new().replication_mode(InputReplicationMode::PerReplica);
    let error = distribute(feed(images("refused", 4)), 2, &all_here(1, 1), options).unwrap_err();
    assert!(matches!(error, DistributeError::PerReplicaDataset));

    let process = Process { rank: 1, processes: 3, local_rank: None, local_processes: None };
    let workers = InputWorkers::of_process(&process, hosts(0..2)).unwrap();
    assert_eq!((workers.world(), workers.workers()[2].replicas()), (World::new(3, 6).unwrap(), 2));
    let job = distribute(feed(images("process", 4)), 6, &workers, InputOptions::new()).unwrap();
    assert_eq!(job.replicas(), [2, 3]);
    let process = Process { rank: 3, ..process };
    assert!(InputWorkers::of_process(&process, hosts(0..2)).is_err());
}

/// A device that counts the calls it gets.
#[derive(Debug, Default)]
struct Counting {
    memories: AtomicUsize,
}

impl Backend for Counting {
    fn name(&self) -> String {
        "counting".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        assert!(bytes > 0);
        self.memories.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(Way))
    }
}

#[derive(Debug)]
struct Way;

impl Event for Way {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for Way {
    fn submit(&mut self, _batch: HostBatch<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        self
    }
}

#[test]
fn batches_that_stand_in_go_through_the_lanes_device_and_round_again() {
    must_end("a long tail", || {
        let [short, long]: [Arc<Counting>; 2] = Default::default();
        let device = |backend: &Arc<Counting>| Device::from_backend(backend.clone());
        let workers = InputWorkers::new([
            InputWorker::here("short", [device(&short)]),
            InputWorker::here("long", [device(&long)]),
        ]);
        let described = |context: InputContext| {
            let records = [1, 30][context.input_pipeline_id];
            Ok::<_, OrderError>(feed(images("tail", records)).batch_size(1).once())
        };
        let options = InputOptions::new().per_replica_buffer_size(0).prefetch(1);
        let mut job = distribute_from_fn(&workers.unwrap(), options, described).unwrap();
        let mut held = None;
        for (number, step) in job.by_ref().enumerate() {
            let step = step.unwrap();
            let is_way = |batch: &Batch| (batch.transfer() as &dyn std::any::Any).is::<Way>();
            assert!(step.batches.iter().all(is_way), "step {number}");
            // One of them is held to the end.
            if number == 1 {
                held = step.batches.into_iter().next();
            }
        }
        assert!(held.unwrap().is_empty());
        assert_eq!(long.memories.load(Ordering::SeqCst), 2);
        assert_eq!(
            short.memories.load(Ordering::SeqCst),
            2 + 2,
            "a ring, and one beside the one that is held"
        );
    });
}

#[test]
fn options_say_how_deep_a_ring_is_and_whether_batches_stay_on_the_host() {
    must_end("options", || {
        let backend = Arc::new(Counting::default());
        let workers = || {
            let devices = [0, 1].map(|_| Device::from_backend(backend.clone()));
            InputWorkers::alone(devices).unwrap()
        };
        let looks = |options| {
            let dataset = feed(images("options", 4)).epochs(1);
            let job = distribute(dataset, 2, &workers(), options).unwrap();
            let (name, feed) = job.feeds().next().unwrap();
            assert_eq!(name, "worker 0");
            (feed.sizing().prefetch, feed.stats().lanes[1].device.clone())
        };
        assert_eq!(looks(InputOptions::new()).0, looks(InputOptions::default()).0);
        assert_eq!(looks(InputOptions::new().per_replica_buffer_size(1)), (3, "counting".to_owned()));
        assert_eq!(looks(InputOptions::new().prefetch(6).per_replica_buffer_size(2)).0, 6);
        let before = backend.memories.load(Ordering::SeqCst);
        assert_eq!(looks(InputOptions::new().fetch_to_device(false)).1, "host:1");
        assert_eq!(backend.memories.load(Ordering::SeqCst), before);
    });
}
