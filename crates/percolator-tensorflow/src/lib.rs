//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

mod checkpoint;
mod data_type;
pub mod proto;
mod tensor;

pub use checkpoint::{
    Checkpoint, CheckpointError, Child, Object, ObjectGraph, ObjectTensor, PathError, Place, Slice,
    SlotVariable, TensorInfo, TreeLine, Verification,
};
pub use data_type::{DataType, UnknownType};
pub use tensor::{Element, Elements, Tensor, TensorError};
