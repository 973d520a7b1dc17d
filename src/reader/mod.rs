//! Level 1: records, read once a source and dealt to its consumers.
//!
//! The parts are Caffe's: a [`DataReader`] is a consumer's handle, the [`Registry`] finds or starts the
//! `ReaderThread` (one thread a source) behind it, and a queue pair joins the two.

mod dealer;
mod key;
mod outstanding;
pub(crate) mod queue_pair;
pub(crate) mod registry;
pub(crate) mod schedule_slice;
pub(crate) mod thread;

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::key::ReaderKey;
pub use self::queue_pair::Lease;
pub use self::registry::Registry;

use self::queue_pair::{ConsumerEnd, Left};
use self::thread::{Activity, ReaderMeters, ReaderThread, Share, Shared, Terms};
use crate::base::keyed::Held;
use crate::base::meter::Waits;
use crate::base::offload::Helpers;
use crate::base::shape::Phase;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::order::OrderError;
use crate::source::{Source, SourceError};

/// What can end a reader, or keep one from starting.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// The source could not be opened or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Every consumer that the reader was made for has registered already.
    #[error(
        "{key}: the reader was made for {consumers} consumer(s), and one more asks; say the right number, \
         or give it a group of its own"
    )]
    TooMany {
        /// The reader.
        key: String,
        /// How many it was made for.
        consumers: usize,
    },
    /// Some consumers never registered.
    #[error(
        "{key}: waited {waited:?} for {consumers} consumers, and {registered} registered; make the others, \
         or say a smaller number"
    )]
    TooFew {
        /// The reader.
        key: String,
        /// How many registered.
        registered: usize,
        /// How many it was made for.
        consumers: usize,
        /// How long it waited for them.
        waited: Duration,
    },
    /// A handle asks a running reader for something other than what it was made for.
    #[error("{key}: the reader runs with {allowed}, and a consumer asks for {found}")]
    Disagree {
        /// The reader.
        key: String,
        /// What the handle asks for.
        found: String,
        /// What the reader was made for.
        allowed: String,
    },
    /// The job has no such step.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A count that must not be zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// The consumers are ranks that the job does not have.
    #[error("there is no rank {} in a job of {of}: ranks are counted from 0", first.saturating_add(*consumers) - 1)]
    NoSuchRank {
        /// The first rank.
        first: usize,
        /// How many from there on.
        consumers: usize,
        /// How many the job has.
        of: usize,
    },
    /// More records would be under way to a consumer than a reader can keep track of.
    #[error(
        "{prefetch} batches of {batch_size} records ahead are too many; at most {allowed} records may be"
    )]
    PoolTooLarge {
        /// Records in a batch.
        batch_size: usize,
        /// Batches ahead.
        prefetch: usize,
        /// The most records under way to a consumer.
        allowed: usize,
    },
    /// The thread could not be started.
    #[error("{key}: cannot start the reader's thread: {message}")]
    Thread {
        /// The reader.
        key: String,
        /// What the operating system said.
        message: String,
    },
    /// The source panicked while it was being read.
    #[error("{key}: the reader panicked: {message}; this is a bug in the source")]
    Panicked {
        /// The reader.
        key: String,
        /// What the panic said.
        message: String,
    },
    /// Somebody called [`Canceller::cancel`].
    #[error("{key}: cancelled")]
    Cancelled {
        /// The reader.
        key: String,
    },
}

/// What to read, and how it is dealt.
#[derive(Debug)]
pub struct DataReaderBuilder {
    layer: String,
    source: Arc<dyn Source>,
    phase: Phase,
    group: String,
    terms: Terms,
    gate_timeout: Duration,
    /// Who helps the walk, where the runs are for a feed's workers.
    helpers: Option<Arc<dyn Helpers>>,
}

/// A consumer's handle on a reader.
///
/// Handles of one [`ReaderKey`] share one reading thread. Nothing is dealt until as many handles are open
/// as the reader has consumers. When the last of them is dropped, the thread is stopped and joined, and a
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
///     reader.free().push(run); // or just let go of it
/// }
/// # Ok::<(), percolator::reader::ReaderError>(())
/// ```
#[derive(Debug)]
pub struct DataReader {
    number: usize,
    /// Whether the end, or what caused it, has been told.
    reported: AtomicBool,
    /// Before the body: closing the queues is what wakes its thread for the join.
    end: ConsumerEnd,
    thread: Arc<Held<ReaderKey, ReaderThread>>,
}

impl DataReader {
    /// A reader of `source` for a layer of this name: one consumer, batches of 1, Caffe's prefetch of 4,
    /// training, round and round.
    pub fn builder(layer: impl Into<String>, source: impl Source + 'static) -> DataReaderBuilder {
        Self::builder_shared(layer, Arc::new(source))
    }

    /// As [`DataReader::builder`], for a source that others hold as well.
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
                // Whoever takes a run from a queue takes it to be right, and may keep it.
                is_for_workers: false,
                drops_behind: false,
            },
            gate_timeout: Duration::from_secs(30),
            helpers: None,
        }
    }

    /// Which consumer this is: handles are numbered from 0 in the order in which they were opened.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// What the reader is known by.
    #[must_use]
    pub fn key(&self) -> &ReaderKey {
        &self.shared().key
    }

    /// The queue that brings records.
    #[must_use]
    pub fn full(&self) -> Full<'_> {
        Full(self)
    }

    /// The queue that takes spent runs back.
    #[must_use]
    pub fn free(&self) -> Free<'_> {
        Free(self)
    }

    /// What ends the reader from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.shared().clone())
    }

    /// How often, and how long, the reader has waited for a consumer to give a slot back.
    #[must_use]
    pub fn waits_for_free(&self) -> Waits {
        self.shared().meters.free_slot.read(Instant::now())
    }

    /// The longest run that this reader deals, in records.
    #[must_use]
    pub fn run_records(&self) -> usize {
        self.shared().pool.run_records
    }

    /// How many runs go round between the reader and this consumer.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.shared().pool.runs
    }

    pub(crate) fn end(&self) -> &ConsumerEnd {
        &self.end
    }

    /// What tells how the reader is doing, without keeping it alive.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.shared().clone())
    }

    /// What ended the reader, if it was an error.
    pub(crate) fn error(&self) -> Option<ReaderError> {
        self.shared().first_error.get()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.thread.shared()
    }

    /// The queue has ended: with the reader's error, the first time, if there is one.
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
    /// The next run; waits for one. `None` after the last.
    ///
    /// # Errors
    ///
    /// What ended the reader, once, after every run that was dealt before it.
    pub fn pop(&self) -> Result<Option<Lease>, ReaderError> {
        if self.0.reported.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.0.end.pop(self.0.shared().first_error.alarm()) {
            Some(run) => Ok(Some(run)),
            None => self.0.ended().map(|()| None),
        }
    }

    /// The next run if there is one now; `None` if there is none yet, or, as [`is_ended`](Self::is_ended)
    /// then says, none any more.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    pub fn try_pop(&self) -> Result<Option<Lease>, ReaderError> {
        if self.0.reported.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.0.end.try_pop() {
            // After an error nothing more comes, even if the reader still hangs in its source.
            Ok(None) if self.0.error().is_some() => match self.0.end.try_pop() {
                Ok(Some(run)) => Ok(Some(run)),
                Ok(None) | Err(Left) => self.0.ended().map(|()| None),
            },
            Ok(run) => Ok(run),
            Err(Left) => self.0.ended().map(|()| None),
        }
    }

    /// Whether the end, or what caused it, has been told: nothing comes any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.reported.load(Ordering::Relaxed)
    }

    /// Runs that wait to be taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.end.full_len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The queue that takes a consumer's spent runs back. See [`DataReader::free`].
#[derive(Clone, Copy, Debug)]
pub struct Free<'a>(&'a DataReader);

impl Free<'_> {
    /// Gives a run back, so that the reader can fill it again. Dropping the run does the same: a run
    /// cannot be lost.
    pub fn push(&self, run: Lease) {
        drop(run);
    }

    /// Runs that the reader could fill now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.end.free_len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Ends a reader from another thread.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Shared>);

impl Canceller {
    /// Ends the reader. Each of its consumers gets [`ReaderError::Cancelled`] once, after the runs it was
    /// dealt before; one that waits is woken.
    pub fn cancel(&self) {
        self.0.cancel(ReaderError::Cancelled { key: self.0.key.to_string() });
    }
}

/// A look at a reader that does not keep it alive.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    pub(crate) fn meters(&self) -> &ReaderMeters {
        &self.0.meters
    }

    pub(crate) fn activity(&self) -> Activity {
        self.0.activity()
    }

    pub(crate) fn consumers(&self) -> usize {
        self.0.terms.consumers
    }
}

impl DataReaderBuilder {
    /// Training or testing: part of the key, so that the two never share a reader.
    #[must_use]
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// The net or feed the consumers belong to: part of the key.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// How many consumers the records are dealt to. Said here because it cannot be guessed: one handle
    /// more is an error, one fewer is reported after the [gate's time-out](Self::gate_timeout).
    #[must_use]
    pub fn consumers(mut self, consumers: usize) -> Self {
        self.terms.consumers = consumers;
        self
    }

    /// Which ranks of a job of `of` the consumers are: rank `first`, and those that follow it. Records of
    /// the other ranks are passed over. If not said, the consumers are all there are.
    ///
    /// Caffe shards so in TRAIN: rank `r` of `N` gets the records `r`, `r + N`, `r + 2N` and so on, counted
    /// from the start and on through every pass.
    #[must_use]
    pub fn ranks(mut self, first: usize, of: usize) -> Self {
        self.terms.share = Some(Share { first, of });
        self
    }

    /// Records a consumer takes at a time.
    #[must_use]
    pub fn batch_size(mut self, records: usize) -> Self {
        self.terms.batch_size = records;
        self
    }

    /// Batches that may be under way to a consumer: `prefetch * batch_size` records at the most.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.terms.prefetch = batches;
        self
    }

    /// Ends after so many passes over the source; 0 goes round for ever, as Caffe does.
    #[must_use]
    pub fn passes(mut self, passes: u64) -> Self {
        self.terms.passes = NonZeroU64::new(passes);
        self
    }

    /// All that the consumers must agree on, at once.
    #[must_use]
    pub(crate) fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Who helps the walk.
    #[must_use]
    pub(crate) fn helpers(mut self, helpers: Arc<dyn Helpers>) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// How long to wait for all consumers to open their handles; 30 s if not said.
    #[must_use]
    pub fn gate_timeout(mut self, timeout: Duration) -> Self {
        self.gate_timeout = timeout;
        self
    }

    /// Opens a handle in the process's own registry.
    ///
    /// # Errors
    ///
    /// [`ReaderError`] if the source is empty or cannot be read, or if the reader that runs under this key
    /// has no place for this consumer.
    pub fn open(self) -> Result<DataReader, ReaderError> {
        self.open_in(Registry::global())
    }

    /// Opens a handle in a registry of the caller's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(self, registry: &Registry) -> Result<DataReader, ReaderError> {
        let terms = self.terms;
        terms.check()?;
        let source = canonical(self.source.path());
        let key = ReaderKey { layer: self.layer, source, phase: self.phase, group: self.group };
        let start =
            || ReaderThread::start(key.clone(), self.source, terms.clone(), self.gate_timeout, self.helpers);
        let thread = registry.bodies.get_or_open(&key, start)?;
        let (number, end) = thread.shared().register(&terms)?;
        tracing::debug!(key = %key, consumer = number, of = terms.consumers, "a consumer has registered");
        Ok(DataReader { number, reported: AtomicBool::new(false), end, thread })
    }
}

/// Two spellings of one path are one source. What is not on disk keeps the name it has.
fn canonical(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
