//! Lanes on CUDA devices, and the stand-in driver that they are tested on.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod feeds;
mod gpu;
mod lanes;
mod ptx;
#[path = "../common/standin.rs"]
mod standin;
mod standin_driver;
mod transform;
