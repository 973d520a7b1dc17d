//! Our own kernels, as the driver loads them: PTX, which it compiles for the GPU.
//!
//! `kernels/compile.py` makes the PTX ahead of time from the CUDA files in `kernels/`, and stores it beside
//! them.

#![expect(unsafe_code, reason = "the driver is C")]

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::{Context, not_released};
use crate::device::DeviceError;

/// Kernels that the driver has compiled for its device.
#[derive(Debug)]
pub(super) struct Module {
    context: Arc<Context>,
    handle: sys::CUmodule,
}

impl Module {
    /// Loads PTX text that ends with a zero.
    pub(super) fn new(context: &Arc<Context>, ptx: &'static str) -> Result<Self, DeviceError> {
        assert!(ptx.ends_with('\0'), "the driver reads up to a zero");
        let _entered = context.enter()?;
        // SAFETY: the text ends with a zero, as checked above.
        let loaded = unsafe { result::module::load_data(ptx.as_ptr().cast()) };
        let handle = context.check("cuModuleLoadData", loaded)?;
        Ok(Module { context: context.clone(), handle })
    }

    /// One of its kernels, which lives as long as the module.
    pub(super) fn function(&self, name: &CStr) -> Result<sys::CUfunction, DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the module is loaded.
        let found = unsafe { result::module::get_function(self.handle, name.to_owned()) };
        self.context.check("cuModuleGetFunction", found)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.context.is_in_sight() {
            return;
        }
        let unloaded = self.context.enter().and_then(|_entered| {
            // SAFETY: it was loaded once, and none of its kernels still runs: a launcher holds the module
            // until it has waited for its kernels.
            self.context.check("cuModuleUnload", unsafe { result::module::unload(self.handle) })
        });
        if let Err(error) = unloaded {
            not_released(&error, "a device's kernels cannot be unloaded");
        }
    }
}
