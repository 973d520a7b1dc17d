//! What the driver reports about an address.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::abi::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::call::{Call, Needs, call};
use crate::memory::{Found, Owner};
use crate::world::World;

/// The value of an attribute, and how many of its bytes C gets.
fn value(call: &mut Call, attribute: c_int, at: u64) -> Answer<(u64, usize)> {
    let symbol = call.symbol;
    let Found::Inside { start, range } = call.find(at, 0, symbol)? else { return Err(INVALID_VALUE) };
    let buffer = &call.buffers[&start];
    let is_device = buffer.owner == Owner::Device;
    Ok(match attribute {
        1 => (World::context_handle(buffer.device), 8), // CONTEXT
        2 => (if is_device { 2 } else { 1 }, 4),        // MEMORY_TYPE
        // The host's pointer is also the device's: addresses are unified.
        3 => (start + range.start as u64, 8), // DEVICE_POINTER
        4 if !is_device => (at, 8),           // HOST_POINTER
        8 => (0, 4),                          // IS_MANAGED
        9 => (buffer.device as u64, 4),       // DEVICE_ORDINAL
        11 => (start, 8),                     // RANGE_START_ADDR
        12 => (buffer.len as u64, 8),         // RANGE_SIZE
        _ => return Err(NOT_FOUND),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(out: *mut MaybeUninit<u8>, attribute: c_int, at: u64) -> u32 {
    call("cuPointerGetAttribute", Needs::Context, |call| {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let (value, len) = value(call, attribute, at)?;
        for (index, byte) in value.to_le_bytes().into_iter().take(len).enumerate() {
            // SAFETY: C passes room for the attribute, which takes `len` bytes. CUDA's hosts are
            // little-endian: the bytes of a 4-byte value come first.
            unsafe { out.wrapping_add(index).write(MaybeUninit::new(byte)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(
    base: crate::abi::Out<'_, u64>,
    len: crate::abi::Out<'_, usize>,
    at: u64,
) -> u32 {
    call("cuMemGetAddressRange_v2", Needs::Context, |call| {
        let symbol = call.symbol;
        let Found::Inside { start, .. } = call.find(at, 0, symbol)? else { return Err(NOT_FOUND) };
        // Either may be null.
        if let Some(base) = base {
            base.write(start);
        }
        if let Some(len) = len {
            len.write(call.buffers[&start].len);
        }
        Ok(())
    })
}
