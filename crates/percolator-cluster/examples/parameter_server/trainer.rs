//! A trainer: leases blocks of steps, and turns each step's digits into a gradient.
//!
//! A step counts once the next one is asked for, which is after all servers have taken its gradient. A
//! trainer that dies before the end of its block leaves the block to another one: its records are then
//! trained on twice, but count once.

use percolator::FeedError;
use percolator_cluster::leases::{LeaseError, LeaseStats, LeasedFeed, LeasedStep, Leases};

use crate::client::{Patience, Servers};
use crate::digits::{self, Training};
use crate::model;
use crate::options::TrainerOptions;
use crate::report::note;
use crate::stop::Stop;

/// Why a trainer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All blocks of the job are done.
    Done,
    /// It was asked to: there may be more to do, for another trainer.
    Asked,
}

pub(crate) fn run(options: &TrainerOptions) -> anyhow::Result<Ended> {
    let metadata = options.place.open()?;
    let job = &options.job;
    let training =
        Training { batch_size: options.batch_size, epochs: options.epochs, seed: options.training_seed };
    let mut leases = Leases::of(metadata.clone(), &*job.name)
        .steps_per_block(options.steps_per_block)
        .ttl(options.lease.ttl())
        .patience(options.patience());
    if let Some(name) = &options.name {
        leases = leases.worker(name);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // Before it joins, which may take as long as another trainer's lease.
    let stop = runtime.block_on(async { Stop::on_signals() })?;
    let mut leased = leases.feed(digits::train_feed(training)?)?;
    let name = format!("trainer {}", leased.worker());
    note(&format!("{name}: process {}, has joined the job {}", std::process::id(), job.name));

    let canceller = leased.feed().canceller();
    let stopped = stop.wait();
    // A trainer that waits for a block, which others have, stops as well.
    runtime.spawn(async move {
        stopped.await;
        canceller.cancel();
    });
    let servers = Servers::new(&metadata, &job.name, job.shards);
    let patience = Patience { who: &name, at_most: options.patience() };
    let trained = runtime.block_on(train(&mut leased, servers, patience, &stop));
    runtime.shutdown_background();
    let steps = trained?;
    let LeaseStats { finished, lost, .. } = leased.stats();
    let (ended, why) = match stop.is_set() {
        true => (Ended::Asked, "was asked to end"),
        false => (Ended::Done, "all blocks are done"),
    };
    note(&format!("{name}: {why}: {steps} steps, {finished} blocks finished, {lost} lost"));
    Ok(ended)
}

/// Trains until there are no more blocks. Returns the number of steps.
async fn train(
    leased: &mut LeasedFeed,
    mut servers: Servers,
    patience: Patience<'_>,
    stop: &Stop,
) -> anyhow::Result<u64> {
    let mut steps = 0;
    let Some(pulled) = until(stop, servers.pull(patience)).await else { return Ok(0) };
    let (mut weights, _) = pulled?;
    loop {
        // It blocks this thread, and nothing else runs on it.
        let LeasedStep { batches, .. } = match leased.next().transpose() {
            Err(LeaseError::Of(FeedError::Cancelled)) if stop.is_set() => return Ok(steps),
            Err(error) => return Err(error.into()),
            Ok(None) => return Ok(steps),
            Ok(Some(step)) => step,
        };
        for batch in batches {
            let gradient = model::gradient(&weights, batch.pixels()?, batch.labels()?);
            // The next batch is made in this one's memory.
            drop(batch);
            let Some(pushed) = until(stop, servers.push(&gradient, patience)).await else { return Ok(steps) };
            weights = pushed?;
        }
        steps += 1;
        if stop.is_set() {
            // All servers have this step: if it is the last one of its block, the block is done.
            leased.confirm()?;
            return Ok(steps);
        }
    }
}

/// Does something, unless the process is to end before it is done.
async fn until<T>(stop: &Stop, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = stop.wait() => None,
    }
}
