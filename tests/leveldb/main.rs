//! LevelDB databases: as real writers leave them, forged, damaged, and through a feed. (What reading them allocates is
//! tested in `tests/memory`.)

#[path = "../common/mod.rs"]
mod common;
mod database;
mod feed_damage;
mod forged;
mod packed_feed;
mod twin;
