//! Models' graphs: meta graphs and SavedModels, read, and printed as they are. Nothing is run.
//!
//! - [`SavedModel`] is a folder; [`MetaGraph`] is one of its graphs, or a separate file.
//! - [`Signature`] says what a graph computes for a caller; [`Node`], [`Input`] and [`Attr`] are the graph.
//! - [`Constant`] is a stored tensor, [`Variable`] one whose value is in a checkpoint.
//! - [`ObjectTree`] is what a program of TensorFlow 2 saved.

mod asset;
mod constant;
mod dot;
mod error;
mod file;
mod library;
mod meta_graph;
mod needed;
mod node;
mod objects;
mod saved_model;
mod shape;
mod signature;
mod variable;

pub use asset::Asset;
pub use constant::{CONSTANT_BYTES_MAX, Constant, ConstantError};
pub use error::GraphError;
pub use library::GraphFunction;
pub use meta_graph::{MetaGraph, Placeholder};
pub use needed::GraphFault;
pub use node::{Attr, Input, Node};
pub use objects::{ObjectTree, SavedObject};
pub use saved_model::SavedModel;
pub use shape::Shape;
pub use signature::{Encoding, Signature, SignatureTensor};
pub use variable::{Variable, VariableKind, VariableSlice};
