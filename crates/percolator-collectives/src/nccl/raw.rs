//! NCCL's calls, and a communicator that is aborted when it is dropped.
#![expect(unsafe_code, reason = "NCCL is C")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys;
use cudarc::nccl::sys::ncclResult_t as Code;

use super::error::NcclError;

/// The bytes of NCCL's name of a meeting place.
pub(super) const ID_BYTES: usize = 128;

/// The names under which cudarc opens the libraries.
const NCCL: [&CStr; 2] = [c"libnccl.so", c"libnccl.so.2"];
const DRIVER: [&CStr; 2] = [c"libcuda.so", c"libcuda.so.1"];

/// The first version with communicators that do not block: 2.14.
const VERSION_MIN: c_int = 21_400;

/// What NCCL's header begins a configuration with, and means by "not set".
const MAGIC: c_uint = 0xcafe_beef;
const UNSET: c_int = c_int::MIN;
/// The version of the header that the bindings are of.
const HEADER_VERSION: c_uint = 23_000;

/// Whether a call of NCCL is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Going,
}

/// A communicator.
#[derive(Debug)]
pub(super) struct Comm(sys::ncclComm_t);

// SAFETY: NCCL allows any thread to use a communicator, one at a time, and its methods take it mutably.
unsafe impl Send for Comm {}

/// Checks that both libraries are there and NCCL is new enough. Every other call needs this first: cudarc
/// panics if a library or a symbol is missing.
pub(super) fn start() -> Result<(), NcclError> {
    for (library, names, advice) in [
        ("the CUDA driver (libcuda.so)", DRIVER, "install NVIDIA's driver"),
        ("NCCL (libnccl.so.2)", NCCL, "install NCCL, or put its folder on LD_LIBRARY_PATH"),
    ] {
        if !names.into_iter().any(can_be_opened) {
            return Err(NcclError::NoLibrary { library, advice });
        }
    }
    let mut found = 0;
    // SAFETY: NCCL writes one number to the given address.
    checked("ncclGetVersion", unsafe { sys::ncclGetVersion(&raw mut found) })?;
    if found < VERSION_MIN { Err(NcclError::TooOld { found }) } else { Ok(()) }
}

/// Opens a library for good: it is used until the process ends.
fn can_be_opened(name: &CStr) -> bool {
    // SAFETY: the name ends with a zero; the library's initialisers are the only code that runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    !library.is_null()
}

fn checked(call: &'static str, code: Code) -> Result<Progress, NcclError> {
    match code {
        Code::ncclSuccess => Ok(Progress::Done),
        Code::ncclInProgress => Ok(Progress::Going),
        code => {
            // SAFETY: NCCL returns a text of its own for every number.
            let text: *const c_char = unsafe { sys::ncclGetErrorString(code) };
            let said = if text.is_null() {
                String::new()
            } else {
                // SAFETY: it is a text that ends with a zero and lives as long as the library.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            };
            Err(NcclError::Call { call, message: format!("{said} ({code:?})") })
        }
    }
}

/// Makes a new meeting place.
pub(super) fn new_id() -> Result<[u8; ID_BYTES], NcclError> {
    let mut id = sys::ncclUniqueId { internal: [0; ID_BYTES] };
    // SAFETY: NCCL writes an id to the given address.
    checked("ncclGetUniqueId", unsafe { sys::ncclGetUniqueId(&raw mut id) })?;
    Ok(id.internal.map(c_char::cast_unsigned))
}

/// A configuration in which only `blocking` is set. NCCL reads as much of it as its version knows.
fn does_not_block() -> sys::ncclConfig_t {
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
        magic: MAGIC,
        version: HEADER_VERSION,
        blocking: 0,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
        netName: ptr::null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: ptr::null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
        graphUsageMode: UNSET,
        numRmaCtx: UNSET,
        maxP2pPeers: UNSET,
    }
}

impl Comm {
    /// Begins to join the communicator of a meeting place. [`progress`](Comm::progress) says when all have.
    /// The device's context is current.
    pub(super) fn join(id: [u8; ID_BYTES], rank: c_int, size: c_int) -> Result<Self, NcclError> {
        let id = sys::ncclUniqueId { internal: id.map(u8::cast_signed) };
        let mut config = does_not_block();
        let mut comm = MaybeUninit::new(ptr::null_mut());
        // SAFETY: both addresses are of this frame, and NCCL copies the configuration.
        let code = unsafe { sys::ncclCommInitRankConfig(comm.as_mut_ptr(), size, id, rank, &raw mut config) };
        // SAFETY: it was null, and is what NCCL has written.
        let comm = Comm(unsafe { comm.assume_init() });
        checked("ncclCommInitRankConfig", code)?;
        Ok(comm)
    }

    /// Returns whether what was asked for last is done. Asynchronous errors of NCCL come from here.
    pub(super) fn progress(&mut self) -> Result<Progress, NcclError> {
        let mut state = Code::ncclSuccess;
        // SAFETY: the communicator lives; NCCL writes a code to the given address.
        checked("ncclCommGetAsyncError", unsafe { sys::ncclCommGetAsyncError(self.0, &raw mut state) })?;
        checked("NCCL", state)
    }

    /// Begins to gather words from all ranks, on a stream.
    ///
    /// # Safety
    ///
    /// `from` is device memory of `count` words, and `into` of as many for each rank. They live, and nobody
    /// else uses them, until the stream is done with it. The stream is of the communicator's device.
    pub(super) unsafe fn gather(
        &mut self,
        from: u64,
        into: u64,
        count: usize,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<Progress, NcclError> {
        let (from, into) = (from as *const std::ffi::c_void, into as *mut std::ffi::c_void);
        let word = sys::ncclDataType_t::ncclUint64;
        // SAFETY: as the caller promises; the driver's streams and the runtime's are the same.
        let code = unsafe { sys::ncclAllGather(from, into, count, word, self.0, stream.cast()) };
        checked("ncclAllGather", code)
    }
}

impl Comm {
    /// Frees it once everything that was sent has arrived. If that takes too long, or fails, it is aborted.
    pub(super) fn finish(mut self, timeout: Duration) {
        let start = Instant::now();
        // SAFETY: the communicator lives.
        let mut state = checked("ncclCommFinalize", unsafe { sys::ncclCommFinalize(self.0) });
        while matches!(state, Ok(Progress::Going)) && start.elapsed() < timeout {
            thread::sleep(Duration::from_micros(50));
            state = self.progress();
        }
        match state {
            Ok(Progress::Done) => {
                let comm = std::mem::replace(&mut self.0, ptr::null_mut());
                // SAFETY: it was finalized, nobody uses it after this, and it is not aborted as well.
                if let Err(error) = checked("ncclCommDestroy", unsafe { sys::ncclCommDestroy(comm) }) {
                    tracing::warn!(%error, "a communicator could not be freed");
                }
            }
            Ok(Progress::Going) => tracing::warn!("NCCL still has something to send: it is given up"),
            Err(error) => tracing::warn!(%error, "a communicator could not be finished"),
        }
    }
}

impl Drop for Comm {
    /// Ends what it does on its stream, whatever the others do.
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: the communicator lives, and nobody uses it after this.
        if let Err(error) = checked("ncclCommAbort", unsafe { sys::ncclCommAbort(self.0) }) {
            tracing::warn!(%error, "a communicator could not be freed");
        }
    }
}
