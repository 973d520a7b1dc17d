//! What is asked of a feed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Feed;
use super::decoding::Decoding;
use super::net::NetLayer;
use super::resolve::ResolvedFeed;
use super::spec::{FeedSpec, Receipts, Seed, SourceSpec};
use super::target::Target;
use crate::base::shape::{Dtype, Layout, Phase};
use crate::device::Device;
use crate::error::FeedError;
use crate::net::NetWarning;
use crate::order::{
    Assignment, AutoShardPolicy, BatchSize, JobWorker, LastBatch, Ranks, Shuffle, ShuffleSpec, World,
};
use crate::reader::Registry;
use crate::receipt::DataDigest;
use crate::snapshot::Snapshot;
use crate::source::leveldb::LogGaps;
use crate::source::{Access, IndexPlace, Source};
use crate::transform::{CaffeEra, Transform, TransformPlace};

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
    pub(super) spec: FeedSpec,
    pub(super) attached: Attached,
}

/// What a program gives a feed that is no plain data.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// One for each [`SourceSpec::Attached`] of the feed, in order.
    pub(super) sources: Vec<Arc<dyn Source>>,
    /// The same of its targets.
    pub(super) target_sources: Vec<Arc<dyn Source>>,
    pub(super) decoding: Decoding,
    /// One for each name of the spec; `None` if they are found by their names.
    pub(super) devices: Option<Vec<Device>>,
    /// The snapshot that the run resumes from.
    pub(super) resume: Option<Arc<Snapshot>>,
    /// The digest of the data set, without its hashes of each record.
    pub(super) digest: Option<Arc<DataDigest>>,
    /// The job, and the one of its replicas that this feed is, whose devices are elsewhere.
    pub(super) alone: Option<(World, usize)>,
    /// What a net's layer has that is ignored, to be logged once it is fed.
    pub(super) warnings: Vec<NetWarning>,
    pub(super) registry: Registry,
}

impl Default for Attached {
    fn default() -> Self {
        Attached {
            sources: Vec::new(),
            target_sources: Vec::new(),
            decoding: Decoding::default(),
            devices: None,
            resume: None,
            digest: None,
            alone: None,
            warnings: Vec::new(),
            registry: Registry::global().clone(),
        }
    }
}

/// A builder that starts from plain data. What the data only name, because a program attached it, must be attached
/// again.
impl From<FeedSpec> for FeedBuilder {
    fn from(spec: FeedSpec) -> Self {
        FeedBuilder { spec, attached: Attached::default() }
    }
}

impl FeedBuilder {
    /// What has been set so far, as plain data.
    #[must_use]
    pub fn spec(&self) -> &FeedSpec {
        &self.spec
    }

    /// Reads a Caffe LMDB: the folder, or its `data.mdb`.
    pub fn lmdb(self, path: impl AsRef<Path>) -> Self {
        self.only(SourceSpec::lmdb(path.as_ref()))
    }

    /// Reads the database of a name, of several that an LMDB holds.
    pub fn lmdb_named(self, path: impl AsRef<Path>, name: impl Into<String>) -> Self {
        self.only(SourceSpec::Lmdb { path: path.as_ref().to_owned(), name: Some(name.into()) })
    }

    /// Says how the files of databases are read that the feed opens; if not said, they are mapped, but on network file
    /// systems ([`Access`]).
    pub fn access(mut self, access: Access) -> Self {
        self.spec.access = access;
        self
    }

    /// Reads a Caffe LevelDB: the folder. Nothing in it is changed, and no lock is taken.
    pub fn leveldb(self, path: impl AsRef<Path>) -> Self {
        self.only(SourceSpec::leveldb(path.as_ref()))
    }

    /// What is done about LevelDBs whose logs lack writes; they are refused if not said. It goes for every LevelDB that
    /// the feed opens.
    pub fn log_gaps(mut self, gaps: LogGaps) -> Self {
        self.spec.log_gaps = gaps;
        self
    }

    /// Reads a source that is open already, or one of the caller's own making.
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        self.spec.sources.clear();
        self.attached.sources.clear();
        self.and_source(source)
    }

    /// Reads one more LMDB, behind what was said before: the databases are one data set, [joined](crate::source::Joined).
    ///
    /// ```no_run
    /// # use percolator::Feed;
    /// let shards = ["train_0_lmdb", "train_1_lmdb", "train_2_lmdb"];
    /// let feed = shards.iter().fold(Feed::builder(), |feed, shard| feed.and_lmdb(shard)).batch_size(64).build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// A record's position counts over all of them. By [`AutoShardPolicy::File`], which is what a [job](Self::worker) takes
    /// if nothing else was said and there are databases for all its workers, each worker has databases of its own.
    pub fn and_lmdb(self, path: impl AsRef<Path>) -> Self {
        self.and(SourceSpec::lmdb(path.as_ref()))
    }

    /// Reads the database of a name of one more LMDB, as [`and_lmdb`](Self::and_lmdb) does the unnamed one.
    pub fn and_lmdb_named(self, path: impl AsRef<Path>, name: impl Into<String>) -> Self {
        self.and(SourceSpec::Lmdb { path: path.as_ref().to_owned(), name: Some(name.into()) })
    }

    /// Reads one more LevelDB, as [`and_lmdb`](Self::and_lmdb) does an LMDB.
    pub fn and_leveldb(self, path: impl AsRef<Path>) -> Self {
        self.and(SourceSpec::leveldb(path.as_ref()))
    }

    /// Reads one more source, as [`and_lmdb`](Self::and_lmdb) does an LMDB.
    pub fn and_source(mut self, source: impl Source + 'static) -> Self {
        let path = source.path().to_owned();
        self.attached.sources.push(Arc::new(source));
        self.and(SourceSpec::Attached { path })
    }

    fn only(mut self, source: SourceSpec) -> Self {
        self.spec.sources.clear();
        self.attached.sources.clear();
        self.and(source)
    }

    fn and(mut self, source: SourceSpec) -> Self {
        self.spec.sources.push(source);
        self
    }

    /// Where relative paths begin that the feed was given, and those in the net it was made from; the
    /// working directory if not said, as in Caffe.
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spec.root = folder.into();
        self
    }

    /// The layer's name in messages and in the registry; `data` if not said.
    pub fn layer(mut self, name: impl Into<String>) -> Self {
        self.spec.layer = name.into();
        self
    }

    /// The layer's name.
    #[must_use]
    pub fn layer_name(&self) -> &str {
        &self.spec.layer
    }

    /// What is done to every record; nothing if not said.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.spec.transform = transform;
        self
    }

    /// [`Transform::scaled_decode`] of the feed's transform, whether that is given before or after: for a net's
    /// `ImageData` layer with a `new_height`, which has no field that asks for it. The pixels are then not Caffe's. If not
    /// said, it is as the transform says. Where nothing is resized, a warning says that it has no effect.
    pub fn scaled_decode(mut self, scaled: bool) -> Self {
        self.spec.scaled_decode = Some(scaled);
        self
    }

    /// Where that is done; on the host if not said. The batches are the same, but for what [`TransformPlace::Device`] says.
    pub fn transform_on(mut self, place: TransformPlace) -> Self {
        self.spec.transform_on = place;
        self
    }

    /// What a second array of each batch is made of; no such array if not said.
    pub fn target(mut self, target: Target) -> Self {
        (self.spec.target, self.attached.target_sources) = (Some(target.spec), target.attached);
        self
    }

    /// Training or testing; training if not said.
    pub fn phase(mut self, phase: Phase) -> Self {
        self.spec.phase = phase;
        self
    }

    /// The type of the elements of a batch's images; f32 if not said.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.spec.dtype = dtype;
        self
    }

    /// The order of the axes of a batch's images; NCHW if not said.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.spec.layout = layout;
        self
    }

    /// Records in a batch of one device; 1 if not said. More devices take more records a step, as in
    /// Caffe.
    pub fn batch_size(mut self, records: usize) -> Self {
        self.spec.batch_size = BatchSize::PerReplica(records as u64);
        self
    }

    /// Records in a step, divided by the ranks of the job: strong scaling, in place of a
    /// [batch size](Self::batch_size) of each device, which is weak. More devices take fewer records each.
    pub fn global_batch_size(mut self, records: usize) -> Self {
        self.spec.batch_size = BatchSize::Global(records as u64);
        self
    }

    /// The devices, one lane each; the host if not said.
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        let devices: Vec<Device> = devices.into_iter().collect();
        self.spec.devices = devices.iter().map(Device::name).collect();
        self.attached.devices = Some(devices);
        self
    }

    /// Worker threads, for all lanes together, all of them at work. If not said, there is one a core, and as few of them
    /// are at work as keep the consumers from waiting: see [`Sizing`](crate::feed::Sizing). The result does not depend on it.
    ///
    /// On a machine of several NUMA nodes, workers keep to the nodes of the lanes' devices where those have a processor for
    /// each: say fewer than one a core, if not all nodes have devices.
    pub fn threads(mut self, threads: usize) -> Self {
        self.spec.threads = Some(threads);
        self
    }

    /// Batches in a lane's ring, those that the consumer holds among them. If not said, 4, as in Caffe, and on hosts up to 8
    /// where those are seen to be too few: see [`Sizing`](crate::feed::Sizing). With 1 nothing is filled while the consumer holds a
    /// batch.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.spec.prefetch = Some(batches);
        self
    }

    /// What crops and mirroring are drawn from, with the record's pass and position; 0 if not said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = Seed::Indexed(seed);
        self
    }

    /// Draws crops and mirroring in Caffe's own sequence instead, number for number; the shuffle of an
    /// `ImageData` layer too.
    ///
    /// `seed` is what `Caffe::set_random_seed` is given: Caffe's solver gives it `random_seed`, plus the
    /// rank where it trains on several GPUs. Lane `i` has the seed `seed + i`, so that a feed whose lanes are
    /// all the ranks draws as Caffe's solvers do. One that is only [some of them](Self::ranks), from rank
    /// `first` on, must be given Caffe's seed plus `first`; one that is a [worker](Self::worker) of a job, the seed that all
    /// of them have, by which epochs are shuffled, too.
    pub fn caffe_random(mut self, seed: u32, era: CaffeEra) -> Self {
        self.spec.seed = Seed::Caffe { seed, era };
        self
    }

    /// One exact pass: every record once, a short last batch a lane, then the end. If not said, the feed goes
    /// round for ever, and batches run on from the last record to the first, as in Caffe. Together with
    /// another number of [`epochs`](Self::epochs) than 1 it is refused.
    pub fn once(mut self) -> Self {
        self.spec.schedule.once = true;
        self
    }

    /// So many epochs, and then the end; 0 is no end. They count from the beginning of the run, also where it
    /// [goes on](Self::resume). Each has every record exactly once, but for those that a
    /// [last batch](Self::last_batch) drops, or takes from the next epoch, and but for [`AutoShardPolicy::Off`], by which each
    /// worker has them all. A batch's [`step`](crate::Batch::step) says where in its epoch it is.
    ///
    /// With this, or with any of [`shuffle`](Self::shuffle), [`last_batch`](Self::last_batch),
    /// [`assignment`](Self::assignment), [`policy`](Self::policy) and [`worker`](Self::worker), the feed goes by a
    /// [`Plan`](crate::order::Plan): its lanes are the replicas of a worker, and its [global batch](Self::global_batch_size)
    /// need not divide evenly. Without, it goes round as Caffe does. Where the source does not know how many records it
    /// has, as a LevelDB, it is [indexed](Self::index).
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.spec.schedule.epochs = Some(epochs);
        self
    }

    /// Shuffles each epoch, by the [seed](Self::seed). See [`epochs`](Self::epochs).
    pub fn shuffle(mut self, shuffle: Shuffle) -> Self {
        self.spec.schedule.shuffle = Some(shuffle.into());
        self
    }

    /// Shuffles each epoch in [windows](Shuffle::Window) of about so many bytes, 1 record at the least: as many records
    /// as would fill them if all were as large as the first.
    pub fn shuffle_in_windows_of_bytes(mut self, bytes: u64) -> Self {
        self.spec.schedule.shuffle = Some(ShuffleSpec::WindowsOfBytes(bytes));
        self
    }

    /// Mixes the databases that the feed [consists of](Self::and_lmdb) in exact proportions, a number each: by `[3, 1]`
    /// three of each four records that follow one another are of the first ([`Job::mix`](crate::order::Job::mix)). See
    /// [`epochs`](Self::epochs), but that a record comes once in each pass over its own database.
    pub fn mix(mut self, weights: impl IntoIterator<Item = u64>) -> Self {
        self.spec.schedule.mix = weights.into_iter().collect();
        self
    }

    /// What becomes of an epoch's last records, where they do not fill a batch. If not said, they are [kept](LastBatch::Keep),
    /// or, by [Caffe's assignment](Assignment::Caffe), [wrap](LastBatch::Wrap) into the next epoch. See [`epochs`](Self::epochs).
    pub fn last_batch(mut self, last_batch: LastBatch) -> Self {
        self.spec.schedule.last_batch = Some(last_batch);
        self
    }

    /// Which of a step's records each lane gets; by TensorFlow's law if not said. See [`epochs`](Self::epochs).
    pub fn assignment(mut self, assignment: Assignment) -> Self {
        self.spec.schedule.assignment = Some(assignment);
        self
    }

    /// What each worker of a [job](Self::worker) reads; [`AutoShardPolicy::Auto`] if not said. The files are the databases
    /// that the feed [consists of](Self::and_lmdb). See [`epochs`](Self::epochs).
    pub fn policy(mut self, policy: AutoShardPolicy) -> Self {
        self.spec.schedule.policy = Some(policy);
        self
    }

    /// Where the index of a database lies that is read out of order, because it is shuffled or shared with other workers:
    /// [beside it](IndexPlace::Beside) if not said. It is made when there is none, which may take seconds.
    pub fn index(mut self, place: IndexPlace) -> Self {
        self.spec.index = place;
        self
    }

    /// Makes the feed one worker of a job of several: its devices are the replicas of worker `number`. The other workers'
    /// records are not read. See [`epochs`](Self::epochs).
    pub fn worker(mut self, world: World, number: usize) -> Self {
        self.spec.schedule.worker = Some(JobWorker { world, number });
        self
    }

    /// Goes on from where a run was: the lanes give exactly the batches that would have come, bit for bit, and nothing
    /// before them is read. For that, all else must be said as it was when the snapshot was taken.
    ///
    /// The job may be another, though: other workers and replicas, another batch size, policy, assignment or rule for the
    /// last batch. Then what is left of the epoch, of all workers together, is divided among the new replicas, in steps
    /// that are counted from 0; every record of it is still delivered as often as it would have been
    /// ([`Plan::resumed`](crate::order::Plan::resumed)). All workers must go on from one snapshot, or from those of [one
    /// step](Snapshot::join).
    ///
    /// Caffe's [ring](Self::epochs) goes on, too. Sources that are not [seekable](Source::is_seekable) are walked to the
    /// record that comes next; an LMDB or a LevelDB is [indexed](Self::index). [`caffe_random`](Self::caffe_random) takes
    /// some nanoseconds for each record that was given, and goes on only as the job that it was.
    ///
    /// What the feed is built of is checked: [`FeedError::Snapshot`] says what is not as it was.
    pub fn resume(mut self, snapshot: &Snapshot) -> Self {
        self.attached.resume = Some(Arc::new(snapshot.clone()));
        self
    }

    /// Makes the feed's lanes some of the ranks of a larger job: rank `first` of `of`, and those that follow
    /// it, one a device. The other ranks' records are passed over, as Caffe does in TRAIN. If not said, the
    /// lanes are all there are. A net's layer in TEST has all records whatever its rank, as in Caffe.
    ///
    /// Caffe shards no `ImageData` layer: there, each rank reads the whole list. Here its lines are dealt like
    /// the records of a database. Where the list is shuffled by Caffe's own sequence, from a seed that differs
    /// from rank to rank, the ranks' shares are of differently shuffled lists, and overlap.
    pub fn ranks(mut self, first: usize, of: usize) -> Self {
        self.spec.schedule.ranks = Some(Ranks { first, of });
        self
    }

    /// Has the system drop from its memory what the feed has used of its database: for one that is larger than memory,
    /// which would find nothing there on its next pass, and would push out what other programs have there. Off if not
    /// said.
    ///
    /// What the feed keeps in memory of the database's files is then bounded: of an LMDB the 64 MiB that are read ahead
    /// of the reader, the records under way (for each lane [`prefetch`](Self::prefetch) batches of them, and where lanes
    /// are [some of many ranks](Self::ranks), what lies between), and 8 MiB that the reader is in or has just left. Of a
    /// LevelDB, on each level the 64 MiB of tables that are read ahead, and, whole, the tables that those records lie in,
    /// and the one of the record that the reader is at: a table that it leaves for another level's, and comes back to
    /// after more records than are under way, is dropped meanwhile and read again. That much is left when the feed ends,
    /// too. It holds where the records lie in the file in the order of their keys, or nearly so.
    ///
    /// It changes no batch. Another feed of the same files, in this process or another, reads again from the disk what
    /// this one dropped; what another process has mapped, and has touched, stays in memory until that one drops it as well.
    /// So where [ranks](Self::ranks) of one job are several processes on one machine, ask it of all of them: what is kept
    /// then is what the slowest has yet to drop, and where they are not in step, the one ahead drops what was read ahead for
    /// the others, who read it from the disk again. One process with a lane for each device reads everything once.
    ///
    /// It works on Linux, for LMDB and LevelDB;
    /// elsewhere, and for other sources, a warning says that it has no effect.
    pub fn drop_behind(mut self, drops: bool) -> Self {
        self.spec.drop_behind = drops;
        self
    }

    /// Keeps [receipts](crate::Receipt) of what is delivered; off if not said. They want a feed that goes by a plan, see
    /// [`epochs`](Self::epochs). They cost some nanoseconds a record, and 5 KiB of memory for each epoch and lane.
    pub fn receipts(mut self, keeps: bool) -> Self {
        self.spec.receipts = if keeps { self.spec.receipts.max(Receipts::Positions) } else { Receipts::Off };
        self
    }

    /// Keeps [receipts](Self::receipts) that say of the records' bytes, too, what was delivered: the workers
    /// hash each record's key and value, and its companion's value where it has one. Held against the
    /// [digest](DataDigest) of the data set, they prove that the right bytes were delivered, and not only the
    /// right positions. Off if not said. It costs 3 to 9 µs for 200 KB, some 0.1 µs for 3 KB, and 16 bytes of
    /// memory for each record of a batch.
    pub fn receipt_contents(mut self, keeps: bool) -> Self {
        self.spec.receipts = match keeps {
            true => Receipts::Contents,
            false => self.spec.receipts.min(Receipts::Positions),
        };
        self
    }

    /// The memory that the feed may use, as [`Feed::memory_budget`] counts it from the first record; unlimited
    /// if not said. It is checked once, when the feed is built. Threads and prefetch that were not said are chosen
    /// within it.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.spec.memory_limit = Some(bytes);
        self
    }

    /// How long a lane waits for a batch before it warns, with the cause; 5 s if not said. Later warnings
    /// of one wait come after twice the time each.
    pub fn warn_after(mut self, wait: Duration) -> Self {
        self.spec.warn_after = wait;
        self
    }

    /// How long a lane waits for a batch while its consumer holds all batches of the ring, before it is an
    /// error, [`FeedError::AllHeld`], which ends the feed; 60 s if not said, and `None` is never. In such a
    /// wait nothing can come unless another thread drops a batch: a consumer that collects batches, or holds
    /// as many as the ring has, would wait for ever. Other waits, however long, are no error.
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

    /// The registry that the feed's reader is known to; the process's own if not said.
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.attached.registry = registry.clone();
        self
    }

    /// Opens the source, reads its first record, allocates the memory and starts the threads: [`resolve`](Self::resolve)
    /// and [`launch`](ResolvedFeed::launch).
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the options cannot be met, if the source cannot be read or is empty, if its first record does
    /// not match the transform, or if a device has no memory. Nothing is left running.
    pub fn build(self) -> Result<Feed, FeedError> {
        self.resolve()?.launch()
    }

    /// Opens the source, reads its first record, and finds out what would run: which record comes when, the shape of
    /// a batch, threads, rings and memory. Nothing is started, and no batch is allocated.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the options cannot be met, if the source cannot be read or is empty, or if its first record
    /// does not match the transform.
    pub fn resolve(self) -> Result<ResolvedFeed, FeedError> {
        for warning in &self.attached.warnings {
            tracing::warn!("{warning}");
        }
        self.resolve_again()
    }

    /// Resolves what was resolved before: nothing is logged twice.
    pub(super) fn resolve_again(self) -> Result<ResolvedFeed, FeedError> {
        let net = self.spec.net.clone();
        ResolvedFeed::of(self).map_err(|error| NetLayer::with_origin(net.as_ref(), error))
    }
}
