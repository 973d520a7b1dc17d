//! Checkpoints: tensors by name, in an index and data files.

pub(crate) mod ordered_code;
mod writer;

pub use writer::{CheckpointWriter, Extent, TensorReason, TensorWriter, WriteError};
