//! The driver's types and codes, as far as they are used.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Room for a result, which need not be initialised. C may pass null.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// A handle or a device pointer, both of which only this library can resolve.
pub(crate) type Handle = u64;

/// A CUresult that is not CUDA_SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: Code = Code(1);
pub(crate) const OUT_OF_MEMORY: Code = Code(2);
pub(crate) const NOT_INITIALIZED: Code = Code(3);
/// What calls return once the process ends.
pub(crate) const DEINITIALIZED: u32 = 4;
pub(crate) const NO_DEVICE: Code = Code(100);
pub(crate) const INVALID_DEVICE: Code = Code(101);
pub(crate) const INVALID_CONTEXT: Code = Code(201);
pub(crate) const INVALID_PTX: Code = Code(218);
pub(crate) const INVALID_HANDLE: Code = Code(400);
pub(crate) const ILLEGAL_STATE: Code = Code(401);
pub(crate) const NOT_FOUND: Code = Code(500);
pub(crate) const NOT_READY: Code = Code(600);
pub(crate) const ILLEGAL_ADDRESS: Code = Code(700);
pub(crate) const LAUNCH_TIMEOUT: Code = Code(702);
pub(crate) const CONTEXT_IS_DESTROYED: Code = Code(709);
pub(crate) const ALREADY_REGISTERED: Code = Code(712);
pub(crate) const NOT_REGISTERED: Code = Code(713);
pub(crate) const MISALIGNED_ADDRESS: Code = Code(716);
pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Code = Code(900);
pub(crate) const STREAM_CAPTURE_INVALIDATED: Code = Code(901);
pub(crate) const STREAM_CAPTURE_ISOLATION: Code = Code(905);
pub(crate) const STREAM_CAPTURE_IMPLICIT: Code = Code(906);
pub(crate) const CAPTURED_EVENT: Code = Code(907);
pub(crate) const STREAM_CAPTURE_WRONG_THREAD: Code = Code(908);

/// Name and description of each code that the stand-in or a test of it returns.
const NAMES: &[(u32, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error (stand-in)"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument (stand-in)"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory (stand-in)"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error (stand-in)"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down (stand-in)"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"device busy or unavailable (stand-in)"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected (stand-in)"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal (stand-in)"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context (stand-in)"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered (stand-in)"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed (stand-in)"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle (stand-in)"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state (stand-in)"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found (stand-in)"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready (stand-in)"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered (stand-in)"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated (stand-in)"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed (stand-in)"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"memory is already registered (stand-in)"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"memory is not registered (stand-in)"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address (stand-in)"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure (stand-in)"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported (stand-in)"),
    (
        900,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing (stand-in)",
    ),
    (
        901,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture (stand-in)",
    ),
    (
        905,
        c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"dependency created on uncaptured work in another stream (stand-in)",
    ),
    (
        906,
        c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"operation would make the legacy stream depend on a capturing blocking stream (stand-in)",
    ),
    (
        907,
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream (stand-in)",
    ),
    (
        908,
        c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"attempt to terminate a thread-local capture sequence from another thread (stand-in)",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error (stand-in)"),
];

/// The name and description of a code; `None` for one that the stand-in does not know.
pub(crate) fn words(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    NAMES.iter().find(|entry| entry.0 == code).map(|entry| (entry.1, entry.2))
}

/// Writes a result to the place that C passes.
pub(crate) fn put<T>(out: Out<'_, T>, value: T) -> Answer {
    out.ok_or(INVALID_VALUE)?.write(value);
    Ok(())
}
