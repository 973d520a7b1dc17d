//! Device buffers and pinned buffers: the table of which address belongs to whom, and the symbols that
//! allocate and free.

use std::ops::Range;
use std::sync::Arc;

use crate::abi::{
    ALREADY_REGISTERED, Answer, Code, Handle, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY, Out, put,
};
use crate::bytes::Storage;
use crate::call::{Call, Needs, call};
use crate::clocks::{Access, Use};
use crate::ledger::Living;
use crate::streams::Work;
use crate::world::World;

/// Device addresses begin here: no process on x86-64 or AArch64 has memory there, so that reading one faults.
const DEVICE_BASE: u64 = 0x00D0_0000_0000_0000;
/// The address space of a device: 16 TiB.
const DEVICE_SHIFT: u32 = 44;
/// The alignment of cuMemAlloc, and the gap between two buffers, so that an overrun hits none.
const ALIGNMENT: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Device,
    /// cuMemHostAlloc.
    Pinned,
    /// Memory of the test, which registered it.
    Registered,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) owner: Owner,
    /// The device it is on, or in whose context it was pinned.
    pub(crate) device: usize,
    pub(crate) len: usize,
    pub(crate) storage: Arc<Storage>,
    /// Uses that the host has not seen end.
    pub(crate) accesses: Vec<Access>,
}

/// A buffer that was freed.
#[derive(Debug)]
pub(crate) struct Dead {
    len: usize,
    words: String,
}

impl Buffer {
    fn new(owner: Owner, device: usize, len: usize, storage: Storage) -> Buffer {
        Buffer { owner, device, len, storage: Arc::new(storage), accesses: Vec::new() }
    }

    pub(crate) fn count(&self, living: &mut Living) {
        match self.owner {
            Owner::Device => {
                living.device_buffers += 1;
                living.device_bytes += self.len;
            }
            Owner::Pinned => {
                living.pinned_buffers += 1;
                living.pinned_bytes += self.len;
            }
            Owner::Registered => living.registered_buffers += 1,
        }
    }
}

/// What an address belongs to.
pub(crate) enum Found {
    /// A range wholly inside the buffer that begins at `start`.
    Inside { start: u64, range: Range<usize> },
    /// Memory that is not the driver's.
    Nothing,
}

impl World {
    pub(crate) fn buffer_name(&self, start: u64) -> String {
        let Some(buffer) = self.buffers.get(&start) else { return format!("the buffer {start:#x}") };
        let what = match buffer.owner {
            Owner::Device => "device",
            Owner::Pinned => "pinned",
            Owner::Registered => "registered",
        };
        format!("the {what} buffer {start:#x} ({} bytes, device {})", buffer.len, buffer.device)
    }

    /// Finds the range that a call names. One that leaves its buffer, or is in a freed one, is a violation
    /// and an error.
    pub(crate) fn find(&mut self, at: u64, len: usize, symbol: &str) -> Answer<Found> {
        let end = u64::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(INVALID_VALUE)?;
        if let Some((&start, buffer)) = self.buffers.range(..=at).next_back() {
            let offset = usize::try_from(at - start).unwrap_or(usize::MAX);
            if offset < buffer.len {
                if offset + len <= buffer.len {
                    return Ok(Found::Inside { start, range: offset..offset + len });
                }
                let words =
                    format!("out of range: {symbol} of {at:#x}..{end:#x} in {}", self.buffer_name(start));
                self.ledger.violation(words);
                return Err(INVALID_VALUE);
            }
        }
        if let Some((start, dead)) = self.dead.range(..=at).next_back()
            && at - start < dead.len as u64
        {
            self.ledger.violation(format!("use after free: {symbol} of {at:#x} in {}", dead.words));
            return Err(INVALID_VALUE);
        }
        Ok(Found::Nothing)
    }

    /// [`World::find`] in the memory of a device: anything else is a violation and an error.
    pub(crate) fn find_on(
        &mut self,
        device: usize,
        at: u64,
        len: usize,
        symbol: &str,
    ) -> Answer<(u64, Range<usize>)> {
        if let Found::Inside { start, range } = self.find(at, len, symbol)? {
            let buffer = &self.buffers[&start];
            if buffer.owner == Owner::Device && buffer.device == device {
                return Ok((start, range));
            }
        }
        self.ledger.violation(format!("not memory of device {device}: {symbol} of {at:#x}"));
        Err(INVALID_VALUE)
    }

    fn allocate(&mut self, device: usize, len: usize) -> Answer<u64> {
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        let used = self.devices[device].used_bytes.checked_add(len).ok_or(OUT_OF_MEMORY)?;
        if used > self.config.memory_bytes {
            return Err(OUT_OF_MEMORY);
        }
        let storage = Storage::owned(len).ok_or(OUT_OF_MEMORY)?;
        let entry = &mut self.devices[device];
        entry.used_bytes = used;
        let start = DEVICE_BASE + ((device as u64) << DEVICE_SHIFT) + entry.next_offset;
        entry.next_offset += (len as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        assert!(entry.next_offset < 1 << DEVICE_SHIFT, "out of addresses: reset the stand-in between tests");
        self.buffers.insert(start, Buffer::new(Owner::Device, device, len, storage));
        Ok(start)
    }

    /// Removes a buffer from the table; operations in flight keep its memory.
    pub(crate) fn remove(&mut self, start: u64) -> Option<Buffer> {
        let words = self.buffer_name(start);
        let buffer = self.buffers.remove(&start)?;
        match buffer.owner {
            Owner::Device => self.devices[buffer.device].used_bytes -= buffer.len,
            Owner::Pinned => self.pinned_bytes -= buffer.len,
            Owner::Registered => buffer.storage.revoke(),
        }
        // Addresses of devices and of pinned memory are never reused; registered memory is the test's.
        if buffer.owner != Owner::Registered {
            self.dead.insert(start, Dead { len: buffer.len, words });
        }
        Some(buffer)
    }

    /// Checks that a buffer begins at `start`, for a call that frees it.
    fn check_free(&mut self, start: u64, owner: Owner, symbol: &str, otherwise: Code) -> Answer {
        if self.buffers.get(&start).is_some_and(|buffer| buffer.owner == owner) {
            return Ok(());
        }
        let words = match self.dead.get(&start) {
            Some(dead) => format!("freed twice: {symbol} of {}", dead.words),
            None => format!("not a buffer to free: {symbol} of {start:#x}"),
        };
        self.ledger.violation(words);
        Err(otherwise)
    }
}

impl Call {
    fn free_at_once(&mut self, start: u64, owner: Owner, otherwise: Code) -> Answer {
        let symbol = self.symbol;
        if start == 0 {
            return Err(INVALID_VALUE);
        }
        self.check_free(start, owner, symbol, otherwise)?;
        self.freed_by_host(start, symbol);
        self.remove(start);
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(out: Out<'_, u64>, len: usize) -> u32 {
    call("cuMemAlloc_v2", Needs::Context, |call| {
        let device = call.device;
        let start = call.allocate(device, len)?;
        put(out, start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(start: u64) -> u32 {
    call("cuMemFree_v2", Needs::Release, |call| call.free_at_once(start, Owner::Device, INVALID_VALUE))
}

/// It cannot be part of a graph here. The memory exists at once, but ordered uses of it must come after its
/// place in the stream.
#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(out: Out<'_, u64>, len: usize, stream: Handle) -> u32 {
    call("cuMemAllocAsync", Needs::Context, |call| {
        let stream = call.working_stream(stream)?;
        call.must_run(stream)?;
        let device = call.streams[&stream].device;
        let start = call.allocate(device, len)?;
        let symbol = call.symbol;
        call.submit(stream, symbol, &[Use { buffer: start, range: 0..len, writes: true }], 0, Work::Mark);
        put(out, start)
    })
}

/// It cannot be part of a graph here. The memory counts as free at once, because a pool lends it again in the
/// order of the stream; a later call that uses it uses it after it was freed, whatever the order.
#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(start: u64, stream: Handle) -> u32 {
    call("cuMemFreeAsync", Needs::Release, |call| {
        let stream = call.any_stream(stream)?;
        call.must_run(stream)?;
        let symbol = call.symbol;
        call.check_free(start, Owner::Device, symbol, INVALID_VALUE)?;
        let len = call.buffers[&start].len;
        call.submit(stream, symbol, &[Use { buffer: start, range: 0..len, writes: true }], 0, Work::Mark);
        call.remove(start);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(out: Out<'_, u64>, len: usize, flags: u32) -> u32 {
    call("cuMemHostAlloc", Needs::Context, |call| {
        if len == 0 || flags > 7 {
            return Err(INVALID_VALUE);
        }
        let pinned = call.pinned_bytes.checked_add(len).filter(|&pinned| pinned <= call.config.pinned_bytes);
        let pinned = pinned.ok_or(OUT_OF_MEMORY)?;
        let storage = Storage::pages(len).ok_or(OUT_OF_MEMORY)?;
        let (start, device) = (storage.start() as u64, call.device);
        call.pinned_bytes = pinned;
        call.buffers.insert(start, Buffer::new(Owner::Pinned, device, len, storage));
        put(out, start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(start: u64) -> u32 {
    call("cuMemFreeHost", Needs::Release, |call| call.free_at_once(start, Owner::Pinned, INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(start: u64, len: usize, _flags: u32) -> u32 {
    call("cuMemHostRegister_v2", Needs::Context, |call| {
        if start == 0 || len == 0 {
            return Err(INVALID_VALUE);
        }
        let end = start.checked_add(len as u64).ok_or(INVALID_VALUE)?;
        let before = call.buffers.range(..end).next_back();
        if before.is_some_and(|(&other, buffer)| other + buffer.len as u64 > start) {
            return Err(ALREADY_REGISTERED);
        }
        let address = usize::try_from(start).map_err(|_| INVALID_VALUE)?;
        let buffer = Buffer::new(Owner::Registered, call.device, len, Storage::foreign(address, len));
        call.buffers.insert(start, buffer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(start: u64) -> u32 {
    call("cuMemHostUnregister", Needs::Release, |call| {
        call.free_at_once(start, Owner::Registered, NOT_REGISTERED)
    })
}
