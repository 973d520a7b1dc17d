//! Batches of a [`percolator::Feed`] as [`candle`](candle_core)'s tensors, on the CPU and on CUDA devices.
//!
//! ```no_run
//! use candle_core::Device;
//! use percolator::Feed;
//! use percolator_candle::{CandleError, CandleFeed as _};
//!
//! fn main() -> Result<(), CandleError> {
//!     let device = Device::Cpu;
//!     let mut feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).epochs(10).build()?;
//!     for step in feed.tensors(&device)? {
//!         let step = step?;
//!         let (images, labels) = (step.get("data")?, step.get("label")?);
//!         println!("{:?} {:?}", images.shape(), labels.shape());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - [`CandleFeed`]: a feed's steps as tensors, for one lane or for several.
//! - [`CandleBatch`]: a batch, or one field of it, as tensors.
//! - [`Tensors`]: the tensors of a batch by name, with what the batch says about its rows.
//! - [`CandleError`]: what can go wrong. `?` converts it to candle's own error, and back.
//!
//! # How many copies
//!
//! candle owns the memory of its tensors: on the CPU a `Vec`, on a GPU a `CudaSlice`, which frees itself. A
//! batch's memory cannot be lent to either. So there is exactly one copy of each array:
//!
//! | the lane ends at | tensors on | copies |
//! |---|---|---|
//! | the host | the CPU | one in memory, into a `Vec` that was not initialised before |
//! | a GPU | the same GPU | one in that GPU's memory, on candle's stream; the host does not wait |
//! | the host | a GPU | one to the GPU, out of memory that is not page-locked |
//! | a GPU | the CPU | one in memory, out of what was sent to the GPU |
//!
//! A batch goes back to its lane as soon as its tensors are made, or, on a GPU, as soon as the copies are
//! done. So a program may keep any number of tensors, and a ring of one batch does not stall. To copy less,
//! name the fields that are needed: [`TensorSteps::only`].
//!
//! # On a GPU
//!
//! It needs the feature `cuda`, with which candle compiles its kernels: that takes NVIDIA's toolkit (`nvcc`).
//!
//! Let the lane end at the GPU: `.devices([percolator::Device::cuda(0)?])`. Its copy from the host then runs
//! while the program trains on the previous batch. candle's stream waits on the device for the batch, copies
//! it, and goes on; work that the program enqueues on the tensors comes after that.
//!
//! Both kinds of candle's devices will do, `Device::new_cuda` and `Device::new_cuda_with_stream`. The first
//! uses CUDA's per-thread default stream: candle itself orders nothing between threads there, so use the
//! tensors on the thread that made them.
//!
//! # Types
//!
//! An array becomes a tensor of the same type: `u8`, `u32`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32` or
//! `f64`. An array of `bool` becomes a tensor of `u8`, with the same bytes, as in candle's own comparisons.
//! candle has no type for `i8`, `u16` and `u64`: [`CandleError::Dtype`] says what the decoder can write
//! instead. To index with labels, candle needs `i64`, `u32` or `u8`: for images, `labels_i64(true)` adds
//! them.

mod batch;
mod cuda;
mod dtype;
mod error;
mod feed;
mod tensors;

pub use batch::CandleBatch;
pub use error::CandleError;
pub use feed::{CandleFeed, TensorMaker, TensorSteps, TensorStepsOn};
pub use tensors::Tensors;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
