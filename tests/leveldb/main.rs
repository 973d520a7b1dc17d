//! LevelDB databases: as real writers leave them, forged, damaged, and through a feed. (`tests/memory` tests
//! what reading them allocates.)

mod broken_files;
mod changed_while_read;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod database;
mod feed_damage;
mod files;
mod forged;
#[path = "../common/damage/mod.rs"]
mod harness;
mod other_writers;
mod packed_feed;
mod twin;
