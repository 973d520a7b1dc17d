//! A collective over NCCL, on stand-ins of NCCL and of the driver: ranks are threads of a process of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-distribute/tests/common/collectives.rs"]
mod collectives;
mod common;
mod faults;
mod gpu;
mod rounds;
#[path = "../../../../tests/common/standin.rs"]
mod standin;

use std::time::Duration;

use percolator_collectives::nccl::{NcclCollective, NcclError, collective};
use percolator_distribute::{Collective as _, LocalCollective};

use crate::common::nccl;

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(50);

/// The stand-in driver has this many devices. What host functions write is not watched.
const DEVICES: &str = "devices=4\nchecksums=0";

/// The stand-ins, if this process is the child that runs `test` alone on them. If not, runs that child,
/// checks that it passes, and returns `None`.
fn alone(test: &str) -> Option<nccl::Nccl> {
    nccl::build();
    standin::alone(test, DEVICES).map(|_| nccl::Nccl::open())
}

/// Each process makes a collective of a GPU, as a thread.
fn join_all(size: usize, timeout: Duration) -> Vec<Result<NcclCollective, NcclError>> {
    collectives::run(LocalCollective::group(size), move |end| collective(end.rank(), &end, timeout))
}

/// The same, where all can.
fn joined(size: usize, timeout: Duration) -> Vec<NcclCollective> {
    join_all(size, timeout).into_iter().map(Result::unwrap).collect()
}
