//! One job of many workers: each step's batches of all replicas together, as TensorFlow's `tf.distribute` gives them.
//!
//! ```text
//!  InputWorkers   worker -> devices; which workers are of this process
//!      |
//!      |  distribute            one feed a worker, by one plan
//!      |  distribute_from_fn    one feed a call, as the function described it
//!      v
//!  DistributedIterator   a step: the next batch of each replica of this process
//!      |                 how many records each replica of the job has: from the plan, or agreed (Collective)
//!      v
//!  DistributedStep       PerReplica<Batch>, StepWeights, which reduce what comes of them
//! ```
//!
//! # Invariants
//!
//! 1. **All end at the same step**, in all processes: a plan has as many steps for each, and where there is none, nobody
//!    ends before all have said that they have nothing left.
//! 2. **What fails here is told there.** Where the processes agree on each step, a process that fails says so in its next
//!    round, by the worker's name, and then leaves; no round is left out, so nobody waits for it.
//! 3. What was taken of a step goes back to its lanes on every path.

mod agreement;
mod collective;
mod error;
mod input_workers;
mod iterator;
mod options;
mod per_replica;
mod weights;

use std::error::Error;
use std::sync::Arc;

pub use self::collective::{Collective, CollectiveError, LocalCollective};
pub use self::error::DistributeError;
pub use self::input_workers::{InputWorker, InputWorkers};
pub use self::iterator::{DistributedIterator, DistributedStep};
pub use self::options::{InputOptions, InputReplicationMode};
pub use self::per_replica::{HostValue, PerReplica};
pub use self::weights::{ReduceOp, StepWeights};

use self::agreement::Failure;
use self::iterator::{End, Pipeline};
use crate::device::Device;
use crate::feed::FeedBuilder;
use crate::order::InputContext;

/// Divides a data set among the replicas of a job: at each step, the records of a global batch, whose parts add up to it.
/// TensorFlow's `experimental_distribute_dataset`.
///
/// Each worker of this process has a feed of its own, [`FeedBuilder::worker`] of the job, with the worker's devices for
/// lanes; what else was said of the data set holds for each ([threads](FeedBuilder::threads) and a [memory
/// limit](FeedBuilder::memory_limit), too, are of one worker). It is sharded by its [policy](FeedBuilder::policy), and
/// goes on for as many [epochs](FeedBuilder::epochs) as it says. Who gets what is arithmetic ([`Plan`](crate::order::Plan)), so
/// processes need not speak to each other: where the workers were given a [collective](InputWorkers::collective), all
/// processes meet once, here, to see that they are of one job. Nor, then, do they hear of each other's errors, before
/// they next meet in a [reduction](StepWeights::reduce).
///
/// ```
/// use percolator::Device;
/// use percolator::distribute::{InputOptions, InputWorker, InputWorkers, ReduceOp, distribute};
/// # use percolator::Feed;
/// # let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/raw_lmdb");
///
/// let workers = InputWorkers::new([
///     InputWorker::here("a", [Device::host(0), Device::host(1)]),
///     InputWorker::here("b", [Device::host(2), Device::host(3)]),
/// ])?;
/// let records = Feed::builder().lmdb(digits).index(percolator::source::IndexPlace::Memory).epochs(1);
/// for step in distribute(records, 10, &workers, InputOptions::new())? {
///     let step = step?;
///     let losses = step.batches.map(|batch| batch.labels_f32().iter().sum::<f32>());
///     println!("{} of {} replicas", step.weights.num_replicas_with_values(), step.weights.counts().len());
///     println!("{}", step.weights.reduce(ReduceOp::Sum, &losses)?);
/// }
/// # Ok::<(), percolator::distribute::DistributeError>(())
/// ```
///
/// # Errors
///
/// [`DistributeError`]: of a worker whose feed cannot be built, by its name; [`DistributeError::PerReplicaDataset`] if it was
/// to be replicated [per replica](InputReplicationMode::PerReplica). Nothing is left running.
pub fn distribute(
    dataset: FeedBuilder,
    global_batch_size: usize,
    workers: &InputWorkers,
    options: InputOptions,
) -> Result<DistributedIterator, DistributeError> {
    if options.mode() == InputReplicationMode::PerReplica {
        return Err(DistributeError::PerReplicaDataset);
    }
    let world = workers.world();
    let build = |seat: &Seat<'_>| {
        let described = dataset.clone().global_batch_size(global_batch_size).worker(world, seat.worker);
        seat.build(described, options)
    };
    let pipelines = seats(workers, InputReplicationMode::PerWorker).iter().map(build).collect();
    let pipelines: Result<Vec<Pipeline>, Failure> = pipelines;
    DistributedIterator::start(workers, pipelines.and_then(of_one_plan), End::Planned)
}

/// Calls a function for each worker, and makes one job of the feeds that it describes: TensorFlow's
/// `distribute_datasets_from_function`.
///
/// The function is told which call it is, of how many ([`InputContext`]). Nothing is batched or sharded behind its back: what
/// it returns is fed as it is, to the worker's devices, or, [per replica](InputReplicationMode::PerReplica), to the one
/// device of the call. It is called for the workers of this process only, in their order.
///
/// How long the feeds are is not known before they end, and they may differ. So it is agreed at each step, among the
/// processes by their [collective](InputWorkers::collective), which replicas still have records. Those that have none get
/// empty batches, of the right shape and type and with a batch dimension of 0, until none has any; then all end. (Where a
/// feed [pads](crate::LastBatch::Pad), they are padded, too.) The shape is that of the replica's own feed: whether all
/// feeds have one is for the function to say.
///
/// ```
/// use percolator::{Device, Feed};
/// use percolator::distribute::{InputOptions, InputWorkers, distribute_from_fn};
/// use percolator::order::{InputContext, OrderError};
/// # let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/raw_lmdb");
///
/// let workers = InputWorkers::alone([Device::host(0), Device::host(1)])?;
/// let described = |context: InputContext| -> Result<_, OrderError> {
///     let batch_size = context.per_replica_batch_size(32)?;
///     Ok(Feed::builder().lmdb(digits).batch_size(usize::try_from(batch_size).unwrap_or(usize::MAX)).once())
/// };
/// for step in distribute_from_fn(&workers, InputOptions::new(), described)? {
///     for batch in step?.batches {
///         println!("{batch:?}");
///     }
/// }
/// # Ok::<(), percolator::distribute::DistributeError>(())
/// ```
///
/// # Errors
///
/// [`DistributeError`]: [`Function`](DistributeError::Function) if the function failed,
/// [`NoCollective`](DistributeError::NoCollective) if there are other processes, and no way to agree with them.
pub fn distribute_from_fn<E>(
    workers: &InputWorkers,
    options: InputOptions,
    mut function: impl FnMut(InputContext) -> Result<FeedBuilder, E>,
) -> Result<DistributedIterator, DistributeError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    if workers.is_split() && workers.collective_of_job().is_none() {
        return Err(DistributeError::NoCollective { what: "who still has records" });
    }
    let world = workers.world();
    let num_input_pipelines = match options.mode() {
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
    let pipelines = seats(workers, options.mode()).iter().map(build).collect();
    DistributedIterator::start(workers, pipelines, End::Agreed { feeds: num_input_pipelines })
}

/// What one feed of this process is for.
struct Seat<'a> {
    worker: usize,
    name: &'a str,
    /// Which of the job's feeds it is.
    pipeline: usize,
    /// The replica that its first device is.
    first_replica: usize,
    devices: &'a [Device],
}

impl Seat<'_> {
    /// Starts its feed, to its devices.
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
    let each = workers.world().replicas_per_worker();
    let of_worker = |(worker, name, devices)| {
        let first = worker * each;
        match mode {
            InputReplicationMode::PerWorker => {
                vec![Seat { worker, name, pipeline: worker, first_replica: first, devices }]
            }
            InputReplicationMode::PerReplica => (first..)
                .zip(devices.chunks(1))
                .map(|(replica, devices)| Seat {
                    worker,
                    name,
                    pipeline: replica,
                    first_replica: replica,
                    devices,
                })
                .collect(),
        }
    };
    workers.here().flat_map(of_worker).collect()
}

/// Checks that all feeds of this process go by one plan, each of which opened its source by itself, and from one step on.
fn of_one_plan(pipelines: Vec<Pipeline>) -> Result<Vec<Pipeline>, Failure> {
    let Some(first) = pipelines.first().map(Pipeline::feed) else { return Ok(pipelines) };
    let (plan, next) = (first.plan(), first.next_steps().first().copied());
    for pipeline in &pipelines {
        let failure = |error| Failure { worker: pipeline.worker(), error };
        if pipeline.feed().plan() != plan {
            return Err(failure(DistributeError::DataChanged));
        }
        if let Some(found) = pipeline.feed().next_steps().into_iter().find(|found| Some(*found) != next) {
            return Err(failure(DistributeError::Apart { found, wanted: next.unwrap_or_default() }));
        }
    }
    Ok(pipelines)
}
