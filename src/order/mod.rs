//! Which record goes where, and when: a pure function of the data set, the seed, the epoch and the job, so that any step of any
//! replica can be computed without having run the ones before it.
//!
//! A [`Job`] says what is read and who takes part; its [`Plan`] tells for each step of each replica which records it
//! gets. On the way lie the shards of the data set ([`AutoShardPolicy`]), the order of the epoch in each ([`Shuffle`]), and
//! how its places are cut into batches ([`Assignment`], [`rebatch`]). None of it reads a record.

mod environment;
mod error;
mod job;
mod mixture;
mod partition;
mod permutation;
mod plan;
mod range;
mod rebatch;
mod remainder;
mod resumed;
mod sharding;
mod share;
mod shuffle;
mod text;
mod world;

pub use self::environment::{EnvironmentError, Process};
pub use self::error::OrderError;
pub use self::job::{Assignment, BatchSize, Job, LastBatch};
pub use self::plan::Plan;
pub use self::rebatch::{Rebatch, batch_sizes_for_worker, rebatch};
pub use self::sharding::AutoShardPolicy;
pub use self::share::ReplicaShare;
pub use self::shuffle::Shuffle;
pub use self::world::{InputContext, World};

use self::permutation::Permutation;
use self::shuffle::EpochOrder;
