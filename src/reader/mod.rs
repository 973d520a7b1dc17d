//! Level 1: records, read once per source and dealt to its consumers.
//!
//! The parts are Caffe's: a [`DataReader`] is a consumer's handle, the [`Registry`] finds or starts the
//! `ReaderThread` behind it (one thread per source), and a queue pair joins the two.

mod deal_steps;
mod dealer;
mod key;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod schedule_slice;
mod seeker;
pub(crate) mod thread;

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::key::ReaderKey;
pub(crate) use self::queue_pair::Levels;

pub use self::queue_pair::Lease;
pub use self::registry::Registry;

use self::queue_pair::{ConsumerEnd, Disconnected};
use self::thread::{Activity, ReaderMeters, ReaderThread, Share, Shared, Terms};
use crate::base::keyed::Held;
use crate::base::meter::Waits;
use crate::base::offload::Helpers;
use crate::base::shape::Phase;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::panic_message;
use crate::order::OrderError;
use crate::source::{Source, SourceError};
use percolator_files::IoCause;

/// What can end a reader, or prevent it from starting.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// The source could not be opened or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// All consumers that the reader was made for have already registered.
    #[error(
        "{key}: the reader was made for {consumers} consumer(s), and one more opens a handle; set the right \
         number of consumers, or give the handle its own group"
    )]
    TooMany {
        /// The reader.
        key: String,
        /// How many consumers it was made for.
        consumers: usize,
    },
    /// Some consumers never registered.
    #[error(
        "{key}: waited {waited:?} for {consumers} consumers, but only {registered} registered; open the \
         others, or set a smaller number"
    )]
    TooFew {
        /// The reader.
        key: String,
        /// How many consumers registered.
        registered: usize,
        /// How many consumers it was made for.
        consumers: usize,
        /// How long it waited for them.
        waited: Duration,
    },
    /// A handle requests settings that differ from those of the running reader.
    #[error("{key}: the reader runs with {allowed}, but a consumer requests {found}")]
    Disagree {
        /// The reader.
        key: String,
        /// The handle's settings.
        found: String,
        /// The reader's settings.
        allowed: String,
    },
    /// The job has no such step.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The next block of steps could not be obtained.
    #[error("{key}: no more steps are handed out: {message}")]
    Blocks {
        /// The reader.
        key: String,
        /// What [`Blocks`](crate::order::Blocks) reported.
        message: String,
    },
    /// The blocks of steps went to another feed of the same builder.
    #[error(
        "{key}: another feed of the same builder has the blocks of steps: call .blocks(...) for each feed"
    )]
    BlocksTaken {
        /// The reader.
        key: String,
    },
    /// A block that no feed can deliver.
    #[error("{key}: the block of steps that was handed out ({block}) is not possible: {message}")]
    NoSuchBlock {
        /// The reader.
        key: String,
        /// The block.
        block: crate::order::Block,
        /// What is wrong with it.
        message: String,
    },
    /// A count is zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// The consumers are ranks that do not exist in the job.
    #[error(
        "there is no rank {} in a job of {of}: ranks are counted from 0",
        first.saturating_add(*consumers) - 1
    )]
    NoSuchRank {
        /// The first rank.
        first: usize,
        /// The number of consumers, which are consecutive ranks.
        consumers: usize,
        /// The number of ranks in the job.
        of: usize,
    },
    /// More records would be in flight to a consumer than a reader can track.
    #[error(
        "{prefetch} batches of {batch_size} records ahead are too many; at most {allowed} records are allowed"
    )]
    PoolTooLarge {
        /// Records in a batch.
        batch_size: usize,
        /// Batches ahead.
        prefetch: usize,
        /// The most records in flight to a consumer.
        allowed: usize,
    },
    /// The thread could not be started.
    #[error("{key}: cannot start the reader's thread")]
    Thread {
        /// The reader.
        key: String,
        /// The operating system's error.
        source: IoCause,
    },
    /// The source panicked while it was opened or read.
    #[error("{key}: the reader panicked: {message}; this is a bug in the source")]
    Panicked {
        /// The reader.
        key: String,
        /// The panic's message.
        message: String,
    },
    /// Somebody called [`Canceller::cancel`].
    #[error("{key}: cancelled")]
    Cancelled {
        /// The reader.
        key: String,
    },
}

/// Configures what to read, and how it is dealt.
#[derive(Debug)]
pub struct DataReaderBuilder {
    layer: String,
    source: Arc<dyn Source>,
    phase: Phase,
    group: String,
    terms: Terms,
    gate_timeout: Duration,
    /// The threads that help the cursor, if the runs are for a feed's workers.
    helpers: Option<Arc<dyn Helpers>>,
}

/// A consumer's handle on a reader.
///
/// Handles with the same [`ReaderKey`] share one reading thread. Nothing is dealt until as many handles are
/// open as the reader has consumers. When the last of them is dropped, the thread is stopped and joined. A
/// handle opened later starts again at record 0.
///
/// ```no_run
/// use percolator::reader::DataReader;
/// use percolator::source::Lmdb;
///
/// let reader = DataReader::builder("data", Lmdb::open("mnist_train_lmdb")?).passes(1).open()?;
/// while let Some(run) = reader.full().pop()? {
///     for record in run.iter() {
///         println!("{}: {} bytes", record.id, record.value.len());
///     }
///     reader.free().push(run); // or just drop it
/// }
/// # Ok::<(), percolator::reader::ReaderError>(())
/// ```
#[derive(Debug)]
pub struct DataReader {
    number: usize,
    /// Whether the end, or the error that caused it, has been reported.
    reported: AtomicBool,
    /// Declared before `thread`, because dropping it closes the queues, which wakes the thread for the join.
    end: ConsumerEnd,
    thread: Arc<Held<ReaderKey, ReaderThread>>,
}

impl DataReader {
    /// Configures a reader of `source` for a layer of this name. Defaults: one consumer, batches of 1,
    /// Caffe's prefetch of 4, training, an endless round-robin order.
    pub fn builder(layer: impl Into<String>, source: impl Source + 'static) -> DataReaderBuilder {
        Self::builder_shared(layer, Arc::new(source))
    }

    /// Like [`DataReader::builder`], for a source with several owners.
    pub fn builder_shared(layer: impl Into<String>, source: Arc<dyn Source>) -> DataReaderBuilder {
        DataReaderBuilder {
            layer: layer.into(),
            source,
            phase: Phase::Train,
            group: String::new(),
            terms: Terms {
                consumers: 1,
                batch_size: 1,
                prefetch: 4,
                passes: None,
                schedule_slice: None,
                share: None,
                // Callers that pop runs expect them to be verified, and may keep them.
                is_for_workers: false,
                feed: 0,
                value_bytes: None,
                can_repeat: false,
            },
            gate_timeout: Duration::from_secs(30),
            helpers: None,
        }
    }

    /// This consumer's number. Handles are numbered from 0 in the order in which they are opened.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The key that identifies the reader.
    #[must_use]
    pub fn key(&self) -> &ReaderKey {
        &self.shared().key
    }

    /// The queue that brings records.
    #[must_use]
    pub fn full(&self) -> Full<'_> {
        Full(self)
    }

    /// The queue that takes used runs back.
    #[must_use]
    pub fn free(&self) -> Free<'_> {
        Free(self)
    }

    /// Ends the reader from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.shared().clone())
    }

    /// How often, and for how long, the reader has waited for a consumer to return a slot.
    #[must_use]
    pub fn waits_for_free(&self) -> Waits {
        self.shared().meters.free_slot.read(Instant::now())
    }

    /// The length of the longest run that this reader deals, in records.
    #[must_use]
    pub fn run_records(&self) -> usize {
        self.shared().pool.run_records
    }

    /// The number of runs that circulate between the reader and this consumer.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.shared().pool.runs
    }

    pub(crate) fn end(&self) -> &ConsumerEnd {
        &self.end
    }

    /// Observes the reader without keeping it alive.
    pub(crate) fn watch(&self) -> ReaderWatch {
        ReaderWatch(self.shared().clone())
    }

    /// The error that ended the reader, if there is one.
    pub(crate) fn error(&self) -> Option<ReaderError> {
        self.shared().first_error.get()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.thread.shared()
    }

    /// Handles the end of the queue: returns the reader's error, if there is one, the first time only.
    fn ended(&self) -> Result<(), ReaderError> {
        let is_first = !self.reported.swap(true, Ordering::Relaxed);
        match self.error() {
            Some(error) if is_first => Err(error),
            _ => Ok(()),
        }
    }
}

/// The queue that brings a consumer its records. See [`DataReader::full`].
#[derive(Clone, Copy, Debug)]
pub struct Full<'a>(&'a DataReader);

impl Full<'_> {
    /// The next run; waits for one. `None` after the last one.
    ///
    /// # Errors
    ///
    /// The error that ended the reader, once, after every run that was dealt before it.
    pub fn pop(&self) -> Result<Option<Lease>, ReaderError> {
        if self.0.reported.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.0.end.pop(self.0.shared().first_error.alarm()) {
            Some(run) => Ok(Some(run)),
            None => self.0.ended().map(|()| None),
        }
    }

    /// The next run if one is ready. `None` if none is ready yet, or if none will come any more;
    /// [`is_ended`](Self::is_ended) tells which.
    ///
    /// # Errors
    ///
    /// The same as for [`pop`](Self::pop).
    pub fn try_pop(&self) -> Result<Option<Lease>, ReaderError> {
        if self.0.reported.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.0.end.try_pop() {
            // After an error no more runs come, even if the reader is still blocked in its source.
            Ok(None) if self.0.error().is_some() => match self.0.end.try_pop() {
                Ok(Some(run)) => Ok(Some(run)),
                Ok(None) | Err(Disconnected) => self.0.ended().map(|()| None),
            },
            Ok(run) => Ok(run),
            Err(Disconnected) => self.0.ended().map(|()| None),
        }
    }

    /// Whether the end, or the error that caused it, has been reported. No more runs come then.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.reported.load(Ordering::Relaxed)
    }

    /// The number of runs ready to be taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.end.full_len()
    }

    /// Whether no run is ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The queue that takes a consumer's used runs back. See [`DataReader::free`].
#[derive(Clone, Copy, Debug)]
pub struct Free<'a>(&'a DataReader);

impl Free<'_> {
    /// Returns a run, so that the reader can fill it again. Dropping the run does the same: a run cannot be
    /// lost.
    pub fn push(&self, run: Lease) {
        drop(run);
    }

    /// The number of runs that the reader could fill now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.end.free_len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Ends a reader from another thread.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Shared>);

impl Canceller {
    /// Ends the reader. Each consumer gets [`ReaderError::Cancelled`] once, after the runs that it was dealt
    /// before. Waiting consumers wake.
    pub fn cancel(&self) {
        self.0.cancel(ReaderError::Cancelled { key: self.0.key.to_string() });
    }
}

/// Observes a reader without keeping it alive.
#[derive(Clone, Debug)]
pub(crate) struct ReaderWatch(Arc<Shared>);

impl ReaderWatch {
    pub(crate) fn meters(&self) -> &ReaderMeters {
        &self.0.meters
    }

    pub(crate) fn activity(&self) -> Activity {
        self.0.activity()
    }

    pub(crate) fn consumers(&self) -> usize {
        self.0.terms.consumers
    }

    /// The number of runs that circulate between the reader and each consumer.
    pub(crate) fn runs(&self) -> usize {
        self.0.pool.runs
    }

    pub(crate) fn levels(&self, consumer: usize) -> Levels {
        self.0.levels(consumer)
    }

    /// Deals everything once more, from the start: for a reader that [can](Terms::can_repeat). Its end came
    /// to the consumer at this moment.
    pub(crate) fn deal_again(&self, ended: Instant) {
        self.0.deal_again(ended);
    }

    /// Ends at the end, and does not wait to deal again.
    pub(crate) fn deal_once(&self) {
        self.0.deal_once();
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.0.set_paused(is_paused);
    }
}

impl DataReaderBuilder {
    /// Sets the phase, training or testing. It is part of the key, so training and testing never share a
    /// reader.
    #[must_use]
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// Sets the group that the consumers belong to: a net, for example. It is part of the key.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets how many consumers the records are dealt to (default: 1). One handle too many is an error at
    /// once; one too few is reported after the [gate's timeout](Self::gate_timeout).
    #[must_use]
    pub fn consumers(mut self, consumers: usize) -> Self {
        self.terms.consumers = consumers;
        self
    }

    /// Sets which ranks of a job of `of` ranks the consumers are: `first` and those that follow it. Records
    /// of the other ranks are skipped. By default the consumers are all ranks.
    ///
    /// This is how Caffe shards in TRAIN: rank `r` of `N` gets the records `r`, `r + N`, `r + 2N` and so on,
    /// counted from the start and across passes.
    #[must_use]
    pub fn ranks(mut self, first: usize, of: usize) -> Self {
        self.terms.share = Some(Share { first, of });
        self
    }

    /// Sets how many records a consumer takes at a time.
    #[must_use]
    pub fn batch_size(mut self, records: usize) -> Self {
        self.terms.batch_size = records;
        self
    }

    /// Sets how many batches may be in flight to a consumer: at most `prefetch * batch_size` records.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.terms.prefetch = batches;
        self
    }

    /// Ends after this many passes over the source; 0 repeats for ever, as Caffe does.
    #[must_use]
    pub fn passes(mut self, passes: u64) -> Self {
        self.terms.passes = NonZeroU64::new(passes);
        self
    }

    /// Sets everything that the consumers must agree on.
    #[must_use]
    pub(crate) fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Sets the threads that help the cursor.
    #[must_use]
    pub(crate) fn helpers(mut self, helpers: Arc<dyn Helpers>) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// Sets how long to wait for all consumers to open their handles (default: 30 s).
    #[must_use]
    pub fn gate_timeout(mut self, timeout: Duration) -> Self {
        self.gate_timeout = timeout;
        self
    }

    /// Opens a handle in the process-wide registry.
    ///
    /// # Errors
    ///
    /// [`ReaderError`] if the source is empty or cannot be read, or if the reader that runs under this key
    /// does not accept this consumer.
    pub fn open(self) -> Result<DataReader, ReaderError> {
        self.open_in(Registry::global())
    }

    /// Opens a handle in a registry of the caller.
    ///
    /// # Errors
    ///
    /// The same as for [`open`](Self::open).
    pub fn open_in(self, registry: &Registry) -> Result<DataReader, ReaderError> {
        // Not its key yet: getting the source's path may panic.
        let name = self.layer.clone();
        catch_unwind(AssertUnwindSafe(|| self.open_caught(registry)))
            .unwrap_or_else(|panic| Err(ReaderError::Panicked { key: name, message: panic_message(&*panic) }))
    }

    fn open_caught(self, registry: &Registry) -> Result<DataReader, ReaderError> {
        let terms = self.terms;
        terms.check()?;
        let mut source = canonical(self.source.path());
        // Two data sets of many databases may differ only in databases that the name leaves out.
        if let Some(checksum) = self.source.files().checksum() {
            source.as_mut_os_string().push(format!(" {checksum:08x}"));
        }
        let key = ReaderKey { layer: self.layer, source, phase: self.phase, group: self.group };
        let start =
            || ReaderThread::start(key.clone(), self.source, terms.clone(), self.gate_timeout, self.helpers);
        let thread = registry.bodies.get_or_open(&key, start)?;
        let (number, end) = thread.shared().register(&terms)?;
        tracing::debug!(key = %key, consumer = number, of = terms.consumers, "a consumer has registered");
        Ok(DataReader { number, reported: AtomicBool::new(false), end, thread })
    }
}

/// Resolves different spellings of one path to one source. A path that does not exist on disk stays as it is.
fn canonical(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
