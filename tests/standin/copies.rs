//! Copies and fills.

use std::sync::Arc;

use crate::abi::{Answer, Handle, INVALID_VALUE, OUT_OF_MEMORY};
use crate::bytes::Storage;
use crate::call::{Call, Needs, call};
use crate::clocks::Use;
use crate::config::Pageable;
use crate::memory::{Found, Owner};
use crate::streams::{Operation, Place, Work};

/// The null stream, which the calls without a stream use.
const NULL: Handle = 0;

/// The host's side of a copy.
struct HostSide {
    place: Place,
    /// None for memory that the driver does not know.
    used: Option<Use>,
}

impl Call {
    fn host_side(&mut self, address: usize, len: usize, writes: bool) -> Answer<HostSide> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        let symbol = self.symbol;
        match self.find(address as u64, len, symbol)? {
            Found::Inside { start, range } => {
                let buffer = &self.buffers[&start];
                if buffer.owner == Owner::Device {
                    self.ledger.violation(format!("not host memory: {symbol} of {address:#x}"));
                    return Err(INVALID_VALUE);
                }
                let place = Place { storage: Arc::clone(&buffer.storage), offset: range.start };
                Ok(HostSide { place, used: Some(Use { buffer: start, range, writes }) })
            }
            Found::Nothing => {
                let storage = Arc::new(Storage::foreign(address, len));
                Ok(HostSide { place: Place { storage, offset: 0 }, used: None })
            }
        }
    }

    fn device_side(&mut self, stream: Handle, at: u64, len: usize, writes: bool) -> Answer<(Place, Use)> {
        let (symbol, device) = (self.symbol, self.streams[&stream].device);
        let (start, range) = self.find_on(device, at, len, symbol)?;
        let place = Place { storage: Arc::clone(&self.buffers[&start].storage), offset: range.start };
        Ok((place, Use { buffer: start, range, writes }))
    }

    /// A checksum of pinned memory, to notice changes before it is read. `None` if an operation or a host
    /// function that was submitted before may legitimately change it.
    fn checksum(&self, host: &HostSide, len: usize) -> Option<u64> {
        let used = host.used.as_ref().filter(|_| self.config.checksums)?;
        let host_functions = self
            .streams
            .iter()
            .any(|(_, stream)| stream.queue.iter().any(|queued| matches!(queued.work, Work::Host { .. })));
        if host_functions || self.is_being_written(used.buffer, &used.range) {
            return None;
        }
        Some(host.place.storage.checksum(host.place.offset, len))
    }

    fn host_to_device(&mut self, to: u64, from: usize, len: usize, stream: Handle, waits: bool) -> Answer {
        let stream = self.working_stream(stream)?;
        if len == 0 {
            return Ok(());
        }
        let mut host = self.host_side(from, len, false)?;
        let (to, used) = self.device_side(stream, to, len, true)?;
        let mut waits = waits;
        if host.used.is_none() && !waits {
            match self.config.pageable {
                Pageable::Sync => waits = true,
                Pageable::Staged => {
                    host.place.storage = Arc::new(host.place.storage.staged(len).ok_or(OUT_OF_MEMORY)?);
                }
            }
        }
        let checksum = self.checksum(&host, len);
        let work = Work::Copy { from: host.place, to, checksum };
        self.submit_copy(stream, host.used.into_iter().chain([used]).collect(), len, work, waits)
    }

    fn device_to_host(&mut self, to: usize, from: u64, len: usize, stream: Handle, waits: bool) -> Answer {
        let stream = self.working_stream(stream)?;
        if len == 0 {
            return Ok(());
        }
        let host = self.host_side(to, len, true)?;
        let (from, used) = self.device_side(stream, from, len, false)?;
        let waits = waits || host.used.is_none();
        let work = Work::Copy { from, to: host.place, checksum: None };
        self.submit_copy(stream, host.used.into_iter().chain([used]).collect(), len, work, waits)
    }

    fn on_device(&mut self, to: u64, from: u64, len: usize, stream: Handle, waits: bool) -> Answer {
        let stream = self.working_stream(stream)?;
        if len == 0 {
            return Ok(());
        }
        let (from, read) = self.device_side(stream, from, len, false)?;
        let (to, written) = self.device_side(stream, to, len, true)?;
        let work = Work::Copy { from, to, checksum: None };
        self.submit_copy(stream, vec![read, written], len, work, waits)
    }

    fn fill(&mut self, to: u64, value: u8, len: usize, stream: Handle, waits: bool) -> Answer {
        let stream = self.working_stream(stream)?;
        if len == 0 {
            return Ok(());
        }
        let (to, used) = self.device_side(stream, to, len, true)?;
        self.submit_copy(stream, vec![used], len, Work::Fill { to, value }, waits)
    }

    fn submit_copy(&mut self, stream: Handle, uses: Vec<Use>, len: usize, work: Work, waits: bool) -> Answer {
        let symbol = self.symbol;
        let seq = self.order(stream, symbol, &uses);
        self.enqueue(stream, Operation { symbol, seq, bytes: len, work });
        if waits && !self.is_capturing(stream) { self.synchronize(stream) } else { Ok(()) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, len: usize, stream: Handle) -> u32 {
    call("cuMemcpyHtoDAsync_v2", Needs::Context, |call| call.host_to_device(to, from, len, stream, false))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: usize, len: usize) -> u32 {
    call("cuMemcpyHtoD_v2", Needs::Context, |call| call.host_to_device(to, from, len, NULL, true))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, len: usize, stream: Handle) -> u32 {
    call("cuMemcpyDtoHAsync_v2", Needs::Context, |call| call.device_to_host(to, from, len, stream, false))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: usize, from: u64, len: usize) -> u32 {
    call("cuMemcpyDtoH_v2", Needs::Context, |call| call.device_to_host(to, from, len, NULL, true))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: Handle) -> u32 {
    call("cuMemcpyDtoDAsync_v2", Needs::Context, |call| call.on_device(to, from, len, stream, false))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, len: usize) -> u32 {
    call("cuMemcpyDtoD_v2", Needs::Context, |call| call.on_device(to, from, len, NULL, true))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, len: usize, stream: Handle) -> u32 {
    call("cuMemsetD8Async", Needs::Context, |call| call.fill(to, value, len, stream, false))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: u64, value: u8, len: usize) -> u32 {
    call("cuMemsetD8_v2", Needs::Context, |call| call.fill(to, value, len, NULL, true))
}
