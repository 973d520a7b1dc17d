//! The options of a feed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Feed;
use super::config::ConfigError;
use super::decoding::Decoding;
use super::error::FeedError;
use super::net::NetLayer;
use super::resolve::ResolvedFeed;
use super::spec::{FeedSpec, Receipts, Seed, SourceSpec};
use super::target::Target;
use crate::bad::BadRecords;
use crate::base::shape::{Dtype, Layout, Phase};
use crate::device::Device;
use crate::order::{
    Assignment, AutoShardPolicy, BatchSize, BlockSource, Blocks, JobWorker, LastBatch, Ranks, Shuffle,
    ShuffleSpec, World,
};
use crate::reader::Registry;
use crate::receipt::DataDigest;
use crate::snapshot::Snapshot;
use crate::source::leveldb::LogGaps;
use crate::source::{Access, IndexPlace, Source};
use crate::transform::{CaffeEra, Transform, TransformPlace};

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
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// One for each [`SourceSpec::Attached`] of the feed, in order.
    pub(super) sources: Vec<Arc<dyn Source>>,
    /// One for each [`SourceSpec::Attached`] of its target, in order.
    pub(super) target_sources: Vec<Arc<dyn Source>>,
    pub(super) decoding: Decoding,
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
    pub(super) registry: Registry,
    /// Whether the program has named a source: those of a net or of a spec may be replaced.
    names_sources: bool,
    /// The first pair of options of which the later one would have dropped the earlier one.
    pub(super) conflict: Option<ConfigError>,
}

impl Default for Attached {
    fn default() -> Self {
        Attached {
            sources: Vec::new(),
            target_sources: Vec::new(),
            decoding: Decoding::default(),
            devices: None,
            blocks: None,
            resume: None,
            digest: None,
            alone: None,
            registry: Registry::global().clone(),
            names_sources: false,
            conflict: None,
        }
    }
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

    /// Reads a Caffe LMDB: its folder, or its `data.mdb`.
    ///
    /// This replaces the source of a net or a spec that the builder was made from. After a source that the
    /// program has named itself, it is an error of [`build`](Self::build): [`and_lmdb`](Self::and_lmdb) reads
    /// both. The same holds for every method that sets the source.
    pub fn lmdb(self, path: impl AsRef<Path>) -> Self {
        self.only(SourceSpec::lmdb(path.as_ref()))
    }

    /// Reads the database with this name, one of several in an LMDB.
    pub fn lmdb_named(self, path: impl AsRef<Path>, name: impl Into<String>) -> Self {
        self.only(SourceSpec::Lmdb { path: path.as_ref().to_owned(), name: Some(name.into()) })
    }

    /// Sets how the files of the databases that the feed opens are read (default: mapped, except on network
    /// file systems; see [`Access`]). A [source](Self::source) that is already open stays as it was opened.
    pub fn access(mut self, access: Access) -> Self {
        self.spec.access = access;
        self
    }

    /// Reads a Caffe LevelDB, given its folder. Nothing in it is changed, and no lock is taken.
    pub fn leveldb(self, path: impl AsRef<Path>) -> Self {
        self.only(SourceSpec::leveldb(path.as_ref()))
    }

    /// Reads TFRecord files: a file, all files of a folder, or those that match a pattern with `*`, `?` and
    /// `[...]`, sorted as a shell sorts them in the C locale. How a file is compressed is
    /// [detected](crate::tfrecord::TfRecordOptions::compression).
    ///
    /// To a plan, each of them is a file, like each of several [joined](Self::and_lmdb) databases. If the
    /// feed is [mixed](Self::mix), all files of a folder or a pattern are one database.
    ///
    /// The values are what TensorFlow wrote, usually a `tf.train.Example`, which a
    /// [decoder](Self::decoder) reads.
    pub fn tfrecord(self, path: impl AsRef<Path>) -> Self {
        self.only(SourceSpec::tfrecord(path.as_ref()))
    }

    /// Sets what is done about LevelDBs whose logs lack writes (default: they are refused). Applies to every
    /// LevelDB that the feed opens.
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.spec.log_gaps = gaps;
        self
    }

    /// Reads a source that is already open, or a caller-implemented one.
    pub fn source(self, source: impl Source + 'static) -> Self {
        let path = source.path().to_owned();
        let mut builder = self.only(SourceSpec::Attached { path });
        builder.attached.sources.push(Arc::new(source));
        builder
    }

    /// Reads one more LMDB, after the sources set so far: together they are one data set,
    /// [joined](crate::source::Joined).
    ///
    /// ```no_run
    /// # use percolator::Feed;
    /// let shards = ["train_0_lmdb", "train_1_lmdb", "train_2_lmdb"];
    /// let feed = shards.iter().fold(Feed::builder(), |feed, shard| feed.and_lmdb(shard));
    /// let feed = feed.batch_size(64).build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// A record's position counts over all of them. Under [`AutoShardPolicy::File`], each worker of a
    /// [job](Self::worker) reads its own databases. A job's default policy chooses this if there are
    /// databases for all its workers.
    pub fn and_lmdb(self, path: impl AsRef<Path>) -> Self {
        self.and(SourceSpec::lmdb(path.as_ref()))
    }

    /// Reads one more LMDB, as [`and_lmdb`](Self::and_lmdb) does, but its database of this name.
    pub fn and_lmdb_named(self, path: impl AsRef<Path>, name: impl Into<String>) -> Self {
        self.and(SourceSpec::Lmdb { path: path.as_ref().to_owned(), name: Some(name.into()) })
    }

    /// Reads one more LevelDB, as [`and_lmdb`](Self::and_lmdb) reads an LMDB.
    pub fn and_leveldb(self, path: impl AsRef<Path>) -> Self {
        self.and(SourceSpec::leveldb(path.as_ref()))
    }

    /// Reads more [TFRecord files](Self::tfrecord), as [`and_lmdb`](Self::and_lmdb) reads an LMDB.
    pub fn and_tfrecord(self, path: impl AsRef<Path>) -> Self {
        self.and(SourceSpec::tfrecord(path.as_ref()))
    }

    /// Reads one more source, as [`and_lmdb`](Self::and_lmdb) reads an LMDB.
    pub fn and_source(mut self, source: impl Source + 'static) -> Self {
        let path = source.path().to_owned();
        self.attached.sources.push(Arc::new(source));
        self.and(SourceSpec::Attached { path })
    }

    /// Attaches a source that the spec only names ([`SourceSpec::Attached`]): the first such source of the
    /// feed with the first call, and so on. For builders made [from](Self::from) a spec.
    pub fn attach_source(mut self, source: impl Source + 'static) -> Self {
        self.attached.sources.push(Arc::new(source));
        self
    }

    /// As [`attach_source`](Self::attach_source), for a source of the feed's targets.
    pub fn attach_target_source(mut self, source: impl Source + 'static) -> Self {
        self.attached.target_sources.push(Arc::new(source));
        self
    }

    fn only(mut self, source: SourceSpec) -> Self {
        if let Some(before) = self.spec.sources.last().filter(|_| self.attached.names_sources) {
            let (first, second) = (before.name(), source.name());
            let error = ConfigError::SourceReplaced { first, second, join: source.joining_method() };
            return self.conflicts(error);
        }
        self.spec.sources.clear();
        self.and(source)
    }

    fn and(mut self, source: SourceSpec) -> Self {
        self.spec.sources.push(source);
        self.attached.names_sources = true;
        self
    }

    /// Keeps the error of options that contradict each other until the feed is built. The first one counts.
    pub(super) fn conflicts(mut self, error: ConfigError) -> Self {
        self.attached.conflict.get_or_insert(error);
        self
    }

    /// Sets the folder where relative paths start: those given to the feed, and those in the net it was made
    /// from (default: the working directory, as in Caffe).
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spec.root = folder.into();
        self
    }

    /// Sets the layer's name in messages and in the registry (default: `data`).
    pub fn layer(mut self, name: impl Into<String>) -> Self {
        self.spec.layer = name.into();
        self
    }

    /// Returns the layer's name.
    #[must_use]
    pub fn layer_name(&self) -> &str {
        &self.spec.layer
    }

    /// Sets what is done to every record (default: nothing).
    pub fn transform(mut self, transform: Transform) -> Self {
        self.spec.transform = transform;
        self
    }

    /// Sets [`Transform::scaled_decode`] of the feed's transform, whichever of the two is set first (default:
    /// as set in the transform). It is meant for a net's `ImageData` layer with a `new_height`, because a
    /// prototxt has no field for it. The pixels are then not Caffe's. If nothing is resized, a warning says
    /// that the option has no effect.
    pub fn scaled_decode(mut self, scaled: bool) -> Self {
        self.spec.scaled_decode = Some(scaled);
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

    /// Sets the number of records in one device's batch (default: 1). With more devices, a step has more
    /// records, as in Caffe. Of this and [`global_batch_size`](Self::global_batch_size), the one that is set
    /// last counts.
    pub fn batch_size(mut self, records: usize) -> Self {
        self.spec.batch_size = BatchSize::PerReplica(records as u64);
        self
    }

    /// Sets the number of records in a step, which the ranks of the job divide among them. More devices take
    /// fewer records each (strong scaling). The [batch size](Self::batch_size) of each device, which this
    /// replaces, is weak scaling.
    pub fn global_batch_size(mut self, records: usize) -> Self {
        self.spec.batch_size = BatchSize::Global(records as u64);
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

    /// Sets the seed from which crops and mirroring are drawn, together with the record's pass and position
    /// (default: 0). Of this and [`caffe_random`](Self::caffe_random), the one that is set last counts.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = Seed::Indexed(seed);
        self
    }

    /// Draws crops and mirroring in Caffe's own sequence instead, number for number. This includes the
    /// shuffle of an `ImageData` layer.
    ///
    /// `seed` is what `Caffe::set_random_seed` is given: Caffe's solver gives it `random_seed`, plus the rank
    /// if it trains on several GPUs. Lane `i` has the seed `seed + i`, so a feed whose lanes are all the
    /// ranks draws as Caffe's solvers do. If the lanes are only [some of the ranks](Self::ranks), from rank
    /// `first` on, pass Caffe's seed plus `first`. If the feed is a [worker](Self::worker) of a job, pass the
    /// seed that all workers have; epochs are shuffled by it, too.
    pub fn caffe_random(mut self, seed: u32, era: CaffeEra) -> Self {
        self.spec.seed = Seed::Caffe { seed, era };
        self
    }

    /// Delivers one exact pass: every record once, a last batch in each lane that may be short, then the end.
    /// By default the feed never ends, and batches continue from the last record to the first, as in Caffe.
    /// Any number of [`epochs`](Self::epochs) other than 1 is refused together with this.
    pub fn once(mut self) -> Self {
        self.spec.schedule.once = true;
        self
    }

    /// Sets the number of epochs, after which the feed ends; 0 means no end. Epochs count from the beginning
    /// of the run, even if it [resumes](Self::resume). Each epoch has every record exactly once, with these
    /// exceptions: a [last batch](Self::last_batch) may be dropped, or filled from the next epoch, and under
    /// [`AutoShardPolicy::Off`] each worker has every record. A batch's [`step`](crate::Batch::step) says
    /// where in its epoch it is.
    ///
    /// If this is set, or any of [`shuffle`](Self::shuffle), [`mix`](Self::mix),
    /// [`last_batch`](Self::last_batch), [`assignment`](Self::assignment), [`policy`](Self::policy) and
    /// [`worker`](Self::worker), the feed follows a [`Plan`](crate::order::Plan): its lanes are the replicas
    /// of a worker, and its [global batch](Self::global_batch_size) need not divide evenly. Otherwise it
    /// deals in round-robin order, as Caffe does. If the source does not know how many records it has, as a
    /// LevelDB does not, it is [indexed](Self::index).
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.spec.schedule.epochs = Some(epochs);
        self
    }

    /// Shuffles each epoch, by the [seed](Self::seed). The feed then follows a plan: see
    /// [`epochs`](Self::epochs). Of this and
    /// [`shuffle_in_windows_of_bytes`](Self::shuffle_in_windows_of_bytes), the one that is set last counts.
    pub fn shuffle(mut self, shuffle: Shuffle) -> Self {
        self.spec.schedule.shuffle = Some(shuffle.into());
        self
    }

    /// Shuffles each epoch in [windows](Shuffle::Window) of about this many bytes. A window has as many
    /// records as would fill it if all were as large as the first, but at least 1.
    pub fn shuffle_in_windows_of_bytes(mut self, bytes: u64) -> Self {
        self.spec.schedule.shuffle = Some(ShuffleSpec::WindowsOfBytes(bytes));
        self
    }

    /// Mixes the databases that the feed [consists of](Self::and_lmdb) in exact proportions, one number each:
    /// with `[3, 1]`, three of every four consecutive records are from the first
    /// ([`Job::mix`](crate::order::Job::mix)). The feed then follows a plan: see [`epochs`](Self::epochs).
    /// A record then comes once in each pass over its own database, and not once in each epoch.
    pub fn mix(mut self, weights: impl IntoIterator<Item = u64>) -> Self {
        self.spec.schedule.mix = weights.into_iter().collect();
        self
    }

    /// Sets what happens to an epoch's last records if they do not fill a batch. By default they are
    /// [kept](LastBatch::Keep), or, with [Caffe's assignment](Assignment::Caffe), [wrap](LastBatch::Wrap)
    /// into the next epoch. The feed then follows a plan: see [`epochs`](Self::epochs).
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.spec.schedule.last_batch = Some(last_batch);
        self
    }

    /// Sets which of a step's records each lane gets (default: by TensorFlow's rule). The feed then follows a
    /// plan: see [`epochs`](Self::epochs).
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.spec.schedule.assignment = Some(assignment);
        self
    }

    /// Sets what each process of a [job](Self::worker) reads (default: [`AutoShardPolicy::Auto`]). The files
    /// are the databases that the feed [consists of](Self::and_lmdb). The feed then follows a plan: see
    /// [`epochs`](Self::epochs).
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

    /// Makes the feed one worker of a job of several: a process, or a host. Its devices are the replicas of
    /// worker `number`. The other workers' records are not read. The feed then follows a plan: see
    /// [`epochs`](Self::epochs).
    pub fn worker(mut self, world: World, number: usize) -> Self {
        self.spec.schedule.worker = Some(JobWorker { world, number });
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
    /// [indexed](Self::index). [`caffe_random`](Self::caffe_random) takes some nanoseconds for each record
    /// already delivered, and resumes only as the same job.
    ///
    /// What the feed is built from is checked: [`FeedError::Snapshot`] says what has changed.
    pub fn resume(mut self, snapshot: &Snapshot) -> Self {
        self.attached.resume = Some(Arc::new(snapshot.clone()));
        self
    }

    /// Delivers the steps that `blocks` hands out while the feed runs, block by block, instead of all steps
    /// of its plan: for workers that come and go, each with its own feed. The feed then follows a plan: see
    /// [`epochs`](Self::epochs). It is the plan of a job with this one worker, so the feeds of all workers
    /// must have the same number of devices, and the same options. It ends when no more blocks come.
    ///
    /// Such a feed has no [snapshots](crate::Feed::snapshot), and cannot [seek](crate::Feed::seek), resume,
    /// or start an [epoch](crate::Feed::epoch): only the source of the blocks knows where the run is. With
    /// [`caffe_random`](Self::caffe_random), nothing may be drawn from Caffe's sequence.
    /// [Receipts](Self::receipts) are kept: those of all workers together prove an epoch.
    pub fn blocks(mut self, blocks: impl Blocks + 'static) -> Self {
        self.spec.schedule.blocks = true;
        self.attached.blocks = Some(BlockSource::new(blocks));
        self
    }

    /// Makes the feed's lanes some of the ranks of a larger job: rank `first` of `of`, and the ranks that
    /// follow it, one for each device (default: the lanes are all ranks). The other ranks' records are
    /// skipped, as Caffe does in TRAIN. A net's layer in TEST has all records on every rank, as in Caffe. A
    /// job has 65,536 ranks at most.
    ///
    /// Caffe does not shard an `ImageData` layer: each rank reads the whole list. Here its lines are dealt
    /// like the records of a database. If the list is shuffled by Caffe's own sequence, from a seed that
    /// differs from rank to rank, the ranks' shares are of differently shuffled lists, and overlap.
    pub fn ranks(mut self, first: usize, of: usize) -> Self {
        self.spec.schedule.ranks = Some(Ranks { first, of });
        self
    }

    /// Keeps [receipts](crate::Receipt) of what is delivered (default: off). The feed must follow a plan: see
    /// [`epochs`](Self::epochs). Receipts cost some nanoseconds a record, and 5 KiB of memory for each epoch
    /// and lane.
    ///
    /// `receipts(false)` also turns [`receipt_contents`](Self::receipt_contents) off, and a later
    /// `receipts(true)` does not turn them on again.
    pub fn receipts(mut self, keeps: bool) -> Self {
        self.spec.receipts = if keeps { self.spec.receipts.max(Receipts::Positions) } else { Receipts::Off };
        self
    }

    /// Keeps [receipts](Self::receipts), and of the records' bytes as well (default: off): the workers hash
    /// each record's key and value, and its companion's value if it has one. Verified against the
    /// [digest](DataDigest) of the data set, such receipts prove that the right bytes were delivered, not
    /// only the right positions. `receipt_contents(false)` turns the hashing off; receipts of the positions
    /// stay on if they were. Hashing costs 3 to 9 µs for 200 KB, some 0.1 µs for 3 KB, and 16 bytes of memory
    /// for each record of a batch.
    pub fn receipt_contents(mut self, keeps: bool) -> Self {
        self.spec.receipts = match keeps {
            true => Receipts::Contents,
            false => self.spec.receipts.min(Receipts::Positions),
        };
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

    /// Sets the registry that counts the feed's reader while it runs (default: the process's own), so that a
    /// test can see that none is left. It has no other effect: feeds do not share readers.
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.attached.registry = registry.clone();
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
