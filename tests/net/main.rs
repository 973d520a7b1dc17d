//! What the feeds of Caffe's nets deliver. How nets are read is tested in `crates/percolator-net`.

mod caffe_random;
#[path = "../common/mod.rs"]
mod common;
mod golden;
