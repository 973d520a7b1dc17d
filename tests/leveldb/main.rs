//! LevelDB databases: as real writers leave them, forged, damaged, and through a feed. (`tests/memory` tests
//! what reading them allocates.)

#[path = "../common/mod.rs"]
mod common;
mod database;
mod feed_damage;
mod forged;
mod packed_feed;
mod twin;
