//! Meta graphs and SavedModels, against what TensorFlow wrote.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod damage;
mod feed;
mod golden;
mod graphs;
#[path = "../../../../tests/common/damage/mod.rs"]
mod harness;
mod models;
mod with_tensorflow;
