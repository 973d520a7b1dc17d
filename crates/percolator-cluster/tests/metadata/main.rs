//! Records, as every implementation must keep them.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod contract;
mod folder;
mod memory;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
