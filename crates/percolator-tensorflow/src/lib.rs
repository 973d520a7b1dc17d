//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

pub mod convert;
mod data_type;
pub mod proto;
mod tensor;

pub use data_type::{DataType, UnknownType};
pub use tensor::{Element, Elements, Tensor, TensorError};
