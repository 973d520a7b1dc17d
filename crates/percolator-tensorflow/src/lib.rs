//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

mod checkpoint;
mod data_type;
pub mod proto;
mod tensor;

pub use checkpoint::{
    Checkpoint, CheckpointError, CheckpointManager, CheckpointWriter, Child, Extent, ManagerOptions, Object,
    ObjectGraph, ObjectTensor, PathError, Place, Rules, Slice, SlotVariable, StateError, StateFile,
    TensorInfo, TensorReason, TensorWriter, TreeLine, Verification, WriteError, all_checkpoints,
    latest_checkpoint,
};
pub use data_type::{DataType, UnknownType};
pub use tensor::{Element, Elements, Tensor, TensorError};
