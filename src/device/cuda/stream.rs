//! Streams, and events of our own on them.

#![expect(unsafe_code, reason = "the driver is C")]

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::{Context, Entered};
use super::memory::{DeviceMemory, Pinned};
use crate::batch::memory::HostMemory as _;
use crate::device::{DeviceError, Event};

/// A queue of work on a device, which runs in order and beside the work of other streams.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    handle: sys::CUstream,
}

// SAFETY: the driver may be called from any thread; the handle is a name that it gave out.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the legacy default stream, nor that for it.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let handle = context.told("cuStreamCreate", created)?;
        Ok(Stream { context: context.clone(), handle })
    }

    /// The same, whose work comes before that of other streams where both could begin.
    pub(super) fn urgent(context: &Arc<Context>) -> Result<Self, DeviceError> {
        /// Lower is sooner, and the driver takes the soonest that there is for what is sooner still.
        const PRIORITY: i32 = -100;

        let _entered = context.enter()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let created = result::stream::create_with_priority(kind, PRIORITY);
        let handle = context.told("cuStreamCreateWithPriority", created)?;
        Ok(Stream { context: context.clone(), handle })
    }

    /// Memory of the device that holds these bytes. No part of the steady state.
    pub(super) fn upload(&self, bytes: &[u8]) -> Result<DeviceMemory, DeviceError> {
        let memory = DeviceMemory::new(&self.context, bytes.len())?;
        let _entered = self.context.enter()?;
        // SAFETY: the device's memory is as large, and both are there until the stream has been waited for; where that
        // cannot be, the device's memory stays for ever, and the bytes were copied before the call returned: they are
        // not page-locked.
        let copied = unsafe { result::memcpy_htod_async(memory.first(), bytes, self.handle) };
        let waited = self.wait_out();
        self.context.told("cuMemcpyHtoDAsync", copied).and(waited).map(|()| memory)
    }

    /// Waits until all of its work is done; where it cannot be waited for, until all that the device has to do is. Where
    /// nobody can tell, no memory of the device's is given back any more. No part of the steady state.
    pub(super) fn wait_out(&self) -> Result<(), DeviceError> {
        let waited = self.synchronize();
        if waited.is_err()
            && let Err(error) = self.context.synchronize()
        {
            tracing::warn!(%error, "nobody can say whether a device is still at work");
            self.context.lose_sight();
        }
        waited
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is of a stream that is there as long as `self` is.
        self.context.told("cuStreamSynchronize", unsafe { result::stream::synchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: nobody else has the handle; work that is queued is done even so.
            self.context.told("cuStreamDestroy", unsafe { result::stream::destroy(self.handle) })
        });
        if let Err(error) = destroyed {
            tracing::warn!(%error, "a stream cannot be given back");
        }
    }
}

/// An event of the driver. One that was never recorded has happened.
#[derive(Debug)]
pub(super) struct CudaEvent {
    context: Arc<Context>,
    handle: sys::CUevent,
}

// SAFETY: the driver may be called from any thread; the handle is a name that it gave out.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Without a time stamp, and waited for asleep: a core that spins feeds nobody.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        CudaEvent::of(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// With a time stamp.
    pub(super) fn timed(context: &Arc<Context>) -> Result<Self, DeviceError> {
        CudaEvent::of(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn of(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let handle = context.told("cuEventCreate", create(flags))?;
        Ok(CudaEvent { context: context.clone(), handle })
    }

    /// Whether it has happened, asked in its own context, which is this thread's current one.
    pub(super) fn query(&self, entered: &Entered<'_>) -> Result<bool, DeviceError> {
        debug_assert_eq!(entered.handle(), self.context.handle());
        // SAFETY: the event is there as long as `self` is.
        match unsafe { result::event::query(self.handle) } {
            Err(cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            said => self.context.told("cuEventQuery", said).map(|()| true),
        }
    }

    /// From here on the event is that all work has been done which is on the stream now.
    ///
    /// # Safety
    ///
    /// The handle is of a stream of this event's device that is there.
    pub(super) unsafe fn record(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is there as long as `self` is, and the stream by the caller's promise.
        self.context.told("cuEventRecord", unsafe { result::event::record(self.handle, stream) })
    }

    /// What is put on the stream from here on waits for the event.
    ///
    /// # Safety
    ///
    /// The handle is of a stream that is there.
    pub(super) unsafe fn hold(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event is there as long as `self` is, and the stream by the caller's promise.
        self.context
            .told("cuStreamWaitEvent", unsafe { result::stream::wait_event(stream, self.handle, flags) })
    }

    /// Milliseconds from an earlier event to this one; both are timed, and have happened.
    pub(super) fn since(&self, earlier: &CudaEvent) -> Result<f32, DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: both events are there as long as they are borrowed.
        let elapsed = unsafe { result::event::elapsed(earlier.handle, self.handle) };
        self.context.told("cuEventElapsedTime", elapsed)
    }
}

/// Copies as much as there is, between two events, and waits for it whatever comes.
pub(super) fn copy_timed(
    stream: &Stream,
    to: &DeviceMemory,
    from: &mut Pinned,
    [start, end]: [&CudaEvent; 2],
) -> Result<(), DeviceError> {
    let context = &stream.context;
    let _entered = context.enter()?;
    let bytes = from.len().min(to.bytes());
    let first = from.as_mut_ptr();
    // SAFETY: so many bytes are there, and borrowed until the stream has been waited for.
    let bytes = unsafe { std::slice::from_raw_parts(first, bytes) };
    // SAFETY: the stream is there, for as long as it is borrowed.
    let started = unsafe { start.record(stream.handle) };
    // SAFETY: the device's memory has room, and both memories are borrowed until the stream has been waited for.
    let copied = unsafe { result::memcpy_htod_async(to.first(), bytes, stream.handle) };
    // SAFETY: as for the first event.
    let ended = unsafe { end.record(stream.handle) };
    let waited = stream.wait_out();
    started.and(context.told("cuMemcpyHtoDAsync", copied)).and(ended).and(waited)
}

/// `CU_EVENT_BLOCKING_SYNC` beside the given flags: the enum has no name for both.
fn create(flags: sys::CUevent_flags) -> Result<sys::CUevent, cudarc::driver::DriverError> {
    let flags = flags as u32 | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
    let mut event = std::ptr::null_mut();
    // SAFETY: the driver writes a handle to where it is told to.
    unsafe { sys::cuEventCreate(&raw mut event, flags) }.result().map(|()| event)
}

impl Event for CudaEvent {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        let entered = self.context.enter()?;
        self.query(&entered)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is there as long as `self` is.
        self.context.told("cuEventSynchronize", unsafe { result::event::synchronize(self.handle) })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: nobody else has the handle; an event that has still to happen is given back then.
            self.context.told("cuEventDestroy", unsafe { result::event::destroy(self.handle) })
        });
        if let Err(error) = destroyed {
            tracing::warn!(%error, "an event cannot be given back");
        }
    }
}
