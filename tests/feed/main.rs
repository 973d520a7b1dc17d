//! Feeds: what they deliver, to whom and in what order, and how they end.

mod again;
mod bad_limits;
mod bad_policy;
mod bad_records;
mod bad_shapes;
mod bad_stored;
mod bench;
mod blocks;
mod broken_device;
mod callers_panics;
#[path = "../common/mod.rs"]
mod common;
mod contents;
mod delivery;
mod device;
mod dlpack;
mod endings;
mod epochs;
mod fields;
mod handle;
mod lane_ends;
mod lanes;
mod made;
mod own_checksums;
mod own_sources;
mod panics;
mod programs;
mod quarantine;
mod reader;
mod reader_ends;
mod reader_gate;
mod readers;
mod refused;
mod sizing;
mod spec;
mod stall;
#[cfg(feature = "stream")]
mod stream;
mod target;
