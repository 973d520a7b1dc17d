//! Workers that are processes: they join, are killed, are stopped for longer than their leases and go on, are
//! slow, and leave, over an epoch of 100,000 records. Each time the account has every record once, and it is
//! compared with what each worker says was handed over to it.
//!
//! `PERCOLATOR_ELASTIC_RUNS` says how many runs there are of each kind (2 in CI), and
//! `PERCOLATOR_ELASTIC_SEED` the seed of the first one. Whatever a run does is drawn by its seed, except when
//! things happen: that is left to the machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[macro_use]
#[path = "../metadata/passes_on.rs"]
mod passes_on;

mod account;
#[cfg(feature = "etcd")]
mod etcd_faults;
mod notes;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod random;
mod role;
mod runs;
#[cfg(feature = "etcd")]
#[allow(dead_code, reason = "it is shared with other tests, which use the rest")]
#[path = "../etcd/server.rs"]
mod server;
mod worker;
mod workers;
