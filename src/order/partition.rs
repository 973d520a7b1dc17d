//! How a step's records are divided among the replicas of a job.
//!
//! A stream of records is numbered in places: one stream for all workers, or one for each. A [`Partition`]
//! says which of its places a replica gets at a step. That is one [`StridedRange`], computed from the number
//! of the step, so no earlier step needs to be known. It does not know what record a place holds: see
//! [`share`](super::share).

use super::job::{Assignment, BatchSize, Job};
use super::plan::COUNTED_MAX;
use super::range::StridedRange;
use super::rebatch::Sizes;
use super::world::Seat;
use super::{OrderError, World};

/// The places of a stream that each replica gets at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partition {
    /// One stream, in batches of `global` records, each divided contiguously.
    Divided { global: u64 },
    /// One stream, in batches of `each` records, dealt to workers, which deal them to their replicas.
    Dealt { each: u64 },
    /// One stream, dealt record by record, `each` records to each replica per step.
    Caffe { each: u64 },
    /// One stream per worker, divided into sizes that sum to `global` records over all workers of a step.
    Rebatched { global: u64 },
    /// One stream per worker, in batches of `each` records, dealt to its replicas.
    Own { each: u64 },
}

impl Partition {
    /// The partition of a job, and the number of records that a step takes. `shares` is whether all workers
    /// read one stream.
    pub(super) fn of(job: &Job, shares: bool) -> Result<(Self, u64), OrderError> {
        let replicas = job.world.replicas() as u64;
        let (option, size, times) = match job.batch {
            BatchSize::Global(size) => ("the global batch", size, 1),
            BatchSize::PerReplica(size) => ("the batch of a replica", size, replicas),
        };
        if size == 0 {
            return Err(OrderError::Zero { option });
        }
        let step_records = size.checked_mul(times).filter(|&records| records <= COUNTED_MAX);
        let step_records =
            step_records.ok_or(OrderError::TooMany { what: "records of a step", allowed: COUNTED_MAX })?;
        let partition = match (job.assignment, job.batch) {
            (Assignment::Caffe, _) if !shares => {
                return Err(OrderError::CaffeDealsAll { policy: job.policy.name() });
            }
            (Assignment::Caffe, _) if !step_records.is_multiple_of(replicas) => {
                return Err(OrderError::UnevenBatch {
                    records: step_records,
                    replicas: job.world.replicas(),
                });
            }
            (Assignment::Caffe, _) => Partition::Caffe { each: step_records / replicas },
            (Assignment::TensorFlow, BatchSize::Global(global)) if shares => Partition::Divided { global },
            (Assignment::TensorFlow, BatchSize::Global(global)) => Partition::Rebatched { global },
            (Assignment::TensorFlow, BatchSize::PerReplica(each)) if shares => Partition::Dealt { each },
            (Assignment::TensorFlow, BatchSize::PerReplica(each)) => Partition::Own { each },
        };
        Ok((partition, step_records))
    }

    /// The same partition, for a stream shared by all workers.
    pub(super) fn shared(self) -> Self {
        match self {
            Partition::Rebatched { global } => Partition::Divided { global },
            Partition::Own { each } => Partition::Dealt { each },
            shared @ (Partition::Divided { .. } | Partition::Dealt { .. } | Partition::Caffe { .. }) => {
                shared
            }
        }
    }

    /// Whether all workers share one stream.
    pub(super) fn is_shared(self) -> bool {
        self == self.shared()
    }

    /// The places in its stream that a replica gets at a step, limited to those before `end`.
    pub(super) fn range(self, world: World, step: u64, seat: Seat, end: u64) -> StridedRange {
        let (workers, replicas) = (world.workers() as u64, world.replicas() as u64);
        let (worker, local) = (seat.worker as u64, seat.local as u64);
        let locals = world.replicas_per_worker() as u64;
        let (turn, replica) = (step * locals + local, worker * locals + local);
        let batch = |number: u64, each: u64| StridedRange::within(number * each..(number + 1) * each, end);
        match self {
            Partition::Divided { global } => {
                let StridedRange { first, len, .. } = batch(step, global);
                let each = len.div_ceil(replicas);
                StridedRange::within(first + replica * each..first + (replica + 1) * each, first + len)
            }
            Partition::Dealt { each } => batch(turn * workers + worker, each),
            Partition::Own { each } => batch(turn, each),
            Partition::Rebatched { global } => {
                let sizes = Sizes::of(world, global, worker * locals);
                StridedRange::within(sizes.before(turn)..sizes.before(turn + 1), end)
            }
            Partition::Caffe { each } => {
                let first = step * each * replicas + replica;
                let len = end.saturating_sub(first).div_ceil(replicas).min(each);
                StridedRange { first, stride: replicas, len }
            }
        }
    }

    /// The first step from this one on in which a replica gets records of an endless stream; `None` if it
    /// never gets any.
    pub(super) fn next_busy(self, world: World, step: u64, seat: Seat) -> Option<u64> {
        let (workers, locals) = (world.workers() as u64, world.replicas_per_worker() as u64);
        let replicas = world.replicas() as u64;
        match self {
            Partition::Rebatched { global } if global < replicas => {
                // The first `global` of all replicas get a record, and workers take turns at being first: in
                // so many turns of each round, this replica of a worker is one of them.
                let turns = global.saturating_sub(seat.local as u64).div_ceil(locals);
                let turn = (seat.worker as u64 + step) % workers;
                (turns > 0).then(|| if turn < turns { step } else { step + workers - turn })
            }
            _ => (self.range(world, 0, seat, u64::MAX).len > 0).then_some(step),
        }
    }
}
