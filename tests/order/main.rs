//! Which record goes where and when: plans, jobs of several workers, snapshots, and receipts.

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod killed;
mod lagging;
mod plan;
mod receipts;
mod runs;
mod seek;
mod snapshot;
mod snapshot_refused;
mod written;
