//! Caffe's nets: how they are read, and what is refused.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed"
)]

mod format;
mod layers;
#[allow(dead_code, reason = "shared by tests, each of which uses a part of it")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod prototxt;
mod refused;
mod rules;
mod text;
