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
//! The pipeline has Caffe's two levels. A [`DataReader`](reader::DataReader) walks the source on a thread of its own and deals
//! its records round-robin to the consumers, in runs: where each record lies, not its bytes. Each lane of a
//! [`Feed`] has a ring of recycled batches and a thread that gives every record its place in one of them;
//! worker threads, shared by all lanes, parse a record, crop, mirror, subtract and scale it straight into
//! that place. Batches leave in order, through their device, whatever order the workers finish in.
//!
//! - What goes where is a law, not a race: global record `g` is record `g mod M` of the database and goes to
//!   lane `g mod N`.
//! - What a record becomes depends on (seed, pass, position): the same bytes for any number of threads.
//! - Whatever goes back (a spent run, a dropped [`Batch`]) goes back to the queue it came from; every queue
//!   has a capacity, and the sum is the [`MemoryBudget`](feed::MemoryBudget).
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
pub mod record;

pub mod source;

pub mod order;

pub mod reader;

pub mod snapshot;

pub mod receipt;

mod image;

pub mod transform;

pub mod net;

pub mod batch;
pub mod decoder;
mod workers;

#[cfg(not(shuttle))]
mod prefetch;

pub mod device;

#[cfg(not(shuttle))]
pub mod feed;

#[cfg(not(shuttle))]
pub mod distribute;

pub mod limits;

#[doc(hidden)]
pub mod bench_support;

#[cfg(not(shuttle))]
#[doc(inline)]
pub use feed::dlpack;
#[doc(inline)]
pub use source::leveldb;

#[doc(inline)]
pub use batch::{Dtype, Field, Layout};
#[doc(inline)]
pub use decoder::{DecodeFailure, RawBytes, RecordDecoder, Row, Tokens};
#[doc(inline)]
pub use device::{Device, DeviceError};
#[cfg(not(shuttle))]
#[doc(inline)]
pub use feed::{Batch, Feed, FeedBuilder, FeedError, Lane, Stats, Steps, Target};
#[doc(inline)]
pub use net::Net;
#[doc(inline)]
pub use order::{LastBatch, Shuffle};
#[doc(inline)]
pub use receipt::Receipt;
#[doc(inline)]
pub use snapshot::Snapshot;
#[doc(inline)]
pub use transform::{ColorMode, Phase, Transform};

/// The elements of [`Dtype::F16`] and [`Dtype::Bf16`].
pub use half;

#[doc(hidden)]
pub use base::{shown, whole_file};

#[cfg(test)]
#[cfg(not(shuttle))]
mod auto_traits;

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
