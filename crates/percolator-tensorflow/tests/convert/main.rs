//! Tensors between formats: round trips, files that Python's libraries wrote or read, damage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damage;
mod golden;
mod python;
mod refused;
mod round_trips;
mod tensors;
