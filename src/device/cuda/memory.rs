//! Page-locked host memory, and device memory.

#![expect(unsafe_code, reason = "the driver is C, and returns memory as addresses")]

use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::{Context, kept, not_released};
use crate::batch::memory::HostMemory;
use crate::device::DeviceError;

/// The alignment that [`HostMemory`] promises.
const ALIGNMENT: usize = 4096;

/// Host memory that the device reads by itself, while the host does other work.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<Context>,
    /// What the driver returned. It cuts small pieces out of larger ones, so they begin anywhere in a page.
    allocated: NonNull<u8>,
    /// The first page's beginning in it.
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value, and the driver may be called from any thread.
unsafe impl Send for Pinned {}
// SAFETY: as above; a shared reference gives no access to the bytes.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates zeroed memory. It is not write-combined: the workers' kernels read what they have written (a
    /// mirrored row), and consumers may read batches on the host.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let bytes = bytes.max(1);
        // SAFETY: any size may be requested; the driver refuses what it must, and so the largest one.
        let allocated = unsafe { result::malloc_host(bytes.saturating_add(ALIGNMENT - 1), 0) };
        let allocated = context.check("cuMemHostAlloc", allocated)?.cast::<u8>();
        let Some(allocated) = NonNull::new(allocated) else {
            let message = "it returned no address".to_owned();
            return Err(DeviceError::Call {
                device: context.name().to_owned(),
                call: "cuMemHostAlloc",
                message,
            });
        };
        let skipped = allocated.addr().get().wrapping_neg() % ALIGNMENT;
        // SAFETY: fewer bytes are skipped than were requested beyond `bytes`.
        let first = unsafe { allocated.add(skipped) };
        // SAFETY: the driver has just returned this many bytes from `first` on, to nobody else.
        unsafe { first.write_bytes(0, bytes) };
        Ok(Pinned { context: context.clone(), allocated, first, bytes })
    }
}

// SAFETY: the address was made a multiple of 4096 and does not change; all bytes were zeroed; nobody
// else has them until the drop frees them.
unsafe impl HostMemory for Pinned {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.first.as_ptr()
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.context.is_in_sight() {
            return kept(&self.context, self.bytes);
        }
        let freed = self.context.enter().and_then(|_entered| {
            // SAFETY: `cuMemHostAlloc` returned it, it is freed once, and nobody reads it: transfers, which
            // copy from it, are dropped before it and wait.
            let freed = unsafe { result::free_host(self.allocated.as_ptr().cast()) };
            self.context.check("cuMemFreeHost", freed)
        });
        if let Err(error) = freed {
            not_released(&error, format_args!("{} bytes of page-locked memory cannot be freed", self.bytes));
        }
    }
}

/// Memory of the device.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    context: Arc<Context>,
    first: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let bytes = bytes.max(1);
        // SAFETY: any size may be requested; the driver refuses what it must.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(first) => Ok(DeviceMemory { context: context.clone(), first, bytes }),
            Err(error) => {
                let failed = context.check::<()>("cuMemAlloc", Err(error));
                match (error.0, context.memory()) {
                    (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ok((free, all))) => {
                        Err(DeviceError::OutOfMemory {
                            device: context.name().to_owned(),
                            bytes,
                            message: format!("{free} bytes of its {all} are free"),
                        })
                    }
                    _ => Err(failed.expect_err("the call failed")),
                }
            }
        }
    }

    /// The device address of its first byte.
    pub(super) fn first(&self) -> sys::CUdeviceptr {
        self.first
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if !self.context.is_in_sight() {
            return kept(&self.context, self.bytes);
        }
        let freed = self.context.enter().and_then(|_entered| {
            // SAFETY: `cuMemAlloc` returned it, it is freed once, and its transfer has waited for its last
            // use.
            self.context.check("cuMemFree", unsafe { result::free_sync(self.first) })
        });
        if let Err(error) = freed {
            not_released(&error, format_args!("{} bytes of a device's memory cannot be freed", self.bytes));
        }
    }
}
