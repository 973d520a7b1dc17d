//! Which record goes where and when: plans, jobs of several workers, snapshots, and receipts.

mod collectives;
#[path = "../common/mod.rs"]
mod common;
mod distribute;
#[cfg(unix)]
mod killed;
mod lagging;
mod plan;
mod receipts;
mod snapshot;
