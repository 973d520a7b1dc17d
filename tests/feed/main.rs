//! Feeds: what they deliver, to whom and in what order, and how they end.

mod bad_policy;
mod bad_records;
mod bad_stored;
mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod control;
mod delivery;
mod device;
mod dlpack;
mod epochs;
mod fields;
mod limits;
mod panics;
mod quarantine;
mod reader;
mod sizing;
mod spec;
mod stall;
#[cfg(feature = "stream")]
mod stream;
mod target;
