//! The reader: one thread per source, which waits for its consumers and then deals its records
//! ([`dealer`](super::dealer)).

use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ReaderError;
use super::dealer::Dealer;
use super::key::ReaderKey;
use super::queue_pair::{ConsumerEnd, Levels, ReaderEnd, SlotReturn, queue_pair_of};
use super::schedule_slice::ScheduleSlice;
use crate::base::first_error::FirstError;
use crate::base::meter::{Count, WaitMeter};
use crate::base::offload::Helpers;
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Condvar, Mutex, panic_message, thread};
use crate::base::trace;
use crate::order::Ranks;
use crate::source::{Run, Source, SourceError};
use percolator_files::shown;

/// The value bytes that make a run worth a queue operation: small records are handed over together up to this
/// size, large ones alone. The first record is taken as typical.
const RUN_BYTES: usize = 256 * 1024;
/// A batch has at least this many runs, so that several workers can share it.
const RUNS_PER_BATCH_MIN: usize = 4;

/// Practically for ever, but within the range of the clock.
const GATE_TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The most records in flight to one consumer: far more than any program needs, and few enough that a
/// reader's bookkeeping fits in memory.
const POOL_RECORDS_MAX: usize = 1 << 22;

/// What all consumers of one reader must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The number of consumers.
    pub(crate) consumers: usize,
    /// Records that a consumer takes at a time; runs end where batches end.
    pub(crate) batch_size: usize,
    /// Batches of records that may be in flight to a consumer.
    pub(crate) prefetch: usize,
    /// Passes over the source; `None` repeats for ever. A plan has epochs instead.
    pub(crate) passes: Option<NonZeroU64>,
    /// The steps to deal; `None` is round-robin order, record by record.
    pub(crate) schedule_slice: Option<ScheduleSlice>,
    /// Which ranks the consumers are, if the job has others.
    pub(crate) share: Option<Share>,
    /// Whether the runs are for a feed's workers. Workers verify deferred checksums before they use the
    /// values, and release every run, so runs may return in groups.
    pub(crate) is_for_workers: bool,
    /// The number of the feed, for [traces](crate::trace); 0 if there is none.
    pub(crate) feed: u64,
    /// The length of a typical value, if the consumers know one; otherwise the first record's counts.
    pub(crate) value_bytes: Option<usize>,
    /// Whether the only consumer may have everything dealt [again](Shared::deal_again), from the start: the
    /// thread then waits after the last record, instead of ending.
    pub(crate) can_repeat: bool,
}

/// The ranks that a reader deals to, out of the ranks of a whole job: consumer `i` is rank `first + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) first: usize,
    pub(crate) of: usize,
}

impl From<Ranks> for Share {
    fn from(Ranks { first, of }: Ranks) -> Self {
        Share { first, of }
    }
}

impl Terms {
    /// Rejects terms that no reader can have.
    pub(crate) fn check(&self) -> Result<(), ReaderError> {
        let &Terms { consumers, batch_size, prefetch, share, .. } = self;
        let counts = [("consumers", consumers), ("batch_size", batch_size), ("prefetch", prefetch)];
        if let Some((option, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ReaderError::Zero { option });
        }
        if let Some(Share { first, of }) = share
            && first.checked_add(consumers).is_none_or(|end| end > of)
        {
            return Err(ReaderError::NoSuchRank { first, consumers, of });
        }
        match prefetch.checked_mul(batch_size) {
            Some(records) if records <= POOL_RECORDS_MAX => Ok(()),
            _ => Err(ReaderError::PoolTooLarge { batch_size, prefetch, allowed: POOL_RECORDS_MAX }),
        }
    }

    /// The ranks that the consumers are: all of them unless set otherwise.
    pub(super) fn share(&self) -> Share {
        self.share.unwrap_or(Share { first: 0, of: self.consumers })
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { consumers, batch_size, prefetch, passes, schedule_slice, share, .. } = self;
        write!(f, "{consumers} consumer(s), ")?;
        if let Some(Share { first, of }) = share {
            write!(f, "ranks from {first} of {of}, ")?;
        }
        write!(f, "{prefetch} batches of {batch_size} ahead, ")?;
        if self.is_for_workers {
            f.write_str("for a feed's workers, ")?;
        }
        match (schedule_slice, passes) {
            (Some(schedule_slice), _) => write!(f, "{schedule_slice}"),
            (None, Some(passes)) => write!(f, "{passes} pass(es)"),
            (None, None) => f.write_str("no end"),
        }
    }
}

/// How a consumer's pool of `prefetch * batch_size` records is divided into runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) run_records: usize,
    pub(crate) runs: usize,
}

impl Pool {
    /// Divides the pool for records of about `value_bytes`. `runs * run_records` may exceed the bound by less
    /// than one run per batch. Because runs end where batches end, the number of records in them never does.
    pub(crate) fn cut(terms: &Terms, value_bytes: usize) -> Pool {
        debug_assert!(terms.check().is_ok());
        let shared = (terms.batch_size / RUNS_PER_BATCH_MIN).max(1);
        let run_records = (RUN_BYTES / value_bytes.max(1)).clamp(1, shared);
        Pool { run_records, runs: terms.batch_size.div_ceil(run_records) * terms.prefetch }
    }
}

/// What a reader is doing, to explain why no record arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Waiting for its consumers to register.
    AtTheGate { registered: usize },
    /// Reading the source.
    Reading,
    /// Waiting for this consumer to return a slot.
    WaitingFor(usize),
    /// Waiting for the next block of steps.
    WaitingForBlock,
    /// Waiting to be resumed.
    Paused,
    /// Everything has been dealt.
    Over,
}

/// Counters of one reader.
#[derive(Debug, Default)]
pub(crate) struct ReaderMeters {
    pub(crate) records: Count,
    pub(crate) value_bytes: Count,
    pub(crate) passes: Count,
    /// Waits for a consumer to return a slot.
    pub(crate) free_slot: WaitMeter,
    /// Waits to be resumed.
    pub(crate) paused: WaitMeter,
    /// Records whose consumer had left.
    pub(crate) undelivered: Count,
}

/// A running reader, shared by its consumers' handles. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct ReaderThread {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread and the handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) key: ReaderKey,
    pub(super) terms: Terms,
    pub(super) pool: Pool,
    /// Whether the records of a run may have different lenders.
    has_several_lenders: bool,
    gate: Mutex<Gate>,
    /// Notified when a consumer registers, when the reader is resumed or deals again, and when it must stop.
    gate_changed: Condvar,
    stop: AtomicBool,
    /// Whether no new run may be begun.
    is_paused: AtomicBool,
    pub(super) first_error: FirstError<ReaderError>,
    pub(super) meters: ReaderMeters,
    activity: AtomicUsize,
}

/// Nothing is dealt until all consumers have registered.
#[derive(Debug, Default)]
struct Gate {
    registered: usize,
    /// The ends of registered consumers, until the thread takes them all.
    arrived: Vec<ReaderEnd>,
    /// Wake the thread, and through it the consumers, when the reader is cancelled.
    slot_returns: Vec<Arc<SlotReturn>>,
    /// When the consumer had the end, if everything is to be dealt again.
    deals_again: Option<Instant>,
    /// Whether nobody will ask for that.
    is_final: bool,
}

impl ReaderThread {
    /// Reads the first record to determine the size of a run, and starts the thread.
    pub(super) fn start(
        key: ReaderKey,
        source: Arc<dyn Source>,
        terms: Terms,
        gate_timeout: Duration,
        helpers: Option<Arc<dyn Helpers>>,
    ) -> Result<ReaderThread, ReaderError> {
        let value_bytes = match terms.value_bytes {
            Some(bytes) => bytes,
            None => first_value_bytes(&*source)?,
        };
        let shared = Arc::new(Shared {
            pool: Pool::cut(&terms, value_bytes),
            has_several_lenders: source.has_several_lenders(),
            terms,
            gate: Mutex::new(Gate::default()),
            gate_changed: Condvar::new(),
            stop: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            first_error: FirstError::new(),
            meters: ReaderMeters::default(),
            activity: AtomicUsize::new(0),
            key,
        });
        // A layer may have any name, but a thread's name cannot contain NUL.
        let name = format!("reader:{}", shared.key.layer.replace('\0', ""));
        let thread = thread::Builder::new()
            .name(name)
            .spawn({
                let shared = shared.clone();
                // The thread owns the source, so that observers do not keep a database open.
                move || shared.run(&*source, gate_timeout, helpers)
            })
            .map_err(|error| ReaderError::Thread { key: shared.key.to_string(), source: error.into() })?;
        Ok(ReaderThread { shared, thread: Some(thread) })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for ReaderThread {
    /// The join is short: all handles are gone, so everything the thread waits for is closed. Only a read in
    /// progress is waited for.
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was caught there and kept as its error.
            let _ = thread.join();
        }
    }
}

/// The length of the first record's value, which determines the size of a run.
fn first_value_bytes(source: &dyn Source) -> Result<usize, SourceError> {
    match source.cursor()?.advance()? {
        Some(first) => Ok(first.value_bytes()),
        None => Err(SourceError::Empty { path: source.path().to_owned() }),
    }
}

impl Shared {
    /// Registers a consumer. Returns its number, in the order of registration, and its end of the queues.
    pub(super) fn register(&self, terms: &Terms) -> Result<(usize, ConsumerEnd), ReaderError> {
        if *terms != self.terms {
            return Err(ReaderError::Disagree {
                key: self.key.to_string(),
                found: terms.to_string(),
                allowed: self.terms.to_string(),
            });
        }
        let mut gate = self.gate.lock();
        if let Some(error) = self.first_error.get() {
            return Err(error);
        }
        if gate.registered == self.terms.consumers {
            return Err(ReaderError::TooMany { key: self.key.to_string(), consumers: self.terms.consumers });
        }
        let together = if self.terms.is_for_workers { self.pool.runs / 4 } else { 1 };
        let records = self.pool.run_records;
        let (reader, consumer) = queue_pair_of(self.pool.runs, together, || match self.has_several_lenders {
            true => Run::with_lenders(records),
            false => Run::with_capacity(records),
        });
        let number = gate.registered;
        gate.registered += 1;
        gate.arrived.push(reader);
        gate.slot_returns.push(consumer.slot_return().clone());
        drop(gate);
        self.gate_changed.notify_all();
        Ok((number, consumer))
    }

    /// Ends the reader from outside: all consumers get `error` once, unless another error came first.
    pub(super) fn cancel(&self, error: ReaderError) {
        self.first_error.set(error);
        for slot_return in &self.gate.lock().slot_returns {
            slot_return.close();
        }
        self.stop();
    }

    fn stop(&self) {
        // Under the gate's lock, so that the thread cannot miss the signal between its check and its wait.
        let gate = self.gate.lock();
        self.stop.store(true, Ordering::Release);
        drop(gate);
        self.gate_changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        // Acquire pairs with the Release in `stop`; the flag guards no other data.
        self.stop.load(Ordering::Acquire)
    }

    /// Begins no run from now on, or continues.
    pub(super) fn set_paused(&self, is_paused: bool) {
        // Under the gate's lock, as in `stop`.
        let gate = self.gate.lock();
        self.is_paused.store(is_paused, Ordering::Relaxed);
        drop(gate);
        self.gate_changed.notify_all();
    }

    fn is_paused(&self) -> bool {
        // Relaxed: it guards no data, and a run that is begun a moment later does no harm.
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Waits, while the reader is paused, until it is resumed or must stop.
    pub(super) fn wait_while_paused(&self) {
        if !self.is_paused() {
            return;
        }
        self.set_activity(Activity::Paused);
        self.meters.paused.time(|| {
            let _wait = trace::wait("resume");
            let mut gate = self.gate.lock();
            while self.is_paused() && !self.is_stopping() {
                self.gate_changed.wait(&mut gate);
            }
        });
        self.set_activity(Activity::Reading);
    }

    /// Deals everything once more. Its end came to the consumer at this moment.
    pub(super) fn deal_again(&self, ended: Instant) {
        self.gate.lock().deals_again = Some(ended);
        self.gate_changed.notify_all();
    }

    /// Ends at the end: nobody will ask for more.
    pub(super) fn deal_once(&self) {
        self.gate.lock().is_final = true;
        self.gate_changed.notify_all();
    }

    fn can_repeat(&self) -> bool {
        self.terms.can_repeat && !self.gate.lock().is_final
    }

    /// Waits until everything is to be dealt again, and returns true, or until the thread must end.
    fn wait_to_deal_again(&self) -> bool {
        self.set_activity(Activity::Over);
        let rest = self.meters.free_slot.rest();
        let mut gate = self.gate.lock();
        while gate.deals_again.is_none() && !gate.is_final && !self.is_stopping() {
            self.gate_changed.wait(&mut gate);
        }
        let ended = gate.deals_again.take();
        drop(gate);
        self.meters.free_slot.end_rest(rest, ended.unwrap_or_else(Instant::now));
        ended.is_some() && !self.is_stopping()
    }

    /// The levels of a consumer's queues.
    pub(super) fn levels(&self, consumer: usize) -> Levels {
        let slot_return = self.gate.lock().slot_returns.get(consumer).cloned();
        slot_return.map_or(Levels::default(), |slot_return| slot_return.levels())
    }

    pub(super) fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            0 => Activity::AtTheGate { registered: self.gate.lock().registered },
            1 => Activity::Reading,
            2 => Activity::Over,
            3 => Activity::WaitingForBlock,
            4 => Activity::Paused,
            waiting => Activity::WaitingFor(waiting - 5),
        }
    }

    pub(super) fn set_activity(&self, activity: Activity) {
        let code = match activity {
            Activity::AtTheGate { .. } => 0,
            Activity::Reading => 1,
            Activity::Over => 2,
            Activity::WaitingForBlock => 3,
            Activity::Paused => 4,
            Activity::WaitingFor(consumer) => consumer + 5,
        };
        self.activity.store(code, Ordering::Relaxed);
    }

    /// The thread's main function. Errors are kept before the queues close, so that a consumer who sees the
    /// end of its queue also sees why. Not only the source may panic: so may the program's own subscriber, at
    /// any span or event.
    fn run(&self, source: &dyn Source, gate_timeout: Duration, helpers: Option<Arc<dyn Helpers>>) {
        // Outside everything that is caught: the ends close last.
        let mut dealer = None;
        let ran = self.caught(|| {
            let span = tracing::info_span!("reader", key = %self.key, feed = self.terms.feed);
            let _entered = span.enter();
            let outcome = self.caught(|| {
                let ends = self.wait_at_the_gate(gate_timeout)?;
                let dealer = dealer.insert(Dealer::new(self, ends));
                dealer.deal_all(source, helpers.clone())?;
                while self.can_repeat() && dealer.end_all() && self.wait_to_deal_again() {
                    dealer.deal_all(source, helpers.clone())?;
                }
                Ok(())
            });
            // Records that were read before an error are delivered before it, and do not hide it.
            let flushed = self.caught(|| {
                dealer.iter_mut().for_each(Dealer::flush);
                Ok(())
            });
            self.keep_failure(outcome.and(flushed));
            Ok(())
        });
        if let Err(panicked) = ran {
            self.first_error.set(panicked);
        }
        self.set_activity(Activity::Over);
        self.meters.free_slot.rest();
        // Consumers at a gate that never opened wait for their queues to close.
        self.gate.lock().arrived.clear();
        drop(dealer);
    }

    /// Turns a panic into an error.
    fn caught(&self, work: impl FnOnce() -> Result<(), ReaderError>) -> Result<(), ReaderError> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let (key, message) = (self.key.to_string(), panic_message(&*panic));
            Err(ReaderError::Panicked { key, message })
        })
    }

    fn keep_failure(&self, outcome: Result<(), ReaderError>) {
        if let Err(error) = outcome
            && self.first_error.set(error.clone())
        {
            tracing::info!(error = %shown::with_sources(&error), "the reader stops");
        }
    }

    /// Waits until all consumers have registered, and takes their ends.
    fn wait_at_the_gate(&self, timeout: Duration) -> Result<Vec<ReaderEnd>, ReaderError> {
        let deadline = Instant::now() + timeout.min(GATE_TIMEOUT_MAX);
        let mut gate = self.gate.lock();
        let mut timed_out = false;
        while gate.registered < self.terms.consumers && !self.is_stopping() {
            // Only after another check: the last consumer may have come between the deadline and the lock.
            if timed_out {
                return Err(ReaderError::TooFew {
                    key: self.key.to_string(),
                    registered: gate.registered,
                    consumers: self.terms.consumers,
                    waited: timeout,
                });
            }
            timed_out = self.gate_changed.wait_until(&mut gate, deadline).timed_out();
        }
        Ok(std::mem::take(&mut gate.arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(batch_size: usize, prefetch: usize) -> Terms {
        Terms {
            consumers: 1,
            batch_size,
            prefetch,
            passes: None,
            schedule_slice: None,
            share: None,
            is_for_workers: false,
            feed: 0,
            value_bytes: None,
            can_repeat: false,
        }
    }

    #[test]
    fn small_records_are_dealt_in_runs_and_large_ones_alone() {
        assert_eq!(Pool::cut(&terms(64, 4), 3_083), Pool { run_records: 16, runs: 16 });
        assert_eq!(Pool::cut(&terms(64, 4), 196_620), Pool { run_records: 1, runs: 256 });
        assert_eq!(Pool::cut(&terms(1, 4), 3_083), Pool { run_records: 1, runs: 4 });
        assert_eq!(Pool::cut(&terms(7, 2), 0), Pool { run_records: 1, runs: 14 });
    }
}
