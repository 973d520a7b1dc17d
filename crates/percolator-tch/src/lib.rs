//! Batches of a percolator feed as PyTorch's tensors in Rust, through the crate [`tch`], without a copy.
//!
//! ```no_run
//! use percolator::Feed;
//! use percolator_tch::{TchError, TchFeed as _};
//! use tch::{Device, Tensor};
//!
//! fn main() -> Result<(), TchError> {
//!     let mut feed = Feed::builder().lmdb("mnist_train_lmdb").labels_i64(true).batch_size(64).build()?;
//!     for step in feed.tensors(Device::Cpu)?.take(10_000) {
//!         let tensors = step?;
//!         train(tensors.get("data")?, tensors.get("label_i64")?);
//!     }
//!     Ok(())
//! }
//! # fn train(_images: &Tensor, _labels: &Tensor) {}
//! ```
//!
//! [`TchFeed`] turns a feed's steps into tensors, and [`TchBatch`] a single batch; [`Tensors`] has them by
//! name.
//!
//! # How long the memory lives
//!
//! tch's own [`Tensor::from_blob`](tch::Tensor::from_blob) borrows memory without telling libtorch, and a
//! tensor is not the only thing that refers to its memory: views, clones, and the graph that autograd keeps
//! for the backward pass do, too. So the batch is handed to libtorch itself, with a deleter: C++'s
//! `from_blob`, as `at::fromDLPack` calls it. libtorch counts the references to a storage, and calls the
//! deleter when the last of them is gone, on any thread. Only then does the batch return to its lane, whose
//! ring is filled again. A loop that holds every batch of the ring and waits for another gets an error
//! ([`AllHeld`](percolator::FeedError::AllHeld)) after a while.
//!
//! While they exist, no other code uses the tensors' memory: they may be written to.
//!
//! # GPUs
//!
//! On a GPU, torch's default stream waits for the batch, and an event on it ends the use of the memory: see
//! [`TchBatch::into_tensors`]. This was not run on a GPU.
//!
//! # Trade-offs
//!
//! - Making tensors costs some microseconds a batch, whatever its size, for what libtorch allocates to
//!   describe them.
//! - The storage cannot be resized (`resize_` is an error): it is the batch's.
//! - A tensor that is kept for a long time keeps a whole batch of the lane's ring from being filled. Use
//!   `copy()`.
//!
//! # Cargo features
//!
//! - `cuda` (default) and `cuda-driver`: lanes that end at GPUs, as the features of `percolator` of the same
//!   names.
//! - `doc-only`: builds the documentation where there is no libtorch.

mod device;
mod error;
mod steps;
mod tensors;
mod torch;

pub use error::TchError;
pub use steps::{TchFeed, TensorMaker, TensorSteps, TensorStepsOn};
pub use tensors::{TchBatch, Tensors};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
