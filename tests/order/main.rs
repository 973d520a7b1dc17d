//! Which record goes where and when: plans, jobs of several workers, snapshots, and receipts.

mod collectives;
#[path = "../common/mod.rs"]
mod common;
mod distribute;
mod failing_workers;
mod job_devices;
mod jobs;
mod jobs_refused;
#[cfg(unix)]
mod killed;
mod lagging;
mod plan;
mod receipts;
mod reductions;
mod runs;
mod seek;
mod snapshot;
mod snapshot_refused;
mod written;
