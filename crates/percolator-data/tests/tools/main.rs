//! The library's tools on the databases that real Caffe wrote, and on damaged copies of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod browser;
mod common;
mod inspect;
mod mean;
#[path = "../../../../tests/common/need.rs"]
mod need;
mod scan;
mod verify;
