//! TensorFlow's model files: checkpoints, meta graphs and SavedModels.

pub mod checkpoint;
pub mod convert;
mod data_type;
#[cfg(feature = "feed")]
mod feed;
pub mod graph;
mod paths;
pub mod proto;
mod tensor;
mod text;

pub use checkpoint::{Checkpoint, CheckpointError, CheckpointManager, CheckpointWriter, latest_checkpoint};
pub use data_type::{DataType, UnknownType};
#[cfg(feature = "feed")]
pub use feed::{CheckSignature, SignatureMismatch};
pub use graph::{GraphError, MetaGraph, SavedModel};
pub use tensor::{Element, Elements, Tensor, TensorError};

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/tensorflow.md")]
pub struct Guide;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
