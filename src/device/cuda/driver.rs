//! The CUDA driver, loaded at run time: whether it is present, its errors, and contexts of its devices.

#![expect(unsafe_code, reason = "the driver is C")]

use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::DriverError;
use cudarc::driver::{result, sys};
use once_cell::sync::OnceCell;

use super::ending::{self, Call};
use crate::device::DeviceError;

/// The oldest driver that has every call made here: CUDA 11.0, but the bindings for 13 name calls of 12.8.
const VERSION_MIN: Version = Version(if sys::CUDA_VERSION >= 13_000 { 12_080 } else { 11_000 });

/// The names under which `cudarc` opens the driver's library.
const LIBRARY: [&CStr; 2] = [c"libcuda.so", c"libcuda.so.1"];

/// Finds and starts the driver, unless that has succeeded before, and returns its version.
///
/// Every use of the driver must call this first: without the driver, `cudarc` panics at the first call.
pub(super) fn start() -> Result<Version, DeviceError> {
    static STARTED: OnceCell<Version> = OnceCell::new();
    STARTED.get_or_try_init(look_for).copied()
}

fn look_for() -> Result<Version, DeviceError> {
    if !LIBRARY.into_iter().any(can_be_opened) {
        return Err(DeviceError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the driver writes one number to the given address, whether it is started or not.
    let queried = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    check("cuda", "cuDriverGetVersion", queried.result())?;
    if Version(version) < VERSION_MIN {
        return Err(DeviceError::DriverTooOld { found: Version(version), needed: VERSION_MIN });
    }
    match result::init() {
        // No device is visible to this process; the driver is then not started.
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => {
            Err(DeviceError::NoSuchDevice { device: "GPU".to_owned(), found: 0 })
        }
        started => {
            check("cuda", "cuInit", started)?;
            ending::watch();
            Ok(Version(version))
        }
    }
}

/// Begins a use of the driver, which the end of the process waits for.
pub(super) fn begin(device: &str) -> Result<Call, DeviceError> {
    Call::begin().ok_or_else(|| DeviceError::Call {
        device: device.to_owned(),
        call: "a call",
        message: "exit was called, and the driver takes itself down".to_owned(),
    })
}

/// Warns about what could not be released, except at the end of the process, which releases everything.
pub(super) fn not_released(error: &DeviceError, what: impl std::fmt::Display) {
    if !ending::has_begun() {
        tracing::warn!(%error, "{what}");
    }
}

/// Warns that memory is not freed.
pub(super) fn kept(context: &Context, bytes: usize) {
    if !ending::has_begun() {
        tracing::warn!(
            device = context.name(),
            bytes,
            "memory is kept for ever: the device may still be using it"
        );
    }
}

/// Opens a library permanently: it is used until the process ends.
///
/// `cudarc` has a function that tells whether the driver is present, but it is right only if no other crate
/// of the program makes `cudarc` link to the driver.
fn can_be_opened(name: &CStr) -> bool {
    // SAFETY: the name ends with a zero; the library's initialisers are the only code that runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    !library.is_null()
}

/// The number of devices.
pub(super) fn count() -> Result<usize, DeviceError> {
    match start() {
        Err(DeviceError::NoSuchDevice { .. }) => return Ok(0),
        started => started?,
    };
    let _call = begin("cuda")?;
    let count = check("cuda", "cuDeviceGetCount", result::device::get_count())?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A version of CUDA, as the driver counts it: 12080 is 12.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub i32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Converts a call's result; an error then names the device.
pub(super) fn check<T>(
    device: &str,
    call: &'static str,
    outcome: Result<T, DriverError>,
) -> Result<T, DeviceError> {
    outcome.map_err(|error| DeviceError::Call { device: device.to_owned(), call, message: describe(error) })
}

/// The driver's own description of an error.
fn describe(error: DriverError) -> String {
    let words = |text: Result<&CStr, DriverError>| text.map(|text| text.to_string_lossy().into_owned());
    match (words(error.error_name()), words(error.error_string())) {
        (Ok(name), Ok(text)) => format!("{name} ({}): {text}", error.0 as i32),
        _ => format!("error {}", error.0 as i32),
    }
}

/// One of a device's attributes.
pub(super) fn attribute(
    _call: &Call,
    name: &str,
    device: sys::CUdevice,
    attribute: sys::CUdevice_attribute,
) -> Result<i32, DeviceError> {
    // SAFETY: the driver returned this device.
    check(name, "cuDeviceGetAttribute", unsafe { result::device::get_attribute(device, attribute) })
}

/// The size of a device's memory in bytes.
pub(super) fn memory_bytes(_call: &Call, name: &str, device: sys::CUdevice) -> Result<usize, DeviceError> {
    // SAFETY: the driver returned this device.
    check(name, "cuDeviceTotalMem", unsafe { result::device::total_mem(device) })
}

/// A device's primary context, the one that all CUDA libraries of the process share.
#[derive(Debug)]
pub(super) struct Context {
    ordinal: usize,
    name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Set once it cannot be determined whether the device still uses memory that it was given.
    is_unknown: AtomicBool,
}

// SAFETY: the driver may be called from any thread; the handle is a name that it returned.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains a device's primary context, and so keeps it alive.
    pub(super) fn of(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        let name = format!("cuda:{ordinal}");
        let found = count()?;
        let Some(number) = i32::try_from(ordinal).ok().filter(|_| ordinal < found) else {
            return Err(DeviceError::NoSuchDevice { device: name, found });
        };
        let _call = begin(&name)?;
        let device = check(&name, "cuDeviceGet", result::device::get(number))?;
        // SAFETY: the driver just returned this device. The context is released in the drop.
        let retained = unsafe { result::primary_ctx::retain(device) };
        let context = check(&name, "cuDevicePrimaryCtxRetain", retained)?;
        Ok(Arc::new(Context { ordinal, name, device, context, is_unknown: AtomicBool::new(false) }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.device
    }

    pub(super) fn handle(&self) -> sys::CUcontext {
        self.context
    }

    /// Converts the result of a call on this device.
    pub(super) fn check<T>(
        &self,
        call: &'static str,
        outcome: Result<T, DriverError>,
    ) -> Result<T, DeviceError> {
        check(&self.name, call, outcome)
    }

    /// Makes this the thread's current context for as long as the returned guard lives; then the previous
    /// one, which may be another library's, is restored.
    ///
    /// While it is entered, the thread's calls are exempt from the capture mode of any graph that other code
    /// is capturing: they are not part of its work, and would otherwise end the capture.
    pub(super) fn enter(&self) -> Result<Entered<'_>, DeviceError> {
        let call = begin(&self.name)?;
        // SAFETY: the context lives as long as `self` does.
        let pushed = unsafe { sys::cuCtxPushCurrent_v2(self.context) };
        self.check("cuCtxPushCurrent", pushed.result())?;
        let mut entered = Entered { context: self, mode: None, _call: call, on_this_thread: PhantomData };
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver reads a mode at the given address, and writes another there.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", exchanged.result())?;
        entered.mode = Some(mode);
        Ok(entered)
    }

    /// From here on, neither the device's memory, nor host memory that it reads, nor the context is freed:
    /// they may be in use.
    pub(super) fn lose_sight(&self) {
        self.is_unknown.store(true, Ordering::Relaxed);
    }

    /// Whether memory may be freed.
    pub(super) fn is_in_sight(&self) -> bool {
        !self.is_unknown.load(Ordering::Relaxed)
    }

    /// Waits for all work of this process on the device. Not part of the steady state: it is for cases in
    /// which an event cannot tell.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        let _entered = self.enter()?;
        self.check("cuCtxSynchronize", result::ctx::synchronize())
    }

    /// The free and the total bytes of the device's memory.
    pub(super) fn memory(&self) -> Result<(usize, usize), DeviceError> {
        let _entered = self.enter()?;
        self.check("cuMemGetInfo", result::mem_get_info())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(_call) = Call::begin() else { return };
        if !self.is_in_sight() {
            tracing::warn!(device = %self.name, "a context is kept for ever: its device may still be busy");
            return;
        }
        // SAFETY: it was retained once, by `of`, and everything made in it keeps it alive.
        let released = unsafe { result::primary_ctx::release(self.device) };
        if let Err(error) = self.check("cuDevicePrimaryCtxRelease", released) {
            not_released(&error, "a device's context cannot be released");
        }
    }
}

/// A context while it is its thread's current one.
#[must_use]
pub(super) struct Entered<'a> {
    context: &'a Context,
    /// The thread's own capture mode, if it was exchanged.
    mode: Option<sys::CUstreamCaptureMode>,
    _call: Call,
    /// A context is current on one thread.
    on_this_thread: PhantomData<*const ()>,
}

impl Entered<'_> {
    /// The handle of the entered context.
    pub(super) fn handle(&self) -> sys::CUcontext {
        self.context.handle()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.mode {
            // SAFETY: the driver reads a mode at the given address, and writes another there.
            let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut *mode) };
            if let Err(error) = self.context.check("cuThreadExchangeStreamCaptureMode", exchanged.result()) {
                not_released(&error, "a thread's capture mode cannot be restored");
            }
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: the driver writes a handle to the given address.
        let restored = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
        if let Err(error) = self.context.check("cuCtxPopCurrent", restored.result()) {
            not_released(&error, "a thread's context cannot be restored");
        }
    }
}
