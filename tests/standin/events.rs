//! Events: points in a stream that others wait for.

use std::time::Instant;

use crate::abi::{
    Answer, CAPTURED_EVENT, Handle, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Out, STREAM_CAPTURE_ISOLATION,
    STREAM_CAPTURE_UNSUPPORTED, put,
};
use crate::call::{Call, Needs, call};
use crate::clocks::Clock;
use crate::streams::{Operation, Work};
use crate::world::{Kind, World};

const DISABLE_TIMING: u32 = 2;
const FLAGS: u32 = 7;
/// The calls that also take a captured event; the others ask what it does not know.
const ANY_EVENT: [&str; 3] = ["cuEventDestroy_v2", "cuEventRecord", "cuStreamWaitEvent"];

/// The last record of an event. A later one replaces it, without effect on those who wait for this one.
#[derive(Clone, Debug)]
struct Record {
    stream: Handle,
    seq: u64,
    /// What comes before it, itself included.
    clock: Clock,
    happened: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Event {
    device: usize,
    is_timed: bool,
    /// `None`: complete, as in CUDA, although nothing happened.
    record: Option<Record>,
    /// The stream in whose capture it was last recorded: then it is a node, and not an event.
    captured_on: Option<Handle>,
}

impl World {
    pub(crate) fn event_happened(&mut self, event: Handle, stream: Handle, seq: u64) {
        let record = self.events.get_mut(&event).and_then(|event| event.record.as_mut());
        if let Some(record) = record.filter(|record| (record.stream, record.seq) == (stream, seq)) {
            record.happened = Some(Instant::now());
        }
    }

    pub(crate) fn destroy_events(&mut self, device: usize) -> usize {
        let gone: Vec<Handle> = self
            .events
            .iter()
            .filter(|(_, event)| event.device == device)
            .map(|(&handle, _)| handle)
            .collect();
        for &event in &gone {
            self.events.remove(&event);
            self.bury(event);
        }
        gone.len()
    }
}

impl Call {
    fn event(&mut self, handle: Handle) -> Answer<(usize, Option<Record>)> {
        match self.events.get(&handle) {
            Some(Event { captured_on: Some(stream), .. }) if !ANY_EVENT.contains(&self.symbol) => {
                let stream = *stream;
                Err(self.invalidate(stream, CAPTURED_EVENT))
            }
            Some(event) => Ok((event.device, event.record.clone())),
            None => {
                let symbol = self.symbol;
                Err(self.bad_handle("event", handle, symbol))
            }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(out: Out<'_, Handle>, flags: u32) -> u32 {
    call("cuEventCreate", Needs::Context, |call| {
        if flags & !FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = call.handle(Kind::Event);
        let event = Event {
            device: call.device,
            is_timed: flags & DISABLE_TIMING == 0,
            record: None,
            captured_on: None,
        };
        call.events.insert(handle, event);
        put(out, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    call("cuEventDestroy_v2", Needs::Release, |call| {
        call.event(event)?;
        call.events.remove(&event);
        call.bury(event);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    call("cuEventRecord", Needs::Context, |call| {
        let (device, _) = call.event(event)?;
        let stream = call.working_stream(stream)?;
        if call.streams[&stream].device != device {
            return Err(INVALID_HANDLE);
        }
        let symbol = call.symbol;
        let seq = call.order(stream, symbol, &[]);
        let record = Record { stream, seq, clock: call.streams[&stream].clock.clone(), happened: None };
        let captured_on = call.is_capturing(stream).then_some(stream);
        let entry = call.events.get_mut(&event).expect("found above");
        (entry.record, entry.captured_on) = (captured_on.is_none().then_some(record), captured_on);
        call.enqueue(stream, Operation { symbol, seq, bytes: 0, work: Work::Record { event } });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> u32 {
    call("cuStreamWaitEvent", Needs::Context, |call| {
        let stream = call.working_stream(stream)?;
        // The event may be of another context: this is how devices wait for each other.
        let (_, record) = call.event(event)?;
        match (call.events[&event].captured_on, call.is_capturing(stream)) {
            (Some(captured_on), true) if captured_on == stream => return Ok(()),
            // A fork: see the module documentation of `capture`.
            (Some(captured_on), _) => return Err(call.invalidate(captured_on, STREAM_CAPTURE_UNSUPPORTED)),
            (None, true) if record.is_some() => return Err(call.invalidate(stream, STREAM_CAPTURE_ISOLATION)),
            (None, _) => {}
        }
        let Some(record) = record else { return Ok(()) };
        let symbol = call.symbol;
        call.streams.get_mut(&stream).expect("found above").clock.merge(&record.clock);
        call.submit(stream, symbol, &[], 0, Work::Wait { stream: record.stream, seq: record.seq });
        Ok(())
    })
}

/// NVIDIA's list of return codes has no CUDA_ERROR_INVALID_CONTEXT, so no current context is needed.
#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> u32 {
    call("cuEventQuery", Needs::Driver, |call| {
        let (device, record) = call.event(event)?;
        if let Some(code) = call.broken(device) {
            return Err(code);
        }
        let Some(record) = record else { return Ok(()) };
        if !call.has_ended(record.stream, record.seq) {
            return Err(NOT_READY);
        }
        call.host.merge(&record.clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    call("cuEventSynchronize", Needs::Context, |call| {
        let (device, record) = call.event(event)?;
        let Some(record) = record else { return Ok(()) };
        call.wait_for(device, record.stream, record.seq)?;
        call.host.merge(&record.clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(out: Out<'_, f32>, start: Handle, end: Handle) -> u32 {
    elapsed("cuEventElapsedTime", out, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(out: Out<'_, f32>, start: Handle, end: Handle) -> u32 {
    elapsed("cuEventElapsedTime_v2", out, start, end)
}

fn elapsed(symbol: &'static str, out: Out<'_, f32>, start: Handle, end: Handle) -> u32 {
    call(symbol, Needs::Context, |call| {
        let (device, first) = call.event(start)?;
        let (other, second) = call.event(end)?;
        let are_timed = call.events[&start].is_timed && call.events[&end].is_timed;
        let (Some(first), Some(second), true, true) = (first, second, are_timed, device == other) else {
            return Err(INVALID_HANDLE);
        };
        let (Some(from), Some(to)) = (first.happened, second.happened) else { return Err(NOT_READY) };
        call.host.merge(&first.clock);
        call.host.merge(&second.clock);
        let sign = if to >= from { 1e3 } else { -1e3 };
        put(out, sign * if to >= from { to - from } else { from - to }.as_secs_f32())
    })
}
