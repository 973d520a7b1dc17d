//! Batches of a percolator feed as PyTorch's tensors in Rust, through the crate `tch`.
mod device;
mod error;
mod steps;
mod tensors;
mod torch;

pub use error::TchError;
pub use steps::{LaneTensorSteps, TchFeed, TensorSteps};
pub use tensors::{TchBatch, Tensors};
