//! Checkpoints: tensors by name, in an index and data files.

mod manager;
pub(crate) mod ordered_code;
mod state;
mod writer;

pub use manager::{CheckpointManager, ManagerOptions, Rules};
pub use state::{StateError, StateFile, all_checkpoints, latest_checkpoint};
pub use writer::{CheckpointWriter, Extent, TensorReason, TensorWriter, WriteError};
