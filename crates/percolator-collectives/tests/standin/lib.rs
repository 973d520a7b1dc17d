//! A stand-in for NCCL: `libnccl.so` with the few functions that are called, for tests only. Ranks are
//! threads of one process, and devices are those of the stand-in driver (tests/standin of the core).
//!
//! A test may draw conclusions about the order of calls, about exchanges, timeouts, errors and aborts of a
//! communicator that does not block. It may draw none about NVIDIA's NCCL where its documentation is silent,
//! about processes, networks or speed.
//!
//! - `ncclCommInitRankConfig` returns at once. The communicator is ready when all ranks have joined.
//! - `ncclAllGather` puts a host function on the stream, which waits for the other ranks.
//! - `ncclCommAbort` ends the wait of its own rank's host functions. Ranks that wait for it go on waiting, as
//!   over a network whose end nobody noticed.
//! - `standin_nccl_fail` makes the next call of a function return a code; `standin_nccl_break` gives all
//!   communicators an error that nobody waited for.
#![expect(unsafe_code, reason = "it is called from C, under C's names, with C's pointers")]
#![allow(non_snake_case, reason = "NCCL's names")]
#![allow(clippy::unwrap_used, reason = "a stand-in that cannot go on ends the test")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use libloading::{Library, Symbol};
use parking_lot::{Condvar, Mutex};

const SUCCESS: u32 = 0;
const INVALID_ARGUMENT: u32 = 4;
const IN_PROGRESS: u32 = 7;
/// `ncclUint64`.
const UINT64: u32 = 5;

/// What ranks of one meeting place share.
#[derive(Default)]
struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    joined: usize,
    /// What each rank has brought to the exchange of this number, until all have taken it.
    exchanges: HashMap<u64, Vec<Option<Vec<u8>>>>,
}

/// A communicator.
struct Comm {
    group: Arc<Group>,
    rank: usize,
    size: usize,
    next: AtomicU64,
    is_aborted: AtomicBool,
}

/// One `ncclAllGather`, as its host function gets it.
struct Gather {
    comm: Arc<Comm>,
    number: u64,
    from: u64,
    into: u64,
    bytes: usize,
}

static GROUPS: LazyLock<Mutex<HashMap<Vec<u8>, Arc<Group>>>> = LazyLock::new(Mutex::default);
static IDS: AtomicU64 = AtomicU64::new(1);
/// The function that fails next, and its code.
static FAULT: Mutex<Option<(String, u32)>> = Mutex::new(None);
/// An error that all communicators have.
static BROKEN: AtomicU32 = AtomicU32::new(SUCCESS);
static VERSION: AtomicU32 = AtomicU32::new(22_304);

/// The stand-in driver, by the name that cudarc uses.
static DRIVER: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: it is loaded already, and its initialisers have run.
    unsafe { Library::new("libcuda.so") }.expect("the driver is loaded before NCCL is used")
});

/// The code that a call of this function is to return.
fn fault(name: &str) -> Option<u32> {
    let mut fault = FAULT.lock();
    if fault.as_ref().is_some_and(|(function, _)| function == name) {
        return fault.take().map(|(_, code)| code);
    }
    None
}

/// The memory of a device, as this process reaches it.
fn resolve(at: u64, bytes: usize) -> *mut u8 {
    // SAFETY: the type is that of tests/standin/control.rs in the core.
    let symbol: Symbol<'_, extern "C" fn(u64, usize) -> *mut u8> =
        unsafe { DRIVER.get("standin_resolve") }.expect("the driver is the stand-in");
    symbol(at, bytes)
}

/// # Safety
///
/// `out` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(out: *mut c_int) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { out.write(VERSION.load(Ordering::SeqCst).cast_signed()) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(_code: u32) -> *const c_char {
    c"the stand-in was told to fail".as_ptr()
}

/// # Safety
///
/// `out` has room for 128 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(out: *mut [u8; 128]) -> u32 {
    if let Some(code) = fault("ncclGetUniqueId") {
        return code;
    }
    let mut id = [0xA5; 128];
    id[..8].copy_from_slice(&IDS.fetch_add(1, Ordering::SeqCst).to_le_bytes());
    // SAFETY: as the caller promises.
    unsafe { out.write(id) };
    SUCCESS
}

/// The front of `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// An id goes by value, as in C.
#[repr(C)]
struct Id([u8; 128]);

/// # Safety
///
/// `out` may be written, and `config` read.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    out: *mut *const Comm,
    size: c_int,
    id: Id,
    rank: c_int,
    config: *const Config,
) -> u32 {
    if let Some(code) = fault("ncclCommInitRankConfig") {
        return code;
    }
    // SAFETY: as the caller promises.
    let config = unsafe { &*config };
    let is_known =
        config.magic == 0xcafe_beef && config.version >= 21_400 && config.size >= size_of::<Config>();
    let (Ok(rank), Ok(size)) = (usize::try_from(rank), usize::try_from(size)) else {
        return INVALID_ARGUMENT;
    };
    if !is_known || config.blocking != 0 || rank >= size {
        return INVALID_ARGUMENT;
    }
    let group = GROUPS.lock().entry(id.0.to_vec()).or_default().clone();
    group.state.lock().joined += 1;
    let (next, is_aborted) = (AtomicU64::new(0), AtomicBool::new(false));
    let comm = Arc::new(Comm { group, rank, size, next, is_aborted });
    // SAFETY: as the caller promises.
    unsafe { out.write(Arc::into_raw(comm)) };
    IN_PROGRESS
}

/// # Safety
///
/// `comm` is a communicator that was not aborted, and `out` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(comm: *const Comm, out: *mut u32) -> u32 {
    // SAFETY: as the caller promises.
    let comm = unsafe { &*comm };
    let is_ready = comm.group.state.lock().joined >= comm.size;
    let broken = BROKEN.load(Ordering::SeqCst);
    let state = match (broken, is_ready) {
        (SUCCESS, true) => SUCCESS,
        (SUCCESS, false) => IN_PROGRESS,
        (code, _) => code,
    };
    // SAFETY: as the caller promises.
    unsafe { out.write(state) };
    SUCCESS
}

/// # Safety
///
/// `comm` is a communicator that was not aborted; the addresses are of device memory of its device, which the
/// stream is of.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    from: u64,
    into: u64,
    count: usize,
    datatype: u32,
    comm: *const Comm,
    stream: *mut c_void,
) -> u32 {
    if let Some(code) = fault("ncclAllGather") {
        return code;
    }
    if datatype != UINT64 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as the caller promises.
    unsafe { Arc::increment_strong_count(comm) };
    // SAFETY: the count that was added is this one's; the one that `ncclCommInitRankConfig` left stays.
    let comm = unsafe { Arc::from_raw(comm) };
    let number = comm.next.fetch_add(1, Ordering::SeqCst);
    let gather = Box::new(Gather { comm, number, from, into, bytes: count * size_of::<u64>() });
    type Launch = extern "C" fn(*mut c_void, extern "C" fn(*mut Gather), *mut Gather) -> u32;
    // SAFETY: the type is the driver's.
    let launch: Symbol<'_, Launch> = unsafe { DRIVER.get("cuLaunchHostFunc") }.unwrap();
    match launch(stream, exchange, Box::into_raw(gather)) {
        0 => SUCCESS,
        // `ncclUnhandledCudaError`.
        _ => 1,
    }
}

/// Waits for the other ranks, and writes what all brought.
extern "C" fn exchange(gather: *mut Gather) {
    // SAFETY: `ncclAllGather` made it for this call alone.
    let Gather { comm, number, from, into, bytes } = *unsafe { Box::from_raw(gather) };
    let source = resolve(from, bytes);
    let target = resolve(into, bytes * comm.size);
    assert!(!source.is_null() && !target.is_null(), "the memory is not a device's");
    let mut mine = vec![0; bytes];
    // SAFETY: the driver says that so many bytes are there.
    unsafe { source.copy_to_nonoverlapping(mine.as_mut_ptr(), bytes) };
    let mut state = comm.group.state.lock();
    let brought = state.exchanges.entry(number).or_insert_with(|| vec![None; comm.size]);
    brought[comm.rank] = Some(mine);
    comm.group.changed.notify_all();
    loop {
        if comm.is_aborted.load(Ordering::SeqCst) {
            return;
        }
        let brought = &state.exchanges[&number];
        if brought.iter().all(Option::is_some) {
            break;
        }
        comm.group.changed.wait(&mut state);
    }
    let all: Vec<u8> = state.exchanges[&number].iter().flatten().flatten().copied().collect();
    assert_eq!(all.len(), bytes * comm.size, "all ranks bring as many words");
    // SAFETY: the driver says that so many bytes are there.
    unsafe { target.copy_from_nonoverlapping(all.as_ptr(), all.len()) };
}

/// # Safety
///
/// `comm` is a communicator that was not aborted before.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(comm: *const Comm) -> u32 {
    // SAFETY: as the caller promises; this is the count that `ncclCommInitRankConfig` left.
    let comm = unsafe { Arc::from_raw(comm) };
    let _state = comm.group.state.lock();
    comm.is_aborted.store(true, Ordering::SeqCst);
    comm.group.changed.notify_all();
    fault("ncclCommAbort").unwrap_or(SUCCESS)
}

/// # Safety
///
/// `comm` is a communicator that was not aborted.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(comm: *const Comm) -> u32 {
    assert!(!comm.is_null());
    fault("ncclCommFinalize").unwrap_or(SUCCESS)
}

/// # Safety
///
/// `comm` was finalized, and is not used after this.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(comm: *const Comm) -> u32 {
    // SAFETY: as the caller promises; this is the count that `ncclCommInitRankConfig` left.
    drop(unsafe { Arc::from_raw(comm) });
    fault("ncclCommDestroy").unwrap_or(SUCCESS)
}

/// Makes the next call of a function return a code.
///
/// # Safety
///
/// `name` is a text that ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn standin_nccl_fail(name: *const c_char, code: u32) {
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned();
    *FAULT.lock() = Some((name, code));
}

/// Gives all communicators an error, or none.
#[unsafe(no_mangle)]
extern "C" fn standin_nccl_break(code: u32) {
    BROKEN.store(code, Ordering::SeqCst);
}

/// Sets the version.
#[unsafe(no_mangle)]
extern "C" fn standin_nccl_version(version: u32) {
    VERSION.store(version, Ordering::SeqCst);
}
