//! The reader itself: one thread a source, which waits for its consumers and then deals its records
//! ([`dealer`](super::dealer)).

use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ReaderError;
use super::dealer::Dealer;
use super::key::ReaderKey;
use super::queue_pair::{ConsumerEnd, Home, ReaderEnd, queue_pair_of};
use super::schedule_slice::ScheduleSlice;
use crate::base::first_error::FirstError;
use crate::base::meter::{Count, WaitMeter};
use crate::base::offload::Helpers;
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Condvar, Mutex, panic_message, thread};
use crate::source::{Run, Source, SourceError};

/// The value bytes that make a run worth a queue operation: small records travel together up to these, large
/// ones alone. The first record stands for all.
const RUN_BYTES: usize = 256 * 1024;
/// A batch is at least this many runs, so that several workers can share it.
const RUNS_PER_BATCH_MIN: usize = 4;

/// As good as for ever, and still a moment that a clock can name.
const GATE_TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The most records that may be under way to one consumer: far more than anybody needs, and little enough
/// that what a reader keeps of them fits a machine.
const POOL_RECORDS_MAX: usize = 1 << 22;

/// What all consumers of one reader must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How many consumers there will be.
    pub(crate) consumers: usize,
    /// Records a consumer takes at a time; runs end where batches do.
    pub(crate) batch_size: usize,
    /// Batches of records that may be under way to a consumer.
    pub(crate) prefetch: usize,
    /// Passes over the source, or `None` to go round for ever; a plan has epochs instead.
    pub(crate) passes: Option<NonZeroU64>,
    /// The steps that are dealt, if not record by record, round and round.
    pub(crate) schedule_slice: Option<ScheduleSlice>,
    /// The ranks that the consumers are, where there are others beside them.
    pub(crate) share: Option<Share>,
    /// Whether the runs are for a feed's workers. They check the seals of records before they use their values, and
    /// let go of every run, so that runs may go back a few together.
    pub(crate) is_for_workers: bool,
    /// Whether the system is to drop from its memory what has been used.
    pub(crate) drops_behind: bool,
}

/// The ranks that a reader deals to, of those that a whole job has: consumer `i` is rank `first + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) first: usize,
    pub(crate) of: usize,
}

impl Terms {
    /// Refuses what no reader can have.
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

    /// The ranks that the consumers are: all there are, unless something else was said.
    pub(super) fn share(&self) -> Share {
        self.share.unwrap_or(Share { first: 0, of: self.consumers })
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { consumers, batch_size, prefetch, passes, schedule_slice, share, .. } = self;
        write!(f, "{consumers} consumer(s), ")?;
        if let Some(Share { first, of }) = share {
            write!(f, "rank {first} of {of} and on, ")?;
        }
        write!(f, "{prefetch} batches of {batch_size} ahead, ")?;
        if self.is_for_workers {
            f.write_str("for a feed's workers, ")?;
        }
        if self.drops_behind {
            f.write_str("dropping from memory what was used, ")?;
        }
        match (schedule_slice, passes) {
            (Some(schedule_slice), _) => write!(f, "{schedule_slice}"),
            (None, Some(passes)) => write!(f, "{passes} pass(es)"),
            (None, None) => f.write_str("no end"),
        }
    }
}

/// How a consumer's pool of `prefetch * batch_size` records is cut into runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) run_records: usize,
    pub(crate) runs: usize,
}

impl Pool {
    /// Cuts the pool for records of about `value_bytes`. `runs * run_records` may exceed the bound by
    /// less than a run a batch, but since runs end where batches do, the records in them never do.
    pub(crate) fn cut(terms: &Terms, value_bytes: usize) -> Pool {
        debug_assert!(terms.check().is_ok());
        let shared = (terms.batch_size / RUNS_PER_BATCH_MIN).max(1);
        let run_records = (RUN_BYTES / value_bytes.max(1)).clamp(1, shared);
        Pool { run_records, runs: terms.batch_size.div_ceil(run_records) * terms.prefetch }
    }
}

/// What a reader is doing, for whoever asks why no record comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Waiting for its consumers to register.
    AtTheGate { registered: usize },
    /// Reading the source.
    Reading,
    /// Waiting for this consumer to give a slot back.
    WaitingFor(usize),
    /// Done.
    Over,
}

/// Counters of one reader.
#[derive(Debug, Default)]
pub(crate) struct ReaderMeters {
    pub(crate) records: Count,
    pub(crate) value_bytes: Count,
    pub(crate) passes: Count,
    /// Waits for a consumer to give a slot back.
    pub(crate) free_slot: WaitMeter,
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
    /// Whether each record of a run may be lent by another.
    has_several_lenders: bool,
    gate: Mutex<Gate>,
    /// Signalled when a consumer registers, and when the reader must stop.
    gate_changed: Condvar,
    stop: AtomicBool,
    pub(super) first_error: FirstError<ReaderError>,
    pub(super) meters: ReaderMeters,
    activity: AtomicUsize,
}

/// Nobody runs ahead until everybody is here.
#[derive(Debug, Default)]
struct Gate {
    registered: usize,
    /// The ends of those who have registered, until the thread takes them all.
    arrived: Vec<ReaderEnd>,
    /// To wake the thread, and through it the consumers, when the reader is cancelled.
    homes: Vec<Arc<Home>>,
}

impl ReaderThread {
    /// Looks at the first record, to know what a run of them is, and starts the thread.
    pub(super) fn start(
        key: ReaderKey,
        source: Arc<dyn Source>,
        terms: Terms,
        gate_timeout: Duration,
        helpers: Option<Arc<dyn Helpers>>,
    ) -> Result<ReaderThread, ReaderError> {
        let value_bytes = first_value_bytes(&*source)?;
        let shared = Arc::new(Shared {
            pool: Pool::cut(&terms, value_bytes),
            has_several_lenders: source.has_several_lenders(),
            terms,
            gate: Mutex::new(Gate::default()),
            gate_changed: Condvar::new(),
            stop: AtomicBool::new(false),
            first_error: FirstError::new(),
            meters: ReaderMeters::default(),
            activity: AtomicUsize::new(0),
            key,
        });
        // A layer may be called anything, and a thread nothing with a NUL in it.
        let name = format!("reader:{}", shared.key.layer.replace('\0', ""));
        let thread = thread::Builder::new()
            .name(name)
            .spawn({
                let shared = shared.clone();
                // The source goes with the thread: whoever only watches does not keep a database open.
                move || shared.run(&*source, gate_timeout, helpers)
            })
            .map_err(|error| ReaderError::Thread {
                key: shared.key.to_string(),
                message: error.to_string(),
            })?;
        Ok(ReaderThread { shared, thread: Some(thread) })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for ReaderThread {
    /// The wait is short: every handle has gone before, so whatever the thread waits for is closed. Only
    /// a read that is under way is waited out.
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was caught there and latched.
            let _ = thread.join();
        }
    }
}

/// The length of the first record's value, which the size of a run goes by.
fn first_value_bytes(source: &dyn Source) -> Result<usize, SourceError> {
    match source.cursor()?.advance()? {
        Some(first) => Ok(first.value_bytes()),
        None => Err(SourceError::Empty { path: source.path().to_owned() }),
    }
}

impl Shared {
    /// Takes a consumer in: its number, in the order of registration, and its end of the queues.
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
        gate.homes.push(consumer.home().clone());
        drop(gate);
        self.gate_changed.notify_all();
        Ok((number, consumer))
    }

    /// Ends the reader from outside: all its consumers get `error` once, unless one came before it.
    pub(super) fn cancel(&self, error: ReaderError) {
        self.first_error.set(error);
        for home in &self.gate.lock().homes {
            home.close();
        }
        self.stop();
    }

    fn stop(&self) {
        // Under the gate's lock, lest the thread miss the signal between its look and its wait.
        let gate = self.gate.lock();
        self.stop.store(true, Ordering::Release);
        drop(gate);
        self.gate_changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        // Acquire pairs with the Release in `stop`; the flag guards no other data.
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            0 => Activity::AtTheGate { registered: self.gate.lock().registered },
            1 => Activity::Reading,
            2 => Activity::Over,
            waiting => Activity::WaitingFor(waiting - 3),
        }
    }

    pub(super) fn set_activity(&self, activity: Activity) {
        let code = match activity {
            Activity::AtTheGate { .. } => 0,
            Activity::Reading => 1,
            Activity::Over => 2,
            Activity::WaitingFor(consumer) => consumer + 3,
        };
        self.activity.store(code, Ordering::Relaxed);
    }

    /// The thread. Whatever happens in it is latched before the queues close, so that a consumer who sees
    /// the end of its queue also sees why.
    fn run(&self, source: &dyn Source, gate_timeout: Duration, helpers: Option<Arc<dyn Helpers>>) {
        let span = tracing::info_span!("reader", key = %self.key);
        let _entered = span.enter();
        let outcome = match self.wait_at_the_gate(gate_timeout) {
            Ok(ends) => {
                // Outside the catch, so that after a panic, too, the ends close only after the latch.
                let mut dealer = Dealer::new(self, ends);
                let outcome = catch_unwind(AssertUnwindSafe(|| dealer.deal_all(source, helpers)));
                let outcome = outcome.unwrap_or_else(|panic| Err(self.panicked(&*panic)));
                dealer.flush();
                self.latch_failure(outcome);
                drop(dealer);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.latch_failure(outcome);
        self.set_activity(Activity::Over);
        self.meters.free_slot.rest();
        // Those who came to a gate that never opened wait for their queues to close.
        self.gate.lock().arrived.clear();
    }

    fn latch_failure(&self, outcome: Result<(), ReaderError>) {
        if let Err(error) = outcome
            && self.first_error.set(error.clone())
        {
            tracing::info!(%error, "the reader stops");
        }
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> ReaderError {
        ReaderError::Panicked { key: self.key.to_string(), message: panic_message(panic) }
    }

    /// Waits until all consumers have registered, and takes their ends.
    fn wait_at_the_gate(&self, timeout: Duration) -> Result<Vec<ReaderEnd>, ReaderError> {
        let deadline = Instant::now() + timeout.min(GATE_TIMEOUT_MAX);
        let mut gate = self.gate.lock();
        let mut timed_out = false;
        while gate.registered < self.terms.consumers && !self.is_stopping() {
            // Only after another look: the last consumer may have come between the deadline and the lock.
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
            drops_behind: false,
        }
    }

    #[test]
    fn small_records_travel_in_runs_and_large_ones_alone() {
        assert_eq!(Pool::cut(&terms(64, 4), 3_083), Pool { run_records: 16, runs: 16 });
        assert_eq!(Pool::cut(&terms(64, 4), 196_620), Pool { run_records: 1, runs: 256 });
        assert_eq!(Pool::cut(&terms(1, 4), 3_083), Pool { run_records: 1, runs: 4 });
        assert_eq!(Pool::cut(&terms(7, 2), 0), Pool { run_records: 1, runs: 14 });
    }
}
