//! From what was asked for to a running feed.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::bounded;

use super::lane::Lane;
use super::{Clock, Feed, FeedCanceller, Gauges};
use crate::batch::{BatchShape, Frame};
use crate::config::{BudgetTerms, ConfigError, MemoryBudget};
use crate::device::Device;
use crate::error::FeedError;
use crate::latch::Latch;
use crate::prefetch::{Berth, LaneMeters, Prefetcher, RingKeeper, Slot, State};
use crate::reader::body::{Pool, Terms};
use crate::reader::queue_pair;
use crate::reader::{DataReader, Registry};
use crate::record::RecordId;
use crate::round::Round;
use crate::shape::{Dtype, ImageShape, Layout, Phase};
use crate::source::lmdb::Lmdb;
use crate::source::{PLACE_BYTES, Record, Source, SourceError};
use crate::sync::panic_message;
use crate::transform::{Randomness, Transform, Transformer};
use crate::workers::{Recipe, Task, WorkerMeters, Workers};

/// How long a lane waits for a batch before it says why there is none.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// The most workers, and the most lanes: starting threads without end aborts a process in the system's own
/// library, where no error can be made of it.
const THREADS_MAX: usize = 1024;

/// What a run takes up in `free`, `full` and the workers' queue, beside its records.
const QUEUED_RUN_BYTES: usize =
    2 * size_of::<queue_pair::Slot>() + size_of::<Task>() + 3 * size_of::<usize>();

/// Tells feeds of one process apart, so that two feeds of one database never share a reader.
static FEEDS: AtomicU64 = AtomicU64::new(0);

/// Describes a feed. What is not said is Caffe's default where Caffe has one.
///
/// ```no_run
/// use percolator::{Device, Feed, Transform};
///
/// let mut feed = Feed::builder()
///     .lmdb("ilsvrc12_train_lmdb")
///     .batch_size(64)
///     .transform(Transform::new().crop(227).mirror(true).mean_values([104.0, 117.0, 123.0]))
///     .devices([Device::host(0), Device::host(1)])
///     .build()?;
/// for step in feed.steps() {
///     for batch in step? {
///         println!("{batch:?}: {} labels", batch.labels().len());
///     }
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a feed starts when it is built"]
pub struct FeedBuilder {
    source: Option<SourceChoice>,
    layer: String,
    transform: Transform,
    phase: Phase,
    dtype: Dtype,
    layout: Layout,
    batch_size: usize,
    devices: Vec<Device>,
    threads: usize,
    prefetch: usize,
    seed: u64,
    passes: Option<NonZeroU64>,
    memory_limit: Option<usize>,
    warn_after: Duration,
    registry: Registry,
}

#[derive(Clone, Debug)]
enum SourceChoice {
    Opened(Arc<dyn Source>),
    Lmdb(PathBuf),
}

impl FeedBuilder {
    pub(super) fn new() -> Self {
        FeedBuilder {
            source: None,
            layer: "data".to_owned(),
            transform: Transform::new(),
            phase: Phase::Train,
            dtype: Dtype::F32,
            layout: Layout::Nchw,
            batch_size: 1,
            devices: vec![Device::host(0)],
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch: 4,
            seed: 0,
            passes: None,
            memory_limit: None,
            warn_after: WARN_AFTER,
            registry: Registry::global().clone(),
        }
    }

    /// Reads a Caffe LMDB: the folder, or its `data.mdb`.
    pub fn lmdb(mut self, path: impl AsRef<Path>) -> Self {
        self.source = Some(SourceChoice::Lmdb(path.as_ref().to_owned()));
        self
    }

    /// Reads a source that is open already, or one of the caller's own making.
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        self.source = Some(SourceChoice::Opened(Arc::new(source)));
        self
    }

    /// The layer's name in messages and in the registry; `data` if not said.
    pub fn layer(mut self, name: impl Into<String>) -> Self {
        self.layer = name.into();
        self
    }

    /// What is done to every record; nothing if not said.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = transform;
        self
    }

    /// Training or testing; training if not said.
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// The type of a batch's elements; f32 if not said.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// The order of a batch's axes; NCHW if not said.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Records in a batch of one device; 1 if not said. More devices take more records a step, as in
    /// Caffe.
    pub fn batch_size(mut self, records: usize) -> Self {
        self.batch_size = records;
        self
    }

    /// The devices, one lane each; the host if not said.
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Worker threads, for all lanes together; one a core if not said. The result does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Batches in a lane's ring, those that the consumer holds among them; 4 if not said, as in Caffe.
    /// With 1 nothing is filled while the consumer holds a batch.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// What crops and mirroring are drawn from, with the record's pass and position; 0 if not said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// One exact pass: every record once, a short last batch a lane, then the end. If not said, the feed
    /// goes round for ever, and batches run on from the last record to the first, as in Caffe.
    pub fn once(mut self) -> Self {
        self.passes = NonZeroU64::new(1);
        self
    }

    /// The memory that the feed may use, as [`Feed::memory_budget`] counts it; unlimited if not said.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// How long a lane waits for a batch before it warns, with the cause; 5 s if not said. Later warnings
    /// of one wait come after twice the time each.
    pub fn warn_after(mut self, wait: Duration) -> Self {
        self.warn_after = wait;
        self
    }

    /// The registry that the feed's reader is known to; the process's own if not said.
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.registry = registry.clone();
        self
    }

    /// Opens the source, looks at its first record, sets the memory aside and starts the threads.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if what was asked for cannot be, if the source cannot be read or is empty, if its
    /// first record does not go with the transform, or if a device has no memory. Nothing is left running.
    pub fn build(self) -> Result<Feed, FeedError> {
        let plan = self.plan()?;
        plan.start()
    }

    /// What the lanes agree on with their reader.
    fn terms(&self) -> Terms {
        Terms {
            consumers: self.devices.len(),
            batch_size: self.batch_size,
            prefetch: self.prefetch,
            passes: self.passes,
        }
    }

    /// Checks everything that can be checked before a thread is started.
    fn plan(self) -> Result<Plan, FeedError> {
        if self.devices.is_empty() {
            return Err(ConfigError::NoDevice.into());
        }
        if self.threads == 0 {
            return Err(ConfigError::Zero { option: "threads" }.into());
        }
        for (option, found) in [("threads", self.threads), ("devices", self.devices.len())] {
            if found > THREADS_MAX {
                return Err(ConfigError::TooMany { option, found, allowed: THREADS_MAX }.into());
            }
        }
        self.terms().check()?;
        let transformer = Transformer::new(&self.transform, self.phase, self.dtype, self.layout)
            .map_err(ConfigError::Transform)?;
        let source: Arc<dyn Source> = match &self.source {
            None => return Err(ConfigError::NoSource.into()),
            Some(SourceChoice::Opened(source)) => source.clone(),
            Some(SourceChoice::Lmdb(path)) => Arc::new(Lmdb::open(path)?),
        };
        let randomness = Randomness::Indexed { seed: self.seed };
        let recipe = Recipe { path: source.path().to_owned(), transformer, randomness };
        let first = FirstRecord::look(&*source, &recipe)?;
        let (layout, dtype) = (self.layout, self.dtype);
        let batch = BatchShape { records: self.batch_size, image: first.output, layout, dtype };
        let slots = self.prefetch.checked_mul(self.devices.len());
        let bytes = batch.checked_bytes().and_then(|bytes| bytes.checked_mul(slots?));
        if bytes.is_none() {
            return Err(
                ConfigError::BatchTooLarge { batch_size: self.batch_size, image: first.output }.into()
            );
        }
        Ok(Plan { source, first, batch, recipe: Arc::new(recipe), asked: self })
    }
}

/// What the first record of a source tells.
struct FirstRecord {
    input: ImageShape,
    output: ImageShape,
    value_bytes: usize,
    is_lent: bool,
}

impl FirstRecord {
    fn look(source: &dyn Source, recipe: &Recipe) -> Result<Self, FeedError> {
        let mut cursor = source.cursor()?;
        let Some(entry) = cursor.advance()? else {
            return Err(SourceError::Empty { path: source.path().to_owned() }.into());
        };
        let record = Record { id: RecordId::default(), key: entry.key(), value: entry.value() };
        let (input, output) = recipe.shapes(&record)?;
        Ok(FirstRecord { input, output, value_bytes: record.value.len(), is_lent: entry.is_lent() })
    }
}

/// A feed that has been checked and not yet started.
struct Plan {
    asked: FeedBuilder,
    source: Arc<dyn Source>,
    first: FirstRecord,
    batch: BatchShape,
    recipe: Arc<Recipe>,
}

impl Plan {
    fn start(self) -> Result<Feed, FeedError> {
        let clock = Arc::new(Clock::start(self.asked.devices.len()));
        let budget = self.budget()?;
        let readers = self.open_readers()?;
        let meters = Arc::new(WorkerMeters::default());
        let runs: usize = readers.iter().map(DataReader::runs).sum();
        let workers = Workers::start(self.asked.threads, runs, &self.recipe, &meters)
            .map_err(|error| FeedError::Thread { name: "worker".to_owned(), message: error.to_string() })?;
        let workers = Arc::new(workers);
        let latch = Latch::new();
        let watch = readers[0].watch();
        let lanes = readers
            .into_iter()
            .zip(&self.asked.devices)
            .map(|(reader, device)| self.start_lane(reader, device, &workers, &latch, &clock))
            .collect::<Result<Vec<Lane>, FeedError>>()?;
        let gauges = Gauges {
            clock,
            reader: watch,
            threads: self.asked.threads,
            workers: meters,
            lanes: lanes.iter().map(|lane| (lane.device.clone(), lane.meters.clone())).collect(),
        };
        let records = self.source.records();
        tracing::info!(
            source = %self.recipe.path.display(),
            records,
            batch = %self.batch,
            lanes = lanes.len(),
            threads = self.asked.threads,
            budget_bytes = budget.total_bytes(),
            "the feed starts"
        );
        let canceller = FeedCanceller(latch);
        Ok(Feed {
            lanes,
            records,
            input_shape: self.first.input,
            batch_shape: self.batch,
            budget,
            canceller,
            gauges,
        })
    }

    /// One handle a lane, in the order of the lanes: record `g` goes to lane `g mod N`.
    fn open_readers(&self) -> Result<Vec<DataReader>, FeedError> {
        let group = format!("feed {}", FEEDS.fetch_add(1, Ordering::Relaxed));
        let open = |_| {
            DataReader::builder_shared(&*self.asked.layer, self.source.clone())
                .phase(self.asked.phase)
                .group(&*group)
                .consumers(self.asked.devices.len())
                .batch_size(self.asked.batch_size)
                .prefetch(self.asked.prefetch)
                .passes(self.asked.passes.map_or(0, NonZeroU64::get))
                .open_in(&self.asked.registry)
        };
        Ok(self.asked.devices.iter().map(open).collect::<Result<_, _>>()?)
    }

    /// Known before anything is set aside, so that a feed over its limit costs nothing.
    fn budget(&self) -> Result<MemoryBudget, FeedError> {
        let pool = Pool::cut(&self.asked.terms(), self.first.value_bytes);
        let budget = MemoryBudget::of(&BudgetTerms {
            lanes: self.asked.devices.len(),
            prefetch: self.asked.prefetch,
            threads: self.asked.threads,
            batch: self.batch,
            runs: pool.runs,
            run_records: pool.run_records,
            place_bytes: PLACE_BYTES,
            run_bytes: QUEUED_RUN_BYTES,
            source_lends: self.first.is_lent,
            value_bytes: self.first.value_bytes,
            input_elements: self.first.input.channels * self.first.input.height * self.first.input.width,
            mean_elements: self.recipe.transformer.mean_elements(),
        });
        let needed = budget.total_bytes();
        match self.asked.memory_limit {
            Some(allowed) if needed > allowed => {
                let budget = budget.to_string();
                Err(ConfigError::OverBudget { needed, allowed, budget }.into())
            }
            _ => Ok(budget),
        }
    }

    fn start_lane(
        &self,
        reader: DataReader,
        device: &Device,
        workers: &Arc<Workers>,
        latch: &Latch<FeedError>,
        clock: &Arc<Clock>,
    ) -> Result<Lane, FeedError> {
        let asked = &self.asked;
        let meters = Arc::new(LaneMeters::default());
        let (free_sender, free) = bounded(asked.prefetch);
        // One message more than there are batches: the error.
        let (full, full_receiver) = bounded(asked.prefetch + 1);
        // Room for a message that never comes: a wait on a queue without room allocates.
        let (stop_sender, stop) = bounded(1);
        let (done_sender, done) = bounded(asked.prefetch);
        // After the queues, so that slots which are dropped with them find their round over.
        let ring = RingKeeper(Round::open());
        for _ in 0..asked.prefetch {
            let bytes = self.batch.bytes();
            let memory = device.host_memory(bytes)?;
            let frame = Frame::new(memory, asked.batch_size, done_sender.clone());
            let passage = device.backend().passage(bytes, asked.batch_size)?;
            let slot = Slot { berth: Berth { passage, token: ring.0.token() }, frame };
            free_sender.send(Ok(slot)).expect("the queue has room for every slot, and its receiver is alive");
        }
        let (number, watch) = (reader.number(), reader.watch());
        let prefetcher = Prefetcher {
            ring,
            reader,
            recipe: self.recipe.clone(),
            device: device.clone(),
            batch_size: asked.batch_size,
            dtype: asked.dtype,
            layout: asked.layout,
            meters: meters.clone(),
            latch: latch.clone(),
            tasks: workers.tasks(),
            done,
            free,
            full,
            stop,
            state: State::with_capacity(asked.prefetch),
        };
        Ok(Lane {
            number,
            device: device.name(),
            prefetch: asked.prefetch,
            full: full_receiver,
            free: free_sender,
            meters,
            clock: clock.clone(),
            watch,
            warn_after: asked.warn_after,
            ended: false,
            stop: Some(stop_sender),
            thread: Some(spawn(prefetcher)?),
            _workers: workers.clone(),
        })
    }
}

/// Starts the prefetch thread. Should it panic, its consumer gets an error and not a quiet end.
fn spawn(prefetcher: Prefetcher) -> Result<JoinHandle<()>, FeedError> {
    let name = format!("prefetch:{}", prefetcher.reader.number());
    let (latch, full) = (prefetcher.latch.clone(), prefetcher.full.clone());
    let thread_name = name.clone();
    let run = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| prefetcher.run())) {
            let error = FeedError::Panicked { name: thread_name, message: panic_message(&*panic) };
            latch.set(error.clone());
            let _ = full.send(Err(error));
        }
    };
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(run)
        .map_err(|error| FeedError::Thread { name, message: error.to_string() })
}
