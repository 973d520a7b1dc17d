//! Checkpoints, read: what TensorFlow wrote, and what was damaged since.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod golden;
