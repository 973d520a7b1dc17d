//! One device's end of a feed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};

use super::Clock;
use super::batch::Batch;
use super::empty::EmptyBatches;
use super::progress::{self, Progress};
use crate::device::DeviceError;
use crate::error::FeedError;
use crate::prefetch::{Delivered, LaneMeters, Slot};
use crate::reader::Watch;
use crate::reader::body::Activity;
use crate::receipt::Receipt;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::workers::Workers;

/// The shortest time between two warnings of one wait.
const WARNING_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The longest time between two warnings of one wait.
const WARNING_INTERVAL_MAX: Duration = Duration::from_secs(300);

/// One device's batches, in order: an iterator for one training loop, on whichever thread it runs.
///
/// After an error, or the end of the last pass, it yields `None` for ever. Dropping it ends its prefetch
/// thread; the other lanes of the feed go on.
pub struct Lane {
    pub(super) number: usize,
    pub(super) device: String,
    pub(super) empties: EmptyBatches,
    pub(super) full: Receiver<Result<Delivered, FeedError>>,
    pub(super) free: Sender<Result<Slot, DeviceError>>,
    pub(super) meters: Arc<LaneMeters>,
    pub(super) clock: Arc<Clock>,
    pub(super) watch: Watch,
    pub(super) warn_after: Duration,
    pub(super) progress: Arc<Progress>,
    pub(super) ended: bool,
    /// Its drop tells the prefetcher to stop. `Some` until then.
    pub(super) stop: Option<Sender<()>>,
    pub(super) thread: Option<JoinHandle<()>>,
    /// Last: the workers are joined by the last lane to go, after its prefetcher, which sends to them.
    pub(super) _workers: Arc<Workers>,
}

impl Lane {
    /// Its number in the feed, which is that of its device.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The name of the device at its end.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The next batch if there is one now; `None` if there is none yet, or, as
    /// [`is_ended`](Self::is_ended) then says, none any more.
    ///
    /// # Errors
    ///
    /// What ended the feed, once.
    pub fn try_next(&mut self) -> Result<Option<Batch>, FeedError> {
        match self.full.try_recv() {
            Ok(message) => {
                let next = self.accept(Some(message));
                self.noted(next).transpose()
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => self.accept(None).transpose(),
        }
    }

    /// Where the run is, after the batch that was handed over last: what comes after that is delivered by a feed that
    /// [goes on from it](crate::FeedBuilder::resume), prefetched or not. Of the job's other replicas it takes it that
    /// they are at the same step, as where all are trained on together; [`Snapshot::join`] is for those that are not.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::PassesDiffer`] if the source is a list that shuffles itself, or has a `rand_skip`.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        progress::snapshot([&self.progress])
    }

    /// Whether the lane has ended: nothing comes any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// A batch without records, of the lane's shape and at its device: what stands in for the next one where the lane has
    /// ended and others of its job go on.
    pub(crate) fn empty_batch(&mut self) -> Result<Batch, FeedError> {
        self.empties.make()
    }

    /// What was delivered until now; `None` if [receipts](crate::FeedBuilder::receipts) were not asked for. A batch counts when
    /// its consumer has got it, whatever was made ahead of it.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        progress::receipt([&self.progress])
    }

    /// Writes a batch down that the consumer gets.
    fn noted(&self, next: Option<Result<Batch, FeedError>>) -> Option<Result<Batch, FeedError>> {
        next.inspect(|batch| batch.iter().for_each(|batch| self.note(batch)))
    }

    /// As [`noted`](Self::noted), of one that somebody else hands over.
    pub(crate) fn note(&self, batch: &Batch) {
        self.progress.note(batch);
    }

    /// Whether the consumer would have to wait now.
    pub(super) fn would_wait(&self) -> bool {
        !self.ended && self.full.is_empty()
    }

    /// The next batch, by a wait that somebody else counts, and to be [noted](Self::note) by them.
    pub(super) fn next_uncounted(&mut self) -> Option<Result<Batch, FeedError>> {
        if self.ended {
            return None;
        }
        let message = self.receive();
        self.accept(message)
    }

    fn accept(&mut self, message: Option<Result<Delivered, FeedError>>) -> Option<Result<Batch, FeedError>> {
        match message {
            Some(Ok(delivered)) => {
                let shape = delivered.filled.arrays().shape();
                self.meters.held.fetch_add(1, Ordering::Relaxed);
                self.meters.batches.add(1);
                self.meters.records.add(delivered.filled.ids().len() as u64);
                self.meters.pixel_bytes.add(shape.bytes() as u64);
                self.meters.host_bytes.add(delivered.filled.memory().len() as u64);
                Some(Ok(Batch::new(delivered, self.number, &self.free, &self.meters)))
            }
            Some(Err(error)) => {
                self.end();
                Some(Err(error))
            }
            None => {
                self.end();
                None
            }
        }
    }

    /// From here on the consumer is at rest, which is not work.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.meters.for_batch.rest();
            self.clock.lane_ended();
        }
    }

    /// Waits for the next message, and says from time to time why there is none.
    fn receive(&self) -> Option<Result<Delivered, FeedError>> {
        let start = Instant::now();
        let mut interval = self.warn_after;
        loop {
            match self.full.recv_timeout(interval) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!(
                        lane = self.number,
                        device = %self.device,
                        waited_s = start.elapsed().as_secs_f64(),
                        cause = %self.cause(),
                        "waiting for data"
                    );
                    interval = interval.saturating_mul(2).clamp(WARNING_INTERVAL_MIN, WARNING_INTERVAL_MAX);
                }
            }
        }
    }

    /// Why there is no batch.
    fn cause(&self) -> String {
        let held = self.meters.held.load(Ordering::Relaxed);
        if held >= self.meters.ring.load(Ordering::Relaxed) {
            return format!("the consumer holds all {held} batches of the lane: drop one");
        }
        if self.meters.for_device.is_waiting() {
            return format!("{} still uses the batches that were let go of", self.device);
        }
        match self.watch.activity() {
            Activity::AtTheGate { registered } => {
                let consumers = self.watch.consumers();
                format!("the reader waits for its consumers: {registered} of {consumers} are here")
            }
            Activity::WaitingFor(lane) if lane != self.number => {
                format!("the reader waits for lane {lane}, whose consumer does not take its batches")
            }
            Activity::Reading => "the source: reading is slower than the consumer".to_owned(),
            Activity::WaitingFor(_) | Activity::Over => {
                "the workers: the transform is slower than the consumer".to_owned()
            }
        }
    }
}

impl Iterator for Lane {
    type Item = Result<Batch, FeedError>;

    /// The next batch; waits for it.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let message = self.meters.for_batch.take(|| self.full.try_recv().ok().map(Some), || self.receive());
        let next = self.accept(message);
        self.noted(next)
    }
}

impl std::iter::FusedIterator for Lane {}

impl Drop for Lane {
    /// The join ends because the prefetcher waits on `stop` beside whatever else it waits for. There is one
    /// exception: a device that has still to let go of a batch is waited for, as its memory must be.
    fn drop(&mut self) {
        self.end();
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(lane = self.number, "the prefetch thread panicked; this is a bug");
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("number", &self.number).field("device", &self.device).finish()
    }
}
