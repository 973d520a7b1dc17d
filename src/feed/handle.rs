//! A feed as it is observed and controlled from outside.

use std::sync::Arc;
use std::time::Instant;

use super::Clock;
use super::budget::MemoryBudget;
use super::config::ConfigError;
use super::error::FeedError;
use super::progress::{LaneProgress, SnapshotFacts};
use super::resolve::THREADS_MAX;
use super::stats::{LaneStats, QueueStats, ReaderStats, Stats, WorkerStats};
use crate::base::first_error::FirstError;
use crate::base::memory_limit::MemoryLimit;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::Ordering;
use crate::order::Plan;
use crate::prefetch::{LaneMeters, SupplyGate};
use crate::reader::{Levels, ReaderWatch};
use crate::record::StepId;
use crate::workers::{QueueWatch, Roster, WorkerMeters};

/// Observes a feed, pauses it, changes the number of its threads, or ends it, from any thread: see
/// [`Feed::handle`](super::Feed::handle). It keeps neither the feed nor its database open. What is asked of a
/// feed that has ended takes effect when it begins again. Clones share everything.
///
/// Pauses and threads change no byte of any batch, no order of batches, and nothing that a snapshot or
/// receipt says.
///
/// When its feed [seeks](super::Feed::seek), a handle has the new lanes, whose statistics start over. A feed
/// that is paused or cancelled, before or meanwhile, then still is, and has as many threads as were
/// [set](Self::set_threads).
///
/// ```no_run
/// # use percolator::Feed;
/// let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).epochs(1).threads(2).build()?;
/// let handle = feed.handle();
/// for (number, step) in feed.steps().enumerate() {
///     let batches = step?;
///     if number == 1000 {
///         println!("{:?}: {}", handle.next_steps(), handle.stats());
///         handle.set_threads(handle.threads() + 1)?;
///     }
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FeedHandle(Arc<Mutex<Handled>>);

/// What a handle has, and what was asked of it.
#[derive(Debug)]
struct Handled {
    running: Arc<Running>,
    is_paused: bool,
    /// As last set.
    threads: Option<usize>,
    is_cancelled: bool,
    is_seeking: bool,
}

/// What runs now, as a handle reads and changes it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) clock: Arc<Clock>,
    pub(super) input: RunningInput,
    /// The device of each lane, and its counters.
    pub(super) lanes: Vec<(String, Arc<LaneMeters>)>,
    pub(super) progress: Vec<Arc<LaneProgress>>,
    pub(super) facts: Arc<SnapshotFacts>,
    /// The budget of the feed as it was built.
    pub(super) budget: MemoryBudget,
    pub(super) memory_limit: Option<MemoryLimit>,
    pub(super) first_error: FirstError<FeedError>,
}

/// What fills the batches of what runs.
#[derive(Debug)]
pub(super) enum RunningInput {
    Dealt {
        reader: ReaderWatch,
        roster: Arc<Roster>,
        queue: QueueWatch,
        workers: Arc<WorkerMeters>,
    },
    /// Whoever makes them elsewhere.
    Supplied(Arc<SupplyGate>),
}

impl FeedHandle {
    pub(super) fn new(running: Running) -> Self {
        FeedHandle(Arc::new(Mutex::new(Handled {
            running: Arc::new(running),
            is_paused: false,
            threads: None,
            is_cancelled: false,
            is_seeking: false,
        })))
    }

    /// Returns what has been done so far, and who waited for whom.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.running().stats()
    }

    /// Returns the memory that the feed uses, holder by holder: see
    /// [`Feed::memory_budget`](super::Feed::memory_budget). It includes [threads](Self::set_threads) that
    /// were added while the feed runs.
    #[must_use]
    pub fn memory_budget(&self) -> MemoryBudget {
        let running = self.running();
        running.budget.with_threads(running.roster().map_or(0, |roster| roster.governor().threads()))
    }

    /// Whether the feed is [paused](Self::pause).
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.lock().is_paused
    }

    /// Whether all lanes of the feed have ended, or were dropped: nothing more is delivered, unless the feed
    /// [seeks](super::Feed::seek) or [begins again](super::Feed::epoch). While it seeks, it has not ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let handled = self.0.lock();
        !handled.is_seeking && handled.running.clock.has_ended()
    }

    /// Returns which record comes when, and to which replica: see [`Feed::plan`](super::Feed::plan).
    #[must_use]
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.running().facts.plan().cloned()
    }

    /// Returns where each lane is, in the order of the lanes: the next step, after the batch that was last
    /// handed to its consumer. If the feed follows no [plan](Self::plan), steps count from 0, and all are in
    /// epoch 0.
    #[must_use]
    pub fn next_steps(&self) -> Vec<StepId> {
        self.running().progress.iter().map(|lane| lane.next().1).collect()
    }

    /// Stops the reader before its next run of records. Records that were dealt before are still delivered:
    /// at most a ring's batches. Then consumers wait, until the feed is [resumed](Self::resume), cancelled or
    /// dropped.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Lets the reader continue with the record at which it was stopped.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) {
        let mut handled = self.0.lock();
        handled.is_paused = is_paused;
        // Under the lock: the reader gets what several threads ask for in the same order.
        handled.running.set_paused(is_paused);
    }

    /// Returns how many worker threads are active now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.running().active()
    }

    /// Sets how many worker threads are active from now on, and returns that number. As with
    /// [`FeedBuilder::threads`](super::FeedBuilder::threads), the feed no longer chooses it. Surplus threads
    /// stand by, and keep their memory; missing ones are started. The returned number is the requested one,
    /// unless the feed's lanes were dropped: then it is the number that there were.
    ///
    /// While the feed [seeks](super::Feed::seek), the new lanes' workers are meant. If there cannot be as
    /// many, the seek fails.
    ///
    /// # Errors
    ///
    /// [`FeedError::Config`] if the number is 0 or too large, or if the memory of more threads is over the
    /// feed's [limit](super::FeedBuilder::memory_limit), or if its batches are made elsewhere.
    /// [`FeedError::Thread`] if a thread cannot be started.
    /// Then as many stay active as before; threads that were started by then stand by.
    pub fn set_threads(&self, threads: usize) -> Result<usize, FeedError> {
        let option = "threads";
        if threads == 0 {
            return Err(ConfigError::Zero { option }.into());
        }
        if threads > THREADS_MAX {
            return Err(ConfigError::TooMany { option, found: threads, allowed: THREADS_MAX }.into());
        }
        loop {
            let mut handled = self.0.lock();
            let running = handled.running.clone();
            if handled.is_seeking {
                running.check_threads(threads)?;
                handled.threads = Some(threads);
                return Ok(threads);
            }
            drop(handled);
            // Not under the lock: threads take time to start, and who listens to the change may use a handle.
            let active = running.set_threads(threads)?;
            let mut handled = self.0.lock();
            if !handled.is_seeking && Arc::ptr_eq(&handled.running, &running) {
                // As it is now: another thread may have set it meanwhile.
                handled.threads = Some(running.active());
                return Ok(active);
            }
            // The feed has begun a seek meanwhile.
        }
    }

    /// Ends the feed: each lane delivers what is complete, then [`FeedError::Cancelled`], once. If a lane's
    /// device still uses a batch, the lane does so after the device is done with it.
    ///
    /// It is final: a feed that [seeks](super::Feed::seek) afterwards, or meanwhile, is cancelled as well.
    pub fn cancel(&self) {
        let mut handled = self.0.lock();
        handled.is_cancelled = true;
        handled.running.first_error.set(FeedError::Cancelled);
    }

    /// Ends the present lanes, but not those that replace them.
    pub(super) fn begin_seek(&self) {
        let mut handled = self.0.lock();
        handled.is_seeking = true;
        handled.running.first_error.set(FeedError::Cancelled);
    }

    /// Gives this handle what another feed runs, which does from now on what was asked of this one. That ends
    /// the seek.
    ///
    /// # Errors
    ///
    /// Those of [`set_threads`](Self::set_threads). The handle then keeps what it has.
    pub(super) fn switch_to(&self, other: &FeedHandle) -> Result<(), FeedError> {
        let running = other.running();
        let mut set = None;
        loop {
            let mut handled = self.0.lock();
            running.set_paused(handled.is_paused);
            let Some(threads) = handled.threads.filter(|&threads| set != Some(threads)) else {
                if handled.is_cancelled {
                    running.first_error.set(FeedError::Cancelled);
                }
                handled.running = running;
                handled.is_seeking = false;
                return Ok(());
            };
            drop(handled);
            running.set_threads(threads)?;
            set = Some(threads);
        }
    }

    /// Ends a seek that failed.
    pub(super) fn end_seek(&self) {
        self.0.lock().is_seeking = false;
    }

    fn running(&self) -> Arc<Running> {
        self.0.lock().running.clone()
    }
}

impl Running {
    /// Checks that there is memory for this many workers.
    fn check_threads(&self, threads: usize) -> Result<(), ConfigError> {
        self.budget.with_threads(threads).check(self.memory_limit.as_ref())
    }

    /// The workers, if there are any here.
    fn roster(&self) -> Option<&Arc<Roster>> {
        match &self.input {
            RunningInput::Dealt { roster, .. } => Some(roster),
            RunningInput::Supplied(_) => None,
        }
    }

    fn active(&self) -> usize {
        self.roster().map_or(0, |roster| roster.governor().active())
    }

    fn set_paused(&self, is_paused: bool) {
        match &self.input {
            RunningInput::Dealt { reader, .. } => reader.set_paused(is_paused),
            RunningInput::Supplied(gate) => gate.set_paused(is_paused),
        }
    }

    fn set_threads(&self, threads: usize) -> Result<usize, FeedError> {
        let Some(roster) = self.roster() else {
            return Err(ConfigError::WithSupply { option: "threads" }.into());
        };
        let governor = roster.governor();
        if threads > governor.threads() {
            self.check_threads(threads)?;
            roster
                .grow(threads)
                .map_err(|error| FeedError::Thread { name: "worker".to_owned(), source: error.into() })?;
        }
        // None is started once the work has ended.
        let threads = threads.min(governor.threads());
        governor.set(threads);
        Ok(threads)
    }

    fn stats(&self) -> Stats {
        let until = self.clock.now();
        let (reader, workers) = self.input_stats(until);
        Stats {
            elapsed: self.clock.elapsed(until),
            reader,
            workers,
            lanes: self
                .lanes
                .iter()
                .enumerate()
                .map(|(number, (device, meters))| LaneStats {
                    runs: self.runs(number),
                    ..lane_stats(device, meters, until)
                })
                .collect(),
        }
    }

    /// What the reader and the workers have done; nothing if there are none here.
    fn input_stats(&self, until: Instant) -> (ReaderStats, WorkerStats) {
        let RunningInput::Dealt { reader, roster, queue, workers } = &self.input else {
            return Default::default();
        };
        let (reader, governor) = (reader.meters(), roster.governor());
        let of_reader = ReaderStats {
            records: reader.records.get(),
            value_bytes: reader.value_bytes.get(),
            passes: reader.passes.get(),
            undelivered: reader.undelivered.get(),
            waits_for_free: reader.free_slot.report(until),
            waits_for_resume: reader.paused.report(until),
        };
        let of_workers = WorkerStats {
            threads: governor.threads(),
            time: governor.time(until),
            active: governor.active(),
            queued: queue.queued(),
            queue_capacity: queue.capacity(),
            runs: workers.runs.get(),
            offloaded: workers.offloaded.get(),
            waits_for_records: workers.idle.report(until),
        };
        (of_reader, of_workers)
    }

    /// Where the runs of a lane are.
    fn runs(&self, lane: usize) -> QueueStats {
        let RunningInput::Dealt { reader, .. } = &self.input else { return QueueStats::default() };
        let Levels { full, free } = reader.levels(lane);
        QueueStats { capacity: reader.runs(), full, free }
    }
}

fn lane_stats(device: &str, meters: &LaneMeters, until: Instant) -> LaneStats {
    // In the opposite direction of a batch, so that a batch that moves meanwhile is not counted twice.
    // Acquire keeps the loads in this order.
    let held = meters.held.load(Ordering::Acquire);
    let ready = meters.ready.load(Ordering::Acquire);
    let filling = meters.filling.load(Ordering::Acquire);
    LaneStats {
        device: device.to_owned(),
        batches: meters.batches.get(),
        records: meters.records.get(),
        pixel_bytes: meters.pixel_bytes.get(),
        host_bytes: meters.host_bytes.get(),
        waits_for_records: meters.for_records.report(until),
        waits_for_free: meters.for_slot.report(until),
        waits_for_device: meters.for_device.report(until),
        waits_for_workers: meters.for_workers.report(until),
        waits_for_lanes: meters.for_lanes.report(until),
        waits_for_batch: meters.for_batch.report(until),
        bad_records: meters.bad_records.get(),
        growths: meters.growths.get(),
        runs: QueueStats::default(),
        ring: meters.ring.load(Ordering::Relaxed),
        filling,
        ready,
        held,
    }
}
