//! Streams: queues of operations, and the symbols that create them and wait for them.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Condvar};

use crate::abi::{Answer, Handle, INVALID_VALUE, NOT_READY, Out, STREAM_CAPTURE_IMPLICIT, put};
use crate::bytes::Storage;
use crate::call::{Call, Needs, call};
use crate::capture::{self, Capture};
use crate::clocks::{Clock, Use};
use crate::kernels::Body;
use crate::ptx::Launch;
use crate::worker;
use crate::world::{Kind, World};

/// The place of the null stream, which has none in the order of creation.
const NULL: i32 = -1;
/// The place of every per-thread stream.
const PER_THREAD: i32 = -2;

/// Where an operation reads or writes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) storage: Arc<Storage>,
    pub(crate) offset: usize,
}

#[derive(Debug)]
pub(crate) enum Work {
    /// Marks a point in the order, and does nothing.
    Mark,
    Copy {
        from: Place,
        to: Place,
        /// A checksum of the host memory that is read, taken when the copy was submitted.
        checksum: Option<u64>,
    },
    Fill {
        to: Place,
        value: u8,
    },
    Record {
        event: Handle,
    },
    Wait {
        stream: Handle,
        seq: u64,
    },
    Host {
        function: extern "C" fn(usize),
        data: usize,
        clock: Clock,
    },
    Kernel {
        body: Body,
        arguments: Vec<Vec<u8>>,
        dims: [u32; 6],
        _keep: Vec<Arc<Storage>>,
    },
    /// A kernel of a module that was loaded as PTX.
    Ptx(Launch),
}

#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) symbol: &'static str,
    pub(crate) seq: u64,
    pub(crate) bytes: usize,
    pub(crate) work: Work,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    /// How many streams the test had created on the device before; or [`NULL`] or [`PER_THREAD`].
    pub(crate) place: i32,
    /// Whether the null stream waits for it, and so cannot be used while it captures.
    pub(crate) is_blocking: bool,
    /// The capture that records, instead of running, what is put on it.
    pub(crate) capture: Option<Capture>,
    pub(crate) queue: VecDeque<Operation>,
    /// Signalled when the queue changes, or whether it may continue.
    pub(crate) changed: Arc<Condvar>,
    /// What comes before the next operation.
    pub(crate) clock: Clock,
    /// The number of the last operation that was submitted.
    pub(crate) last: u64,
    /// The last operation that copies, or calls the host: it should end before the context does. Work that
    /// only fills or computes in the device's own memory ends with the context, unnoticed.
    pub(crate) last_work: u64,
    /// Its handle is no longer valid; its worker ends when the queue is empty.
    pub(crate) destroyed: bool,
    /// Its worker ends at once.
    pub(crate) abandoned: bool,
}

impl Stream {
    pub(crate) fn name(&self) -> String {
        match self.place {
            NULL => format!("the null stream of device {}", self.device),
            PER_THREAD => format!("the per-thread stream of device {}", self.device),
            place => format!("stream {place} of device {}", self.device),
        }
    }
}

impl World {
    /// Creates a stream and its worker.
    pub(crate) fn new_stream(&mut self, device: usize, place: i32, is_blocking: bool) -> Handle {
        let handle = self.handle(Kind::Stream);
        let stream = Stream {
            device,
            place,
            is_blocking,
            capture: None,
            queue: VecDeque::new(),
            changed: Arc::new(Condvar::new()),
            clock: Clock::default(),
            last: 0,
            last_work: 0,
            destroyed: false,
            abandoned: false,
        };
        let changed = Arc::clone(&stream.changed);
        let name = format!("standin:{device}:{place}");
        self.streams.insert(handle, stream);
        self.progress.insert(handle, 0);
        self.workers += 1;
        worker::start(name, handle, changed);
        handle
    }

    /// Resolves C's stream: 0 and 1 are the null stream of the current context, 2 is this thread's own.
    pub(crate) fn stream(&mut self, handle: Handle, device: usize, symbol: &str) -> Answer<Handle> {
        match handle {
            0 | 1 if self.legacy_is_blocked(device) => Err(STREAM_CAPTURE_IMPLICIT),
            0 | 1 => {
                let known = self.devices[device].null_stream;
                let stream = known.unwrap_or_else(|| self.new_stream(device, NULL, false));
                self.devices[device].null_stream = Some(stream);
                Ok(stream)
            }
            2 => {
                let known = self.devices[device].thread_streams.get(&capture::thread()).copied();
                let stream = known.unwrap_or_else(|| self.new_stream(device, PER_THREAD, true));
                self.devices[device].thread_streams.insert(capture::thread(), stream);
                Ok(stream)
            }
            _ if self.streams.get(&handle).is_some_and(|stream| !stream.destroyed) => Ok(handle),
            _ => Err(self.bad_handle("stream", handle, symbol)),
        }
    }

    /// Gives the next operation its number, and records its uses and their races; returns 0 for a captured
    /// one.
    pub(crate) fn order(&mut self, stream: Handle, symbol: &'static str, uses: &[Use]) -> u64 {
        if self.is_capturing(stream) {
            return 0;
        }
        let host = self.host.clone();
        let entry = self.streams.get_mut(&stream).expect("looked up by the caller");
        entry.last += 1;
        let seq = entry.last;
        entry.clock.merge(&host);
        entry.clock.advance(stream, seq);
        for used in uses {
            self.access(stream, seq, symbol, used);
        }
        seq
    }

    /// Queues an operation that has its number; a captured one is dropped.
    pub(crate) fn enqueue(&mut self, stream: Handle, operation: Operation) {
        if self.is_capturing(stream) {
            return;
        }
        let stream = self.streams.get_mut(&stream).expect("looked up by the caller");
        if matches!(operation.work, Work::Copy { .. } | Work::Host { .. }) {
            stream.last_work = operation.seq;
        }
        stream.queue.push_back(operation);
        stream.changed.notify_all();
    }

    /// Numbers an operation and queues it.
    pub(crate) fn submit(
        &mut self,
        stream: Handle,
        symbol: &'static str,
        uses: &[Use],
        bytes: usize,
        work: Work,
    ) -> u64 {
        let seq = self.order(stream, symbol, uses);
        self.enqueue(stream, Operation { symbol, seq, bytes, work });
        seq
    }

    /// Invalidates a stream's handle; queued work still runs.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) {
        self.bury(handle);
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.destroyed = true;
            stream.capture = None;
            stream.changed.notify_all();
        }
    }
}

impl Call {
    /// Waits for everything on a stream, after which the host comes after it.
    pub(crate) fn synchronize(&mut self, stream: Handle) -> Answer {
        let Some(entry) = self.streams.get(&stream) else { return Ok(()) };
        let (device, last, clock) = (entry.device, entry.last, entry.clock.clone());
        self.wait_for(device, stream, last)?;
        self.host.merge(&clock);
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(out: Out<'_, Handle>, flags: u32) -> u32 {
    create("cuStreamCreate", out, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(out: Out<'_, Handle>, flags: u32, _priority: c_int) -> u32 {
    create("cuStreamCreateWithPriority", out, flags)
}

fn create(symbol: &'static str, out: Out<'_, Handle>, flags: u32) -> u32 {
    call(symbol, Needs::Context, |call| {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let device = call.device;
        let place = call.devices[device].streams_created;
        call.devices[device].streams_created += 1;
        let stream = call.new_stream(device, place, flags == 0);
        put(out, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    call("cuStreamDestroy_v2", Needs::Release, |call| {
        if stream <= 2 {
            return Err(INVALID_VALUE);
        }
        let stream = call.any_stream(stream)?;
        call.destroy_stream(stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    call("cuStreamSynchronize", Needs::Context, |call| {
        let stream = call.working_stream(stream)?;
        call.must_run(stream)?;
        call.synchronize(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    call("cuStreamQuery", Needs::Context, |call| {
        let stream = call.working_stream(stream)?;
        call.must_run(stream)?;
        let (last, clock) = (call.streams[&stream].last, call.streams[&stream].clock.clone());
        if !call.has_ended(stream, last) {
            return Err(NOT_READY);
        }
        call.host.merge(&clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(usize)>, data: usize) -> u32 {
    call("cuLaunchHostFunc", Needs::Context, |call| {
        let function = function.ok_or(INVALID_VALUE)?;
        let stream = call.working_stream(stream)?;
        let symbol = call.symbol;
        let seq = call.order(stream, symbol, &[]);
        let clock = call.streams[&stream].clock.clone();
        let work = Work::Host { function, data, clock };
        call.enqueue(stream, Operation { symbol, seq, bytes: 0, work });
        Ok(())
    })
}

impl Call {
    /// The stream that a call works on. Its device must not be broken, but its context need not be current.
    pub(crate) fn working_stream(&mut self, handle: Handle) -> Answer<Handle> {
        let stream = self.any_stream(handle)?;
        if let Some(code) = self.broken(self.streams[&stream].device) {
            return Err(code);
        }
        self.must_not_be_invalid(stream).map(|()| stream)
    }

    /// The stream that a call frees, or frees on.
    pub(crate) fn any_stream(&mut self, handle: Handle) -> Answer<Handle> {
        let (device, symbol) = (self.device, self.symbol);
        self.stream(handle, device, symbol)
    }
}
