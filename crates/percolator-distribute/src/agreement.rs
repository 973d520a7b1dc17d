//! What the processes of a job agree on, and which worker they name when they cannot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::collective::{Collective, CollectiveError};
use crate::error::DistributeError;
use crate::input_workers::InputWorkers;
use percolator::order::World;
use percolator_files::shown::{self, panic_message};

/// What ends the input, and the worker named to other processes.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) worker: usize,
    pub(super) error: DistributeError,
}

/// What must be the same in all processes, in the order of [`FACTS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct JobFacts([u64; FACTS.len()]);

const FACTS: [&str; 5] = [
    "worker(s)",
    "replica(s)",
    "feed(s)",
    "step(s) in the first epoch",
    "as the checksum of its plan (data, batch, shuffle, seed, epochs, first step)",
];

impl JobFacts {
    /// `steps` is the number of steps of the first epoch. `plan` is a text of everything else, if the job has
    /// a plan.
    pub(super) fn of(world: World, feeds: usize, steps: u64, plan: &str) -> Self {
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, plan.as_bytes());
        JobFacts([world.workers() as u64, world.replicas() as u64, feeds as u64, steps, sum])
    }
}

/// A collective's panic is an error of the job.
fn caught<T>(call: impl FnOnce() -> Result<T, CollectiveError>) -> Result<T, CollectiveError> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(CollectiveError::Panicked { message: panic_message(&*panic) }))
}

/// The first word of a round: this, or the number of a failed worker, counted from 1.
const WELL: u64 = 0;

/// The processes of a job after they have met. Each knows which workers the others feed.
#[derive(Debug)]
pub(super) struct Agreement {
    collective: Arc<dyn Collective>,
    names: Vec<String>,
    /// The process that feeds each worker. Empty until the processes have met.
    fed_by: Vec<usize>,
}

impl Agreement {
    /// Meets the other processes. A process that could not start its feeds meets them too and reports it,
    /// which is an error for the others.
    pub(super) fn meet(
        collective: &Arc<dyn Collective>,
        workers: &InputWorkers,
        started: Result<JobFacts, usize>,
    ) -> Result<Self, DistributeError> {
        let names = workers.workers().iter().map(|worker| worker.name().to_owned()).collect();
        let mut agreement = Agreement { collective: collective.clone(), names, fed_by: Vec::new() };
        let JobFacts(facts) = *started.as_ref().unwrap_or(&JobFacts([0; FACTS.len()]));
        let found = agreement.round(started.map(|_| ()), &facts)?;
        let wanted: Vec<u64> = found.first().cloned().unwrap_or_default();
        for (rank, found) in found.iter().enumerate() {
            for ((what, &found), &wanted) in FACTS.into_iter().zip(found).zip(&wanted) {
                if found != wanted {
                    return Err(DistributeError::NotOneJob { what, rank, found, wanted });
                }
            }
        }
        let mut feeds = vec![0; agreement.names.len()];
        for (number, ..) in workers.here() {
            feeds[number] = 1;
        }
        let fed = agreement.round(Ok(()), &feeds)?;
        for (number, worker) in agreement.names.iter().enumerate() {
            let is_fed = |words: &&Vec<u64>| words.get(number).is_some_and(|&word| word == 1);
            let processes = fed.iter().filter(is_fed).count();
            match fed.iter().position(|words| is_fed(&words)) {
                Some(process) if processes == 1 => agreement.fed_by.push(process),
                _ => {
                    let (worker, of) = (worker.clone(), fed.len());
                    return Err(DistributeError::NotFedOnce { worker, processes, of });
                }
            }
        }
        Ok(agreement)
    }

    /// Takes part in a round with words, or with the number of a worker of this process that failed. Returns
    /// the words of each process, by rank.
    pub(super) fn round(
        &self,
        state: Result<(), usize>,
        words: &[u64],
    ) -> Result<Vec<Vec<u64>>, DistributeError> {
        let state = state.map_or_else(|worker| worker as u64 + 1, |()| WELL);
        let brought: Vec<u64> = std::iter::once(state).chain(words.iter().copied()).collect();
        let gather = || self.collective.all_gather(&brought);
        let gathered = caught(gather).map_err(|error| {
            if let CollectiveError::Panicked { .. } = &error {
                self.resign(&error.clone().into());
            }
            self.with_workers(error)
        })?;
        let of_each: Vec<&[u64]> = gathered.chunks(brought.len()).collect();
        let failed = of_each.iter().map(|words| words[0]).find(|&state| state != WELL);
        if let Some(failed) = failed {
            let number = usize::try_from(failed - 1).unwrap_or(usize::MAX);
            let worker = self.names.get(number).cloned().unwrap_or_else(|| format!("number {number}"));
            return Err(DistributeError::Elsewhere { worker });
        }
        Ok(of_each.into_iter().map(|words| words[1..].to_vec()).collect())
    }

    /// Leaves the job because of an error, which the others get as the reason.
    pub(super) fn resign(&self, error: &DistributeError) {
        let reason = shown::with_sources(error);
        let leave = || {
            self.collective.resign(&reason);
            Ok(())
        };
        if let Err(error) = caught(leave) {
            tracing::warn!(
                error = %shown::with_sources(&error), reason,
                "the other processes may not hear why this one leaves"
            );
        }
    }

    /// Turns an error of the collective into one that names the workers of the process.
    fn with_workers(&self, error: CollectiveError) -> DistributeError {
        match error {
            CollectiveError::Left { rank, reason, .. } if self.fed_by.contains(&rank) => {
                let of_it = self.names.iter().zip(&self.fed_by).filter(|(_, process)| **process == rank);
                let workers = of_it.map(|(name, _)| name.clone()).collect();
                DistributeError::ProcessLeft { rank, workers, reason }
            }
            error => error.into(),
        }
    }
}
