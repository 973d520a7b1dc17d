//! A job of many workers: each step's batches of all replicas together, as in TensorFlow's `tf.distribute`.
//!
//! ```text
//!  InputWorkers   worker -> devices; which workers are in this process
//!      |
//!      |  distribute            one feed per worker, all of one plan
//!      |  distribute_from_fn    one feed per call, as the function describes it
//!      v
//!  DistributedIterator   a step: the next batch of each replica of this process
//!      |                 each replica's number of records: from the plan, or agreed on (Collective)
//!      v
//!  DistributedStep       PerReplica<Batch>, and StepWeights, which reduce values computed from the batches
//! ```
//!
//! # Invariants
//!
//! 1. **All processes end at the same step.** A plan has the same number of steps for each. Without a plan,
//!    no process ends before all have reported that they have nothing left.
//! 2. **Every process learns of a failure.** If the processes agree on each step, a process that fails
//!    reports it in its next round, with the worker's name, and then leaves. It skips no round, so no process
//!    waits for it. If they do not, it leaves with its error as the reason, which they get when they next
//!    meet.
//! 3. The batches taken for a step go back to their lanes on every path.

mod agreement;
mod collective;
mod environment;
mod error;
mod gather;
mod input_workers;
mod iterator;
mod options;
mod per_replica;
mod weights;

use std::error::Error;
use std::sync::Arc;

pub use crate::collective::{Collective, CollectiveError, LocalCollective};
pub use crate::environment::{EnvironmentError, Process};
pub use crate::error::DistributeError;
pub use crate::gather::{Gather, GatherCollective};
pub use crate::input_workers::{InputWorker, InputWorkers};
pub use crate::iterator::{DistributedIterator, DistributedStep};
pub use crate::options::{InputOptions, InputReplicationMode};
pub use crate::per_replica::{HostValue, PerReplica};
pub use crate::weights::{ReduceOp, StepWeights};

use crate::agreement::Failure;
use crate::iterator::{End, Pipeline};
use percolator::Device;
use percolator::FeedBuilder;
use percolator::order::{BatchSize, InputContext, JobWorker};

/// Divides a data set among the replicas of a job: at each step, the parts of the replicas add up to a global
/// batch. TensorFlow's `experimental_distribute_dataset`.
///
/// Each worker of this process has its own feed, a [share](FeedBuilder::share) of the job, with the worker's
/// devices for lanes. The data set's other options apply to each of these feeds:
/// [threads](FeedBuilder::threads) and a [memory limit](FeedBuilder::memory_limit) are per worker, too. Its
/// [policy](FeedBuilder::policy) shards it, and it lasts as many [epochs](FeedBuilder::epochs) as it is set
/// to: it must have a number of them, or 0 for no end. A share of its own is replaced. Who gets what is
/// arithmetic ([`Plan`](percolator::order::Plan)), so processes need not communicate. If the workers have a
/// [collective](InputWorkers::collective), all processes meet once, here, to check that they are of one job.
/// So a process does not see another's error before they next meet in a [reduction](StepWeights::reduce).
///
/// ```
/// use percolator_distribute::{InputOptions, InputWorker, InputWorkers, ReduceOp, distribute};
/// use percolator::batch::FieldError;
/// use percolator::{Batch, Device, Feed};
/// # let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/golden/raw_lmdb");
///
/// let workers = InputWorkers::new([
///     InputWorker::here("a", [Device::host(0), Device::host(1)]),
///     InputWorker::here("b", [Device::host(2), Device::host(3)]),
/// ])?;
/// let records = Feed::builder().lmdb(digits).index(percolator::source::IndexPlace::Memory).epochs(1);
/// for step in distribute(records, 10, &workers, InputOptions::new())? {
///     let step = step?;
///     let sum = |batch: Batch| Ok::<f32, FieldError>(batch.labels_f32()?.iter().sum());
///     let losses = step.batches.try_map(sum)?;
///     println!("{} of {} replicas", step.weights.num_replicas_with_values(), step.weights.counts().len());
///     println!("{}", step.weights.reduce(ReduceOp::Sum, &losses)?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`DistributeError`], with the worker's name if its feed cannot be built;
/// [`DistributeError::PerReplicaDataset`] if the mode is [per replica](InputReplicationMode::PerReplica).
/// Nothing is left running.
pub fn distribute(
    dataset: FeedBuilder,
    global_batch_size: usize,
    workers: &InputWorkers,
    options: InputOptions,
) -> Result<DistributedIterator, DistributeError> {
    if options.replication_mode == InputReplicationMode::PerReplica {
        return Err(DistributeError::PerReplicaDataset);
    }
    let world = workers.world();
    let build = |seat: &Seat<'_>| {
        // Its place in the job is the seat's, whatever share it has.
        let described = dataset.clone().batch_size(BatchSize::Global(global_batch_size as u64));
        seat.build(described.share(JobWorker { world, number: seat.worker }), options)
    };
    let pipelines = seats(workers, InputReplicationMode::PerWorker).iter().map(build).collect();
    let pipelines: Result<Vec<Pipeline>, Failure> = pipelines;
    DistributedIterator::start(workers, pipelines.and_then(of_one_plan), End::Planned)
}

/// Calls a function for each worker, and makes one job of the feeds it describes: TensorFlow's
/// `distribute_datasets_from_function`.
///
/// The function is given the number of the call and of all calls ([`InputContext`]). Its feeds are neither
/// batched nor sharded any further: each goes to the worker's devices as it is or, [per
/// replica](InputReplicationMode::PerReplica), to the one device of the call. The function is called for the
/// workers of this process only, in their order.
///
/// The lengths of the feeds are unknown before they end, and may differ. So the processes agree at each step,
/// over their [collective](InputWorkers::collective), which replicas still have records. Those that have none
/// get empty batches, of the right shape and dtype and with a batch dimension of 0, until no replica has any;
/// then all end. (If a feed [pads](percolator::LastBatch::Pad), its empty batches are padded, too.) The shape
/// is that of the replica's own feed: the function must make sure that all feeds have the same one.
///
/// ```
/// use percolator::{Device, Epochs, Feed};
/// use percolator_distribute::{InputOptions, InputWorkers, distribute_from_fn};
/// use percolator::order::{InputContext, OrderError};
/// # let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/golden/raw_lmdb");
///
/// let workers = InputWorkers::alone([Device::host(0), Device::host(1)])?;
/// let described = |context: InputContext| -> Result<_, OrderError> {
///     let batch_size = context.per_replica_batch_size(32)?;
///     let batch_size = usize::try_from(batch_size).unwrap_or(usize::MAX);
///     Ok(Feed::builder().lmdb(digits).batch_size(batch_size).epochs(Epochs::OnePass))
/// };
/// for step in distribute_from_fn(&workers, InputOptions::new(), described)? {
///     for batch in step?.batches {
///         println!("{batch:?}");
///     }
/// }
/// # Ok::<(), percolator_distribute::DistributeError>(())
/// ```
///
/// # Errors
///
/// [`DistributeError`]: [`Function`](DistributeError::Function) if the function failed,
/// [`NoCollective`](DistributeError::NoCollective) if there are other processes and no collective.
pub fn distribute_from_fn<E>(
    workers: &InputWorkers,
    options: InputOptions,
    mut function: impl FnMut(InputContext) -> Result<FeedBuilder, E>,
) -> Result<DistributedIterator, DistributeError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    if workers.is_split() && workers.collective.is_none() {
        return Err(DistributeError::NoCollective { what: "which replicas still have records" });
    }
    let world = workers.world();
    let num_input_pipelines = match options.replication_mode {
        InputReplicationMode::PerWorker => world.workers(),
        InputReplicationMode::PerReplica => world.replicas(),
    };
    let build = |seat: &Seat<'_>| {
        let context = InputContext {
            num_input_pipelines,
            input_pipeline_id: seat.pipeline,
            num_replicas_in_sync: world.replicas(),
        };
        let described = function(context).map_err(|error| {
            let (worker, error) = (seat.name.to_owned(), Arc::from(error.into()));
            Failure { worker: seat.worker, error: DistributeError::Function { worker, error } }
        })?;
        seat.build(described, options)
    };
    let pipelines = seats(workers, options.replication_mode).iter().map(build).collect();
    DistributedIterator::start(workers, pipelines, End::Agreed { feeds: num_input_pipelines })
}

/// The place of one feed of this process in the job.
struct Seat<'a> {
    worker: usize,
    name: &'a str,
    /// The number of the feed in the job.
    pipeline: usize,
    /// The replica of its first device.
    first_replica: usize,
    devices: &'a [Device],
}

impl Seat<'_> {
    /// Starts its feed for its devices.
    fn build(&self, described: FeedBuilder, options: InputOptions) -> Result<Pipeline, Failure> {
        let fed = options.applied_to(described, self.devices, self.first_replica);
        match fed.build() {
            Ok(feed) => Ok(Pipeline::new(self.worker, feed)),
            Err(error) => {
                let error = DistributeError::Worker { worker: self.name.to_owned(), error: Box::new(error) };
                Err(Failure { worker: self.worker, error })
            }
        }
    }
}

/// The feeds of this process, in the order of their replicas.
fn seats(workers: &InputWorkers, mode: InputReplicationMode) -> Vec<Seat<'_>> {
    let of_worker = workers.world().replicas_per_worker();
    let each = match mode {
        InputReplicationMode::PerWorker => of_worker,
        InputReplicationMode::PerReplica => 1,
    };
    let seats = workers.here().flat_map(|(worker, name, devices)| {
        let replicas = (worker * of_worker..).step_by(each);
        replicas.zip(devices.chunks(each)).map(move |(first_replica, devices)| Seat {
            worker,
            name,
            pipeline: first_replica / each,
            first_replica,
            devices,
        })
    });
    seats.collect()
}

/// Checks that all feeds of this process have one plan, although each opened its source by itself, and one
/// next step.
fn of_one_plan(pipelines: Vec<Pipeline>) -> Result<Vec<Pipeline>, Failure> {
    let Some(first) = pipelines.first().map(|pipeline| &pipeline.feed) else { return Ok(pipelines) };
    let (plan, next) = (first.plan(), first.next_steps().first().copied());
    for pipeline in &pipelines {
        let failure = |error| Failure { worker: pipeline.worker, error };
        if pipeline.feed.plan() != plan {
            return Err(failure(DistributeError::DataChanged));
        }
        if let Some(found) = pipeline.feed.next_steps().into_iter().find(|found| Some(*found) != next) {
            return Err(failure(DistributeError::Apart { found, wanted: next.unwrap_or_default() }));
        }
    }
    Ok(pipelines)
}

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/many-workers.md")]
pub struct ManyWorkers;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use percolator::Batch;

    use super::{DistributedIterator, DistributedStep, InputWorkers, PerReplica};

    /// What must cross threads does: checked when the tests are compiled.
    const _: () = {
        const fn moves<T: Send + 'static>() {}
        const fn is_shared<T: Send + Sync + 'static>() {}
        moves::<DistributedIterator>();
        moves::<DistributedStep>();
        moves::<PerReplica<Batch>>();
        is_shared::<InputWorkers>();
    };
}
