//! Caffe's nets: how they are read, what is refused, and what their feeds deliver.

mod caffe_random;
#[path = "../common/mod.rs"]
mod common;
mod format;
mod golden;
mod layers;
mod prototxt;
mod refused;
mod rules;
mod text;
