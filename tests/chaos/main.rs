//! Feeds under faults: each kind of fault by itself, and random scenarios of every feature, checked against a
//! plain model.

#[path = "../common/allocator.rs"]
mod allocator;
mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod consume;
mod device;
mod disk;
mod drive;
mod limits;
mod mixture;
mod model;
mod random;
mod scenario;
mod source;
mod stores;
