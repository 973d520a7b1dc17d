//! Tensors between formats: round trips, files that Python's libraries wrote or read, damage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damage;
mod files;
mod folders;
#[allow(clippy::cast_possible_truncation, reason = "a test's files are small")]
#[path = "../checkpoint/forge.rs"]
mod forge;
mod golden;
#[path = "../../../../tests/common/damage/mod.rs"]
mod harness;
mod kept;
mod python;
mod refused;
mod round_trips;
mod tensors;
