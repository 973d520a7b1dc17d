//! Feeds under faults: each kind of fault by itself, and random scenarios of every feature, checked against a
//! plain model.

#[path = "../common/allocator.rs"]
mod allocator;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod disk;
mod drive;
mod model;
mod random;
mod scenario;
mod source;
mod stores;
