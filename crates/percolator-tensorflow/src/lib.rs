//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

mod data_type;
mod feed;
pub mod graph;
pub mod proto;
mod tensor;

pub use data_type::{DataType, UnknownType};
pub use feed::{CheckSignature, SignatureFault, SignatureMismatch};
pub use graph::{GraphError, MetaGraph, SavedModel};
pub use tensor::{Element, Elements, Tensor, TensorError};
