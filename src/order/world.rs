//! Who takes part in a job: workers, which read, and their replicas, which are trained on.
//!
//! A [`World`] is the same on all workers of a job. Which of them a feed is, is said beside it
//! ([`JobWorker`](super::JobWorker)). All workers have the same number of replicas, and replicas are numbered
//! worker by worker, so a [`Seat`] (a replica's worker, and its number there) is a division.

use std::ops::Range;

use super::OrderError;

/// The most replicas in a job: more than any job trains on.
pub(crate) const MEMBERS_MAX: usize = 1 << 16;

/// The workers and replicas of a job. A worker is a process, or a host, and all workers read for the same
/// number of replicas. A replica is a device that is trained on. Replicas are numbered across workers: with
/// `r` replicas per worker, worker `w` feeds replicas `w * r` to `w * r + r - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "Members", into = "Members")
)]
pub struct World {
    workers: usize,
    replicas: usize,
}

impl World {
    /// One worker with one replica.
    pub const ALONE: World = World { workers: 1, replicas: 1 };

    /// A job of `workers` processes, or hosts, and `replicas` devices **of all workers together**:
    /// `World::new(2, 2)` is two workers with one device each; `World::new(2, 16)` is two with eight each.
    ///
    /// ```
    /// use percolator::order::World;
    ///
    /// assert_eq!(World::new(2, 16)?.replicas_per_worker(), 8);
    /// assert!(World::new(2, 1).is_err());
    /// # Ok::<(), percolator::order::OrderError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if either is 0, [`OrderError::TooMany`] if either is more than 65,536,
    /// [`OrderError::UnevenReplicas`] if `replicas` is not a multiple of `workers`: TensorFlow's rule.
    pub fn new(workers: usize, replicas: usize) -> Result<Self, OrderError> {
        for (option, count) in [("workers", workers), ("replicas", replicas)] {
            if count == 0 {
                return Err(OrderError::Zero { option });
            }
            if count > MEMBERS_MAX {
                return Err(OrderError::TooMany { what: option, allowed: MEMBERS_MAX as u64 });
            }
        }
        if !replicas.is_multiple_of(workers) {
            return Err(OrderError::UnevenReplicas { replicas, workers });
        }
        Ok(World { workers, replicas })
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(self) -> usize {
        self.workers
    }

    /// The number of replicas of all workers together.
    #[must_use]
    pub fn replicas(self) -> usize {
        self.replicas
    }

    /// The number of replicas that each worker feeds.
    #[must_use]
    pub fn replicas_per_worker(self) -> usize {
        self.replicas / self.workers
    }

    /// The replicas that a worker feeds.
    ///
    /// # Errors
    ///
    /// [`OrderError::NoSuchMember`].
    pub fn replicas_of(self, worker: usize) -> Result<Range<usize>, OrderError> {
        if worker >= self.workers {
            return Err(OrderError::NoSuchMember { kind: "worker", found: worker, of: self.workers });
        }
        let each = self.replicas_per_worker();
        Ok(worker * each..(worker + 1) * each)
    }

    /// The worker that feeds a replica, and the replica's number at that worker.
    pub(super) fn seat(self, replica: usize) -> Result<Seat, OrderError> {
        if replica >= self.replicas {
            return Err(OrderError::NoSuchMember { kind: "replica", found: replica, of: self.replicas });
        }
        let each = self.replicas_per_worker();
        Ok(Seat { worker: replica / each, local: replica % each })
    }
}

/// A world as data formats write it.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    workers: usize,
    replicas: usize,
}

#[cfg(feature = "serde")]
impl From<World> for Members {
    fn from(World { workers, replicas }: World) -> Self {
        Members { workers, replicas }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Members> for World {
    type Error = OrderError;

    fn try_from(Members { workers, replicas }: Members) -> Result<Self, OrderError> {
        World::new(workers, replicas)
    }
}

/// A replica as its worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) worker: usize,
    /// The replica's number at its worker.
    pub(super) local: usize,
}

/// What the function that makes a worker's data set is given about the job: TensorFlow's
/// `tf.distribute.InputContext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputContext {
    /// How often the function is called in the whole job.
    pub num_input_pipelines: usize,
    /// The number of this call, from 0.
    pub input_pipeline_id: usize,
    /// The number of replicas that are trained together.
    pub num_replicas_in_sync: usize,
}

impl InputContext {
    /// The number of records that each replica gets of a global batch.
    ///
    /// # Errors
    ///
    /// [`OrderError::UnevenBatch`] if it cannot be divided evenly, as in TensorFlow.
    pub fn per_replica_batch_size(&self, global: u64) -> Result<u64, OrderError> {
        let replicas = self.num_replicas_in_sync;
        match global.checked_div(replicas as u64) {
            None => Err(OrderError::Zero { option: "replicas in sync" }),
            Some(each) if each * replicas as u64 == global => Ok(each),
            Some(_) => Err(OrderError::UnevenBatch { records: global, replicas }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_belong_to_workers_in_turn() {
        let world = World::new(3, 6).unwrap();
        assert_eq!(world.replicas_of(1), Ok(2..4));
        assert_eq!(world.seat(5), Ok(Seat { worker: 2, local: 1 }));
        assert!(matches!(world.seat(6), Err(OrderError::NoSuchMember { kind: "replica", found: 6, of: 6 })));
        assert!(matches!(world.replicas_of(3), Err(OrderError::NoSuchMember { kind: "worker", .. })));
    }

    #[test]
    fn a_world_that_cannot_be_is_refused() {
        assert_eq!(World::new(0, 1), Err(OrderError::Zero { option: "workers" }));
        assert_eq!(World::new(1, 0), Err(OrderError::Zero { option: "replicas" }));
        assert_eq!(World::new(2, 3), Err(OrderError::UnevenReplicas { replicas: 3, workers: 2 }));
    }

    #[test]
    fn a_global_batch_is_divided_evenly_or_not_at_all() {
        let context = InputContext { num_input_pipelines: 2, input_pipeline_id: 0, num_replicas_in_sync: 4 };
        assert_eq!(context.per_replica_batch_size(12), Ok(3));
        let uneven = OrderError::UnevenBatch { records: 10, replicas: 4 };
        assert_eq!(context.per_replica_batch_size(10), Err(uneven));
    }
}
