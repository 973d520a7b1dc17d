//! Processes that fail, are killed, or hang: the others get an error, or mpirun ends the job. Nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpi::traits::Communicator as _;
use percolator::source::{FnSource, SourceError};
use percolator::{Device, Feed, RawBytes};
use percolator_collectives::mpi::{MpiCollective, collective, ends_the_job};
use percolator_distribute::{Collective, InputOptions, InputWorkers, Process, ReduceOp, distribute};

use super::*;
use crate::process::{role, this_test};

/// A job in which the feed of one process fails after a few steps. Returns the error of this process.
fn job(collective: MpiCollective) -> String {
    let rank = collective.rank();
    let is_on_fire = Arc::new(AtomicBool::new(false));
    let seen = is_on_fire.clone();
    let source = FnSource::new("numbers", 4000, move |position, value| {
        value.extend(position.to_le_bytes());
        match seen.load(Ordering::SeqCst) {
            true => Err(SourceError::other("numbers", "the disk is on fire")),
            false => Ok(()),
        }
    });
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).epochs(1).threads(1);
    let process = Process::from_environment(None, None).unwrap().unwrap();
    let workers = InputWorkers::of_process(&process, [Device::host(0)]).unwrap().collective(collective);
    let job = distribute(feed, 8, &workers, InputOptions::new()).unwrap();
    for (number, step) in job.enumerate() {
        let step = match step {
            Ok(step) => step,
            Err(error) => return error.to_string(),
        };
        let weights = step.weights;
        let values = step.batches.map(|batch| f64::from(u8::try_from(batch.len()).unwrap()));
        if let Err(error) = weights.reduce(ReduceOp::Sum, &values) {
            return error.to_string();
        }
        is_on_fire.store(rank == 2 && number >= 5, Ordering::SeqCst);
    }
    "no error".to_owned()
}

#[test]
fn a_process_whose_feed_fails_tells_the_others_why() {
    if role().is_some() {
        let universe = begin();
        let collective = collective(&universe.world(), PATIENCE).unwrap();
        let rank = collective.rank();
        println!("told: {rank} {}", job(collective));
        return;
    }
    let Some(output) = mpirun(this_test!(), "fails", 4) else { return };
    assert!(output.status.success(), "{}", all(&output));
    let told = told(&output);
    assert_eq!(told.len(), 4, "{}", all(&output));
    assert!(told[2].starts_with("2 worker \"worker 2\": ") && told[2].contains("on fire"), "{told:?}");
    for rank in [0, 1, 3] {
        let due = format!("{rank} process 2 has left the job, and with it its worker(s) worker 2: ");
        assert!(told[rank].starts_with(&due) && told[rank].contains("on fire"), "{told:?}");
    }
}

#[test]
fn a_process_that_is_killed_ends_the_job() {
    if role().is_some() {
        let universe = begin();
        let collective = collective(&universe.world(), PATIENCE).unwrap();
        collective.all_gather(&[1]).unwrap();
        if collective.rank() == 1 {
            let mut kill = Command::new("kill");
            kill.args(["-9", &std::process::id().to_string()]).status().unwrap();
            loop {
                std::thread::park();
            }
        }
        // mpirun ends this process while it waits.
        let error = collective.all_gather(&[1]).unwrap_err();
        println!("told: {error}");
        universe.world().abort(1);
    }
    let Some(output) = mpirun(this_test!(), "killed", 4) else { return };
    assert!(!output.status.success(), "{}", all(&output));
    assert!(all(&output).contains("signal 9 (Killed)"), "{}", all(&output));
}

#[test]
fn a_process_that_hangs_ends_the_round_of_the_others() {
    if role().is_some() {
        let universe = begin();
        let world = universe.world();
        let collective = collective(&world, Duration::from_secs(3)).unwrap();
        collective.all_gather(&[1]).unwrap();
        if collective.rank() == 1 {
            loop {
                std::thread::park();
            }
        }
        let error = collective.all_gather(&[1]).unwrap_err();
        println!("told: {error}");
        collective.all_gather(&[1]).unwrap_err();
        assert!(ends_the_job(&error), "{error:?}");
        world.abort(3);
    }
    let Some(output) = mpirun(this_test!(), "hangs", 4) else { return };
    assert!(!output.status.success(), "{}", all(&output));
    let due = "some of the 4 processes did not come to the round within 3.0s";
    assert!(told(&output).iter().any(|line| line.starts_with(due)), "{}", all(&output));
}

#[test]
fn a_communicator_that_not_all_make_a_collective_of_is_an_error() {
    if role().is_some() {
        let universe = begin();
        let world = universe.world();
        if world.rank() == 1 {
            loop {
                std::thread::park();
            }
        }
        let error = collective(&world, Duration::from_secs(3)).unwrap_err();
        println!("told: {error}");
        world.abort(3);
    }
    let Some(output) = mpirun(this_test!(), "alone", 3) else { return };
    assert!(!output.status.success(), "{}", all(&output));
    let due = "not all processes of the communicator made a collective of it within 3.0s";
    assert!(told(&output).iter().any(|line| line == due), "{}", all(&output));
}
