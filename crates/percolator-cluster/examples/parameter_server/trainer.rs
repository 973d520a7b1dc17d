//! A trainer: leases blocks of steps, and turns each step's digits into a gradient.
//!
//! A step counts once the next one is asked for, which is after all servers have taken its gradient. A
//! trainer that dies before the end of its block leaves the block to another one: its records are then
//! trained on twice, but count once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use percolator_cluster::leases::{LeaseStats, LeasedFeed, Leases};

use crate::classifier::{Classifier, Gradient};
use crate::client::Servers;
use crate::data::{self, PIXELS};
use crate::note;
use crate::options::TrainerOptions;

/// How many gradients make a block.
const STEPS_PER_BLOCK: u64 = 15;
/// How often it is looked whether the trainer is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Why a trainer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All blocks of the job are done.
    Done,
    /// It was asked to: there may be more to do, for another trainer.
    Asked,
}

pub(crate) fn run(options: &TrainerOptions) -> anyhow::Result<Ended> {
    // Before it joins, which may take as long as another trainer's lease.
    let asked = crate::asked_to_end()?;
    let (job, metadata) = (&options.job, options.job.open()?);
    let mut leases = Leases::of(metadata.clone(), &*job.name)
        .steps_per_block(STEPS_PER_BLOCK)
        .ttl(job.ttl)
        .patience(options.patience);
    if let Some(name) = &options.name {
        leases = leases.worker(name);
    }
    let mut leased = leases.feed(data::train(options.epochs)?)?;
    let who = format!("trainer {}", leased.worker());
    note(&format!("{who}: process {}, has joined the job {}", std::process::id(), job.name));

    // A trainer that waits for a block, which others have, stops as well.
    let (handle, cancels) = (leased.feed().handle(), asked.clone());
    thread::spawn(move || {
        while !cancels.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        handle.cancel();
    });
    let servers = Servers::new(&who, &metadata, job, options.patience, &asked);
    let trained = train(&mut leased, servers, options.rest, &asked);
    let (ended, why) = match (asked.load(Ordering::Relaxed), trained) {
        (true, Ok(())) => (Ended::Asked, "was asked to end".to_owned()),
        // What it waited for is not waited for any more.
        (true, Err(error)) => (Ended::Asked, format!("was asked to end: {error:#}")),
        (false, trained) => (Ended::Done, trained.map(|()| "all blocks are done".to_owned())?),
    };
    let LeaseStats { finished, lost, .. } = leased.stats();
    note(&format!("{who}: {why}; {finished} blocks finished, {lost} lost"));
    Ok(ended)
}

/// Trains until there are no more blocks, or it is asked to end.
fn train(
    leased: &mut LeasedFeed,
    mut servers: Servers,
    rest: Duration,
    asked: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut weights = servers.pull()?;
    while let Some(step) = leased.next().transpose()? {
        for batch in step.batches {
            thread::sleep(rest);
            let model = Classifier::with_weights(PIXELS, weights);
            let mut gradient = Gradient::zero(&model);
            gradient.add(&model, batch.pixels()?, batch.labels()?);
            // The next batch is made in this one's memory.
            drop(batch);
            gradient.slopes.iter_mut().for_each(|slope| *slope /= gradient.records);
            weights = servers.push(&gradient.slopes)?;
        }
        if asked.load(Ordering::Relaxed) {
            // All servers have this step: if it is the last one of its block, the block is done.
            leased.confirm()?;
            break;
        }
    }
    Ok(())
}
