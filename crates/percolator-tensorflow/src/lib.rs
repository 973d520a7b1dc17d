//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

mod checkpoint;
pub mod convert;
mod data_type;
pub mod proto;
mod tensor;

pub use checkpoint::{
    CheckpointManager, CheckpointWriter, Extent, ManagerOptions, Rules, StateError, StateFile, TensorReason,
    TensorWriter, WriteError, all_checkpoints, latest_checkpoint,
};
pub use data_type::{DataType, UnknownType};
pub use tensor::{Element, Elements, Tensor, TensorError};
