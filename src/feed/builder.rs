//! The options of a feed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Feed;
use super::decoding::Decoding;
use super::error::FeedError;
use super::net::NetLayer;
use super::own_steps::OwnSteps;
use super::resolve::ResolvedFeed;
use super::sources;
use super::spec::{FeedSpec, Receipts, Seed, SourceSpec};
use super::target::Target;
use crate::bad::BadRecords;
use crate::base::shape::{Dtype, Layout, Phase};
use crate::device::Device;
use crate::order::{
    Assignment, AutoShardPolicy, BatchSize, BlockSource, Blocks, Epochs, JobShare, LastBatch, ShuffleSpec,
    World,
};
use crate::receipt::DataDigest;
use crate::snapshot::Snapshot;
use crate::source::leveldb::LogGaps;
use crate::source::{Access, IndexPlace, Opener, Source};
use crate::transform::{Transform, TransformPlace};

/// Describes a feed. Options that are not set have Caffe's defaults, if Caffe has any.
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
///         println!("{batch:?}: {} labels", batch.labels()?.len());
///     }
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a feed starts when it is built"]
pub struct FeedBuilder {
    pub(super) spec: FeedSpec,
    pub(super) attached: Attached,
}

/// What a program attaches to a feed: everything that is not plain data.
#[derive(Clone, Debug, Default)]
pub(super) struct Attached {
    /// One for each [`SourceSpec::Attached`] of the feed, in order.
    pub(super) sources: Vec<Arc<dyn Source>>,
    /// One for each [`SourceSpec::Attached`] of its target, in order.
    pub(super) target_sources: Vec<Arc<dyn Source>>,
    /// What opens files of other formats.
    pub(super) opener: Option<Arc<dyn Opener>>,
    pub(super) decoding: Decoding,
    pub(super) own_steps: OwnSteps,
    /// One for each name in the spec; `None` if the devices are found by their names.
    pub(super) devices: Option<Vec<Device>>,
    /// The source of the blocks of a schedule that has blocks.
    pub(super) blocks: Option<BlockSource>,
    /// The snapshot that the run resumes from.
    pub(super) resume: Option<Arc<Snapshot>>,
    /// The digest of the data set, without the hashes of single records.
    pub(super) digest: Option<Arc<DataDigest>>,
    /// If this feed replays one replica of a job: the job and the replica.
    pub(super) alone: Option<(World, usize)>,
    /// Whether the program has named a source: until then, one replaces those of a net or of a spec.
    names_sources: bool,
}

/// Starts a builder from plain data. What the spec only names, because a program attached it, must be
/// attached again.
impl From<FeedSpec> for FeedBuilder {
    fn from(spec: FeedSpec) -> Self {
        FeedBuilder { spec, attached: Attached::default() }
    }
}

impl FeedBuilder {
    /// Returns the options set so far, as plain data.
    #[must_use]
    pub fn spec(&self) -> &FeedSpec {
        &self.spec
    }

    /// Adds a Caffe LMDB: its folder, or its `data.mdb`. See [`data`](Self::data).
    pub fn lmdb(self, path: impl AsRef<Path>) -> Self {
        self.data(SourceSpec::lmdb(path.as_ref()))
    }

    /// Adds a Caffe LevelDB, given its folder. See [`data`](Self::data). Nothing in it is changed, and no
    /// lock is taken.
    pub fn leveldb(self, path: impl AsRef<Path>) -> Self {
        self.data(SourceSpec::leveldb(path.as_ref()))
    }

    /// Adds TFRecord files: a file, all files of a folder, or those that match a pattern with `*`, `?` and
    /// `[...]`, sorted as a shell sorts them in the C locale. See [`data`](Self::data). How a file is
    /// compressed is [detected](crate::tfrecord::TfRecordOptions::compression).
    ///
    /// To a plan, each of them is a file, like each of several databases. If the feed is [mixed](Self::mix),
    /// all files of a folder or a pattern are one database.
    ///
    /// The values are what TensorFlow wrote, usually a `tf.train.Example`, which
    /// [`example`](Self::example) reads.
    pub fn tfrecord(self, path: impl AsRef<Path>) -> Self {
        self.data(SourceSpec::tfrecord(path.as_ref()))
    }

    /// Adds a source that plain data can describe. [`lmdb`](Self::lmdb), [`leveldb`](Self::leveldb) and
    /// [`tfrecord`](Self::tfrecord) are shorthands for it.
    ///
    /// Sources add up: together they are one data set, [joined](crate::source::Joined) in the order in which
    /// they were added. The first source that the program adds replaces those of the net or the spec that the
    /// builder was made from.
    ///
    /// ```no_run
    /// use percolator::Feed;
    /// use percolator::feed::SourceSpec;
    ///
    /// let shards = ["train_0_lmdb", "train_1_lmdb", "train_2_lmdb"];
    /// let feed = shards.iter().fold(Feed::builder(), |feed, shard| feed.lmdb(shard));
    /// // One of several databases in an LMDB.
    /// let feed = feed.data(SourceSpec::Lmdb { path: "more_lmdb".into(), name: Some("train".into()) });
    /// let feed = feed.batch_size(64).build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// A record's position counts over all of them. Under [`AutoShardPolicy::File`], each worker of a
    /// [job](Self::share) reads its own databases. A job's default policy chooses this if there are
    /// databases for all its workers.
    pub fn data(mut self, source: SourceSpec) -> Self {
        if !std::mem::replace(&mut self.attached.names_sources, true) {
            self.spec.sources.clear();
        }
        self.spec.sources.push(source);
        self
    }

    /// Adds a source that is already open, or a caller-implemented one, as [`data`](Self::data) adds one.
    ///
    /// If the builder was made [from](Self::from) a spec that only names sources
    /// ([`SourceSpec::Attached`]), the first call attaches the first of them, and so on.
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        if sources::only_named(&self.spec.sources) == self.attached.sources.len() {
            self = self.data(SourceSpec::Attached { path: source.path().to_owned() });
        }
        self.attached.names_sources = true;
        self.attached.sources.push(Arc::new(source));
        self
    }

    /// Attaches what opens files of formats that the crate does not read itself ([`SourceSpec::Files`]): that
    /// of the package `percolator-formats`, or one of the program's own.
    pub fn opener(mut self, opener: impl Opener + 'static) -> Self {
        self.attached.opener = Some(Arc::new(opener));
        self
    }

    /// Sets how the files of the databases that the feed opens are read (default: mapped, except on network
    /// file systems; see [`Access`]). A [source](Self::source) that is already open stays as it was opened.
    pub fn access(mut self, access: Access) -> Self {
        self.spec.access = access;
        self
    }

    /// Sets what is done about LevelDBs whose logs lack writes (default: they are refused). Applies to every
    /// LevelDB that the feed opens.
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.spec.log_gaps = gaps;
        self
    }

    /// Sets the folder where relative paths start: those given to the feed, and those in the net it was made
    /// from (default: the working directory, as in Caffe).
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spec.root = folder.into();
        self
    }

    /// Sets the layer's name in messages (default: `data`).
    pub fn layer(mut self, name: impl Into<String>) -> Self {
        self.spec.layer = name.into();
        self
    }

    /// Sets what is done to every record (default: nothing). To change what a net has set, start from the
    /// present transform:
    ///
    /// ```
    /// # use percolator::Feed;
    /// # let builder = Feed::builder();
    /// let transform = builder.spec().transform.clone().scaled_decode(true);
    /// let builder = builder.transform(transform);
    /// ```
    pub fn transform(mut self, transform: Transform) -> Self {
        self.spec.transform = transform;
        // A spec's own choice is of the transform that it came with.
        self.spec.scaled_decode = None;
        self
    }

    /// Sets where the transform runs (default: on the host). The batches are the same, apart from what
    /// [`TransformPlace::Device`] lists.
    pub fn transform_on(mut self, place: TransformPlace) -> Self {
        self.spec.transform_on = place;
        self
    }

    /// Sets what a second array of each batch is made of (default: no such array).
    pub fn target(mut self, target: Target) -> Self {
        (self.spec.target, self.attached.target_sources) = (Some(target.spec), target.attached);
        self
    }

    /// Sets the phase: training or testing (default: training).
    pub fn phase(mut self, phase: Phase) -> Self {
        self.spec.phase = phase;
        self
    }

    /// Sets the element type of a batch's images (default: f32).
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.spec.dtype = dtype;
        self
    }

    /// Sets the order of the axes of a batch's images (default: NCHW).
    pub fn layout(mut self, layout: Layout) -> Self {
        self.spec.layout = layout;
        self
    }

    /// Sets the number of records in a batch (default: 1).
    ///
    /// A plain number is that of one device's batch: with more devices, a step has more records, as in Caffe
    /// (weak scaling). [`BatchSize::Global`] is the number of records in a step, which the replicas of the
    /// job divide among them: more devices take fewer records each (strong scaling).
    pub fn batch_size(mut self, size: impl Into<BatchSize>) -> Self {
        self.spec.batch_size = size.into();
        self
    }

    /// Sets the devices, one lane each (default: the host).
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        let devices: Vec<Device> = devices.into_iter().collect();
        self.spec.devices = devices.iter().map(Device::name).collect();
        self.attached.devices = Some(devices);
        self
    }

    /// Sets the number of worker threads for all lanes together; all of them are active. By default there is
    /// one per core, and only as many are active as it takes to keep the consumers from waiting (see
    /// [`Sizing`](crate::feed::Sizing)). Batches do not depend on this number.
    ///
    /// On a machine with several NUMA nodes, workers stay on the nodes of the lanes' devices if those have a
    /// processor for each worker. If not all nodes have devices, set fewer threads than cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.spec.threads = Some(threads);
        self
    }

    /// Sets the number of batches in a lane's ring, including those that the consumer holds. The default is
    /// 4, as in Caffe; on hosts, a ring of 4 that proves too shallow grows up to 8 (see
    /// [`Sizing`](crate::feed::Sizing)). With 1, nothing is filled while the consumer holds a batch.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.spec.prefetch = Some(batches);
        self
    }

    /// Sets the seed (default: 0).
    ///
    /// With a plain number, crops and mirroring depend on it and on the record's pass and position, and
    /// epochs are [shuffled](Self::shuffle) by it. [`Seed::Caffe`] draws crops and mirroring in Caffe's own
    /// sequence instead.
    ///
    /// ```
    /// use percolator::transform::CaffeEra;
    /// use percolator::{Feed, Seed};
    ///
    /// let indexed = Feed::builder().seed(1701);
    /// let as_in_caffe = Feed::builder().seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today });
    /// ```
    pub fn seed(mut self, seed: impl Into<Seed>) -> Self {
        self.spec.seed = seed.into();
        self
    }

    /// Sets how long the feed lasts, and in which of two orders it deals (default: [`Epochs::RoundRobin`]).
    ///
    /// - [`Epochs::RoundRobin`]: Caffe's round-robin order, for ever. Batches continue from the last record
    ///   to the first.
    /// - [`Epochs::OnePass`]: Caffe's round-robin order, for one exact pass. Each record comes once, then the
    ///   feed ends. Each lane's last batch may be short.
    /// - A plain number: so many epochs of a [`Plan`](crate::order::Plan), after which the feed ends; 0 has
    ///   no end. Epochs count from the beginning of the run, even if it [resumes](Self::resume).
    ///
    /// ```
    /// use percolator::{Epochs, Feed, Shuffle};
    ///
    /// let test = Feed::builder().lmdb("mnist_test_lmdb").epochs(Epochs::OnePass);
    /// let train = Feed::builder().lmdb("mnist_train_lmdb").epochs(10).shuffle(Shuffle::Global);
    /// ```
    ///
    /// Each epoch of a plan has every record exactly once, with these exceptions: a
    /// [last batch](Self::last_batch) may be dropped, or filled from the next epoch, and under
    /// [`AutoShardPolicy::Off`] each worker has every record. A batch's [`step`](crate::Batch::step) says
    /// where in its epoch it is. The feed's lanes are the replicas of a worker, and its
    /// [global batch](Self::batch_size) need not divide evenly. If the source does not know how many records
    /// it has, as a LevelDB does not, it is [indexed](Self::index).
    ///
    /// [`shuffle`](Self::shuffle), [`mix`](Self::mix), [`last_batch`](Self::last_batch),
    /// [`assignment`](Self::assignment), [`policy`](Self::policy) and the [worker](Self::share) of a job need
    /// epochs: in Caffe's round-robin order they are an error of [`build`](Self::build).
    pub fn epochs(mut self, epochs: impl Into<Epochs>) -> Self {
        let schedule = &mut self.spec.schedule;
        (schedule.epochs, schedule.once) = match epochs.into() {
            Epochs::RoundRobin => (None, false),
            Epochs::OnePass => (None, true),
            Epochs::Number(epochs) => (Some(epochs), false),
        };
        self
    }

    /// Shuffles each epoch, by the [seed](Self::seed): as a [`Shuffle`](crate::Shuffle), or in windows of so
    /// many bytes ([`ShuffleSpec::WindowsOfBytes`]). It needs [epochs](Self::epochs).
    pub fn shuffle(mut self, shuffle: impl Into<ShuffleSpec>) -> Self {
        self.spec.schedule.shuffle = Some(shuffle.into());
        self
    }

    /// Mixes the databases that the feed [consists of](Self::data) in exact proportions, one number each:
    /// with `[3, 1]`, three of every four consecutive records are from the first database
    /// ([`Job::mix`](crate::order::Job::mix)). It needs [epochs](Self::epochs). A record then comes once in
    /// each pass over its own database, and not once in each epoch.
    pub fn mix(mut self, weights: impl IntoIterator<Item = u64>) -> Self {
        self.spec.schedule.mix = weights.into_iter().collect();
        self
    }

    /// Sets what happens to an epoch's last records if they do not fill a batch. By default they are
    /// [kept](LastBatch::Keep), or, with [Caffe's assignment](Assignment::Caffe), [wrap](LastBatch::Wrap)
    /// into the next epoch. It needs [epochs](Self::epochs).
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.spec.schedule.last_batch = Some(last_batch);
        self
    }

    /// Sets which of a step's records each lane gets (default: by TensorFlow's rule). It needs
    /// [epochs](Self::epochs).
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.spec.schedule.assignment = Some(assignment);
        self
    }

    /// Sets what each process of a [job](Self::share) reads (default: [`AutoShardPolicy::Auto`]). The files
    /// are the databases that the feed [consists of](Self::data). It needs [epochs](Self::epochs).
    pub fn policy(mut self, policy: AutoShardPolicy) -> Self {
        self.spec.schedule.policy = Some(policy);
        self
    }

    /// Sets where a database's index is kept (default: [beside it](IndexPlace::Beside)). An index is needed
    /// to read a database out of order, because it is shuffled or shared with other workers. If there is
    /// none, it is built, which may take seconds.
    pub fn index(mut self, place: IndexPlace) -> Self {
        self.spec.index = place;
        self
    }

    /// Makes the feed one part of a larger job (default: the whole job). What other parts deliver is not
    /// delivered here. A later call replaces an earlier one.
    ///
    /// ```
    /// use percolator::Feed;
    /// use percolator::order::{JobWorker, Ranks, World};
    ///
    /// let described = Feed::builder().lmdb("train_lmdb");
    /// // The first of two workers, which have four replicas together. It needs epochs.
    /// let world = World::new(2, 4)?;
    /// let worker = described.clone().epochs(10).share(JobWorker { world, number: 0 });
    /// // Rank 1 of 4, in Caffe's round-robin order.
    /// let rank = described.share(Ranks { first: 1, of: 4 });
    /// # Ok::<(), percolator::order::OrderError>(())
    /// ```
    ///
    /// - A [`JobWorker`](crate::order::JobWorker) is a process, or a host. The feed's devices are its
    ///   replicas. The other workers' records are not read. It needs [epochs](Self::epochs).
    /// - [`Ranks`](crate::order::Ranks) are some ranks of a job in Caffe's round-robin order: rank `first` of
    ///   `of`, and the ranks that follow it, one for each device. The other ranks' records are skipped, as
    ///   Caffe does in TRAIN. A net's layer in TEST has all records on every rank, as in Caffe. A job has
    ///   65,536 ranks at most.
    ///
    /// Caffe does not shard an `ImageData` layer: each rank reads the whole list. Here its lines are dealt
    /// like the records of a database. If the list is shuffled by Caffe's own sequence, from a seed that
    /// differs from rank to rank, the ranks' shares are of differently shuffled lists, and overlap.
    pub fn share(mut self, share: impl Into<JobShare>) -> Self {
        let schedule = &mut self.spec.schedule;
        (schedule.worker, schedule.ranks) = match share.into() {
            JobShare::Worker(worker) => (Some(worker), None),
            JobShare::Ranks(ranks) => (None, Some(ranks)),
        };
        self
    }

    /// Resumes a training run. The lanes deliver exactly the batches that would have come next, bit for bit,
    /// and earlier records are not read. Set all other options as they were when the snapshot was taken.
    ///
    /// The job may differ, though: it may have other workers and replicas, or another batch size, policy,
    /// assignment or rule for the last batch. Then what is left of the epoch, for all workers together, is
    /// divided among the new replicas, in steps that are counted from 0. Each of these records is still
    /// delivered as often as it would have been ([`Plan::resumed`](crate::order::Plan::resumed)). All workers
    /// must resume from one snapshot, or from snapshots of [one step](Snapshot::join).
    ///
    /// [Round-robin order](Self::epochs) resumes as well. Sources that are not
    /// [seekable](Source::is_seekable) are scanned up to the record that comes next; an LMDB or a LevelDB is
    /// [indexed](Self::index). [`Seed::Caffe`] takes some nanoseconds for each record already delivered,
    /// and resumes only as the same job.
    ///
    /// What the feed is built from is checked: [`FeedError::Snapshot`] says what has changed.
    pub fn resume(mut self, snapshot: &Snapshot) -> Self {
        self.attached.resume = Some(Arc::new(snapshot.clone()));
        self
    }

    /// Delivers the steps that `blocks` hands out while the feed runs, block by block, instead of all steps
    /// of its plan: for workers that come and go, each with its own feed. The feed follows a
    /// [plan](crate::order::Plan), even without [epochs](Self::epochs). It is the plan of a job with this one
    /// worker, so the feeds of all workers must have the same number of devices, and the same options. It
    /// ends when no more blocks come.
    ///
    /// Such a feed has no [snapshots](crate::Feed::snapshot), and cannot [seek](crate::Feed::seek), resume,
    /// or start an [epoch](crate::Feed::epoch): only the source of the blocks knows where the run is. With
    /// [`Seed::Caffe`], nothing may be drawn from Caffe's sequence. [Receipts](Self::receipts) are kept:
    /// those of all workers together prove an epoch.
    pub fn blocks(mut self, blocks: impl Blocks + 'static) -> Self {
        self.spec.schedule.blocks = true;
        self.attached.blocks = Some(BlockSource::new(blocks));
        self
    }

    /// Sets which [receipts](crate::Receipt) of what is delivered are kept (default: none). `true` keeps
    /// those of the [positions](Receipts::Positions). Receipts need [epochs](Self::epochs).
    ///
    /// [`Receipts::Contents`] keeps those of the records' bytes as well. Verified against the
    /// [digest](DataDigest) of the data set, they prove that the right bytes were delivered, not only the
    /// right positions.
    pub fn receipts(mut self, receipts: impl Into<Receipts>) -> Self {
        self.spec.receipts = receipts.into();
        self
    }

    /// Sets what is done with records that cannot be used (default: the first one [ends](BadRecords::fail)
    /// the feed). They can be [skipped](BadRecords::skip) or [replaced](BadRecords::replace) by others of
    /// their batch, within limits, and written to a [file](BadRecords::quarantine).
    ///
    /// ```
    /// # use percolator::{BadRecords, Feed};
    /// let builder = Feed::builder().bad_records(BadRecords::skip().at_most(20));
    /// ```
    pub fn bad_records(mut self, policy: BadRecords) -> Self {
        self.spec.bad_records = policy;
        self
    }

    /// Sets the most memory that the feed may use, in bytes, as [`Feed::memory_budget`] derives it from the
    /// first record (default: what the system allows this process: the memory of its control group, as a
    /// container has one, and its address space). It is checked once, when the feed is built, and so are the
    /// system's limits if they are lower. Threads and prefetch are chosen within it, if they are not set.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.spec.memory_limit = Some(bytes);
        self
    }

    /// Sets how long a lane waits for a batch before it warns, with the cause (default: 5 s). Within one
    /// wait, the time between two warnings doubles.
    pub fn warn_after(mut self, wait: Duration) -> Self {
        self.spec.warn_after = wait;
        self
    }

    /// Sets how long a lane waits for a batch while its consumer holds all batches of the ring (default: 60
    /// s; `None` for ever). After that the feed ends with the error [`FeedError::AllHeld`]. Such a wait ends
    /// only if another thread drops a batch: a consumer that collects batches, or holds as many as the ring
    /// has, would wait for ever. Other waits are not errors, however long they are.
    ///
    /// ```
    /// # use percolator::Feed;
    /// # use std::time::Duration;
    /// let soon = Feed::builder().give_up_after(Duration::from_secs(5));
    /// // Another thread drops the batches, and may take its time.
    /// let never = Feed::builder().give_up_after(None);
    /// ```
    pub fn give_up_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.spec.give_up_after = wait.into();
        self
    }

    /// Opens the source, reads its first record, allocates the memory and starts the threads:
    /// [`resolve`](Self::resolve), then [`launch`](ResolvedFeed::launch).
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the options cannot be met, if the source cannot be read or is empty, if its first
    /// record does not match the transform, or if a device has no memory. Nothing is left running.
    pub fn build(self) -> Result<Feed, FeedError> {
        self.resolve()?.launch()
    }

    /// Opens the source, reads its first record, and determines what would run: which record comes when, the
    /// shape of a batch, threads, rings and memory. No thread is started, and no batch is allocated. If the
    /// schedule needs the index of a database, it is built and stored first, which may take seconds
    /// ([`index`](Self::index) says where).
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the options cannot be met, if the source cannot be read or is empty, or if its first
    /// record does not match the transform.
    pub fn resolve(self) -> Result<ResolvedFeed, FeedError> {
        if let Some(layer) = &self.spec.net {
            layer.warn();
        }
        self.resolve_again()
    }

    /// Resolves again, without logging the warnings again.
    pub(super) fn resolve_again(self) -> Result<ResolvedFeed, FeedError> {
        let net = self.spec.net.clone();
        ResolvedFeed::of(self)
            .and_then(ResolvedFeed::checked)
            .map_err(|error| NetLayer::with_origin(net.as_ref(), error))
    }
}
