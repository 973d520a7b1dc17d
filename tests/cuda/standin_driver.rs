//! The tests of the CUDA device rely on the stand-in CUDA driver. These tests show, through cudarc as the
//! feed uses it, that the driver is asynchronous, that it orders work as CUDA does, that each fault can be
//! triggered, and that each misuse is found, including four that cudarc's safe layer permits.
#![expect(unsafe_code, reason = "the driver's own level has no other")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of one level, for one reason each")]

mod capture;
mod faults;
mod misuse;
mod ptx;
mod transform;

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUevent_flags};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr as _, DevicePtrMut as _};

use crate::common::process::this_test;
use crate::standin::{Standin, alone};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_DEVICE: u32 = 101;
const INVALID_CONTEXT: u32 = 201;
const INVALID_PTX: u32 = 218;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_TIMEOUT: u32 = 702;
const MISALIGNED_ADDRESS: u32 = 716;
const UNKNOWN: u32 = 999;

const TIMED: Option<CUevent_flags> = Some(CUevent_flags::CU_EVENT_DEFAULT);

/// The code that a call fails with.
fn code<T>(result: Result<T, DriverError>) -> u32 {
    result.err().expect("a call that fails").0 as u32
}

/// Pinned memory without cudarc's event.
struct Pinned {
    context: Arc<CudaContext>,
    start: *mut u8,
    len: usize,
}

impl Pinned {
    fn new(context: &Arc<CudaContext>, bytes: &[u8]) -> Pinned {
        context.bind_to_thread().unwrap();
        // SAFETY: a context is current.
        let start = unsafe { result::malloc_host(bytes.len(), 0) }.unwrap().cast::<u8>();
        let pinned = Pinned { context: Arc::clone(context), start, len: bytes.len() };
        pinned.write(bytes);
        pinned
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes were allocated; tests that write them in flight do so to be caught.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: this many bytes were allocated.
        unsafe { bytes.as_ptr().copy_to(self.start, bytes.len()) };
    }

    fn copy_to(&self, to: u64, stream: &CudaStream) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: whether what it needs lives long enough is what the tests are about.
        unsafe { result::memcpy_htod_async(to, self.bytes(), stream.cu_stream()) }
    }

    fn copy_from(&self, from: u64, stream: &CudaStream) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start, self.len) };
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(bytes, from, stream.cu_stream()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated in `new`, and freed once.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

/// Device memory of a stream, zeroed and synchronised: no event, no guard.
fn raw(slice: &mut CudaSlice<u8>) -> u64 {
    let stream = Arc::clone(slice.stream());
    let (start, guard) = slice.device_ptr_mut(&stream);
    drop(guard);
    stream.synchronize().unwrap();
    start
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((index * 31 + seed * 7 + index / 251) % 256).unwrap()).collect()
}

/// A context and two streams of device 0.
fn two_streams() -> (Arc<CudaContext>, Arc<CudaStream>, Arc<CudaStream>) {
    let context = CudaContext::new(0).unwrap();
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    (context, first, second)
}

#[test]
fn round_trip_is_exact_on_1_2_and_8_devices() {
    let Some(standin) = alone(this_test!(), "ns_per_kib=100") else { return };
    for devices in [1, 2, 8] {
        standin.configure(&format!("devices={devices}"));
        standin.reset();
        assert_eq!(CudaContext::device_count().unwrap(), i32::try_from(devices).unwrap());
        let threads: Vec<_> =
            (0..devices).map(|device| std::thread::spawn(move || round_trips(device))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(code(CudaContext::new(devices)), INVALID_DEVICE);
        let report = standin.take_report();
        report.must_be_empty();
        assert_eq!(report.calls("cuDevicePrimaryCtxRetain"), devices as u64);
    }
}

fn round_trips(device: usize) {
    let context = CudaContext::new(device).unwrap();
    assert_eq!(context.name().unwrap(), format!("stand-in {device}"));
    let stream = context.new_stream().unwrap();
    for round in 0..20 {
        let bytes = pattern(100_003 + round, device + round);
        let pinned = Pinned::new(&context, &bytes);
        let back = Pinned::new(&context, &vec![0; bytes.len()]);
        let mut on_device = stream.alloc_zeros::<u8>(bytes.len()).unwrap();
        let mut other = stream.alloc_zeros::<u8>(bytes.len()).unwrap();
        let start = raw(&mut on_device);
        pinned.copy_to(start, &stream).unwrap();
        stream.memcpy_dtod(&on_device, &mut other).unwrap();
        back.copy_from(raw(&mut other), &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(back.bytes(), bytes);
        assert_eq!(stream.clone_dtoh(&stream.clone_htod(&bytes).unwrap()).unwrap(), bytes);
    }
}

#[test]
fn a_stream_runs_behind_its_calls_and_in_their_order() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, stream, _) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let start = raw(&mut on_device);
    let (ones, twos) = (Pinned::new(&context, &[1; 64]), Pinned::new(&context, &[2; 64]));
    let back = Pinned::new(&context, &[0; 64]);

    standin.hold(0, 0);
    ones.copy_to(start, &stream).unwrap();
    twos.copy_to(start, &stream).unwrap();
    back.copy_from(start, &stream).unwrap();
    let event = stream.record_event(None).unwrap();
    assert_eq!((standin.queued(0, 0), back.bytes()[0]), (4, 0), "nothing runs in a held stream");
    assert!(!event.try_is_complete().unwrap());
    // SAFETY: the stream is alive.
    assert_eq!(code(unsafe { sys::cuStreamQuery(stream.cu_stream()).result() }), NOT_READY);
    standin.let_go(0, 0, 3);
    while standin.queued(0, 0) > 1 {
        std::thread::yield_now();
    }
    assert!(!event.try_is_complete().unwrap(), "three may go, and the event is the fourth");
    standin.release(0, 0);
    event.synchronize().unwrap();
    assert_eq!(back.bytes(), [2; 64], "in the order of the calls");

    standin.configure("op_us=30000");
    let begin = Instant::now();
    ones.copy_to(start, &stream).unwrap();
    stream.synchronize().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(30), "an operation takes at least the configured time");
    standin.take_report().must_be_clean();
}

#[test]
fn events_are_cudas() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let (context, first, second) = two_streams();
    let never = context.new_event(None).unwrap();
    assert!(never.try_is_complete().unwrap());
    never.synchronize().unwrap();
    second.wait(&never).unwrap();
    second.synchronize().unwrap();

    // A wait refers to the record that was there when it was called, and to no later one.
    let event = context.new_event(TIMED).unwrap();
    event.record(&first).unwrap();
    first.synchronize().unwrap();
    standin.hold(0, 0);
    second.wait(&event).unwrap();
    event.record(&first).unwrap();
    second.synchronize().unwrap();
    assert!(!event.try_is_complete().unwrap(), "recorded again, and held");

    // It refers to that record even if the event is recorded elsewhere, or destroyed.
    second.wait(&event).unwrap();
    event.record(&second).unwrap();
    let late = second.record_event(TIMED).unwrap();
    drop(event);
    assert!(!late.try_is_complete().unwrap());
    standin.release(0, 0);
    late.synchronize().unwrap();

    // A stream of another device waits too; time passes between events; untimed and unrecorded ones have
    // none.
    let other = CudaContext::new(1).unwrap();
    let there = other.new_stream().unwrap();
    there.wait(&late).unwrap();
    there.synchronize().unwrap();
    context.bind_to_thread().unwrap();
    standin.configure("op_us=5000");
    let on_device = first.alloc_zeros::<u8>(16).unwrap();
    let end = first.record_event(TIMED).unwrap();
    drop(on_device);
    assert!(late.elapsed_ms(&end).unwrap() >= 5.0);
    assert_eq!(code(never.elapsed_ms(&end)), INVALID_HANDLE);
    assert_eq!(code(end.record(&there)), INVALID_CONTEXT, "cudarc's own check");
    // SAFETY: both handles are alive.
    assert_eq!(code(unsafe { result::event::record(end.cu_event(), there.cu_stream()) }), INVALID_HANDLE);
    standin.take_report().must_be_clean();
}

#[test]
fn contexts_are_checked() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    // SAFETY: no memory is touched before a call fails.
    unsafe {
        assert_eq!(code(result::malloc_host(16, 0)), 3, "before cuInit");
        result::init().unwrap();
        assert_eq!(code(result::malloc_host(16, 0)), INVALID_CONTEXT);
        assert_eq!(code(result::stream::create(result::stream::StreamKind::NonBlocking)), INVALID_CONTEXT);
        assert_eq!(code(result::ctx::synchronize()), INVALID_CONTEXT);
    }
    let (context, other) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
    let (stream, there) = (context.new_stream().unwrap(), other.new_stream().unwrap());
    let from = Pinned::new(&context, &[7; 32]);
    let mut on_other = there.alloc_zeros::<u8>(32).unwrap();
    let start = raw(&mut on_other);
    // A copy may use a stream whose context is not current; a launch may not.
    from.copy_to(start, &there).unwrap();
    there.synchronize().unwrap();
    context.bind_to_thread().unwrap();
    let (spin, mut micros) = (function("spin").unwrap(), 0_u32);
    assert_eq!(code(launch(spin, &there, &mut [(&raw mut micros).cast()])), INVALID_HANDLE);
    launch(spin, &stream, &mut [(&raw mut micros).cast()]).unwrap();
    stream.synchronize().unwrap();
    standin.take_report().must_be_clean();
    // A stream of one device and the memory of another.
    assert_eq!(code(from.copy_to(start, &stream)), INVALID_VALUE);
    standin.take_report().must_only_have("not memory of device 0");

    // Current contexts belong to threads.
    std::thread::spawn(|| assert_eq!(code(result::ctx::synchronize()), INVALID_CONTEXT)).join().unwrap();
    std::thread::spawn(move || other.synchronize().unwrap()).join().unwrap();
}

fn function(name: &str) -> Result<sys::CUfunction, DriverError> {
    // SAFETY: the stand-in does not look at the image.
    unsafe {
        let module = result::module::load_data(c"".as_ptr().cast())?;
        result::module::get_function(module, CString::new(name).unwrap())
    }
}

fn launch(
    function: sys::CUfunction,
    stream: &CudaStream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: each test passes the arguments in its kernel's signature.
    unsafe { result::launch_kernel(function, (1, 1, 1), (32, 1, 1), 0, stream.cu_stream(), arguments) }
}

/// `add_one(from: &[u8], to: &mut [u8], len: u32)`, in device memory.
unsafe extern "C" fn add_one(arguments: *const *const c_void, _dims: *const u32) {
    let standin = Standin::open();
    // SAFETY: its signature is `r,w,4`.
    let (from, to, len) = unsafe {
        let arguments = std::slice::from_raw_parts(arguments, 3);
        (*arguments[0].cast::<u64>(), *arguments[1].cast::<u64>(), *arguments[2].cast::<u32>() as usize)
    };
    let (from, to) = (standin.resolve(from, len), standin.resolve(to, len));
    for index in 0..len {
        // SAFETY: both addresses were resolved for this many bytes.
        unsafe { to.add(index).write(from.add(index).read() + 1) };
    }
}

#[test]
fn kernels_run_in_their_stream() {
    let Some(standin) = alone(this_test!(), "") else { return };
    // SAFETY: the signature is what `add_one` reads.
    unsafe { standin.register_kernel("add_one", "r,w,4", add_one) };
    let (_context, stream, second) = two_streams();
    assert_eq!(code(function("unheard_of")), NOT_FOUND);
    let kernel = function("add_one").unwrap();
    let (mut from, mut to) =
        (stream.clone_htod(&[5_u8; 100]).unwrap(), stream.alloc_zeros::<u8>(100).unwrap());
    let (mut from, mut to_start, mut len) = (raw(&mut from), raw(&mut to), 100_u32);
    let mut arguments: [*mut c_void; 3] =
        [(&raw mut from).cast(), (&raw mut to_start).cast(), (&raw mut len).cast()];
    launch(kernel, &stream, &mut arguments).unwrap();
    len = 0;
    assert_eq!(stream.clone_dtoh(&to).unwrap(), [6; 100], "arguments are taken at the launch");
    assert_eq!(len, 0);

    let begin = Instant::now();
    let mut micros = 20_000_u32;
    launch(function("spin").unwrap(), &stream, &mut [(&raw mut micros).cast()]).unwrap();
    stream.synchronize().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(20));
    standin.take_report().must_be_clean();

    // The signature says what a kernel reads and writes.
    standin.hold(0, 0);
    launch(kernel, &stream, &mut arguments).unwrap();
    launch(kernel, &second, &mut arguments).unwrap();
    standin.release(0, 0);
    standin.take_report().must_only_have("race: cuLaunchKernel on stream 1 of device 0 writes");
}

#[test]
fn pageable_memory_is_copied_before_the_call_returns_or_staged() {
    let Some(standin) = alone(this_test!(), "op_us=10000") else { return };
    let (_context, stream, _) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let start = raw(&mut on_device);
    let mut bytes = vec![3_u8; 64];
    let copy = |bytes: &[u8]| {
        // SAFETY: the memory is pageable: the call does not keep it.
        unsafe { result::memcpy_htod_async(start, bytes, stream.cu_stream()) }.unwrap();
    };
    copy(&bytes);
    assert_eq!(standin.queued(0, 0), 0, "done");
    standin.configure("pageable=staged");
    standin.hold(0, 0);
    copy(&bytes);
    assert_eq!(standin.queued(0, 0), 1, "not done");
    bytes.fill(4);
    standin.release(0, 0);
    assert_eq!(stream.clone_dtoh(&on_device).unwrap(), [3; 64]);
    standin.take_report().must_be_clean();

    // Registered memory is pinned.
    bytes.fill(5);
    standin.hold(0, 0);
    // SAFETY: `bytes` lives until it is unregistered.
    unsafe { sys::cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0).result() }.unwrap();
    // SAFETY: as above.
    let twice = unsafe { sys::cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0).result() };
    assert_eq!(code(twice), 712);
    copy(&bytes);
    bytes.fill(6);
    standin.release(0, 0);
    stream.synchronize().unwrap();
    standin.take_report().must_only_have("changed in flight");
    // SAFETY: nothing uses it any more.
    unsafe { sys::cuMemHostUnregister(bytes.as_mut_ptr().cast()).result() }.unwrap();
    // SAFETY: the address is only looked up.
    let twice = unsafe { sys::cuMemHostUnregister(bytes.as_mut_ptr().cast()).result() };
    assert_eq!(code(twice), 713);
}

unsafe extern "C" fn count(at: *mut c_void) {
    // SAFETY: the test passes a counter that outlives the stream's work.
    unsafe { &*at.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_order_and_let_the_host_know() {
    let Some(standin) = alone(this_test!(), "") else { return };
    static CALLED: AtomicU32 = AtomicU32::new(0);
    let (context, stream, _) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let (start, pinned) = (raw(&mut on_device), Pinned::new(&context, &[1; 64]));
    let call = || {
        let counter = (&raw const CALLED).cast_mut().cast();
        // SAFETY: a static lives long enough.
        unsafe { result::stream::launch_host_function(stream.cu_stream(), count, counter) }.unwrap();
    };
    standin.hold(0, 0);
    pinned.copy_to(start, &stream).unwrap();
    call();
    assert_eq!(CALLED.load(Ordering::SeqCst), 0);
    standin.release(0, 0);
    while CALLED.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // The copy was before the function, so its buffer is free, although nobody synchronised.
    drop(pinned);
    standin.take_report().must_be_clean();

    // No function is called in a context with an error.
    standin.fail("async", 1, None, ILLEGAL_ADDRESS);
    stream.memset_zeros(&mut on_device).unwrap();
    call_unless_broken(&stream);
    assert_eq!(code(stream.synchronize()), ILLEGAL_ADDRESS);
    assert_eq!(CALLED.load(Ordering::SeqCst), 1);
}

fn call_unless_broken(stream: &CudaStream) {
    static UNUSED: AtomicU32 = AtomicU32::new(0);
    let counter = (&raw const UNUSED).cast_mut().cast();
    // SAFETY: a static lives long enough.
    let _ = unsafe { result::stream::launch_host_function(stream.cu_stream(), count, counter) };
    assert_eq!(UNUSED.load(Ordering::SeqCst), 0);
}

#[test]
fn leaks_and_calls_are_counted() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, stream, _) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(4096).unwrap();
    let (start, pinned) = (raw(&mut on_device), Pinned::new(&context, &[1; 4096]));
    let event = context.new_event(None).unwrap();
    standin.take_report().must_be_clean();
    for _ in 0..10 {
        pinned.copy_to(start, &stream).unwrap();
        event.record(&stream).unwrap();
        event.synchronize().unwrap();
    }
    let report = standin.take_report();
    report.must_be_clean();
    assert_eq!((report.calls("cuMemcpyHtoDAsync_v2"), report.calls("cuEventRecord")), (10, 10));
    let never = ["cuMemAlloc", "cuMemHostAlloc", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventCreate"];
    assert!(never.iter().all(|symbol| report.calls_of(symbol) == 0), "{}", report.text);
    assert_eq!((report.live("pinned_bytes"), report.live("device_bytes")), (4096, 4096));
    std::mem::forget(pinned);
    drop((on_device, event));
    let report = standin.take_report();
    assert_eq!(
        (report.live("pinned_buffers"), report.live("device_buffers"), report.live("events")),
        (1, 0, 0)
    );
}

/// cudarc looks symbols up when they are first called, and panics if one is missing.
#[test]
fn no_symbol_is_missing() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    // SAFETY: it only looks for the library.
    assert!(unsafe { sys::is_culib_present() });
    let context = CudaContext::new(1).unwrap();
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
    assert_eq!(context.attribute(attribute).unwrap(), 17);
    assert_eq!(context.compute_capability().unwrap(), (9, 0));
    assert_eq!(context.total_mem().unwrap(), 256 << 20);
    assert!(context.uuid().is_ok() && context.has_async_alloc());
    context.set_blocking_synchronize().unwrap();
    let (least, greatest) = result::stream::get_priority_range().unwrap();
    assert!(greatest < least);
    let stream = context.new_stream_with_priority(greatest).unwrap();
    let forked = stream.fork().unwrap();
    stream.join(&forked).unwrap();
    for stream in [context.default_stream(), context.per_thread_stream()] {
        stream.clone_dtoh(&stream.clone_htod(&[1_u8; 8]).unwrap()).unwrap();
        stream.synchronize().unwrap();
    }
    // SAFETY: every pointer has the type that the call takes, and is valid.
    unsafe {
        let (mut version, mut name) = (0, [0_u8; 16]);
        sys::cuDriverGetVersion(&raw mut version).result().unwrap();
        sys::cuDeviceGetPCIBusId(name.as_mut_ptr().cast(), 16, 1).result().unwrap();
        assert_eq!((version, &name[..12]), (12080, b"0000:11:00.0".as_slice()));
        let on_device = result::malloc_sync(64).unwrap();
        let (mut kind, mut base, mut len) = (0_u32, 0, 0);
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, on_device + 3).result().unwrap();
        sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut len, on_device + 3).result().unwrap();
        assert_eq!((kind, base, len), (2, on_device, 64));
        result::memcpy_htod_sync(on_device, &[9_u8; 64]).unwrap();
        result::memset_d8_sync(on_device, 1, 32).unwrap();
        result::memcpy_dtod_sync(on_device + 32, on_device, 16).unwrap();
        let mut back = [0_u8; 64];
        result::memcpy_dtoh_sync(&mut back, on_device).unwrap();
        assert_eq!((back[31], back[47], back[48]), (1, 1, 9));
        result::free_sync(on_device).unwrap();
        let mut pool = std::ptr::null_mut();
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, 1).result().unwrap();
        let module = result::module::load_data(c"".as_ptr().cast()).unwrap();
        result::module::unload(module).unwrap();
        result::primary_ctx::retain(0).unwrap();
        sys::cuDevicePrimaryCtxReset_v2(0).result().unwrap();
        result::primary_ctx::release(0).unwrap();
    }
    let error = DriverError(sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(format!("{error:?} {error}").contains("stand-in"));
    drop((stream, forked));
    context.synchronize().unwrap();
    drop(context);
    let report = standin.take_report();
    report.must_be_empty();
    assert!(report.text.starts_with("stand-in"));
}
