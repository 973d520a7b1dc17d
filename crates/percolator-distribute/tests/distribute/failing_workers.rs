//! If a worker of a job fails or leaves, the others name it in their error and end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicU64, Ordering};

use percolator::FeedError;
use percolator::order::{InputContext, OrderError};
use percolator::reader::ReaderError;
use percolator::source::SourceError;
use percolator_distribute::{
    Collective, CollectiveError, DistributeError, InputOptions, LocalCollective, ReduceOp, distribute,
    distribute_from_fn,
};

use crate::common::process::must_end;
use crate::jobs::{all_here, feed, images, name, processes, some_here};

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

/// An end of a collective that panics when it is to leave, and at one of its rounds.
#[derive(Debug)]
struct Panicking {
    end: LocalCollective,
    rounds: AtomicU64,
    at: u64,
}

impl Collective for Panicking {
    fn rank(&self) -> usize {
        self.end.rank()
    }

    fn size(&self) -> usize {
        self.end.size()
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        match self.rounds.fetch_add(1, Ordering::SeqCst) {
            round if round == self.at => panic!("a panic of the test"),
            _ => self.end.all_gather(words),
        }
    }

    fn resign(&self, reason: &str) {
        self.end.resign(reason);
        panic!("another panic of the test");
    }
}

/// It comes out of no call, and the other processes are told.
#[test]
fn a_collective_that_panics_is_an_error_of_the_job() {
    // The two rounds of the start, the first step's, and that of its reduction.
    for at in 0..4 {
        let found = processes(2, move |rank, end| {
            let workers = some_here(2, 1, rank..rank + 1);
            let workers = match rank {
                0 => workers.collective(Panicking { end, rounds: AtomicU64::new(0), at }),
                _ => workers.collective(end),
            };
            let described = |_: InputContext| Ok::<_, OrderError>(feed(images("panicking", 8)));
            let first = || -> Result<(), DistributeError> {
                let step = distribute_from_fn(&workers, InputOptions::new(), described)?.next().unwrap()?;
                let ones = step.batches.map(|_| 1.0);
                step.weights.reduce(ReduceOp::Sum, &ones).map(|_| ())
            };
            first().unwrap_err()
        });
        let DistributeError::Collective(CollectiveError::Panicked { message }) = &found[0] else {
            panic!("{at}: {found:?}")
        };
        assert_eq!(message, "a panic of the test");
        let told = found[1].to_string();
        assert!(told.contains("the collective panicked: a panic of the test"), "{at}: {told}");
    }
}
