//! Clients and servers over sockets of this machine: who gets what, exactly once whatever breaks, within
//! which limits. What comes is compared with what a local feed of the same description delivers, bit for bit.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "../common/mod.rs"]
mod common;
mod connect;
#[allow(dead_code, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-cluster/tests/etcd/server.rs"]
mod etcd;
mod exactly_once;
mod fleet;
mod limits;
mod many;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod proxy;
#[allow(dead_code, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-cluster/tests/elastic/random.rs"]
mod random;
mod raw;
mod seen;
mod sharing;
mod tickets;
mod together;
