//! The driver's initialisation, and the primary contexts of devices.

use std::cell::RefCell;
use std::time::Duration;

use crate::abi::{Answer, Handle, INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, Out, put};
use crate::call::{CURRENT, Needs, call};
use crate::ending::{self, Inside};
use crate::memory::Owner;
use crate::world::World;

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    call("cuInit", Needs::Nothing, |call| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if call.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        ending::watch();
        call.initialised = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(out: Out<'_, Handle>, ordinal: i32) -> u32 {
    call("cuDevicePrimaryCtxRetain", Needs::Device(ordinal), |call| {
        let device = call.device;
        call.devices[device].retained += 1;
        put(out, World::context_handle(device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(ordinal: i32) -> u32 {
    let _inside = Inside::new();
    let mut takes = Duration::ZERO;
    let answer = call("cuDevicePrimaryCtxRelease_v2", Needs::ReleaseOf(ordinal), |call| {
        takes = call.config.release;
        let device = call.device;
        call.release(device)
    });
    std::thread::sleep(takes);
    answer
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(ordinal: i32) -> u32 {
    call("cuDevicePrimaryCtxReset_v2", Needs::Device(ordinal), |call| {
        let device = call.device;
        call.destroy_context(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(ordinal: i32, flags: Out<'_, u32>, active: Out<'_, i32>) -> u32 {
    call("cuDevicePrimaryCtxGetState", Needs::Device(ordinal), |call| {
        put(flags, 0)?;
        put(active, i32::from(call.devices[call.device].retained > 0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(out: Out<'_, Handle>) -> u32 {
    call("cuCtxGetCurrent", Needs::Driver, |_| put(out, CURRENT.get()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    call("cuCtxSetCurrent", Needs::Driver, |call| {
        if context != 0 {
            let device = call.device_of_context(context).ok_or(INVALID_CONTEXT)?;
            if call.devices[device].retained == 0 {
                call.ledger
                    .violation(String::from("use after destroy: cuCtxSetCurrent to a destroyed context"));
                return Err(INVALID_CONTEXT);
            }
        }
        CURRENT.set(context);
        Ok(())
    })
}

thread_local! {
    /// The contexts of this thread below the current one.
    static BELOW: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> u32 {
    call("cuCtxPushCurrent_v2", Needs::Driver, |call| {
        let device = call.device_of_context(context).ok_or(INVALID_CONTEXT)?;
        if call.devices[device].retained == 0 {
            call.ledger.violation(String::from("use after destroy: cuCtxPushCurrent of a destroyed context"));
            return Err(INVALID_CONTEXT);
        }
        BELOW.with_borrow_mut(|below| below.push(CURRENT.get()));
        CURRENT.set(context);
        Ok(())
    })
}

/// The context below becomes current unchecked: one that was destroyed meanwhile is detected when it is used.
#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(out: Out<'_, Handle>) -> u32 {
    call("cuCtxPopCurrent_v2", Needs::Driver, |_| {
        put(out, CURRENT.get())?;
        CURRENT.set(BELOW.with_borrow_mut(Vec::pop).unwrap_or(0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(out: Out<'_, i32>) -> u32 {
    call("cuCtxGetDevice", Needs::Context, |call| {
        put(out, i32::try_from(call.device).expect("there are at most 16"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: u32) -> u32 {
    call("cuCtxSetFlags", Needs::Context, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<'_, i32>, greatest: Out<'_, i32>) -> u32 {
    call("cuCtxGetStreamPriorityRange", Needs::Context, |_| {
        put(least, 0)?;
        put(greatest, -5)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    call("cuCtxSynchronize", Needs::Context, |call| {
        let device = call.device;
        let streams: Vec<Handle> =
            call.streams.iter().filter(|(_, stream)| stream.device == device).map(|(&id, _)| id).collect();
        streams.iter().try_for_each(|&stream| call.must_run(stream))?;
        streams.into_iter().try_for_each(|stream| call.synchronize(stream))
    })
}

impl World {
    fn release(&mut self, device: usize) -> Answer {
        let left = self.devices[device].retained.checked_sub(1);
        let Some(left) = left else {
            self.ledger
                .violation(format!("released more often than retained: the context of device {device}"));
            return Err(INVALID_CONTEXT);
        };
        if left == 0 {
            self.destroy_context(device);
        }
        self.devices[device].retained = left;
        Ok(())
    }

    /// Destroys everything that the context owns, and clears its sticky error. Queued work still runs.
    fn destroy_context(&mut self, device: usize) {
        let streams: Vec<Handle> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(&id, _)| id).collect();
        for id in streams {
            let stream = &self.streams[&id];
            if !self.has_ended(id, stream.last_work) && self.broken(device).is_none() {
                let words =
                    format!("destroyed in flight: the context under {}, which has work", stream.name());
                self.ledger.violation(words);
            }
            let stream = &self.streams[&id];
            // Reported once: whoever comes later is ordered after what the stream did.
            self.host.merge(&stream.clock);
            if stream.place >= 0 && !stream.destroyed {
                self.ledger.abandoned.streams += 1;
            }
            self.destroy_stream(id);
        }
        self.ledger.abandoned.events += self.destroy_events(device);
        self.ledger.abandoned.modules += self.destroy_modules(device);
        let buffers: Vec<u64> = self
            .buffers
            .iter()
            .filter(|(_, buffer)| buffer.device == device)
            .map(|(&start, _)| start)
            .collect();
        for start in buffers {
            if let Some(buffer) = self.remove(start) {
                buffer.count(&mut self.ledger.abandoned);
                // The test may still access pinned memory that went with its context, and must not crash.
                if buffer.owner == Owner::Pinned {
                    std::mem::forget(buffer.storage);
                }
            }
        }
        let entry = &mut self.devices[device];
        (entry.null_stream, entry.sticky) = (None, None);
        entry.thread_streams.clear();
    }
}
