//! Rounds bring what each gave, and a job over MPI is one job.

use std::fmt::Write as _;

use mpi::traits::Communicator as _;
use percolator::source::FnSource;
use percolator::{Device, Feed, LastBatch, RawBytes, Shuffle};
use percolator_collectives::mpi::{MpiError, collective, ends_the_job};
use percolator_distribute::{
    Collective as _, InputOptions, InputWorkers, LocalCollective, Process, ReduceOp, distribute,
};

use super::*;
use crate::collectives::{
    rounds_bring_what_each_gave, run, uneven_rounds_are_errors_for_all, who_has_given_may_leave,
};
use crate::process::{role, this_test};

#[test]
fn a_collective_over_mpi_keeps_its_promises() {
    if role().is_some() {
        let universe = begin();
        let world = universe.world();
        let make = || collective(&world, PATIENCE).unwrap();
        let (one, other) = (make(), make());
        rounds_bring_what_each_gave(&one);
        rounds_bring_what_each_gave(&other);
        drop(one);
        rounds_bring_what_each_gave(&other);
        for (words, more) in [(1, 2), (28, 29), (29, 5000)] {
            uneven_rounds_are_errors_for_all(&make(), words, more);
        }
        who_has_given_may_leave(make(), None);
        who_has_given_may_leave(make(), Some("the disk is full"));
        // From another thread than the one that began MPI.
        let end = make();
        run(vec![end], |end| rounds_bring_what_each_gave(&end));
        println!("told: {} of {}", other.rank(), other.size());
        return;
    }
    let Some(output) = mpirun(this_test!(), "rounds", 4) else { return };
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(told(&output), ["0 of 4", "1 of 4", "2 of 4", "3 of 4"], "{}", all(&output));
}

/// What a process of the job gets and reduces, step by step.
fn learn(workers: &InputWorkers) -> String {
    let source = FnSource::new("numbers", 103, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).shuffle(Shuffle::Global).seed(5);
    let feed = feed.last_batch(LastBatch::Keep).epochs(2).threads(1);
    let mut text = String::new();
    for step in distribute(feed, 16, workers, InputOptions::new()).unwrap() {
        let step = step.unwrap();
        let weights = step.weights;
        let sums = step.batches.map(|batch| {
            let records = batch.records().iter();
            records.map(|record| 1.0 / (record.index as f64 + 3.7)).sum::<f64>()
        });
        let sum = weights.reduce(ReduceOp::Sum, &sums).unwrap();
        write!(text, "{:?} {:x} ", weights.counts(), sum.to_bits()).unwrap();
    }
    text
}

#[test]
fn a_job_over_mpi_has_the_numbers_of_one_process_bit_for_bit() {
    if role().is_some() {
        let universe = begin();
        let collective = collective(&universe.world(), PATIENCE).unwrap();
        let process = Process::from_environment(None, None).unwrap().unwrap();
        assert_eq!((process.rank, process.processes), (collective.rank(), collective.size()));
        let workers = InputWorkers::of_process(&process, [Device::host(0)]).unwrap();
        println!("told: {}", learn(&workers.collective(collective)));
        return;
    }
    let Some(output) = mpirun(this_test!(), "job", 4) else { return };
    assert!(output.status.success(), "{}", all(&output));
    let alone = InputWorkers::alone((0..4).map(Device::host)).unwrap();
    let alone = alone.collective(LocalCollective::group(1).remove(0));
    let due = learn(&alone).trim().to_owned();
    let told: Vec<_> = told(&output).into_iter().map(|line| line.trim().to_owned()).collect();
    assert_eq!(told, [&*due; 4], "{}", all(&output));
    assert!(due.contains("[2, 2, 2, 1]"), "the last step of an epoch is uneven: {due}");
}

#[test]
fn mpi_that_cannot_be_used_is_refused() {
    if role().is_some() {
        let started = mpi::initialize_with_threading(mpi::Threading::Funneled);
        let (universe, level) = started.unwrap();
        let world = universe.world();
        assert_eq!(world.size(), 1);
        let error = collective(&world, PATIENCE).unwrap_err();
        match level {
            mpi::Threading::Funneled => println!("told: {error}"),
            _ => println!("told: {level:?} {error:?}"),
        }
        drop(universe);
        assert_eq!(collective(&world, PATIENCE).unwrap_err(), MpiError::NotRunning);
        return;
    }
    let Some(output) = mpirun(this_test!(), "levels", 1) else { return };
    assert!(output.status.success(), "{}", all(&output));
    let told = told(&output).join("\n");
    assert!(told.contains("thread level Funneled") && told.contains("Threading::Serialized"), "{told}");
}

#[test]
fn a_collective_that_outlives_mpi_returns_errors() {
    if role().is_some() {
        let universe = begin();
        let collective = collective(&universe.world(), PATIENCE).unwrap();
        drop(universe);
        let error = collective.all_gather(&[1]).unwrap_err();
        assert!(ends_the_job(&error), "{error:?}");
        println!("told: {error}");
        return;
    }
    let Some(output) = mpirun(this_test!(), "late", 2) else { return };
    assert!(output.status.success(), "{}", all(&output));
    let told = told(&output);
    assert!(told.len() == 2 && told.iter().all(|line| line.contains("MPI does not run")), "{told:?}");
}
