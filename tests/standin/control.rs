//! The symbols by which a test controls the stand-in. The real driver has none of them, and none counts as a
//! call.

use std::ffi::{c_char, c_void};

use crate::abi::Code;
use crate::bytes::{text, write_text};
use crate::config::Config;
use crate::kernels::{Body, Kernel, signature};
use crate::memory::{Found, Owner};
use crate::world::{DONE, World, lock, wait};

const DONE_WELL: i32 = 0;
const REFUSED: i32 = -1;

/// Changes the settings in lines of `key=value`. `devices` takes effect at the next reset, everything else at
/// once.
#[unsafe(no_mangle)]
extern "C" fn standin_configure(lines: *const c_char) -> i32 {
    let Some(lines) = text(lines) else { return REFUSED };
    match lock().config.read(&lines) {
        Ok(()) => DONE_WELL,
        Err(_) => REFUSED,
    }
}

/// Ends every stream with everything queued on it, and forgets everything but the configuration. Every handle
/// and address is invalid from then on. With `defaults`, the initial configuration is restored.
#[unsafe(no_mangle)]
extern "C" fn standin_reset(defaults: bool) {
    let mut world = lock();
    world.held.clear();
    for stream in world.streams.values_mut() {
        stream.queue.clear();
        stream.abandoned = true;
        stream.changed.notify_all();
    }
    DONE.notify_all();
    while world.workers > 0 {
        world = wait(&DONE, world);
    }
    let config = if defaults { Config::from_environment() } else { world.config.clone() };
    let handles = world.next_handle();
    *world = World::new(config);
    world.continue_handles(handles);
    DONE.notify_all();
}

/// Orders a fault: the `nth` call from now (1 is the next) of a symbol, on a device or (-1) on any, returns
/// `code`; with `for_ever`, so does every later one. A call's device is the one that it names, or that of the
/// current context.
///
/// `*` stands for every symbol but the two that name errors. `async` stands for any operation of a device
/// when it is carried out, and `async:SYMBOL` for those that the symbol submitted: `code` is then the
/// device's sticky error.
#[unsafe(no_mangle)]
extern "C" fn standin_fail(symbol: *const c_char, nth: u64, device: i32, code: u32, for_ever: bool) -> i32 {
    let Some(symbol) = text(symbol).filter(|_| code != 0) else { return REFUSED };
    lock().faults.order(symbol, nth, usize::try_from(device).ok(), Code(code), for_ever);
    DONE_WELL
}

/// Takes a device off the bus: every call that concerns it returns `code`, until a reset of the stand-in.
#[unsafe(no_mangle)]
extern "C" fn standin_lose(device: i32, code: u32) -> i32 {
    let mut world = lock();
    let Ok(device) = world.device(device) else { return REFUSED };
    world.devices[device].lost = Some(Code(code));
    DONE.notify_all();
    DONE_WELL
}

/// Holds a stream, existing or future, named by its device and its place in the order of creation there (-1:
/// the null stream, -2: every per-thread stream): its operations wait. `may_go` of them may still begin.
#[unsafe(no_mangle)]
extern "C" fn standin_hold_stream(device: u32, place: i32, may_go: u64) {
    let mut world = lock();
    world.held.insert((device as usize, place), may_go);
    wake(&world);
}

#[unsafe(no_mangle)]
extern "C" fn standin_release_stream(device: u32, place: i32) {
    let mut world = lock();
    world.held.remove(&(device as usize, place));
    wake(&world);
}

fn wake(world: &World) {
    for stream in world.streams.values() {
        stream.changed.notify_all();
    }
}

/// The number of operations of a stream that have not ended.
#[unsafe(no_mangle)]
extern "C" fn standin_operations_queued(device: u32, place: i32) -> u64 {
    let world = lock();
    let streams = world.streams.iter();
    let of_place = streams.filter(|(_, stream)| (stream.device, stream.place) == (device as usize, place));
    of_place.map(|(id, stream)| stream.last - world.progress.get(id).copied().unwrap_or(stream.last)).sum()
}

/// Writes the report and, if it fits into `capacity` bytes with its NUL, begins a new one. Returns its length
/// with the NUL.
#[unsafe(no_mangle)]
extern "C" fn standin_take_report(out: *mut c_char, capacity: usize) -> usize {
    let mut world = lock();
    let report = world.ledger.report(&world.living());
    let needed = report.len() + 1;
    if needed <= capacity && !out.is_null() {
        write_text(&report, out, capacity);
        world.ledger.clear();
    }
    needed
}

/// Registers a kernel under a name, with its signature: one word a parameter, separated by commas; `r` and
/// `w` for the address of device memory that it reads or writes, and a number for a value of that many bytes.
#[unsafe(no_mangle)]
extern "C" fn standin_register_kernel(
    name: *const c_char,
    parameters: *const c_char,
    body: Option<Body>,
) -> i32 {
    let parameters = text(parameters).and_then(|text| signature(&text));
    let (Some(name), Some(parameters), Some(body)) = (text(name), parameters, body) else { return REFUSED };
    lock().kernels.insert(name, Kernel { body, parameters });
    DONE_WELL
}

/// The address in this process of device memory, for a kernel; null if the range is not inside one buffer.
#[unsafe(no_mangle)]
extern "C" fn standin_resolve(at: u64, len: usize) -> *mut c_void {
    let mut world = lock();
    match world.find(at, len, "a kernel's access") {
        Ok(Found::Inside { start, range }) if world.buffers[&start].owner == Owner::Device => {
            (world.buffers[&start].storage.start() + range.start) as *mut c_void
        }
        _ => std::ptr::null_mut(),
    }
}
