//! What a training loop holds: lanes of batches, one a device.

mod batch;
mod builder;
mod decoding;
mod digest;
pub mod dlpack;
mod empty;
mod epoch;
mod first_record;
mod lane;
mod launch;
mod net;
mod open;
mod owned;
#[cfg(test)]
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
mod target;
mod view;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

pub use crate::base::meter::Waits;
pub use crate::config::{BudgetLine, ConfigError, MemoryBudget};
pub use crate::error::FeedError;

pub use self::batch::Batch;
pub use self::builder::FeedBuilder;
pub use self::epoch::{Epoch, IntoBatches};
pub use self::lane::{Lane, TryNext};
pub use self::owned::OwnedArray;
pub use self::resolve::ResolvedFeed;
pub use self::sizing::Sizing;
pub use self::spec::{DecoderSpec, FeedSpec, Receipts, Seed, SourceSpec, TargetFrom, TargetSpec};
pub use self::stats::{Bottleneck, LaneStats, ReaderStats, Stats, WorkerStats};
pub use self::steps::Steps;
#[cfg(feature = "stream")]
pub use self::stream::Building;
pub use self::target::Target;
pub use self::view::{FieldView, Ragged, Values};
pub use self::watch::FeedWatch;

use self::progress::{About, Progress};
pub(crate) use self::steps::take_step;

use crate::base::first_error::FirstError;
use crate::base::shape::{BatchShape, ImageShape};
use crate::batch::BatchLayout;
use crate::order;
use crate::prefetch::LaneMeters;
use crate::reader::Watch;
use crate::receipt::Receipt;
use crate::record::StepId;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::workers::{Governor, WorkerMeters};

/// A running feed: one source, read once, dealt to one lane a device.
///
/// Take its [lanes](Feed::take_lanes) and give each to a thread, or drive all of them from one with
/// [`steps`](Feed::steps). The feed itself stays behind to be asked for [`stats`](Feed::stats); a
/// [watch](Feed::watch) of it can be asked while `steps` has it.
#[derive(Debug)]
pub struct Feed {
    /// `None` once they were handed over.
    lanes: Option<Vec<Lane>>,
    records: Option<u64>,
    /// Which record comes when, where that was planned.
    plan: Option<Arc<order::Plan>>,
    /// Where records are images: what the first one is before the transform.
    input_shape: Option<ImageShape>,
    /// Of a batch, as the first record of the source has it.
    layout: Arc<BatchLayout>,
    sizing: Sizing,
    budget: MemoryBudget,
    canceller: FeedCanceller,
    gauges: Arc<Gauges>,
    /// How far each lane is, handed over or not.
    progress: Vec<Arc<Progress>>,
    about: Arc<About>,
    /// As it was described.
    builder: FeedBuilder,
}

/// The time of a feed, which stands still once its last lane has ended.
#[derive(Debug)]
struct Clock {
    built: Instant,
    running: AtomicUsize,
    ended: OnceCell<Instant>,
}

impl Clock {
    fn start(lanes: usize) -> Self {
        Clock { built: Instant::now(), running: AtomicUsize::new(lanes), ended: OnceCell::new() }
    }

    fn now(&self) -> Instant {
        self.ended.get().copied().unwrap_or_else(Instant::now)
    }

    /// To be called once a lane.
    fn lane_ended(&self) {
        if self.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = self.ended.set(Instant::now());
        }
    }
}

/// What the statistics are read from.
#[derive(Debug)]
struct Gauges {
    clock: Arc<Clock>,
    reader: Watch,
    governor: Arc<Governor>,
    workers: Arc<WorkerMeters>,
    lanes: Vec<(String, Arc<LaneMeters>)>,
}

impl Feed {
    /// Starts to describe a feed.
    pub fn builder() -> FeedBuilder {
        FeedBuilder::from(FeedSpec::default())
    }

    /// Hands the lanes over, one for each device, in the order of the devices.
    ///
    /// Every lane must be drained or dropped: one that is kept and not drained stops the others once its ring is
    /// full, because records are dealt in turn.
    ///
    /// # Errors
    ///
    /// [`FeedError::LanesTaken`] if they were handed over before.
    pub fn take_lanes(&mut self) -> Result<Vec<Lane>, FeedError> {
        self.lanes.take().ok_or(FeedError::LanesTaken)
    }

    /// Steps through all devices' batches together: each step has the next batch of every lane. After
    /// [`take_lanes`](Self::take_lanes) there is none to step through: the first step is [`FeedError::LanesTaken`], and
    /// the last.
    pub fn steps(&mut self) -> Steps<'_> {
        let error = self.lanes.is_none().then_some(FeedError::LanesTaken);
        Steps::new(self.lanes.as_deref_mut().unwrap_or_default(), &self.progress, error)
    }

    /// How many records the source holds, where that is known without reading them.
    #[must_use]
    pub fn records(&self) -> Option<u64> {
        self.records
    }

    /// Which record comes when, and where to, if the feed goes by [epochs](FeedBuilder::epochs) and not round and round.
    #[must_use]
    pub fn plan(&self) -> Option<&order::Plan> {
        self.plan.as_deref()
    }

    /// The step that each lane comes to next.
    pub(crate) fn next_steps(&self) -> Vec<StepId> {
        self.progress.iter().map(|lane| lane.next().1).collect()
    }

    /// All that decides which record comes when, and to whom, for processes to compare.
    pub(crate) fn schedule_text(&self) -> String {
        self.about.schedule_text(self.next_steps().first().copied().unwrap_or_default())
    }

    /// Where records are images: the shape of the source's first one, before the transform.
    #[must_use]
    pub fn input_shape(&self) -> Option<ImageShape> {
        self.input_shape
    }

    /// The [shape](Batch::shape) of a batch, as the first record of the source has it.
    #[must_use]
    pub fn batch_shape(&self) -> BatchShape {
        self.layout.image_shape(self.layout.rows())
    }

    /// The fields of a batch, by the first record of the source, and what lies where in its memory.
    #[must_use]
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// How many workers and batches there are, said or chosen. How many workers are at work now, and how many batches are
    /// in a lane's ring, is in the [statistics](Self::stats).
    #[must_use]
    pub fn sizing(&self) -> Sizing {
        self.sizing
    }

    /// The memory that the feed uses beside the page cache, holder by holder, as long as no record is larger than the
    /// first, with rings as [deep](Self::sizing) as they may become. What larger ones take comes on top:
    /// [`LaneStats::growths`] counts the batches that grew, but copies of records and decoders grow as well.
    #[must_use]
    pub fn memory_budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// What has been done so far, and who waited for whom.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.gauges.read()
    }

    /// What can be asked of the feed wherever it is: while [`steps`](Self::steps) has it, or on another
    /// thread.
    #[must_use]
    pub fn watch(&self) -> FeedWatch {
        FeedWatch::new(&self.gauges, self.plan.as_ref(), &self.progress)
    }

    /// Where the run is: which step each of its lanes comes to next, handed over or not. What was prefetched and not
    /// delivered belongs to what comes, so that nothing is lost, and nothing comes twice, where a feed [goes on from
    /// it](FeedBuilder::resume).
    ///
    /// Best taken when all lanes have given the same steps, and saved with the model that was trained on them.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::PassesDiffer`] if the source is a list that shuffles itself, or has a `rand_skip`.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        progress::snapshot(&self.progress)
    }

    /// What its lanes have delivered until now, those that were handed over among them; `None` if
    /// [receipts](FeedBuilder::receipts) were not asked for. Lane by lane, each as it is after a batch.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        progress::receipt(&self.progress)
    }

    /// Drops the feed, and [closes](Lane::close) those of its lanes that were not handed over.
    pub fn close(mut self) {
        self.close_lanes();
    }

    fn close_lanes(&mut self) {
        self.lanes.take().into_iter().flatten().for_each(Lane::close);
    }

    /// What ends the feed from another thread.
    #[must_use]
    pub fn canceller(&self) -> FeedCanceller {
        self.canceller.clone()
    }
}

/// Ends a feed from another thread.
#[derive(Clone, Debug)]
pub struct FeedCanceller(Arc<Mutex<Cancelling>>);

/// What a canceller ends, and whether somebody has asked for it.
#[derive(Debug)]
struct Cancelling {
    first_error: FirstError<FeedError>,
    is_asked: bool,
}

impl FeedCanceller {
    fn new(first_error: FirstError<FeedError>) -> Self {
        FeedCanceller(Arc::new(Mutex::new(Cancelling { first_error, is_asked: false })))
    }

    /// Ends the lanes that there are, and not those that come after them.
    fn end_lanes(&self) {
        self.0.lock().first_error.set(FeedError::Cancelled);
    }

    /// From now on ends another one's lanes; at once, if it was asked to end those that were before.
    fn goes_for(&self, other: &FeedCanceller) {
        let first_error = other.0.lock().first_error.clone();
        let mut this = self.0.lock();
        if this.is_asked {
            first_error.set(FeedError::Cancelled);
        }
        this.first_error = first_error;
    }

    /// Ends the feed: each lane delivers what is complete, then [`FeedError::Cancelled`], once. A lane whose
    /// device has still to let go of a batch does so after that.
    ///
    /// It is final: a feed that [goes elsewhere](Feed::seek) after it, or meanwhile, is cancelled as well.
    pub fn cancel(&self) {
        let mut this = self.0.lock();
        this.is_asked = true;
        this.first_error.set(FeedError::Cancelled);
    }
}

impl Gauges {
    fn read(&self) -> Stats {
        let reader = self.reader.meters();
        let until = self.clock.now();
        Stats {
            elapsed: until.saturating_duration_since(self.clock.built),
            reader: ReaderStats {
                records: reader.records.get(),
                value_bytes: reader.value_bytes.get(),
                passes: reader.passes.get(),
                undelivered: reader.undelivered.get(),
                waits_for_free: reader.free_slot.read(until),
            },
            workers: WorkerStats {
                threads: self.governor.threads(),
                at_work: self.governor.at_work(),
                runs: self.workers.runs.get(),
                offloaded: self.workers.offloaded.get(),
                waits_for_records: self.workers.idle.read(until),
            },
            lanes: self.lanes.iter().map(|(device, meters)| lane_stats(device, meters, until)).collect(),
        }
    }
}

fn lane_stats(device: &str, meters: &LaneMeters, until: Instant) -> LaneStats {
    LaneStats {
        device: device.to_owned(),
        batches: meters.batches.get(),
        records: meters.records.get(),
        pixel_bytes: meters.pixel_bytes.get(),
        host_bytes: meters.host_bytes.get(),
        waits_for_records: meters.for_records.read(until),
        waits_for_free: meters.for_slot.read(until),
        waits_for_device: meters.for_device.read(until),
        waits_for_workers: meters.for_workers.read(until),
        waits_for_batch: meters.for_batch.read(until).without(meters.for_itself.read(until)),
        growths: meters.growths.get(),
        ring: meters.ring.load(Ordering::Relaxed),
        held: meters.held.load(Ordering::Relaxed),
    }
}
