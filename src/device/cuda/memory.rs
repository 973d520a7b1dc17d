//! Memory of the host that is locked to its pages, and memory of the device.

#![expect(unsafe_code, reason = "the driver is C, and gives out memory as addresses")]

use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::Context;
use crate::batch::memory::HostMemory;
use crate::device::DeviceError;

/// What [`HostMemory`] promises of its address.
const ALIGNMENT: usize = 4096;

/// Memory of the host that the device reads by itself, while the host does something else.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<Context>,
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the value's own, and the driver may be called from any thread.
unsafe impl Send for Pinned {}
// SAFETY: as above; a shared reference gives no access to the bytes.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeroed. Not write-combined: the loader's kernels read what they have written (a row that is mirrored), and
    /// consumers may look at batches on the host.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let bytes = bytes.max(1);
        // SAFETY: any size may be asked for; the driver says no if it must.
        let allocated = unsafe { result::malloc_host(bytes, 0) };
        let first = context.told("cuMemHostAlloc", allocated)?;
        let first = NonNull::new(first.cast::<u8>()).ok_or_else(|| misplaced(context))?;
        // In the value's hands, so that it is given back whatever comes.
        let memory = Pinned { context: context.clone(), first, bytes };
        if first.addr().get() % ALIGNMENT != 0 {
            return Err(misplaced(context));
        }
        // SAFETY: so many bytes were just given out, to nobody else.
        unsafe { first.write_bytes(0, bytes) };
        Ok(memory)
    }
}

fn misplaced(context: &Context) -> DeviceError {
    let message = "the memory does not begin on a page".to_owned();
    DeviceError::Call { device: context.name().to_owned(), call: "cuMemHostAlloc", message }
}

// SAFETY: the address was seen to be a multiple of 4096 and stays; all bytes were zeroed; nobody else has them
// until they are given back by the drop.
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
            // SAFETY: it was given out by `cuMemHostAlloc`, once, and nobody reads it: passages, which copy from
            // it, are dropped before it and wait.
            let freed = unsafe { result::free_host(self.first.as_ptr().cast()) };
            self.context.told("cuMemFreeHost", freed)
        });
        if let Err(error) = freed {
            tracing::warn!(%error, bytes = self.bytes, "page-locked memory cannot be given back");
        }
    }
}

/// Says that memory is not given back.
fn kept(context: &Context, bytes: usize) {
    tracing::warn!(
        device = context.name(),
        bytes,
        "memory is kept for ever: the device may still be using it"
    );
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
        // SAFETY: any size may be asked for; the driver says no if it must.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(first) => Ok(DeviceMemory { context: context.clone(), first, bytes }),
            Err(error) => {
                let said = context.told::<()>("cuMemAlloc", Err(error));
                match (error.0, context.memory()) {
                    (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ok((free, all))) => {
                        Err(DeviceError::OutOfMemory {
                            device: context.name().to_owned(),
                            bytes,
                            message: format!("{free} bytes of its {all} are free"),
                        })
                    }
                    _ => Err(said.expect_err("an error was told")),
                }
            }
        }
    }

    /// The address of its first byte, on the device.
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
            // SAFETY: it was given out by `cuMemAlloc`, once; its passage has waited for its last use.
            self.context.told("cuMemFree", unsafe { result::free_sync(self.first) })
        });
        if let Err(error) = freed {
            tracing::warn!(%error, bytes = self.bytes, "a device's memory cannot be given back");
        }
    }
}
