//! The processes of a job agree over NCCL: a [`Collective`](percolator_distribute::Collective) between GPUs,
//! for [`percolator_distribute`].
//!
//! A round is one `ncclAllGather` of 256 bytes; a round of more than 28 words is two. The words go from the
//! host to the GPU and back, so this is for jobs whose only network is NCCL's; a framework that trains on the
//! GPUs reduces its gradients there.
//!
//! The communicator does not block (`blocking = 0`): each call returns at once, and the process polls whether
//! it is done. After a timeout or an error the communicator is aborted (`ncclCommAbort`), which ends the work
//! on the stream. cudarc's `Comm` is not used, because it panics if a call fails.
//!
//! # What was shown, and what was not
//!
//! The tests run on stand-ins of the driver and of NCCL, in which ranks are threads of one process: the order
//! of calls, exchanges, timeouts, errors and aborts. With NVIDIA's NCCL, a group of one rank on an H100 keeps
//! its promises. Nothing was run between GPUs, between processes, or over a network.

mod collective;
mod engine;
mod error;
mod raw;

pub use collective::NcclCollective;
pub use error::NcclError;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
