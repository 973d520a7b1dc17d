//! Which record goes where, and when: a pure function of the data set, the seed, the epoch and the job. Any
//! step of any replica can be computed without running the steps before it.
//!
//! A [`Job`] describes what is read and who takes part. Its [`Plan`] gives the records of each replica at
//! each step. In between are the shards of the data set ([`AutoShardPolicy`]), the order of the epoch in each
//! shard ([`Shuffle`]), and the division of its places into batches ([`Assignment`], [`rebatch`]). None of it
//! reads a record.

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
pub use self::schedule::{JobWorker, Ranks, Schedule, ShuffleSpec};
pub use self::sharding::AutoShardPolicy;
pub use self::share::ReplicaShare;
pub use self::shuffle::Shuffle;
pub(crate) use self::world::MEMBERS_MAX;
pub use self::world::{InputContext, World};

use self::permutation::Permutation;
use self::shuffle::EpochOrder;
