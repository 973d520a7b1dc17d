//! What a training loop uses: the running [`Feed`], with one [`Lane`] for each device, its [`Batch`]es, and
//! the views of their arrays.
//!
//! - Describe a feed: [`FeedBuilder`], or [`FeedSpec`], which is plain data. [`ResolvedFeed`] is what would
//!   run.
//! - Take batches: by [`Lane`], by [`Steps`] (all lanes at once) or by [`Epoch`].
//! - Read a batch: [`FieldView`], [`Values`] and [`Ragged`], or [`OwnedArray`], or as tensors ([`dlpack`]).
//! - Observe a feed: [`Stats`], [`Sizing`] and [`MemoryBudget`]; do so from outside, pause it, give it more
//!   threads, or end it: [`FeedHandle`].
//!
//! A feed goes through these files, from top to bottom:
//!
//! ```text
//! FeedBuilder    the options as plain data                           spec, target
//!    |           its methods                                         builder, decoding, labels, views,
//!    |                                                               own_steps, digest, open, seek
//!    |           a Caffe net as options                              net
//!    |           options that cannot be met                          config
//!    v  resolve()                                                    resolve
//! ResolvedFeed   opened sources, and files of the transform          open, sources
//!    |           the first record: it decides shapes and memory      first_record
//!    |           the steps to deal, numbers of threads and batches   schedule, sizing
//!    |           the memory, holder by holder                        budget
//!    v  launch()                                                     launch, placement
//! Feed           what runs; seeking; where it is, for snapshots      mod, seek, progress
//!    |           the same, of batches that somebody else makes       supply, supplied
//!    |           one device's end of it, also after its records      lane, consumer_wait, empty
//!    v
//! Steps, Epoch   batches in step, one by one, or as a stream         steps, epoch, stream
//!    |           as something else: a framework's tensors            made
//!    v
//! Batch          its fields: viewed, owned, as tensors               batch, view, owned, dlpack
//!
//! from outside   counters, pausing, threads, cancelling              stats, handle
//! every stage    the errors that end a feed                          error
//! ```

mod batch;
mod budget;
mod builder;
mod config;
mod consumer_wait;
mod decoding;
mod digest;
pub mod dlpack;
mod empty;
mod epoch;
mod error;
mod first_record;
mod handle;
mod labels;
mod lane;
mod launch;
mod made;
mod net;
mod open;
mod own_steps;
mod owned;
#[cfg(test)]
#[cfg(not(shuttle))]
mod past_caches;
mod placement;
mod progress;
mod resolve;
mod schedule;
mod seek;
mod sizing;
mod sources;
mod spec;
pub(crate) mod stats;
mod steps;
#[cfg(feature = "stream")]
mod stream;
mod supplied;
mod supply;
mod target;
mod view;
mod views;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};

pub use crate::base::memory_limit::LimitSource;
pub use crate::base::meter::Waits;

pub use self::batch::Batch;
pub use self::budget::{BudgetLine, MemoryBudget};
pub use self::builder::FeedBuilder;
pub use self::config::ConfigError;
pub use self::epoch::{Epoch, IntoBatches};
pub use self::error::FeedError;
pub use self::handle::FeedHandle;
pub use self::lane::{Lane, TryNext};
pub use self::made::{MadeBatches, MadeSteps, Maker, SelectiveMaker};
pub use self::owned::OwnedArray;
pub use self::resolve::ResolvedFeed;
pub use self::sizing::Sizing;
pub use self::spec::{DecoderSpec, FeedSpec, Receipts, Seed, SourceSpec, TargetFrom, TargetSpec};
pub use self::stats::{Bottleneck, LaneStats, QueueStats, ReaderStats, Stats, WorkerStats};
pub use self::steps::{Steps, take_step};
#[cfg(feature = "stream")]
pub use self::stream::Building;
pub use self::supply::{BatchRoom, LaneSupplier, SuppliedBatch, Supply, SupplyError, SupplyLanes};
pub use self::target::Target;
pub use self::view::{FieldView, Ragged, Values};

use self::progress::{LaneProgress, SnapshotFacts};

use crate::base::shape::{BatchShape, ImageShape};
use crate::batch::BatchLayout;
use crate::order;
use crate::reader::ReaderWatch;
use crate::receipt::Receipt;
use crate::record::StepId;
use crate::snapshot::{DealtBy, Snapshot, SnapshotError};

/// A running feed: one source, read once, dealt to one lane for each device.
///
/// Take its [lanes](Feed::take_lanes) and give each to a thread, or drive all of them from one thread with
/// [`steps`](Feed::steps). The feed itself remains, for [`stats`](Feed::stats). While `steps` borrows it, use
/// a [handle](Feed::handle).
#[derive(Debug)]
pub struct Feed {
    /// An error once they have been taken, or could not be built again: every call that needs them returns
    /// it.
    lanes: Result<Vec<Lane>, FeedError>,
    records: Option<u64>,
    /// If records are images: the shape of the first one, before the transform.
    input_shape: Option<ImageShape>,
    /// The layout of a batch, as the first record of the source has it.
    layout: Arc<BatchLayout>,
    sizing: Sizing,
    budget: MemoryBudget,
    /// The same before and after a seek.
    handle: FeedHandle,
    /// The progress of each lane, taken or not.
    progress: Vec<Arc<LaneProgress>>,
    /// The last epoch without a step that an iterator over [one](Self::epoch) stood for.
    empty_epoch: Option<u64>,
    facts: Arc<SnapshotFacts>,
    /// The options that it was built with.
    builder: FeedBuilder,
    /// Who makes its batches, if they are made elsewhere.
    supply: Option<Supply>,
}

/// The clock of a feed. It stops when the last lane ends.
#[derive(Debug)]
struct Clock {
    built: Instant,
    running: AtomicUsize,
    /// It is read and set under the lock, so no time that was read is later.
    ended: Mutex<Option<Instant>>,
    /// The time between an end and a new beginning.
    idle: Mutex<Duration>,
}

impl Clock {
    fn start(lanes: usize) -> Self {
        Clock {
            built: Instant::now(),
            running: AtomicUsize::new(lanes),
            ended: Mutex::new(None),
            idle: Mutex::default(),
        }
    }

    fn now(&self) -> Instant {
        self.ended.lock().unwrap_or_else(Instant::now)
    }

    fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    /// Called once for each lane.
    fn lane_ended(&self) {
        if self.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut ended = self.ended.lock();
            *ended = Some(Instant::now());
        }
    }

    /// Called for the only lane, which had ended.
    fn lane_begins_again(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let mut ended = self.ended.lock();
        *self.idle.lock() += ended.take().map_or(Duration::ZERO, |ended| ended.elapsed());
    }

    /// The time until a moment in which a lane was running.
    fn elapsed(&self, until: Instant) -> Duration {
        until.saturating_duration_since(self.built).saturating_sub(*self.idle.lock())
    }
}

impl Feed {
    /// Returns a builder with all options at their defaults.
    pub fn builder() -> FeedBuilder {
        FeedBuilder::from(FeedSpec::default())
    }

    /// Takes the lanes, one for each device, in the order of the devices.
    ///
    /// Every lane must be drained or dropped. One that is kept and not drained stops the others once its ring
    /// is full: records are dealt in turn, and a batch is delivered only when every lane has completed its
    /// own batch of the step, so that a bad record ends all lanes at one step.
    ///
    /// # Errors
    ///
    /// [`FeedError::LanesTaken`] if they have been taken before. If the last [seek](Self::seek) failed, its
    /// error.
    pub fn take_lanes(&mut self) -> Result<Vec<Lane>, FeedError> {
        match &mut self.lanes {
            Ok(lanes) => {
                let lanes = std::mem::take(lanes);
                // Only the feed can have them begin again.
                lanes.iter().filter_map(|lane| lane.watch.as_ref()).for_each(ReaderWatch::deal_once);
                self.lanes = Err(FeedError::LanesTaken);
                Ok(lanes)
            }
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns an iterator over the steps of all lanes: each step has the next batch of every lane. After
    /// [`take_lanes`](Self::take_lanes) there are no lanes left: the first and only step is
    /// [`FeedError::LanesTaken`], and after a [seek](Self::seek) that failed, its error. Lanes that
    /// [resume](FeedBuilder::resume) at different steps have no step in common: it is
    /// [`ConfigError::UnevenLanes`].
    pub fn steps(&mut self) -> Steps<'_> {
        let error = match &self.lanes {
            Err(error) => Some(error.clone()),
            Ok(lanes) => self.check_even(lanes).err().map(FeedError::from),
        };
        Steps::new(self.lanes.as_deref_mut().unwrap_or_default(), &self.progress, error)
    }

    /// Checks that all lanes that go on are at one step. A single thread that takes their batches in turn
    /// would wait for the lane that is ahead, whose records are dealt only when the others' have been taken.
    fn check_even(&self, lanes: &[Lane]) -> Result<(), ConfigError> {
        let going_on = lanes.iter().zip(&self.progress).filter(|(lane, _)| !lane.ended);
        let steps = going_on.map(|(lane, progress)| (lane.number, progress.next().1));
        let by_step = |lane: &(usize, StepId)| lane.1;
        let (Some(one), Some(other)) = (steps.clone().min_by_key(by_step), steps.max_by_key(by_step)) else {
            return Ok(());
        };
        let is_even = match &self.facts.dealt_by {
            // At the end of a single pass, some lanes have had a batch more than the others.
            DealtBy::RoundRobin(round_robin) if round_robin.passes.is_some() => {
                other.1.step - one.1.step <= 1
            }
            DealtBy::RoundRobin(_) | DealtBy::Plan(_) => one.1 == other.1,
        };
        if is_even { Ok(()) } else { Err(ConfigError::UnevenLanes { one, other }) }
    }

    /// Returns the number of records in the source, if that is known without reading them.
    /// ([`Batch::records`] is something else: which records a batch has.)
    #[must_use]
    pub fn records(&self) -> Option<u64> {
        self.records
    }

    /// Returns which record comes when, and to which replica, if the feed follows a plan and not [round-robin
    /// order](FeedBuilder::epochs).
    #[must_use]
    pub fn plan(&self) -> Option<&order::Plan> {
        self.facts.plan().map(|plan| &**plan)
    }

    /// Returns the options that it was built with.
    #[must_use]
    pub fn spec(&self) -> &FeedSpec {
        &self.builder.spec
    }

    /// Returns the next step of each lane.
    #[must_use]
    pub fn next_steps(&self) -> Vec<StepId> {
        self.progress.iter().map(|lane| lane.next().1).collect()
    }

    /// Returns everything that decides which record comes when, and to whom, as a text for the processes of a
    /// job to compare: the data, the plan, the next step and the end.
    #[must_use]
    pub fn schedule_text(&self) -> String {
        self.facts.schedule_text(self.next_steps().first().copied().unwrap_or_default())
    }

    /// Returns the shape of the source's first record, before the transform, if records are images.
    #[must_use]
    pub fn input_shape(&self) -> Option<ImageShape> {
        self.input_shape
    }

    /// Returns the [shape](Batch::shape) of a batch, as the first record of the source has it.
    #[must_use]
    pub fn batch_shape(&self) -> BatchShape {
        self.layout.image_shape(self.layout.rows())
    }

    /// Returns the fields of a batch, as the first record of the source has them, and where each is in the
    /// batch's memory.
    #[must_use]
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// Returns the number of worker threads and batches, set or chosen. The [statistics](Self::stats) have
    /// how many workers are active now, and how many batches a lane's ring has now.
    #[must_use]
    pub fn sizing(&self) -> Sizing {
        self.sizing
    }

    /// Returns the memory that the feed uses beside the page cache, holder by holder. It holds as long as no
    /// record is larger than the first, and counts rings as [deep](Self::sizing) as they may become. What
    /// larger records take comes on top: [`LaneStats::growths`] counts the batches that grew, but copies of
    /// records and decoders grow as well.
    #[must_use]
    pub fn memory_budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns what has been done so far, and who waited for whom.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Returns a handle that observes the feed, pauses it, changes the number of its threads, or ends it. Any
    /// thread can use it, even while [`steps`](Self::steps) borrows the feed. It stays valid when the feed
    /// [seeks](Self::seek).
    #[must_use]
    pub fn handle(&self) -> FeedHandle {
        self.handle.clone()
    }

    /// Returns where the training run is: the next step of each lane, taken or not. Batches that were
    /// prefetched but not delivered count as still to come. So a feed that [resumes from
    /// it](FeedBuilder::resume) loses nothing and repeats nothing.
    ///
    /// It is best taken when all lanes have delivered the same steps, and saved with the model that was
    /// trained on them.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::PassesDiffer`] if the source is a list that shuffles itself, or has a `rand_skip`.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        progress::snapshot(&self.progress)
    }

    /// Returns what its lanes have delivered until now, including those that have been taken; `None` if
    /// [receipts](FeedBuilder::receipts) are off. Lanes are read one after the other, each as it is after a
    /// batch.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        progress::receipt(&self.progress)
    }

    /// Drops the feed, and [closes](Lane::close) the lanes that have not been taken.
    pub fn close(mut self) {
        self.close_lanes();
    }

    fn close_lanes(&mut self) {
        self.take_lanes().into_iter().flatten().for_each(Lane::close);
    }
}
