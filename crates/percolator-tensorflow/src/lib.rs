//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

mod data_type;
pub mod graph;
pub mod proto;
mod tensor;

pub use data_type::{DataType, UnknownType};
pub use graph::{GraphError, MetaGraph, SavedModel};
pub use tensor::{Element, Elements, Tensor, TensorError};
