//! A collective between GPUs. Its exchange is `ncclAllGather`: the words go from the host to the GPU and
//! back, so this is for jobs whose only network is NCCL's; a framework that trains on the GPUs reduces its
//! gradients there.
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

mod engine;
mod error;
mod raw;

use std::time::Duration;

use percolator_distribute::{Collective, GatherCollective};

pub use self::engine::NcclEngine;
pub use self::error::NcclError;

/// A [`Collective`] over NCCL. When it is dropped, it waits until the others leave as well, or hear that it
/// has left, but no longer than a round may take.
pub type NcclCollective = GatherCollective<NcclEngine>;

/// Makes a collective of all processes of another one, which all of them must do; it is used for one round,
/// in which they agree where NCCL is to meet. Each process has a GPU of its own: `device` is its number in
/// this process. A round may take as long as `timeout`: longer than the longest step.
///
/// # Errors
///
/// [`NcclError`]: in each process, if one of them has no NCCL or no such GPU.
pub fn collective(
    device: usize,
    others: &dyn Collective,
    timeout: Duration,
) -> Result<NcclCollective, NcclError> {
    Ok(GatherCollective::new(NcclEngine::new(device, others, timeout)?, timeout))
}
