//! A lane: one device's end of a feed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Clock;
use super::batch::Batch;
use super::consumer_wait::ConsumerWait;
use super::empty::EmptyBatches;
use super::error::FeedError;
use super::progress::{self, LaneProgress};
use crate::base::first_error::FirstError;
use crate::base::meter::Rest;
#[cfg(feature = "stream")]
use crate::base::meter::{Wait, WaitMeter};
use crate::base::return_queue::ReturnQueue;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use crate::base::trace;
use crate::prefetch::consumer_task::ConsumerTask;
use crate::prefetch::frontier::Frontier;
use crate::prefetch::{LaneMeters, Message, Returned};
use crate::reader::ReaderWatch;
use crate::reader::thread::Activity;
use crate::receipt::Receipt;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::workers::Workers;

/// The result of [`Lane::try_next`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each batch")]
pub enum TryNext {
    /// The next batch.
    Batch(Batch),
    /// No batch yet: the next one is still being filled.
    NotYet,
    /// No further batch.
    Ended,
}

impl TryNext {
    /// Returns the batch, if there is one.
    #[must_use]
    pub fn batch(self) -> Option<Batch> {
        match self {
            TryNext::Batch(batch) => Some(batch),
            TryNext::NotYet | TryNext::Ended => None,
        }
    }
}

/// One device's batches, in order: an iterator for one training loop, on any thread.
///
/// After an error, or the end of the last pass, it yields `None` for ever. A consumer that holds all batches
/// of the ring and waits for one more gets an error [after a while](crate::FeedBuilder::give_up_after).
///
/// Dropping it ends its prefetching; the other lanes of the feed continue. Batches that are still held may be
/// dropped later, on any thread. Neither drop waits for a device: if the device is not the host, the prefetch
/// thread stays until the device is done with all batches, and only then releases their memory.
/// [`close`](Self::close) waits for that.
pub struct Lane {
    pub(super) number: usize,
    pub(super) device: String,
    pub(super) empties: EmptyBatches,
    pub(super) full: Receiver<Message>,
    pub(super) returns: ReturnQueue<Returned>,
    pub(super) meters: Arc<LaneMeters>,
    /// The task that the prefetcher wakes.
    #[cfg_attr(not(feature = "stream"), expect(dead_code, reason = "only streams have tasks"))]
    pub(super) consumer: Arc<ConsumerTask>,
    /// A task's wait for a batch.
    #[cfg(feature = "stream")]
    pub(super) task_wait: Option<Wait<Arc<WaitMeter>>>,
    /// What the prefetcher sent last, if it was waited for and not taken.
    pub(super) arrived: Option<Message>,
    /// How long the wait that is under way has lasted.
    pub(super) wait: Option<ConsumerWait>,
    /// The error that it ended with.
    pub(super) error: Option<FeedError>,
    pub(super) clock: Arc<Clock>,
    /// `None` if its batches are made elsewhere.
    pub(super) watch: Option<ReaderWatch>,
    pub(super) warn_after: Duration,
    pub(super) give_up_after: Option<Duration>,
    pub(super) progress: Arc<LaneProgress>,
    /// The feed's first error.
    pub(super) first_error: FirstError<FeedError>,
    /// Which lane holds the others up.
    pub(super) frontier: Arc<Frontier>,
    pub(super) ended: bool,
    /// The consumer's rest since then.
    pub(super) rest: Option<Rest>,
    /// Whether its records [can be dealt again](crate::reader::thread::Terms::can_repeat).
    pub(super) can_repeat: bool,
    /// Tells the workers that the lane's queued records are no longer wanted.
    pub(super) is_left: Arc<AtomicBool>,
    /// `Some` until the drop, except in a lane that has nothing to deliver from the start.
    pub(super) thread: Option<PrefetchThread>,
    /// Declared, hence dropped, last: the last lane joins the workers, after its prefetcher, which sends to
    /// them, has ended.
    pub(super) _workers: Option<Arc<Workers>>,
}

/// A lane's prefetcher.
pub(super) struct PrefetchThread {
    /// Dropped to stop the thread.
    pub(super) stop: Sender<()>,
    /// Disconnects when the thread holds nothing but slots.
    pub(super) through: Receiver<()>,
    /// Passes the queue of the lane's empty batches to the thread, which reads it when all slots of the ring
    /// have returned.
    pub(super) empties: Sender<Receiver<Returned>>,
    pub(super) thread: JoinHandle<()>,
    /// Whether only this thread may drop slots, because dropping one may wait for the device.
    pub(super) keeps_batches: bool,
}

/// A prefetch thread that holds nothing but slots, and waits until all of them have returned.
struct Staying {
    lane: usize,
    thread: JoinHandle<()>,
}

impl Staying {
    fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!(lane = self.lane, "the prefetch thread panicked; this is a bug");
        }
    }
}

impl Lane {
    /// Returns its number in the feed, which is that of its device.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the name of its device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the next batch, if it is ready. Never waits.
    ///
    /// # Errors
    ///
    /// The error that ended the feed, once.
    pub fn try_next(&mut self) -> Result<TryNext, FeedError> {
        if self.ended {
            return Ok(TryNext::Ended);
        }
        let Some(message) = self.try_receive() else { return Ok(TryNext::NotYet) };
        let next = self.accept(message);
        match self.counted(next) {
            Some(batch) => Ok(TryNext::Batch(batch?)),
            None => Ok(TryNext::Ended),
        }
    }

    /// Waits until the lane has its next batch, or its error, or has ended, but no longer than this. Returns
    /// whether it has: then [`next`](Self::next) does not wait. Nothing is taken, so
    /// [snapshots](Self::snapshot) and receipts stay as they are.
    ///
    /// It is for a consumer that has to do something else from time to time, as an interpreter checks for
    /// signals. Waits that follow one another without a batch between them are one wait to
    /// [`warn_after`](crate::FeedBuilder::warn_after) and
    /// [`give_up_after`](crate::FeedBuilder::give_up_after); the [statistics](crate::feed::LaneStats) count
    /// each.
    pub fn wait_timeout(&mut self, timeout: Duration) -> bool {
        if !self.would_wait() {
            return true;
        }
        let meters = self.meters.clone();
        let _wait = meters.of_consumer(meters.all_held().is_some()).begin();
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Drops the lane, and waits until its device is done with its batches and their memory has been
    /// released. This is for a program that builds another feed on the device, or that is about to end. While
    /// any thread holds a batch, it does not wait, just like a drop.
    ///
    /// Call it only if no pending work of the device depends on this thread.
    pub fn close(mut self) {
        let are_held = self.returns.has_slots_out() || self.empties.are_held();
        if let Some(staying) = self.shut_down().filter(|_| !are_held) {
            staying.join();
        }
    }

    /// Returns where the training run is, after the batch that was handed over last. A feed that [resumes
    /// from it](crate::FeedBuilder::resume) delivers what comes after that batch, prefetched or not. Assumes
    /// that all other replicas of the job are at the same step, as they are when trained on together;
    /// [`Snapshot::join`] is for replicas that are not.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::PassesDiffer`] if the source is a list that shuffles itself, or has a `rand_skip`.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        progress::snapshot([&self.progress])
    }

    /// Whether the lane has ended: nothing more comes.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns a batch without records, of the lane's shape and at its device. It stands in for the next
    /// batch when the lane has ended and others of its job continue.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no memory for it, or if the device fails.
    pub fn empty_batch(&mut self) -> Result<Batch, FeedError> {
        self.empties.make()
    }

    /// Returns what was delivered until now; `None` if [receipts](crate::FeedBuilder::receipts) are off. A
    /// batch counts when its consumer gets it, however much is prefetched.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        progress::receipt([&self.progress])
    }

    /// Counts a batch that the consumer gets.
    pub(super) fn counted(&self, next: Option<Result<Batch, FeedError>>) -> Option<Result<Batch, FeedError>> {
        next.inspect(|batch| batch.iter().for_each(|batch| self.count_delivered(batch)))
    }

    /// Counts a batch as delivered, in the lane's snapshots and receipts. Call it for those batches of this
    /// lane that [`take_step`](super::take_step) returned, once for each and in their order. Every other way
    /// to take a batch counts it, and a batch that is counted twice, or by another lane, makes snapshots and
    /// receipts wrong.
    pub fn count_delivered(&self, batch: &Batch) {
        self.progress.note(batch);
    }

    /// Waits for what comes next, which is not taken. Returns whether it is the end.
    pub(super) fn is_at_end(&mut self) -> bool {
        let message = self.receive_counted();
        let is_end = message.is_none();
        self.arrived = Some(message);
        is_end
    }

    /// Whether the consumer would have to wait now.
    pub(super) fn would_wait(&self) -> bool {
        !self.ended && self.arrived.is_none() && self.full.is_empty()
    }

    /// Whether what was waited for, and not taken, is an error.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.arrived, Some(Some(Err(_))))
    }

    /// Whether the consumer would wait only for itself.
    pub(super) fn would_wait_for_itself(&self) -> bool {
        self.would_wait() && self.meters.all_held().is_some()
    }

    /// Returns the next batch. The caller counts the wait, and must [count](Self::count_delivered) the batch.
    pub(super) fn next_uncounted(&mut self) -> Option<Result<Batch, FeedError>> {
        if self.ended {
            return None;
        }
        let message = self.receive();
        self.accept(message)
    }

    /// Handles a message of the prefetcher, or `None` when it sends no more.
    pub(super) fn accept(&mut self, message: Message) -> Option<Result<Batch, FeedError>> {
        match message {
            Some(Ok(delivered)) => {
                self.meters.ready.fetch_sub(1, Ordering::Relaxed);
                self.meters.held.fetch_add(1, Ordering::Relaxed);
                trace::moment!("taken", self.meters.feed, self.number, delivered.header.batch);
                self.meters.batches.add(1);
                let (ids, bad) = (delivered.filled.ids(), delivered.filled.bad());
                self.meters.records.add(ids.len() as u64);
                self.meters.bad_records.add(bad.len() as u64);
                self.meters.pixel_bytes.add(delivered.filled.delivered_bytes() as u64);
                self.meters.host_bytes.add(delivered.filled.memory().len() as u64);
                Some(Ok(Batch::new(delivered, self.number, &self.returns, &self.meters)))
            }
            Some(Err(error)) => {
                self.end();
                self.error = Some(error.clone());
                Some(Err(error))
            }
            None => {
                self.end();
                None
            }
        }
    }

    /// From here on the consumer is idle, not working.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.rest = Some(self.meters.for_batch.rest());
            self.clock.lane_ended();
        }
    }

    /// Begins again after the last batch, with the same threads and the same ring: for a lane that
    /// [can](Self::can_repeat).
    ///
    /// # Errors
    ///
    /// What ended the feed after the last batch.
    pub(super) fn begin_again(&mut self) -> Result<(), FeedError> {
        let mut end = Instant::now();
        if self.ended {
            end = self.clock.now();
            self.ended = false;
            self.clock.lane_begins_again();
        } else if let Some(outcome) = self.receive_counted() {
            // The last batch of an epoch does not wait for the end that comes after it.
            self.accept(Some(outcome)).transpose()?;
        }
        if let Some(rest) = self.rest.take() {
            self.meters.for_batch.end_rest(rest, end);
        }
        self.progress.begin_again();
        if let Some(watch) = &self.watch {
            watch.deal_again(end);
        }
        Ok(())
    }

    /// Ends the prefetching. The returned thread, if any, may have to wait for the device, and ends by
    /// itself.
    ///
    /// The wait here ends because the prefetcher waits on `stop` beside everything else that it waits for. If
    /// dropping a slot takes no time, the thread is joined.
    fn shut_down(&mut self) -> Option<Staying> {
        self.end();
        let PrefetchThread { stop, through, empties, thread, keeps_batches } = self.thread.take()?;
        let staying = Staying { lane: self.number, thread };
        drop(stop);
        // No message ever comes; it only disconnects.
        let _ = through.recv();
        // Not before: the prefetcher would mistake a batch that the workers discarded for one that they lost.
        self.is_left.store(true, Ordering::Relaxed);
        let (feed, lane) = (self.meters.feed, self.number);
        tracing::event!(name: "left", target: trace::TARGET, tracing::Level::TRACE, feed, lane);
        self.meters.ready.store(0, Ordering::Relaxed);
        // Batches that were never taken return as well: the device may be using them.
        let arrived = self.arrived.take();
        for delivered in arrived.into_iter().chain(self.full.try_iter()).flatten().filter_map(Result::ok) {
            let _ = self.returns.send(Returned { slot: delivered.into_slot(), released: Ok(()) });
        }
        if keeps_batches {
            // Before the ring's queue is closed: the thread reads this one afterwards.
            let _ = empties.send(self.empties.close());
            self.returns = ReturnQueue::nowhere();
            return Some(staying);
        }
        // Batches that are held are dropped by their holders, one of which may be this thread.
        self.returns.close();
        drop(empties);
        staying.join();
        None
    }

    /// The next message, if it is there.
    pub(super) fn try_receive(&mut self) -> Option<Message> {
        let message = self.arrived.take().or_else(|| match self.full.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        })?;
        self.wait = None;
        Some(message)
    }

    /// Waits for the next message, and counts the wait.
    fn receive_counted(&mut self) -> Message {
        self.try_receive().unwrap_or_else(|| {
            let meters = self.meters.clone();
            meters.of_consumer(meters.all_held().is_some()).time(|| self.receive())
        })
    }

    /// Waits for the next message.
    fn receive(&mut self) -> Message {
        self.wait_until(None);
        self.try_receive().expect("a wait without an end ends with a message")
    }

    /// Waits for the next message until a moment, or for ever; whether it came. Logs from time to time why
    /// there is none. A wait that only the consumer could end becomes an error.
    pub(super) fn wait_until(&mut self, until: Option<Instant>) -> bool {
        if !self.would_wait() {
            return true;
        }
        let _wait = trace::wait("batch");
        let fresh = || ConsumerWait::new(self.warn_after, self.give_up_after);
        let mut wait = self.wait.take().unwrap_or_else(fresh);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.full.recv_timeout(wait.left().min(left.unwrap_or(Duration::MAX))) {
                Ok(message) => self.arrived = Some(message),
                Err(RecvTimeoutError::Disconnected) => self.arrived = Some(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.arrived.is_none() && wait.is_at_its_end() {
                let held = self.meters.all_held();
                self.arrived = held.map(|held| Some(Err(self.give_up(held, wait.waited()))));
            }
            if self.arrived.is_some() {
                return true;
            }
            if wait.warns() {
                tracing::warn!(
                    lane = self.number,
                    device = %self.device,
                    waited_s = wait.waited().as_secs_f64(),
                    cause = %self.cause(),
                    "waiting for data"
                );
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                self.wait = Some(wait);
                return false;
            }
        }
    }

    /// Ends the feed: the other lanes would wait for this one sooner or later.
    fn give_up(&self, held: usize, waited: Duration) -> FeedError {
        let ring = self.meters.ring.load(Ordering::Relaxed);
        let error = FeedError::AllHeld { lane: self.number, device: self.device.clone(), held, ring, waited };
        self.first_error.set(error.clone());
        self.first_error.get().unwrap_or(error)
    }

    /// Why there is no batch.
    fn cause(&self) -> String {
        if let Some(held) = self.meters.all_held() {
            return format!("the consumer holds all {held} batches of the lane: drop one");
        }
        if self.meters.for_device.is_waiting() {
            return format!("{} still uses the batches that were dropped", self.device);
        }
        let Some(watch) = &self.watch else {
            return match self.frontier.behind(self.number) {
                Some(lane) => format!("lane {lane} has yet to get its batch of the step, or of one before"),
                None => "whoever makes the batches: the next one is not there".to_owned(),
            };
        };
        match watch.activity() {
            Activity::AtTheGate { registered } => {
                let consumers = watch.consumers();
                format!("the reader waits for its consumers: {registered} of {consumers} have registered")
            }
            Activity::WaitingFor(lane) if lane != self.number => {
                format!("the reader waits for lane {lane}, whose consumer does not take its batches")
            }
            Activity::Paused => "the feed is paused".to_owned(),
            Activity::Reading => "the source: reading is slower than the consumer".to_owned(),
            Activity::WaitingForBlock => "the next block of steps: none is handed out".to_owned(),
            Activity::WaitingFor(_) | Activity::Over => match self.frontier.behind(self.number) {
                Some(lane) => format!(
                    "lane {lane} has yet to complete its batch of the step, or of one before: its consumer \
                     does not take or drop its batches, its device still uses them, or the transform is \
                     slower"
                ),
                None => "the workers: the transform is slower than the consumer".to_owned(),
            },
        }
    }
}

impl Iterator for Lane {
    type Item = Result<Batch, FeedError>;

    /// Returns the next batch, and waits for it.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let message = self.receive_counted();
        let next = self.accept(message);
        self.counted(next)
    }
}

impl std::iter::FusedIterator for Lane {}

impl Drop for Lane {
    /// Never waits for a device: the device may be waiting for what this thread does next.
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("number", &self.number).field("device", &self.device).finish()
    }
}
