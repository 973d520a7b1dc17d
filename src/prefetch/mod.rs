//! Level 2: turns records into batches, with one ring of buffers for each lane.
//!
//! Each lane has a prefetcher. This thread takes runs from its reader, gives each record a place in the batch
//! that is being filled, passes both to the workers, and sends complete batches on to the device and the
//! consumer, in order. It writes no pixels except to pad a short batch and to mix the images of a complete
//! one. It moves only the elements of ragged fields, which it makes contiguous then, and the rows of a batch
//! with bad records.
//! While the consumer holds one batch, the others of the ring are being filled.
//!
//! ```text
//!             free                                                          full
//!  consumer ---------> resting -> idle -> open -> in flight -> submitted ---------> consumer
//!  (drops a batch)     (last use  (no     (places (workers     (other lanes         (takes a batch)
//!                       pending)   record) given)  write)       behind)
//! ```
//!
//! # Invariants
//!
//! 1. **Conservation.** Slots in `free` + resting, idle, open, in flight and submitted here + in `full` +
//!    held by the consumer = the batches in the ring, until the lane ends; a slot that is lost before then
//!    fails an assertion. All queues have room for everything that can be in them: only a receive ever waits.
//! 2. **Order.** Batches are in flight in the order of their records and leave in that order, in whatever
//!    order the workers finish.
//! 3. **The end comes last and once.** After an error or the end of the records nothing new is begun, unless
//!    all records are [dealt again](Prefetcher::start). What
//!    comes before the end is delivered; then, at most once, the error. Of a lane's own errors, that of its
//!    earliest batch counts. If the data caused it, the [`frontier`] decides at which step all lanes end
//!    (docs/design.md, "Where a feed ends").
//! 4. A buffer is not written before the event of its last use.
//! 5. **Dropping a batch never waits.** A slot that its device has yet to release is dropped only on this
//!    thread. So the thread stays, when the lane has ended, until all slots have returned, including those of
//!    its empty batches (`feed/empty.rs`; see `base/return_queue.rs`). It holds nothing else by then: neither
//!    its reader nor the workers wait for the consumer's batches.

pub(crate) mod consumer_task;
mod depth;
mod ending;
mod first_good;
pub(crate) mod frontier;
mod input;
mod meters;
mod queues;
mod slot;
mod tolerance;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::depth::Depth;
pub(crate) use self::ending::Start;
pub(crate) use self::input::{BatchInput, Dealt, SupplyGate, SupplyLine};
use self::input::{GIVEN_MAX, Supplied};
pub(crate) use self::meters::LaneMeters;
pub(crate) use self::queues::{ConsumerQueues, Message, Queues, lane_queues};
use self::slot::grow;
pub(crate) use self::slot::{Delivered, Returned, Slot, SlotHeader, Unsubmitted, give_back, submit};
pub(crate) use self::tolerance::Tolerance;

use crate::bad::BadRecord;
use crate::base::first_error::FirstError;
use crate::base::meter::WaitMeter;
use crate::base::numa::Cpus;
use crate::base::return_queue::await_returned;
use crate::base::slot_account::SlotAccount;
use crate::base::sync::atomic::Ordering;
use crate::base::sync::{Receiver, Sender, never, panic_message, select};
use crate::base::trace::{self, TARGET};
use crate::batch::mix::MixedFields;
use crate::batch::{BatchLayout, Filled, Filling, Frame, Pending};
use crate::device::{Capacity, Device, DeviceError};
use crate::feed::{FeedError, SupplyError};
use crate::prefetch::ending::Ending;
use crate::prefetch::first_good::Front;
use crate::prefetch::frontier::LaneFrontier;
use crate::reader::Lease;
use crate::reader::queue_pair;
use crate::record::{StepEnd, StepId};
use crate::transform::Mixing;
use crate::workers::{Fill, Task};

/// Closes the ring's account when the prefetcher ends, however it ends.
pub(crate) struct RingKeeper(pub(crate) SlotAccount);

impl Drop for RingKeeper {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The state of a lane's prefetcher.
pub(crate) struct Prefetcher {
    /// Declared before everything that holds slots.
    pub(crate) ring: RingKeeper,
    /// The lane's number.
    pub(crate) lane: usize,
    pub(crate) input: BatchInput,
    pub(crate) device: Device,
    /// The processors that the thread is bound to, if any, so that memory for a batch that grows is placed
    /// there too.
    pub(crate) near: Option<Cpus>,
    pub(crate) batches: LaneBatches,
    pub(crate) depth: Depth,
    pub(crate) meters: Arc<LaneMeters>,
    pub(crate) feed: FeedLinks,
    pub(crate) queues: Queues,
    pub(crate) state: State,
}

/// What the batches of a lane are like.
pub(crate) struct LaneBatches {
    /// The layout and capacity of a batch: at first according to the source's first good record
    /// (`first_layout`), later according to the first good record of the batch before.
    pub(crate) layout: Arc<BatchLayout>,
    pub(crate) first_layout: Arc<BatchLayout>,
    pub(crate) capacity: Capacity,
    /// Whether short batches are padded.
    pub(crate) pads: bool,
    /// How complete batches are mixed, if they are, and by which seed.
    pub(crate) mixing: Option<(Mixing, MixedFields, u64)>,
    /// Whether each record's hash is kept.
    pub(crate) keeps_contents: bool,
}

/// What a lane shares with the others of its feed.
pub(crate) struct FeedLinks {
    /// What ends all lanes at once, wherever they are.
    pub(crate) first_error: FirstError<FeedError>,
    /// How far the other lanes are: it decides what is handed over, and where the data end the feed.
    pub(crate) frontier: LaneFrontier,
    /// Whether steps are handed out in blocks, in any order: the frontier then counts the lane's batches.
    pub(crate) counts_batches: bool,
}

/// A prefetcher's slots by state, and whether the lane is ending. Transfers come before buffers, here too.
#[derive(Default)]
pub(crate) struct State {
    /// Slots whose device has failed. Dropping one may wait for all of the device's work, or find that the
    /// end of that work cannot be detected. So they are dropped when the lane has ended, before all other
    /// slots.
    failed: Vec<Slot>,
    /// Batches that are not submitted because of an error: their slot headers, and their buffers.
    abandoned: Vec<(SlotHeader, Box<dyn Send>)>,
    /// Complete batches that have been submitted to the device, in order: other lanes have yet to complete
    /// theirs.
    submitted: VecDeque<(StepId, Delivered)>,
    /// Slots that wait for the event of their last use; these may come in any order.
    resting: VecDeque<Slot>,
    /// A slot that waits for the first record of its batch.
    idle: Option<Slot>,
    /// Bad records without a good one before them in their batch. The first good one decides its layout.
    early: Vec<BadRecord>,
    /// A run that waits for a slot. It is taken even if there is no slot, so that the end of the runs is
    /// noticed while the consumer holds every slot.
    run: Option<Lease>,
    /// The batch that is being filled.
    open: Option<(SlotHeader, Filling)>,
    /// The number of batches that were begun.
    begun: u64,
    /// Batches that the workers may still be writing, in order, with their steps as the frontier counts.
    in_flight: VecDeque<(StepId, SlotHeader, Pending)>,
    /// The step of the batch that is closed next.
    next: StepId,
    /// Why nothing new is begun. Until the lane ends, it goes on taking runs and discards them: other lanes
    /// may need runs that the reader deals after them.
    ending: Option<Ending>,
    /// Whether all runs have been taken.
    runs_over: bool,
    /// Whether the lane has returned to its start and has no record since then.
    is_at_start: bool,
}

impl State {
    /// A state with room for all slots of a ring, of a lane that begins at this step.
    pub(crate) fn with_capacity(slots: usize, next: StepId) -> Self {
        State {
            submitted: VecDeque::with_capacity(slots),
            resting: VecDeque::with_capacity(slots),
            in_flight: VecDeque::with_capacity(slots),
            next,
            ..State::default()
        }
    }

    /// The first step that is not complete.
    fn next_complete(&self) -> StepId {
        self.in_flight.front().map_or(self.next, |(at, ..)| *at)
    }
}

/// The events that wake a prefetcher.
enum Wake {
    Run(queue_pair::RunSlot),
    RunsEnded,
    /// What comes from the supplier; nothing if its thread is lost.
    Supplied(Option<Supplied>),
    Free(Returned),
    /// A slot's last use is over, or its device can no longer tell.
    Rested,
    Done,
    /// Other lanes have completed a step, or the feed is over.
    Frontier,
    Alarm,
    ConsumerLeft,
}

/// The consumer has left; the rest is not needed.
struct ConsumerGone;

/// How often a device is asked whether a slot's last use is over, because it does not announce that.
/// Meanwhile the other slots of the ring are full.
const LOOK: Duration = Duration::from_micros(250);
/// The longest interval, for a slot that stays in use. Asking takes a few calls of the driver.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// The interval as a fraction of the time waited so far.
const LOOK_SHARE: u32 = 16;

/// Long enough that waking in vain costs nothing. It bounds no wait: each has its own waker.
const FAR: Duration = Duration::from_secs(3600);

/// How long to wait before a device is asked again, after waiting for `waited`: a small fraction of that. So
/// no wait is late by much, and a slot that stays in use is not polled all the time.
fn look_after(waited: Duration) -> Duration {
    (waited / LOOK_SHARE).clamp(LOOK, LOOK_MAX)
}

impl Prefetcher {
    /// Adds this many batches to the ring of a lane that is being started.
    ///
    /// Page-locked memory is on the node of the thread that allocates it, which touches it first. What a
    /// device leaves untouched (`PageMemory`) is on the node of the workers that write it. The guard is
    /// dropped before this thread starts another, which would inherit the binding.
    pub(crate) fn add_slots(&mut self, count: usize) -> Result<(), FeedError> {
        let _bound = self.near.as_ref().and_then(Cpus::bind);
        (0..count).try_for_each(|_| self.add_slot())
    }

    /// Adds a batch to the ring, with its memory on the host and on the device.
    fn add_slot(&mut self) -> Result<(), FeedError> {
        let (memory, capacity) = self.device.host_memory(self.batches.capacity)?;
        let transfer = self.device.backend().transfer(capacity)?;
        let mut frame = Frame::new(memory, self.batches.layout.rows(), self.queues.done_sender.clone());
        if self.batches.keeps_contents {
            frame.keep_contents();
        }
        let header = SlotHeader { transfer, step: None, batch: 0, capacity, token: self.ring.0.token() };
        self.state.resting.push_back(Slot { header, frame });
        self.meters.ring.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Runs the thread `name` until the source has ended, something has failed, or the consumer has left; and
    /// then until all slots have returned, including those of the lane's empty batches, which have a return
    /// queue of their own. `through` is dropped in between: from there on the thread holds nothing but slots.
    ///
    /// If the thread panics, its consumer gets an error instead of a silent end.
    pub(crate) fn run_to_end(
        mut self,
        name: String,
        through: Sender<()>,
        empties: &Receiver<Receiver<Returned>>,
    ) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.run()));
        let Prefetcher { ring, input, feed, queues, state, meters, .. } = self;
        let FeedLinks { first_error, frontier, .. } = feed;
        let Queues { full, consumer, free, .. } = queues;
        drop(ring);
        // Discarded batches will never be complete.
        meters.filling.store(0, Ordering::Relaxed);
        if let Err(panic) = ran {
            let error = FeedError::Panicked { name, message: panic_message(&*panic) };
            first_error.set(error.clone());
            // If there is no room for it, an error is already there, after the ring's batches.
            let _ = full.try_send(Some(Err(error)));
        }
        // The other lanes no longer wait for this one.
        drop(frontier);
        // The consumer sees the end before this thread waits for any slot: the consumer may have to continue
        // before a slot can be released.
        drop((input, full));
        consumer.wake();
        // The run's lender keeps a database open.
        let mut state = state;
        state.run = None;
        drop(through);
        drop(state);
        await_returned(&free);
        if let Ok(empties) = empties.recv() {
            await_returned(&empties);
        }
    }

    fn run(&mut self) {
        let (feed, lane) = (self.meters.feed, self.lane);
        let _entered = tracing::info_span!("prefetch", device = %self.device.name(), lane, feed).entered();
        let _bound = self.near.as_ref().and_then(Cpus::bind);
        while let Ok(true) = self.step() {}
        tracing::debug!(batches_taken = self.meters.batches.get(), "the lane ends");
    }

    /// Sends on what is complete, then waits for something to do. Returns `false` when there is no more to
    /// do.
    fn step(&mut self) -> Result<bool, ConsumerGone> {
        self.submit_complete();
        self.reuse();
        if let Some(outcome) = self.hand_over()? {
            let goes_on = outcome.is_ok() && self.return_to_start();
            if goes_on || outcome.is_err() {
                self.hand(outcome.err().map(Err))?;
            }
            if !goes_on {
                return Ok(false);
            }
        }
        match self.wait() {
            Wake::Run(slot) => self.take_run(slot),
            Wake::RunsEnded => self.runs_ended(),
            Wake::Supplied(supplied) => self.take_supplied(supplied),
            Wake::Free(Returned { slot, released: Ok(()) }) => self.state.resting.push_back(slot),
            Wake::Free(Returned { slot, released: Err(error) }) => {
                self.state.failed.push(slot);
                self.fail(error.into());
            }
            Wake::Done | Wake::Rested | Wake::Frontier => {}
            Wake::Alarm => {
                let error = self.feed.first_error.get().unwrap_or(FeedError::Cancelled);
                self.fail(error);
            }
            Wake::ConsumerLeft => return Err(ConsumerGone),
        }
        Ok(true)
    }

    /// Takes a run of the reader.
    fn take_run(&mut self, slot: queue_pair::RunSlot) {
        let BatchInput::Dealt(dealt) = &self.input else { return };
        let run = dealt.reader.end().lease(slot);
        self.state.is_at_start = false;
        if self.state.ending.is_some() {
            // For nobody.
        } else if run.is_end() {
            self.records_ended();
        } else if self.state.idle.is_none() && self.state.open.is_none() {
            self.state.run = Some(run);
        } else {
            self.place_run(run);
        }
    }

    /// Takes what comes from the supplier.
    fn take_supplied(&mut self, supplied: Option<Supplied>) {
        let BatchInput::Supplied(line) = &mut self.input else { return };
        let (step, pending) = match supplied {
            Some(Supplied::Batch(step, pending)) => (step, pending),
            Some(Supplied::Ended) => return self.records_ended(),
            Some(Supplied::Failed(error)) => return self.fail(error),
            None => return self.fail(SupplyError::lost().into()),
        };
        let Some(header) = line.taken() else { return };
        if let Some(end) = step.filter(|end| end.id() < self.state.next) {
            self.state.abandoned.push((header, Box::new(pending)));
            return self.fail(SupplyError::out_of_order(end.id(), self.state.next).into());
        }
        self.close_with(header, pending, step);
    }

    fn wait(&self) -> Wake {
        if let Some(wake) = self.select(Duration::ZERO) {
            return wake;
        }
        let (meter, on) = self.waiting_meter();
        let wait = || {
            let _wait = trace::wait(on);
            let start = Instant::now();
            let looks = self.wants_slot() && !self.state.resting.is_empty();
            loop {
                let patience = if looks { look_after(start.elapsed()) } else { FAR };
                if let Some(wake) = self.select(patience) {
                    break wake;
                }
                if self.rested().is_some() {
                    break Wake::Rested;
                }
            }
        };
        // Nobody waits for a lane that may never begin again.
        if self.state.is_at_start { wait() } else { meter.time(wait) }
    }

    /// Whether a batch could be begun if a slot were free.
    fn wants_slot(&self) -> bool {
        let State { idle, open, ending, .. } = &self.state;
        let has_room = match &self.input {
            BatchInput::Dealt(_) => true,
            BatchInput::Supplied(line) => line.given() < GIVEN_MAX,
        };
        has_room && ending.is_none() && idle.is_none() && open.is_none()
    }

    /// The first resting slot whose last use is over, and whether its device succeeded.
    fn rested(&self) -> Option<(usize, Result<(), DeviceError>)> {
        let mut transfers = self.state.resting.iter().map(|slot| &*slot.header.transfer);
        self.device.backend().first_unused(&mut transfers)
    }

    /// The meter for what the prefetcher is about to wait for, and its name in traces.
    fn waiting_meter(&self) -> (&WaitMeter, &'static str) {
        let State { idle, open, in_flight, submitted, resting, ending, .. } = &self.state;
        let is_supplied = matches!(&self.input, BatchInput::Supplied(line) if line.given() > 0);
        if ending.is_none() && (idle.is_some() || open.is_some() || is_supplied) {
            (&self.meters.for_records, "records")
        } else if !in_flight.is_empty() {
            (&self.meters.for_workers, "workers")
        } else if ending.is_some() || !submitted.is_empty() {
            (&self.meters.for_lanes, "lanes")
        } else if resting.is_empty() {
            (&self.meters.for_slot, "free")
        } else {
            (&self.meters.for_device, "device")
        }
    }

    fn select(&self, patience: Duration) -> Option<Wake> {
        let State { run, ending, in_flight, runs_over, .. } = &self.state;
        let wants_slot = self.wants_slot();
        let wants_run = match ending {
            None => run.is_none(),
            Some(_) => in_flight.is_empty() && !runs_over,
        };
        // What is in flight is completed first.
        let wants_alarm = match ending {
            None => true,
            Some(ending) => in_flight.is_empty() && !matches!(ending, Ending::Now(_)),
        };
        let (no_run, no_slot, no_alarm, no_supply) = (never(), never(), never(), never());
        let full = match &self.input {
            BatchInput::Dealt(dealt) if wants_run => dealt.reader.end().full(),
            _ => &no_run,
        };
        let supplied = match &self.input {
            BatchInput::Supplied(line) if ending.is_none() => line.supplied(),
            _ => &no_supply,
        };
        let alarm = if wants_alarm { self.feed.first_error.alarm() } else { &no_alarm };
        select! {
            recv(self.queues.stop) -> _ => Some(Wake::ConsumerLeft),
            recv(alarm) -> _ => Some(Wake::Alarm),
            recv(self.queues.done) -> _ => Some(Wake::Done),
            recv(self.feed.frontier.woken()) -> _ => Some(Wake::Frontier),
            recv(if wants_slot { &self.queues.free } else { &no_slot }) -> slot => {
                // A disconnected `free` means that the consumer has dropped the lane.
                Some(slot.map_or(Wake::ConsumerLeft, Wake::Free))
            },
            recv(full) -> slot => Some(slot.map_or(Wake::RunsEnded, Wake::Run)),
            recv(supplied) -> supplied => Some(Wake::Supplied(supplied.ok())),
            default(patience) => None,
        }
    }

    /// Gives the run's records their places and passes them to the workers.
    fn place_run(&mut self, run: Lease) {
        let BatchInput::Dealt(dealt) = &self.input else { return };
        dealt.governor.look(Instant::now());
        let processor = dealt.processor.clone();
        let (mut bad, mut verified) = (Vec::new(), 0);
        if self.state.open.is_none() {
            if processor.decoder.may_reshape() {
                match self.front(&processor, &run) {
                    Ok(Front::Good(before)) => {
                        verified = before.len() + 1;
                        bad = before;
                    }
                    Ok(Front::Bad(all)) => return self.put_early(&run, all),
                    Err(error) => return self.fail(error),
                }
            }
            if let Err(error) = self.begin() {
                return self.fail(self.why_no_room(&processor, &run, bad.len(), error));
            }
        }
        let (Some((header, filling)), BatchInput::Dealt(dealt)) = (&mut self.state.open, &mut self.input)
        else {
            return;
        };
        let (lane, batch) = (self.lane, header.batch);
        let _place =
            tracing::trace_span!(target: TARGET, "place", lane, batch, records = run.len()).entered();
        let mut places = filling.take(run.len());
        for (position, record) in run.iter().enumerate() {
            places.get(position, 0).set_draw(dealt.draws.next(record.id));
        }
        // Settled here: in the good record's layout a worker may find them good.
        let settled = bad.len();
        bad.into_iter().enumerate().for_each(|(position, bad)| places.mark_bad(position, bad));
        let end = run.step_end();
        debug_assert!(end.is_some() || !filling.is_full(), "a step is no larger than its batch");
        // A lost worker keeps taking and dropping tasks until the queue ends. Without any worker, the records
        // would never be written.
        let is_left = self.queues.is_left.clone();
        let fill = Fill { run, places, settled, verified, lane, batch, is_left };
        assert!(dealt.tasks.send(Task::Fill(fill)).is_ok(), "the workers outlive the lanes");
        if end.is_some() {
            self.close_batch(end);
        }
    }

    /// Starts a batch with the current layout.
    fn begin(&mut self) -> Result<(), FeedError> {
        let capacity = self.batches.layout.capacity();
        let slot = self.state.idle.as_mut().expect("a run is taken in only when there is a slot for it");
        if !slot.header.capacity.holds(capacity) {
            grow(slot, &self.device, slot.header.capacity.or(capacity))?;
            self.meters.growths.add(1);
        }
        let batch = self.state.begun;
        let early = std::mem::take(&mut self.state.early);
        self.state.open = self.state.idle.take().map(|slot| {
            let header = SlotHeader { batch, ..slot.header };
            let mut filling = slot.frame.begin(&self.batches.layout);
            if !early.is_empty() {
                let mut places = filling.take(early.len());
                early.into_iter().enumerate().for_each(|(position, bad)| places.mark_bad(position, bad));
                places.finish();
            }
            (header, filling)
        });
        self.state.begun += 1;
        self.meters.filling.fetch_add(1, Ordering::Relaxed);
        trace::moment!("begun", self.meters.feed, self.lane, batch);
        Ok(())
    }

    /// Closes the open batch: all its places are handed out, and the workers complete it.
    fn close_batch(&mut self, step: Option<StepEnd>) {
        if let Some((header, filling)) = self.state.open.take() {
            let pending = if self.batches.pads { filling.finish_padded() } else { filling.finish() };
            self.close_with(header, pending, step);
        }
    }

    /// Puts a batch behind those that are in flight.
    fn close_with(&mut self, header: SlotHeader, pending: Pending, step: Option<StepEnd>) {
        let (at, next) = match step.filter(|_| !self.feed.counts_batches) {
            Some(end) => (end.id(), end.next()),
            None => (self.state.next, StepId { step: self.state.next.step + 1, ..self.state.next }),
        };
        self.state.next = next;
        self.state.in_flight.push_back((at, SlotHeader { step, ..header }, pending));
    }

    /// Takes any slot whose last use is over. It does not wait for a particular slot: that slot's last use
    /// may depend on the consumer getting another batch, or leaving.
    fn reuse(&mut self) {
        if !self.wants_slot() {
            return;
        }
        match self.rested() {
            Some((position, Ok(()))) => self.state.idle = self.state.resting.remove(position),
            Some((position, Err(error))) => {
                self.state.failed.extend(self.state.resting.remove(position));
                return self.fail(error.into());
            }
            None if self.deepen() => self.state.idle = self.state.resting.pop_back(),
            None => return,
        }
        if let BatchInput::Supplied(_) = self.input {
            return self.give();
        }
        if let Some(run) = self.state.run.take() {
            self.place_run(run);
        }
    }

    /// Gives the supplier the idle slot, and then another, as long as it takes any.
    fn give(&mut self) {
        if let Err(error) = self.begin() {
            return self.fail(error);
        }
        if let (Some((header, filling)), BatchInput::Supplied(line)) =
            (self.state.open.take(), &mut self.input)
        {
            line.give(header, filling);
        }
        self.reuse();
    }

    /// Adds the batch that the ring was found to lack, now that there is something to fill it with; returns
    /// whether it did.
    fn deepen(&mut self) -> bool {
        let ring = self.meters.ring.load(Ordering::Relaxed);
        if ring >= self.depth.batches() {
            return false;
        }
        let added = self.add_slot();
        if let Err(error) = &added {
            tracing::info!(%error, batches = ring, "the ring stays as deep as it is");
            self.depth.stay(ring);
        }
        added.is_ok()
    }

    /// Submits complete batches to the device.
    fn submit_complete(&mut self) {
        while self.state.in_flight.front().is_some_and(|(.., pending)| pending.is_complete()) {
            let Some((at, header, pending)) = self.state.in_flight.pop_front() else { break };
            let (lane, batch) = (self.lane, header.batch);
            let submitting = tracing::trace_span!(target: TARGET, "submit", lane, batch).entered();
            let mixing = self.batches.mixing;
            let mix = |filled: &mut Filled| {
                if let Some((mixing, fields, seed)) = mixing {
                    filled.mix(&mixing, seed, fields);
                }
            };
            let tolerance = match &mut self.input {
                BatchInput::Dealt(dealt) => Some(&mut dealt.tolerance),
                BatchInput::Supplied(_) => None,
            };
            let submitted = submit(header, pending, tolerance, mix);
            drop(submitting);
            match submitted {
                Ok(delivered) => {
                    self.state.submitted.push_back((at, delivered));
                    self.feed.frontier.advance(self.state.next_complete());
                }
                Err(Unsubmitted { error, slot }) => {
                    self.state.failed.extend(slot.map(|slot| *slot));
                    self.abandon_in_flight();
                    // An end of another lane at a later step does not end this one.
                    self.state.next = at;
                    self.fail_at(at, error);
                }
            }
        }
    }

    /// Hands a batch over to the consumer.
    fn deliver(&mut self, delivered: Delivered) -> Result<(), ConsumerGone> {
        self.meters.filling.fetch_sub(1, Ordering::Relaxed);
        self.meters.ready.fetch_add(1, Ordering::Relaxed);
        trace::moment!("ready", self.meters.feed, self.lane, delivered.header.batch);
        self.hand(Some(Ok(delivered)))?;
        self.depth.look(Instant::now(), &self.meters);
        Ok(())
    }

    fn hand(&self, message: Message) -> Result<(), ConsumerGone> {
        self.queues.full.send(message).map_err(|_| ConsumerGone)?;
        self.queues.consumer.wake();
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_asked_seldom_for_what_it_uses_long_and_soon_enough_for_what_it_does_not() {
        assert_eq!(look_after(Duration::ZERO), LOOK);
        assert_eq!(look_after(LOOK * LOOK_SHARE), LOOK);
        let looks_of = |wait: Duration| {
            let (mut waited, mut looks) = (Duration::ZERO, 0);
            while waited < wait {
                waited += look_after(waited);
                looks += 1;
                // Late by a sixteenth of the wait, or by the shortest interval.
                assert!(
                    waited <= wait + (wait / LOOK_SHARE).max(LOOK).min(LOOK_MAX),
                    "{waited:?} of {wait:?}"
                );
            }
            looks
        };
        assert_eq!(looks_of(Duration::from_millis(4)), 16);
        assert!(looks_of(Duration::from_secs(1)) < 1_100, "and not 4000");
    }
}
