//! Stream capture, as far as other users of the driver can observe it: what is put on a capturing stream is
//! not run, and what a capture does not permit ends it.
//!
//! A call may be refused for two reasons. It may conflict: it asks a capturing stream, or an event recorded
//! on one, whether work is done that is only recorded. Or it may be unsafe: it could wait for such work
//! implicitly, and the modes of the thread and of the capture decide whether that counts. Either invalidates
//! the capture.
//!
//! A graph holds nothing here: it can only be destroyed. No stream joins the capture of another.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{
    Answer, Code, Handle, ILLEGAL_STATE, INVALID_VALUE, Out, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD, put,
};
use crate::call::{Call, Needs, call};
use crate::world::{Kind, World};

/// The modes. Calls of any thread affect a global capture, and any thread's captures affect a global thread.
/// Mode 1, between the two, is thread-local: only calls of its own thread, and its own captures.
const GLOBAL: u32 = 0;
/// No call is unsafe.
const RELAXED: u32 = 2;

/// A capture that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: u32,
    thread: u64,
    is_invalid: bool,
}

thread_local! {
    /// What this thread's calls may do during a capture.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static THREAD: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// This thread's number, which is never reused.
pub(crate) fn thread() -> u64 {
    THREAD.with(|&thread| thread)
}

/// The calls that NVIDIA lists as potentially unsafe, and those that programs found to be.
const UNSAFE: [&str; 17] = [
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxReset_v2",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

impl World {
    /// Whether work put on a stream is recorded, and not run.
    pub(crate) fn is_capturing(&self, stream: Handle) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.capture.is_some())
    }

    /// Invalidates a stream's capture, if it has one; `code` is what the call that caused it returns.
    pub(crate) fn invalidate(&mut self, stream: Handle, code: Code) -> Code {
        if let Some(capture) = self.streams.get_mut(&stream).and_then(|stream| stream.capture.as_mut()) {
            capture.is_invalid = true;
        }
        code
    }

    /// Refuses a call that needs a stream's progress, if the stream captures.
    pub(crate) fn must_run(&mut self, stream: Handle) -> Answer {
        match self.is_capturing(stream) {
            true => Err(self.invalidate(stream, STREAM_CAPTURE_UNSUPPORTED)),
            false => Ok(()),
        }
    }

    /// Refuses work on a stream whose capture was invalidated.
    pub(crate) fn must_not_be_invalid(&self, stream: Handle) -> Answer {
        match self.streams[&stream].capture {
            Some(Capture { is_invalid: true, .. }) => Err(STREAM_CAPTURE_INVALIDATED),
            _ => Ok(()),
        }
    }

    /// The code that an unsafe call returns on this thread if a capture forbids it; those captures become
    /// invalid.
    pub(crate) fn unsafe_call(&mut self, symbol: &str) -> Option<Code> {
        if !UNSAFE.contains(&symbol) || MODE.get() == RELAXED {
            return None;
        }
        let mut answer = None;
        for stream in self.streams.values_mut().filter(|stream| !stream.destroyed) {
            let Some(capture) = stream.capture.as_mut().filter(|capture| !capture.is_invalid) else {
                continue;
            };
            let forbids = match capture.thread == thread() {
                true => capture.mode != RELAXED,
                false => capture.mode == GLOBAL && MODE.get() == GLOBAL,
            };
            if forbids {
                capture.is_invalid = true;
                answer = Some(STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Whether the legacy stream of a device would have to wait for a capture, so that it cannot be used.
    pub(crate) fn legacy_is_blocked(&self, device: usize) -> bool {
        let mut streams = self.streams.values().filter(|stream| stream.device == device && !stream.destroyed);
        streams.any(|stream| stream.is_blocking && stream.capture.is_some())
    }
}

/// The mode is kept even if nothing is captured, so that a thread that does not restore it is found.
#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Option<&mut u32>) -> u32 {
    call("cuThreadExchangeStreamCaptureMode", Needs::Driver, |_| match mode {
        Some(mode) if (GLOBAL..=RELAXED).contains(mode) => {
            *mode = MODE.replace(*mode);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> u32 {
    call("cuStreamBeginCapture_v2", Needs::Context, |call| {
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if stream <= 1 {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        let stream = call.captured_stream(stream)?;
        if call.is_capturing(stream) {
            return Err(ILLEGAL_STATE);
        }
        let entry = call.streams.get_mut(&stream).expect("found above");
        entry.capture = Some(Capture { mode, thread: thread(), is_invalid: false });
        Ok(())
    })
}

/// Only a relaxed capture may be ended by another thread. An invalid one ends, and gives no graph.
#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: Handle, out: Out<'_, Handle>) -> u32 {
    call("cuStreamEndCapture", Needs::Context, |call| {
        let stream = call.captured_stream(stream)?;
        let entry = call.streams.get_mut(&stream).expect("found above");
        let capture = entry.capture.as_ref().ok_or(ILLEGAL_STATE)?;
        if capture.mode != RELAXED && capture.thread != thread() {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let is_invalid = capture.is_invalid;
        entry.capture = None;
        if is_invalid {
            put(out, 0)?;
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let graph = call.handle(Kind::Graph);
        call.graphs.insert(graph);
        put(out, graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: Handle, out: Out<'_, u32>) -> u32 {
    call("cuStreamIsCapturing", Needs::Context, |call| {
        let stream = call.captured_stream(stream)?;
        put(
            out,
            match &call.streams[&stream].capture {
                None => 0,
                Some(Capture { is_invalid: false, .. }) => 1,
                Some(Capture { is_invalid: true, .. }) => 2,
            },
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> u32 {
    call("cuGraphDestroy", Needs::Driver, |call| {
        if !call.graphs.remove(&graph) {
            return Err(call.bad_handle("graph", graph, "cuGraphDestroy"));
        }
        call.bury(graph);
        Ok(())
    })
}

impl Call {
    /// The stream that a call asks about; its capture may be invalid.
    fn captured_stream(&mut self, handle: Handle) -> Answer<Handle> {
        let stream = self.any_stream(handle)?;
        self.broken(self.streams[&stream].device).map_or(Ok(stream), Err)
    }
}
