//! Why NCCL cannot be used.

use std::time::Duration;

use percolator_distribute::CollectiveError;

/// Why processes cannot agree over NCCL.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum NcclError {
    /// A library is missing.
    #[error("{library} cannot be opened: {advice}")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// NCCL has not all the calls that are made.
    #[error("NCCL {}.{} is too old: 2.14 or newer is needed", found / 10_000, found / 100 % 100)]
    TooOld {
        /// The version, as NCCL states it from 2.9 on: 21400 for 2.14.
        found: i32,
    },
    /// There is no such GPU.
    #[error("there is no GPU {device}: this process sees {found}")]
    NoDevice {
        /// The GPU.
        device: usize,
        /// How many there are.
        found: usize,
    },
    /// Another process cannot use NCCL.
    #[error("process {rank} cannot use NCCL, and has the reason")]
    Elsewhere {
        /// Its rank.
        rank: usize,
    },
    /// The processes did not find each other.
    #[error("the processes cannot tell each other where NCCL is to meet")]
    Meeting(#[from] CollectiveError),
    /// Not all processes came.
    #[error("not all of the {size} processes joined NCCL's communicator within {waited:.1?}")]
    Late {
        /// The number of processes.
        size: usize,
        /// How long they were waited for.
        waited: Duration,
    },
    /// More processes or words than NCCL counts.
    #[error("{count} {what} are too many for NCCL")]
    TooMany {
        /// How many there are.
        count: usize,
        /// Of what.
        what: &'static str,
    },
    /// A call of NCCL failed.
    #[error("{call} failed: {message}")]
    Call {
        /// The name of NCCL's function.
        call: &'static str,
        /// What NCCL says about it.
        message: String,
    },
    /// A call of the CUDA driver failed.
    #[error("GPU {device}: cannot {what}: {message}")]
    Driver {
        /// The GPU.
        device: usize,
        /// What was asked for.
        what: &'static str,
        /// What the driver says about it.
        message: String,
    },
}
