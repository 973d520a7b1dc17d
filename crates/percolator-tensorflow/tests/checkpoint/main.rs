//! Checkpoints, read: what TensorFlow wrote, what was made by hand, and what was damaged since.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a test's files are small")]

mod bounds;
mod bundles;
mod damage;
mod forge;
mod forged;
mod fuzz;
mod golden;
#[path = "../../../../tests/common/damage/mod.rs"]
mod harness;
mod with_tensorflow;
