//! Records in a real etcd, which each test starts for itself and stops. Without the program `etcd`, the tests
//! say that they did not run.
#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod access;
mod checkpoints;
mod cluster;
mod collective;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-distribute/tests/common/collectives.rs"]
mod collectives;
#[path = "../metadata/contract.rs"]
mod contract;
mod killed;
mod leases;
mod model;
#[path = "../checkpoint/numbered_state.rs"]
mod numbered_state;
mod outage;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod server;
mod single;
mod tls;
