//! Which record goes where, and when: a pure function of the data set, the seed, the epoch and the job. Any
//! step of any replica can be computed without running the steps before it. None of it reads a record.
//!
//! ```text
//! Schedule      the options of a feed, before the data set is known                     schedule
//!    v
//! Job           the records of each file, the batch, the World, how they are divided    job, world
//!    v  plan(): defaults and AUTO are resolved, and what cannot be divided is an error
//! Plan          which records a replica gets at a step of an epoch, in three parts:     plan
//!    |  shard      the records of a stream: one for all workers, or one each            sharding
//!    |  partition  the places of the stream that a replica gets at a step               partition, range
//!    |  order      the record at each place: by the shuffle                             shuffle, file_order,
//!    |                                                                                  permutation
//!    |             or by the mixture                                                    mixture
//!    v
//! ReplicaShare  an iterator over these records: their epochs and positions              share
//! ```
//!
//! - A [`World`] is who takes part: the workers of a job (processes) and their replicas (devices).
//! - A *place* is a number in a stream, a *position* a record's number in the data set. The shuffle and the
//!   shard lead from one to the other; the partition knows places only. So if all workers share one stream, a
//!   worker that joins changes who gets a record, not when it comes.
//! - A run may [resume](Plan::resumed) with another job (`resumed`). What the other one left of its epoch
//!   (`remainder`) then comes before the shards' own places.
//! - A plan's steps may be handed out in [blocks](Blocks) while a feed runs (`blocks`).
//! - [`rebatch`] is TensorFlow's function of this name. Workers with their own streams divide a global batch
//!   by the same rule.
//! - `text` writes jobs and plans as snapshots and receipts have them.

mod blocks;
mod error;
mod file_order;
mod job;
mod mixture;
mod partition;
mod permutation;
mod plan;
mod range;
mod rebatch;
mod remainder;
mod resumed;
mod schedule;
mod sharding;
mod share;
mod shuffle;
mod text;
mod world;

pub(crate) use self::blocks::BlockSource;
pub use self::blocks::{Block, Blocks};
pub use self::error::OrderError;
pub use self::job::{Assignment, BatchSize, Job, LastBatch};
pub(crate) use self::plan::COUNTED_MAX;
pub use self::plan::Plan;
pub use self::rebatch::{Rebatch, batch_sizes_for_worker, rebatch};
pub use self::schedule::{Epochs, JobShare, JobWorker, Ranks, Schedule, ShuffleSpec};
pub use self::sharding::AutoShardPolicy;
pub use self::share::ReplicaShare;
pub use self::shuffle::Shuffle;
pub(crate) use self::world::MEMBERS_MAX;
pub use self::world::{InputContext, World};

use self::permutation::Permutation;
use self::shuffle::EpochOrder;
