//! Records, as every implementation must keep them.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod contract;
mod memory;
