//! Percolator keeps every accelerator fed: it reads the records of a Caffe database where they lie,
//! transforms them on all cores, and writes each batch once, into memory that the device reads, while the
//! last batch is still being trained on.
//!
//! ```no_run
//! use percolator::{Device, Feed, Transform};
//!
//! let mut feed = Feed::builder()
//!     .lmdb("mnist_train_lmdb")
//!     .batch_size(64)
//!     .transform(Transform::new().scale(1.0 / 256.0))
//!     .devices([Device::host(0), Device::host(1)])
//!     .build()?;
//! for step in feed.steps().take(10_000) {
//!     for batch in step? {
//!         let (images, labels) = (batch.pixels::<f32>()?, batch.labels());
//!         // ... one lane's share of a training step
//!         # let _ = (images, labels);
//!     }
//! }
//! println!("{}", feed.stats());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! The pipeline has Caffe's two levels. A [`DataReader`] walks the source on a thread of its own and deals
//! its records round-robin to the consumers, in runs: where each record lies, not its bytes. Each lane of a
//! [`Feed`] has a ring of recycled batches and a thread that gives every record its place in one of them;
//! worker threads, shared by all lanes, parse a record, crop, mirror, subtract and scale it straight into
//! that place. Batches leave in order, through their device, whatever order the workers finish in.
//!
//! - What goes where is a law, not a race: global record `g` is record `g mod M` of the database and goes to
//!   lane `g mod N`.
//! - What a record becomes depends on (seed, pass, position): the same bytes for any number of threads.
//! - Whatever goes back (a spent run, a dropped [`Batch`]) goes back to the queue it came from; every queue
//!   has a capacity, and the sum is the [`MemoryBudget`].
//! - The first error stays, and every lane gets it once, after the batches that were complete.
//!
//! # Trade-offs
//!
//! - One reader deals to all lanes, so a lane that is not drained stops the others once its queues are full.
//!   That is what keeps the dealing exact; a warning names the lane.
//! - All records of a batch have one shape after the transform. Crop them, or feed batches of 1.
//! - A database must not be written to, or cut, while it is open: what is lent from a map is only as steady
//!   as the file behind it.

// A build for the model checker ends at the reader: what waits in crossbeam's `select!`, for which the
// checker has no twin, is left out, and some of what it alone uses stays behind.
#![cfg_attr(shuttle, allow(dead_code, unused_imports, reason = "its callers are left out of this build"))]

mod base;
mod config;
mod error;
pub mod proto;
mod record;

mod source;

mod order;

mod reader;

mod snapshot;

mod receipt;

mod image;

mod transform;

mod net;

mod batch;
mod decoder;
mod workers;

#[cfg(not(shuttle))]
mod prefetch;

mod device;

#[cfg(not(shuttle))]
mod feed;

#[cfg(not(shuttle))]
mod distribute;

pub mod limits;

#[doc(hidden)]
pub mod bench_support;

pub use base::checked_text::TextFault;
pub use base::meter::Waits;
pub use base::shape::{AXES_MAX, BatchShape, Dtype, Element, Extents, ImageShape, Layout, Phase};
#[doc(hidden)]
pub use base::{shown, whole_file};
pub use batch::fault::{RecordCause, RecordError};
pub use batch::field::{FIELDS_MAX, Field, FieldError, FieldKey, FieldKind, FieldsError, Pad};
pub use batch::memory::{HostMemory, PageMemory};
pub use batch::random::RecordRandom;
pub use batch::{BatchLayout, Row};
pub use config::{BudgetLine, ConfigError, MemoryBudget};
pub use decoder::{DecodeFailure, Decoded, RawBytes, RecordDecoder, Tokens, WorkerSetup};
pub use device::{Backend, Capacity, Device, DeviceError, Event, HostArray, HostBatch, Transfer};
#[cfg(feature = "cuda-driver")]
pub use device::{CudaBatch, CudaDevice, DeviceArray, StepTimes, SyntheticStep, Version};
#[cfg(not(shuttle))]
pub use distribute::{
    Collective, CollectiveError, DistributeError, DistributedIterator, DistributedStep, HostValue,
    InputOptions, InputReplicationMode, InputWorker, InputWorkers, LocalCollective, PerReplica, ReduceOp,
    StepWeights, distribute, distribute_from_fn,
};
pub use error::FeedError;
#[cfg(feature = "stream")]
pub use feed::Building;
#[cfg(not(shuttle))]
pub use feed::stats::{Bottleneck, LaneStats, ReaderStats, Stats, WorkerStats};
#[cfg(not(shuttle))]
pub use feed::{
    Batch, Epoch, Feed, FeedBuilder, FeedCanceller, FeedWatch, FieldView, IntoBatches, Lane, OwnedArray,
    Ragged, Sizing, Steps, Target, Values,
};
#[cfg(not(shuttle))]
pub use feed::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_VERSION, DLPackVersion, DLTensor,
    DlpackBatch, DlpackTensor,
};
pub use image::{ColorMode, DecodeError};
pub use net::{
    DataLayer, LayerError, LayerSource, Net, NetCause, NetError, NetState, NetWarning, TextPlace,
    TransformSpec, WarningKind, rooted,
};
pub use order::{
    Assignment, AutoShardPolicy, BatchSize, EnvironmentError, InputContext, Job, LastBatch, OrderError, Plan,
    Process, Rebatch, ReplicaShare, Shuffle, World, batch_sizes_for_worker, rebatch,
};
pub use percolator_table::TableError;
pub use reader::{
    Canceller, DataReader, DataReaderBuilder, Free, Full, Lease, ReaderError, ReaderKey, Registry,
};
pub use receipt::{
    AbsentReplicas, ContentsDeviation, ContentsVerdict, DataDigest, Deviation, Digest, DigestDetail,
    DoubledSteps, EpochState, EpochVerdict, GivenSteps, MissingSteps, Positions, Receipt, ReceiptError,
    Verdict,
};
pub use record::datum::{Datum, DatumError, Floats, Image, Pixels, Strided};
pub use record::{Key, RecordId, StepEnd, StepId};
pub use snapshot::{Snapshot, SnapshotError};
pub use source::image_list::ImageList;
pub use source::joined::Joined;
pub use source::leveldb::{LevelDb, LevelDbError, LevelDbOptions, LogCut, LogFault, LogGaps, LogTail};
pub use source::lmdb::{Lmdb, LmdbOptions};
pub use source::{
    Access, Cursor, Entry, FnSource, Identity, IndexPlace, Lender, Matching, Passes, Record, Run, Source,
    SourceError,
};
pub use transform::{
    CaffeEra, Cut, DeviceTransform, MeanImage, MeanImageError, Staged, Transform, TransformError,
    TransformPlace,
};

/// The elements of [`Dtype::F16`] and [`Dtype::Bf16`].
pub use half;

/// What [`CudaBatch`] speaks of streams with.
#[cfg(feature = "cuda-driver")]
pub use cudarc;

/// Runs the model scenarios that stand beside the code they check.
#[cfg(test)]
#[cfg(shuttle)]
#[path = "../tests/common/explore.rs"]
mod explore;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/own-records.md")]
pub struct OwnRecords;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
