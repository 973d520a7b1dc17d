//! Percolator keeps every accelerator fed. It reads training records in place (Caffe's LMDB and LevelDB,
//! TensorFlow's TFRecord, lists of images, or a source of yours), decodes and transforms them on all cores,
//! and writes each batch once, into memory that the device reads, while the device is still training on the
//! previous batch.
//!
//! ```no_run
//! use percolator::{Device, Feed, FeedError, Transform};
//!
//! fn main() -> Result<(), FeedError> {
//!     let mut feed = Feed::builder()
//!         .lmdb("mnist_train_lmdb")
//!         .batch_size(64)
//!         .transform(Transform::new().scale(1.0 / 256.0))
//!         .devices([Device::host(0), Device::host(1)])
//!         .build()?;
//!     for step in feed.steps().take(10_000) {
//!         for batch in step? {
//!             train(batch.pixels::<f32>()?, batch.labels()?); // one lane's share of the step
//!         }
//!     }
//!     println!("{}", feed.stats());
//!     Ok(())
//! }
//! # fn train(_pixels: &[f32], _labels: &[i32]) {}
//! ```
//!
//! # Where to find what
//!
//! The root has what nearly every program uses: [`Feed`], [`FeedBuilder`], [`Lane`], [`Batch`], [`Device`],
//! [`Transform`], [`Snapshot`], [`Receipt`]. The rest is in modules:
//!
//! - [`feed`]: feeds as data ([`FeedSpec`](feed::FeedSpec)), statistics, sizing, the memory budget; for loops
//!   that watch or describe their feed.
//! - [`transform`]: mean images, Caffe's random sequence, where a transform runs; for images.
//! - [`net`]: the data layers of Caffe nets; for Caffe projects.
//! - [`source`]: [`Lmdb`](source::Lmdb), [`LevelDb`](source::LevelDb), [`TfRecord`](source::TfRecord),
//!   [`ImageList`](source::ImageList), [`Joined`](source::Joined), and the traits [`Source`](source::Source)
//!   and [`Cursor`](source::Cursor); for several databases, and for formats of your own.
//! - [`example`]: TensorFlow's `tf.train.Example`, read, written and fed.
//! - [`decoder`] and [`batch`]: decoders, fields, rows, host memory; for records of your own.
//! - [`order`]: epochs, shuffles, [`World`](order::World), [`Job`](order::Job), [`Plan`](order::Plan); for
//!   who gets which record, and when.
//! - The package `percolator-distribute`: a step's batches of all replicas, as in TensorFlow's
//!   `tf.distribute`; for jobs of many processes. `percolator-measure`: how fast this machine copies, stores,
//!   reads and decodes; for benchmarks. `percolator-proof`: what the receipts of a run prove.
//! - [`snapshot`] and [`receipt`]: where a training run is, and what it delivered; for resuming and
//!   verifying.
//! - [`device`] and [`dlpack`]: [`Backend`](device::Backend), [`Transfer`](device::Transfer), CUDA, and
//!   tensors for other frameworks; for GPUs and devices of your own.
//! - [`reader`], [`record`] and [`proto`]: records without batches, and Caffe's Datum; for tools.
//! - The package `percolator-chaos`: sources, devices, consumers and disks that fail on request; for tests of
//!   a training loop.
//!
//! The repository has a guide with a page for each subject, from a Caffe project to your own device, in
//! `docs/guide`. `docs/caffe.md` compares every field and behaviour of Caffe's, `docs/design.md` has the
//! design and its invariants, and `docs/benchmarks.md` the figures. The command `percolator` is the package
//! `percolator-cli`.
//!
//! # How it works
//!
//! ```text
//!    LMDB, LevelDB, TFRecord, ...  read-only; values are lent from the map if they are in one piece
//!     |  in key order, or by position
//!     v
//!  reader        one thread per source; deals record g to lane g mod N, in runs    level 1
//!     |  full ->        <- free
//!     v
//!  prefetcher    one ring of batches per lane: gives each record its place         level 2
//!     |  run + places
//!     v
//!  workers       parse -> decode -> crop, mirror, mean, scale -> straight into its place
//!     |  batch complete
//!     v
//!  device        submit, event, wait, recycle
//!     |  full ->        <- free
//!     v
//!  your loop     an iterator of batches
//! ```
//!
//! The pipeline has Caffe's two levels. A [`DataReader`](reader::DataReader) reads the source on its own
//! thread and deals the records to its consumers, in runs: where each record is, not its bytes. Each lane of
//! a [`Feed`] has a ring of recycled batches and a thread that gives every record its place in one of them.
//! Worker threads, shared by all lanes, parse a record, and crop, mirror, subtract and scale it directly into
//! that place. Batches leave in order, through their device, in whatever order the workers finish.
//!
//! - Who gets which record is a rule, not a race: in Caffe's round-robin order, global record `g` is record
//!   `g mod M` of the database and goes to lane `g mod N`. With [epochs](FeedBuilder::epochs), a
//!   [plan](order::Plan) decides.
//! - What a record becomes depends on (seed, pass, position): the same bytes for any number of threads.
//! - A used run and a dropped [`Batch`] go back to the queue they came from. Every queue has a capacity, and
//!   the sum is the [`MemoryBudget`](feed::MemoryBudget).
//! - The first error stays, and every lane gets it once, after its complete batches.
//!
//! # Trade-offs
//!
//! - One reader deals to all lanes, so a lane that is not drained stops the others once its queues are full.
//!   That keeps the dealing exact; a warning names the lane.
//! - All records of a batch have one shape after the transform. Crop them, or feed batches of 1. (Fields of
//!   your own may be [ragged](Field::ragged) or [padded](Field::padded).)
//! - A database must not be written to, or truncated, while it is open: bytes that are lent from a map are
//!   only as stable as its file.
//!
//! # Cargo features
//!
//! - `cuda` (default): NVIDIA GPUs, through the driver that is found at run time. Building needs no toolkit,
//!   and takes 20 s longer than without.
//! - `cuda-driver`: the same, if another crate of the program (candle, say) uses `cudarc` too and chooses the
//!   version of the CUDA bindings. Add it to `default-features = false`.
//! - `stream`: a [`Lane`] is a `futures_core::Stream`, and a feed can be built in the background.
//! - `serde`: a [`FeedSpec`](feed::FeedSpec) goes to and from any format of the crate `serde`.

// A build for the model checker leaves out some callers; code that only they use remains.
#![cfg_attr(
    shuttle,
    allow(dead_code, unused_imports, unreachable_pub, reason = "their callers are left out of this build")
)]

mod base;

pub mod record;

pub mod source;

pub mod order;

pub mod reader;

pub mod snapshot;

pub mod receipt;

pub mod bad;

pub mod transform;

/// Caffe nets (`.prototxt` and `.caffemodel`): which data layers they have, and how those are configured.
/// [`Feed::from_prototxt`] and [`Feed::layers_of`] turn them into feeds.
pub mod net {
    #[doc(inline)]
    pub use percolator_net::{
        DataLayer, LayerSource, Net, NetCause, NetError, NetState, NetWarning, TextPlace, TransformSpec,
        WarningKind, rooted,
    };
}

pub mod batch;
pub mod decoder;

/// TensorFlow's records, `tf.train.Example` and `tf.train.SequenceExample`: read in place, written, and fed.
pub mod example {
    #[doc(inline)]
    pub use crate::decoder::example::{
        ExampleField, ExampleFields, ExampleFieldsError, ExampleImage, Examples, GrammarError, ImageShapeFrom,
    };
    #[doc(inline)]
    pub use crate::record::{FeatureError, WireError};
    #[doc(inline)]
    pub use percolator_messages::example::{
        BytesIter, BytesList, Example, ExampleError, ExampleWriter, Feature, FeatureList, FeatureLists,
        Features, FloatIter, FloatList, Int64List, IntIter, Kind, SequenceExample,
    };
}

mod workers;

mod prefetch;

pub mod device;

pub mod feed;

#[doc(hidden)]
pub mod bench_support;

#[doc(inline)]
pub use base::trace;
#[doc(inline)]
pub use feed::dlpack;
#[doc(inline)]
pub use source::{leveldb, tfrecord};

#[doc(inline)]
pub use bad::BadRecords;
#[doc(inline)]
pub use batch::{Dtype, Field, Layout};
#[doc(inline)]
pub use decoder::{DecodeFailure, RawBytes, RecordDecoder, Row, Tokens};
#[doc(inline)]
pub use device::{Device, DeviceError};
#[doc(inline)]
pub use feed::{Batch, Feed, FeedBuilder, FeedError, Lane, Seed, Stats, Steps, Target};
#[doc(inline)]
pub use net::Net;
#[doc(inline)]
pub use order::{Epochs, LastBatch, Shuffle};
#[doc(inline)]
pub use percolator_files::{IoCause, Progress};
#[doc(inline)]
pub use percolator_net::proto;
#[doc(inline)]
pub use receipt::Receipt;
#[doc(inline)]
pub use snapshot::Snapshot;
#[doc(inline)]
pub use transform::{ColorMode, Phase, Transform};

/// The elements of [`Dtype::F16`] and [`Dtype::Bf16`].
pub use half;

#[cfg(test)]
#[cfg(not(shuttle))]
mod auto_traits;

#[cfg(test)]
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "shared by tests, each of which uses a part of it"
)]
#[path = "../tests/common/process.rs"]
mod process;

/// Runs the model scenarios that are beside the code they check.
#[cfg(test)]
#[cfg(shuttle)]
#[path = "../tests/common/explore.rs"]
mod explore;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/caffe-projects.md")]
pub struct CaffeProjects;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/training-loop.md")]
pub struct TrainingLoop;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/transforms.md")]
pub struct Transforms;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/bad-records.md")]
pub struct BadRecordsGuide;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/threads-and-memory.md")]
pub struct ThreadsAndMemory;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/epochs-and-shuffling.md")]
pub struct EpochsAndShuffling;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/several-databases.md")]
pub struct SeveralDatabases;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/tfrecord.md")]
pub struct TfRecords;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/resume.md")]
pub struct Resume;

/// The guide's code compiles.
#[cfg(all(doctest, feature = "cuda-driver"))]
#[doc = include_str!("../docs/guide/gpus.md")]
pub struct Gpus;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/large-data.md")]
pub struct LargeData;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/receipts.md")]
pub struct ReceiptsGuide;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/example.md")]
pub struct ExampleGuide;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/own-records.md")]
pub struct OwnRecords;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/own-sources.md")]
pub struct OwnSources;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/own-devices.md")]
pub struct OwnDevices;

/// The guide's code compiles.
#[cfg(all(doctest, feature = "serde"))]
#[doc = include_str!("../docs/guide/feeds-as-data.md")]
pub struct FeedsAsData;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/command-line.md")]
pub struct CommandLine;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
