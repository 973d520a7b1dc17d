//! The options of a feed as plain data.

use std::path::PathBuf;
use std::time::Duration;

use super::net::NetLayer;
use crate::bad::BadRecords;
use crate::base::shape::{Dtype, Layout, Phase};
use crate::decoder::example::{ExampleField, ExampleFields, ExampleImage, ImageShapeFrom};
use crate::order::{BatchSize, Schedule};
use crate::source::leveldb::LogGaps;
use crate::source::tfrecord::Compression;
use crate::source::{Access, IndexPlace, Matching};
use crate::transform::{CaffeEra, Mixing, Transform, TransformPlace};

/// How long a lane waits for a batch before it warns.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// How long it waits for a batch that only its consumer could return.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// The options of a feed as plain data, to be logged, compared, kept in a file (with the feature `serde`) or
/// sent to another process. The methods of [`FeedBuilder`](crate::FeedBuilder) document the fields and
/// their defaults, and [`FeedBuilder::spec`](crate::FeedBuilder::spec) returns what they set.
///
/// Formats without a null (TOML) leave out what is not set. Paths that are not UTF-8 cannot be written.
///
/// What a program [attaches](SourceSpec::Attached) (opened sources, decoders, devices of its own) is only
/// named here, and must be attached again to a builder that is made [from](crate::FeedBuilder::from) a spec.
///
/// ```no_run
/// use percolator::feed::{FeedSpec, SourceSpec};
/// use percolator::order::BatchSize;
/// use percolator::{FeedBuilder, Transform};
///
/// let mut spec = FeedSpec::default();
/// spec.sources = vec![SourceSpec::lmdb("mnist_train_lmdb")];
/// spec.batch_size = BatchSize::PerReplica(64);
/// spec.transform = Transform::new().scale(1.0 / 256.0);
/// spec.schedule.epochs = Some(10);
/// let resolved = FeedBuilder::from(spec).resolve()?;
/// println!("{} will take {} bytes", resolved.layout(), resolved.memory_budget().total_bytes());
/// let feed = resolved.launch()?;
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct FeedSpec {
    /// Where the records are stored. Several are [joined](crate::FeedBuilder::data), in this order.
    pub sources: Vec<SourceSpec>,
    /// The folder that relative paths [start from](crate::FeedBuilder::root).
    pub root: PathBuf,
    /// How the files of databases are [read](crate::FeedBuilder::access).
    pub access: Access,
    /// What is done about LevelDBs whose [logs lack writes](crate::FeedBuilder::log_gaps).
    pub log_gaps: LogGaps,
    /// Where [indexes](crate::FeedBuilder::index) are kept.
    pub index: IndexPlace,
    /// The layer's [name](crate::FeedBuilder::layer).
    pub layer: String,
    /// The layer's place in its net, if it comes from a net.
    pub(crate) net: Option<NetLayer>,
    /// Training or testing.
    pub phase: Phase,
    /// What turns records into rows.
    pub decoder: DecoderSpec,
    /// Whether batches of images have a field [`label_i64`](crate::FeedBuilder::labels_i64).
    pub labels_i64: bool,
    /// The classes of the field [`label_soft`](crate::FeedBuilder::soft_labels), if batches of images have
    /// it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub soft_labels: Option<usize>,
    /// How the images of a batch are [mixed](crate::FeedBuilder::mixing), if they are.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub mixing: Option<Mixing>,
    /// What is done to every image.
    pub transform: Transform,
    /// Replaces the transform's own [`scaled_decode`](Transform::scaled_decode), if set. No method of the
    /// builder sets it; [`transform`](crate::FeedBuilder::transform) unsets it.
    pub scaled_decode: Option<bool>,
    /// More [crops](crate::FeedBuilder::views) of each image.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub views: Vec<ViewSpec>,
    /// Whether a program attaches a function of [images](crate::FeedBuilder::after_decode). A feed that is
    /// made from the spec needs it again.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub after_decode: bool,
    /// Whether it attaches one of [rows](crate::FeedBuilder::after_transform).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub after_transform: bool,
    /// Where the transform runs.
    pub transform_on: TransformPlace,
    /// What the second array of a batch is made of.
    pub target: Option<TargetSpec>,
    /// The element type of a batch's images.
    pub dtype: Dtype,
    /// The order of their axes.
    pub layout: Layout,
    /// The number of records in a [batch or in a step](crate::FeedBuilder::batch_size).
    pub batch_size: BatchSize,
    /// What crops, mirroring and shuffles are drawn from.
    pub seed: Seed,
    /// Epochs, shuffle, and the job that the feed is part of.
    pub schedule: Schedule,
    /// The names of the devices, one for each lane: `host:0`, `cuda:1`, or the name of an attached one.
    pub devices: Vec<String>,
    /// The number of [worker threads](crate::FeedBuilder::threads); chosen if `None`.
    pub threads: Option<usize>,
    /// The number of batches in a lane's [ring](crate::FeedBuilder::prefetch); chosen if `None`.
    pub prefetch: Option<usize>,
    /// The most [memory](crate::FeedBuilder::memory_limit), in bytes.
    pub memory_limit: Option<usize>,
    /// Which [receipts](crate::FeedBuilder::receipts) are kept.
    pub receipts: Receipts,
    /// What is done with [bad records](crate::FeedBuilder::bad_records).
    pub bad_records: BadRecords,
    /// How long a lane waits before it [warns](crate::FeedBuilder::warn_after).
    pub warn_after: Duration,
    /// How long a lane waits for its own consumer before that is [an
    /// error](crate::FeedBuilder::give_up_after); `None` is for ever.
    #[cfg_attr(feature = "serde", serde(with = "patience"))]
    pub give_up_after: Option<Duration>,
}

/// More crops of each image, in a field of their own.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct ViewSpec {
    /// The field's name.
    pub name: String,
    /// How many crops.
    pub count: usize,
    /// What draws each of them.
    pub transform: Transform,
}

/// Where records are stored.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum SourceSpec {
    /// A Caffe LMDB.
    Lmdb {
        /// Its folder, or its `data.mdb`.
        path: PathBuf,
        /// The name of one of its databases; the unnamed one if `None`.
        name: Option<String>,
    },
    /// A Caffe LevelDB.
    #[cfg_attr(feature = "serde", serde(rename = "leveldb"))]
    LevelDb {
        /// Its folder.
        path: PathBuf,
    },
    /// TFRecord files.
    #[cfg_attr(feature = "serde", serde(rename = "tfrecord"))]
    TfRecord {
        /// A file, a folder, or a [pattern](crate::FeedBuilder::tfrecord).
        path: PathBuf,
        /// How the files are compressed; detected if `None`.
        #[cfg_attr(feature = "serde", serde(default))]
        compression: Option<Compression>,
    },
    /// A list of image files, as Caffe's `ImageData` layer reads it.
    ImageList {
        /// The list: a path and a label on each line.
        list: PathBuf,
        /// What is put before each path of the list.
        #[cfg_attr(feature = "serde", serde(default))]
        root_folder: String,
        /// Whether each pass shuffles the list, in Caffe's sequence.
        #[cfg_attr(feature = "serde", serde(default))]
        shuffle: bool,
        /// The most lines that are skipped at the start, by a random number.
        #[cfg_attr(feature = "serde", serde(default))]
        rand_skip: u32,
    },
    /// Files of another format, which the program's [opener](crate::FeedBuilder::opener) opens: tar, Parquet,
    /// and the others of the package `percolator-formats`.
    Files {
        /// A file, a folder, or a pattern.
        path: PathBuf,
        /// The format; told by content and name if `None`.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        format: Option<String>,
        /// Options of the format, by their names.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
        settings: Vec<(String, String)>,
    },
    /// A source that a program attaches with [`FeedBuilder::source`](crate::FeedBuilder::source).
    Attached {
        /// Its path, for people to read.
        path: PathBuf,
    },
}

/// What turns records into rows.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum DecoderSpec {
    /// Caffe's image record.
    #[default]
    Image,
    /// TensorFlow's record, a `tf.train.Example`.
    Example {
        /// Which features become which fields.
        #[cfg_attr(feature = "serde", serde(default))]
        fields: ExampleFields,
        /// The feature that is an image, if there is one. Its fields come first.
        #[cfg_attr(feature = "serde", serde(default))]
        image: Option<ExampleImage>,
    },
    /// A decoder that a program attaches with [`FeedBuilder::decoder`](crate::FeedBuilder::decoder) or
    /// [`decode`](crate::FeedBuilder::decode).
    Attached,
}

/// What the second array of each batch is made of: [`Target`](crate::Target) as plain data.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct TargetSpec {
    /// Where targets are stored.
    pub from: TargetFrom,
    /// The folder that relative paths start from; the feed's own if `None`.
    pub root: Option<PathBuf>,
    /// What is done to every target.
    #[cfg_attr(feature = "serde", serde(default))]
    pub transform: Transform,
    /// The element type.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dtype: Dtype,
}

/// Where targets are stored.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum TargetFrom {
    /// Beside the pixels of each record.
    FloatData,
    /// In a separate source.
    Paired {
        /// The source; several are joined.
        sources: Vec<SourceSpec>,
        /// What makes one record the companion of another.
        #[cfg_attr(feature = "serde", serde(default))]
        matching: Matching,
    },
}

/// What crops, mirroring and shuffles are drawn from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Seed {
    /// Each record's numbers are a function of this seed, its epoch and its position.
    Indexed(u64),
    /// Caffe's own sequence, number for number. This includes the shuffle of an `ImageData` layer; epochs are
    /// shuffled by the seed, too.
    ///
    /// Lane `i` has the seed `seed + i`, so a feed whose lanes are all the ranks draws as Caffe's solvers do.
    /// If the lanes are only some of the [ranks](crate::order::Ranks), from rank `first` on, pass Caffe's
    /// seed plus `first`. If the feed is a [worker](crate::order::JobWorker) of a job, pass the seed that all
    /// workers have.
    Caffe {
        /// What `Caffe::set_random_seed` is given: Caffe's solver gives it `random_seed`, plus the rank if it
        /// trains on several GPUs.
        seed: u32,
        /// The Caffe version whose sequence it is.
        era: CaffeEra,
    },
}

/// Which receipts a feed keeps.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Receipts {
    /// None.
    #[default]
    Off,
    /// Of the positions that were delivered. They cost some nanoseconds a record, and 5 KiB of memory for
    /// each epoch and lane.
    Positions,
    /// Of the positions, and of the records' bytes: the workers hash each record's key and value, and its
    /// companion's value if it has one. Hashing costs 3 to 9 µs for 200 KB, some 0.1 µs for 3 KB, and 16
    /// bytes of memory for each record of a batch.
    Contents,
}

/// Writes how long a lane waits, with "for ever" as a word: not all formats can express a missing value.
#[cfg(feature = "serde")]
mod patience {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Patience {
        Never,
        After(Duration),
    }

    pub(super) fn serialize<S: Serializer>(
        wait: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        wait.map_or(Patience::Never, Patience::After).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(match Patience::deserialize(deserializer)? {
            Patience::Never => None,
            Patience::After(wait) => Some(wait),
        })
    }
}

impl Default for FeedSpec {
    fn default() -> Self {
        FeedSpec {
            sources: Vec::new(),
            root: PathBuf::new(),
            access: Access::default(),
            log_gaps: LogGaps::default(),
            index: IndexPlace::default(),
            layer: "data".to_owned(),
            net: None,
            phase: Phase::Train,
            decoder: DecoderSpec::default(),
            labels_i64: false,
            soft_labels: None,
            mixing: None,
            transform: Transform::new(),
            scaled_decode: None,
            views: Vec::new(),
            after_decode: false,
            after_transform: false,
            transform_on: TransformPlace::Host,
            target: None,
            dtype: Dtype::F32,
            layout: Layout::Nchw,
            batch_size: BatchSize::PerReplica(1),
            seed: Seed::default(),
            schedule: Schedule::default(),
            devices: vec!["host:0".to_owned()],
            threads: None,
            prefetch: None,
            memory_limit: None,
            receipts: Receipts::Off,
            bad_records: BadRecords::default(),
            warn_after: WARN_AFTER,
            give_up_after: Some(GIVE_UP_AFTER),
        }
    }
}

/// `true` keeps receipts of the positions.
impl From<bool> for Receipts {
    fn from(keeps: bool) -> Self {
        if keeps { Receipts::Positions } else { Receipts::Off }
    }
}

impl From<u64> for Seed {
    fn from(seed: u64) -> Self {
        Seed::Indexed(seed)
    }
}

impl Default for Seed {
    fn default() -> Self {
        Seed::Indexed(0)
    }
}

impl Seed {
    /// What distinguishes one shuffled run from another.
    pub(crate) fn of_order(self) -> u64 {
        match self {
            Seed::Indexed(seed) => seed,
            Seed::Caffe { seed, .. } => u64::from(seed),
        }
    }
}

impl SourceSpec {
    /// A Caffe LMDB.
    #[must_use]
    pub fn lmdb(path: impl Into<PathBuf>) -> Self {
        SourceSpec::Lmdb { path: path.into(), name: None }
    }

    /// TFRecord files: a file, a folder, or a [pattern](crate::FeedBuilder::tfrecord).
    #[must_use]
    pub fn tfrecord(path: impl Into<PathBuf>) -> Self {
        SourceSpec::TfRecord { path: path.into(), compression: None }
    }

    /// Files of another format, told by content and name.
    #[must_use]
    pub fn files(path: impl Into<PathBuf>) -> Self {
        SourceSpec::Files { path: path.into(), format: None, settings: Vec::new() }
    }

    /// A Caffe LevelDB.
    #[must_use]
    pub fn leveldb(path: impl Into<PathBuf>) -> Self {
        SourceSpec::LevelDb { path: path.into() }
    }
}

impl FeedSpec {
    /// The features, or the parts of a record, that the feed uses; `None` if it may use all of them: if
    /// nothing names them, or receipts hash whole records.
    pub(super) fn parts_used(&self) -> Option<Vec<String>> {
        let DecoderSpec::Example { fields, image } = &self.decoder else { return None };
        if self.receipts == Receipts::Contents {
            return None;
        }
        let of_image = image.iter().flat_map(|image| {
            let shape = match image.shape_from() {
                Some(ImageShapeFrom::Feature(name)) => Some(&**name),
                _ => None,
            };
            [Some(image.feature_name()), image.label_name(), shape].into_iter().flatten()
        });
        let of_fields = fields.fields().iter().map(ExampleField::feature_name);
        Some(of_image.chain(of_fields).map(str::to_owned).collect())
    }

    /// The transform, with the feed's own `scaled_decode`.
    pub(super) fn whole_transform(&self) -> Transform {
        let transform = self.transform.clone();
        match self.scaled_decode {
            Some(scaled) => transform.scaled_decode(scaled),
            None => transform,
        }
    }
}
