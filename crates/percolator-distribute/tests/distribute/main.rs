//! Jobs of many workers: what each step gives to whom, what is agreed on, and how the processes learn of a
//! failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod collectives;
#[path = "../../../../tests/common/mod.rs"]
mod common;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../common/collectives.rs"]
mod contract;
mod distribute;
mod failing_workers;
mod job_devices;
mod jobs;
mod jobs_refused;
mod reductions;
