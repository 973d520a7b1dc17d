//! Which of torch's devices there are, and how a batch on a GPU is ordered with torch's work there.
//!
//! The crate tch puts all work on torch's current stream, which is the default stream of each GPU: the legacy
//! default stream of the driver. It is made to wait for the batch when the batch becomes tensors, and an
//! event is recorded on it when the last reference to their memory goes. The lane fills that memory again
//! once that event has happened. So torch's own rule holds for these tensors, too: another stream's work on
//! them must be done, or waited for by the default stream, before the last reference is dropped.

#![cfg_attr(feature = "cuda-driver", expect(unsafe_code, reason = "streams of the driver are C"))]

use tch::{Cuda, Device};

use crate::error::TchError;

/// Checks that torch has a device.
pub(crate) fn check(device: Device) -> Result<(), TchError> {
    let missing = |reason| Err(TchError::NoDevice { device, reason });
    match device {
        Device::Cpu => Ok(()),
        Device::Cuda(number) => {
            let count = Cuda::device_count();
            if i64::try_from(number).is_ok_and(|number| number < count) {
                return Ok(());
            }
            missing(format!(
                "it sees {count} GPU(s), counted from 0; it sees those of NVIDIA's driver, if libtorch was \
                 built with CUDA and libtorch_cuda is linked: if the linker dropped it, link the program \
                 with -Wl,--no-as-needed -ltorch_cuda"
            ))
        }
        Device::Mps if tch::utils::has_mps() => Ok(()),
        Device::Vulkan if tch::utils::has_vulkan() => Ok(()),
        Device::Mps | Device::Vulkan => missing("this libtorch was built without it".to_owned()),
    }
}

/// Makes torch's stream wait for a batch on a GPU, and count as its user. `is_on_default_stream` says whether
/// the stream that torch uses on a GPU is the default one.
#[cfg(feature = "cuda-driver")]
pub(crate) fn order(
    there: percolator::device::CudaBatch<'_>,
    is_on_default_stream: impl Fn(usize) -> Result<bool, String>,
) -> Result<(), TchError> {
    let ordinal = there.ordinal();
    match is_on_default_stream(ordinal) {
        Ok(true) => {}
        Ok(false) => return Err(TchError::Stream { ordinal }),
        Err(message) => return Err(TchError::NoStream { ordinal, message }),
    }
    // SAFETY: null is the legacy default stream of the primary context, and lives as long as that.
    unsafe { there.wait_on_raw(std::ptr::null_mut()) }?;
    Ok(())
}
