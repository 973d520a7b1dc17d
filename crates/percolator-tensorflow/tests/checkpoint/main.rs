//! Checkpoints, read: what TensorFlow wrote, what was made by hand, and what was damaged since.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a test's files are small")]

mod damage;
mod forge;
mod forged;
mod fuzz;
mod golden;
mod with_tensorflow;
