//! TensorFlow's records: TFRecord files, and the Examples in them.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

mod behind_damage;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod damaged_examples;
mod example;
mod example_fields;
mod example_refused;
#[path = "../../crates/percolator-messages/tests/messages/twin.rs"]
mod example_twin;
mod examples;
mod feed;
mod files;
#[path = "../common/damage/mod.rs"]
mod harness;
mod source;
mod writer;
