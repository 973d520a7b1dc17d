//! burn's [`DataLoader`](burn_core::data::dataloader::DataLoader) over a [`percolator`] feed: batches as
//! burn's tensors, on the CPU without a copy.
//!
//! - [`FeedLoader`] is a data loader, for burn's `Learner` and its training strategies: on one device or
//!   several, with exact progress, and epochs that resume with burn's checkpoints.
//! - [`BurnFeed`] is for custom training loops, which can also stop and resume within an epoch.
//! - [`BurnBatch`] makes the tensors of one batch, from a lane or from an epoch.
//! - [`Tensors`] gives a batch's fields by name, as float, int or bool tensors.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use burn::tensor::{Device, Int, Tensor};
//! use percolator::{Epochs, Feed, FeedBuilder, Shuffle, Transform};
//! use percolator_burn::{BurnError, FeedLoader};
//!
//! struct Digits {
//!     images: Tensor<4>,
//!     labels: Tensor<1, Int>,
//! }
//!
//! fn loader(feed: FeedBuilder, device: &Device) -> Result<Arc<FeedLoader<Digits>>, BurnError> {
//!     Ok(Arc::new(FeedLoader::new(feed, device, |batch| {
//!         Ok(Digits { images: batch.get("data")?, labels: batch.get_int("label")? })
//!     })?))
//! }
//!
//! fn main() -> Result<(), BurnError> {
//!     let device = Device::flex();
//!     let scaled = Transform::new().scale(1.0 / 256.0);
//!     let feed = |lmdb| Feed::builder().lmdb(lmdb).batch_size(64).transform(scaled.clone());
//!     let train = loader(feed("mnist_train_lmdb").epochs(0).shuffle(Shuffle::Global), &device)?;
//!     let valid = loader(feed("mnist_test_lmdb").epochs(Epochs::OnePass), &device)?;
//!     // SupervisedTraining::new(folder, train, valid).num_epochs(10).launch(learner);
//!     # let _ = (train, valid);
//!     Ok(())
//! }
//! ```
//!
//! # Memory
//!
//! burn holds bytes of any owner, and releases them by dropping the owner. So on the backend `flex`, a tensor
//! is the batch's array, at its address; other backends copy it to their device, once, from there. The
//! batch's memory returns to its lane when its last tensor is gone. burn never writes to it: it copies a
//! tensor before it changes it in place.
//!
//! A feed for burn has the host as its device (percolator's default): burn takes tensors from there.

mod dtype;
mod error;
mod feed;
mod loader;
mod tensors;

pub use error::BurnError;
pub use feed::{BurnFeed, TensorMaker, TensorSteps, TensorStepsOn};
pub use loader::FeedLoader;
pub use tensors::{BurnBatch, Tensors};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
