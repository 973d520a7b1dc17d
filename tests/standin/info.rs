//! What the driver reports about itself, its devices and its errors.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{INVALID_VALUE, Out, SUCCESS, put, words};
use crate::bytes::write_text;
use crate::call::{Needs, call};

const PCI_BUS_FIRST: i32 = 0x10;

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(out: Out<'_, c_int>) -> u32 {
    call("cuDriverGetVersion", Needs::Nothing, |call| put(out, call.config.driver_version))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(out: Out<'_, c_int>) -> u32 {
    call("cuDeviceGetCount", Needs::Driver, |call| {
        put(out, c_int::try_from(call.devices.len()).map_err(|_| INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(out: Out<'_, c_int>, ordinal: c_int) -> u32 {
    call("cuDeviceGet", Needs::Device(ordinal), |_| put(out, ordinal))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(out: *mut c_char, capacity: c_int, device: c_int) -> u32 {
    call("cuDeviceGetName", Needs::Device(device), |_| {
        write_text(&format!("stand-in {device}"), out, usize::try_from(capacity).map_err(|_| INVALID_VALUE)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(out: Out<'_, usize>, device: c_int) -> u32 {
    call("cuDeviceTotalMem_v2", Needs::Device(device), |call| put(out, call.config.memory_bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) -> u32 {
    call("cuMemGetInfo_v2", Needs::Context, |call| {
        put(free, call.config.memory_bytes - call.devices[call.device].used_bytes)?;
        put(total, call.config.memory_bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(out: Out<'_, [u8; 16]>, device: c_int) -> u32 {
    uuid("cuDeviceGetUuid", out, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(out: Out<'_, [u8; 16]>, device: c_int) -> u32 {
    uuid("cuDeviceGetUuid_v2", out, device)
}

fn uuid(symbol: &'static str, out: Out<'_, [u8; 16]>, device: c_int) -> u32 {
    call(symbol, Needs::Device(device), |call| {
        let mut uuid = *b"stand-in no GPU ";
        uuid[15] = u8::try_from(call.device).map_err(|_| INVALID_VALUE)?;
        put(out, uuid)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, capacity: c_int, device: c_int) -> u32 {
    call("cuDeviceGetPCIBusId", Needs::Device(device), |_| {
        let capacity =
            usize::try_from(capacity).ok().filter(|&capacity| capacity >= 13).ok_or(INVALID_VALUE)?;
        write_text(&format!("0000:{:02X}:00.0", PCI_BUS_FIRST + device), out, capacity);
        Ok(())
    })
}

/// Attributes that a data feed may query have values; the others are 0.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(out: Out<'_, c_int>, attribute: c_int, device: c_int) -> u32 {
    call("cuDeviceGetAttribute", Needs::Device(device), |call| {
        let value = match attribute {
            1 => 1024,                         // MAX_THREADS_PER_BLOCK
            2 | 3 => 1024,                     // MAX_BLOCK_DIM_X, _Y
            4 => 64,                           // MAX_BLOCK_DIM_Z
            5 => c_int::MAX,                   // MAX_GRID_DIM_X
            6 | 7 => 65535,                    // MAX_GRID_DIM_Y, _Z
            8 => 48 << 10,                     // MAX_SHARED_MEMORY_PER_BLOCK
            10 => 32,                          // WARP_SIZE
            16 => 4,                           // MULTIPROCESSOR_COUNT
            19 | 31 | 41 => 1,                 // CAN_MAP_HOST_MEMORY, CONCURRENT_KERNELS, UNIFIED_ADDRESSING
            33 => PCI_BUS_FIRST + device,      // PCI_BUS_ID
            40 => 2,                           // ASYNC_ENGINE_COUNT
            75 => call.config.capability / 10, // COMPUTE_CAPABILITY_MAJOR
            76 => call.config.capability % 10, // COMPUTE_CAPABILITY_MINOR
            78 | 99 => 1,                      // STREAM_PRIORITIES_SUPPORTED, HOST_REGISTER_SUPPORTED
            115 => call.config.pools,          // MEMORY_POOLS_SUPPORTED
            134 => -1,                         // HOST_NUMA_ID
            _ => 0,
        };
        put(out, value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(out: Out<'_, u64>, device: c_int) -> u32 {
    call("cuDeviceGetDefaultMemPool", Needs::Device(device), |call| {
        put(out, 0x5A06_0000_0000 + call.device as u64)
    })
}

/// Accepted, without effect: freed memory is free.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(_pool: u64, _attribute: c_int, _value: *const c_void) -> u32 {
    call("cuMemPoolSetAttribute", Needs::Driver, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, out: Out<'_, *const c_char>) -> u32 {
    let name = words(code).map_or(std::ptr::null(), |words| words.0.as_ptr());
    error_words("cuGetErrorName", name, out)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, out: Out<'_, *const c_char>) -> u32 {
    let string = words(code).map_or(std::ptr::null(), |words| words.1.as_ptr());
    error_words("cuGetErrorString", string, out)
}

/// Null and CUDA_ERROR_INVALID_VALUE for an unknown code, as in the driver.
fn error_words(symbol: &'static str, words: *const c_char, out: Out<'_, *const c_char>) -> u32 {
    let is_known = !words.is_null();
    let code = call(symbol, Needs::Nothing, |_| put(out, words));
    if is_known || code != SUCCESS { code } else { INVALID_VALUE.0 }
}
