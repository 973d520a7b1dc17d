//! NVIDIA's own NCCL, with one rank on each GPU of this machine. Where there is no GPU, or no NCCL, the test
//! says that it did not run, which is a failure with `PERCOLATOR_NEED_GPU=1`.
#![expect(unsafe_code, reason = "whether a library is there, its loader says")]

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError};
use cudarc::{driver, nccl};

use super::*;
use crate::collectives::{rounds_bring_what_each_gave, run};
use crate::common::process::{check, child_command, need, role, this_test};

/// The number of GPUs, if NCCL and the driver are there.
fn gpus() -> usize {
    // SAFETY: what NVIDIA's library runs when it is loaded, and unloaded again, harms nothing.
    let driver = unsafe { driver::sys::is_culib_present() };
    // SAFETY: the same.
    let nccl = unsafe { nccl::sys::is_culib_present() };
    if !(driver && nccl) {
        return 0;
    }
    match CudaContext::device_count() {
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        count => usize::try_from(count.unwrap()).unwrap(),
    }
}

#[test]
fn nvidias_library_brings_what_each_gave() {
    if role().is_some() {
        return run(joined(gpus(), PATIENCE), |end| rounds_bring_what_each_gave(&end)).into_iter().collect();
    }
    match gpus() {
        0 => need::missing("GPU", "there is no GPU here, or no NCCL"),
        count => {
            println!("on {count} GPU(s)");
            check(this_test!(), &child_command(this_test!(), "gpu").output().unwrap());
        }
    }
}
