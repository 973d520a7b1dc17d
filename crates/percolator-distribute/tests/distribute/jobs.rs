//! Jobs for tests: workers that are here or elsewhere, and what their processes are given.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;

use percolator::record::RecordId;
use percolator::source::Source;
use percolator::{Device, Feed, FeedBuilder};
use percolator_distribute::{
    Collective as _, DistributedIterator, DistributedStep, InputWorker, InputWorkers, LocalCollective,
};

use crate::common::process::must_end;
use crate::common::source::MemorySource;

pub(crate) fn images(name: &str, records: usize) -> MemorySource {
    MemorySource::images(name, records, 1, 2, 2)
}

pub(crate) fn feed(source: impl Source + 'static) -> FeedBuilder {
    Feed::builder().source(source).threads(1)
}

pub(crate) fn hosts(range: Range<usize>) -> impl Iterator<Item = Device> {
    range.map(Device::host)
}

pub(crate) fn name(worker: usize) -> String {
    format!("w{worker}")
}

/// All workers in this process, with this many devices each.
pub(crate) fn all_here(workers: usize, each: usize) -> InputWorkers {
    some_here(workers, each, 0..workers)
}

/// Some of the workers in this process, the others elsewhere.
pub(crate) fn some_here(workers: usize, each: usize, here: Range<usize>) -> InputWorkers {
    let worker = |number: usize| match here.contains(&number) {
        true => InputWorker::here(name(number), hosts(number * each..(number + 1) * each)),
        false => InputWorker::elsewhere(name(number), each),
    };
    InputWorkers::new((0..workers).map(worker)).unwrap()
}

/// What a process is given: at each step, the records of each of its replicas, and the record count of each
/// replica of the job.
pub(crate) type Given = Vec<(Vec<Vec<RecordId>>, Vec<u64>)>;

fn look(step: DistributedStep) -> (Vec<Vec<RecordId>>, Vec<u64>) {
    for (&replica, batch) in step.batches.replicas().iter().zip(&step.batches) {
        assert_eq!(batch.len() as u64, step.weights.counts()[replica], "replica {replica}");
    }
    let with_values = step.weights.counts().iter().filter(|&&count| count > 0).count();
    assert_eq!(step.weights.num_replicas_with_values(), with_values);
    let of_each = step.batches.map(|batch| batch.records().to_vec()).into_iter().collect();
    (of_each, step.weights.counts().to_vec())
}

pub(crate) fn given(job: DistributedIterator) -> Given {
    job.map(|step| look(step.unwrap())).collect()
}

/// Runs each of the job's processes on a thread, with its end of the collective.
pub(crate) fn processes<T: Send + 'static>(
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
