//! What is allocated, and how much memory is held. One allocator counts for all of these tests, so one test
//! runs at a time. Those that must count 0 on all threads, and those that measure the whole process, run in a
//! child.

mod allocations;
#[path = "../common/allocator.rs"]
mod allocator;
#[cfg(target_os = "linux")]
mod budget;
#[path = "../common/mod.rs"]
mod common;
mod leveldb;
mod net;
#[cfg(feature = "cuda")]
#[path = "../common/standin.rs"]
mod standin;
mod tfrecord;
