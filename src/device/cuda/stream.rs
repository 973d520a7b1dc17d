//! Streams, and our own events on them.

#![expect(unsafe_code, reason = "the driver is C")]

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::{Context, Entered, not_released};
use super::memory::{DeviceMemory, Pinned};
use crate::batch::memory::HostMemory as _;
use crate::device::{DeviceError, Event};

/// A queue of work on a device, which runs in order and alongside other streams.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    handle: sys::CUstream,
}

// SAFETY: the driver may be called from any thread; the handle is a name that it returned.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not synchronise with the legacy default stream.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let created = result::stream::create(result::stream::StreamKind::NonBlocking);
        let handle = context.check("cuStreamCreate", created)?;
        Ok(Stream { context: context.clone(), handle })
    }

    /// Like [`new`](Self::new), with priority over other streams.
    pub(super) fn urgent(context: &Arc<Context>) -> Result<Self, DeviceError> {
        /// Lower is sooner; the driver clamps it to the highest priority that exists.
        const PRIORITY: i32 = -100;

        let _entered = context.enter()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let created = result::stream::create_with_priority(kind, PRIORITY);
        let handle = context.check("cuStreamCreateWithPriority", created)?;
        Ok(Stream { context: context.clone(), handle })
    }

    /// Copies bytes to new device memory. Not part of the steady state.
    pub(super) fn upload(&self, bytes: &[u8]) -> Result<DeviceMemory, DeviceError> {
        let memory = DeviceMemory::new(&self.context, bytes.len())?;
        let _entered = self.context.enter()?;
        // SAFETY: the device memory is as large as the bytes, and both live until the stream has been waited
        // for. If that fails, the device memory is kept for ever, and the bytes were copied before the call
        // returned, because they are not page-locked.
        let copied = unsafe { result::memcpy_htod_async(memory.first(), bytes, self.handle) };
        let waited = self.wait_out();
        self.context.check("cuMemcpyHtoDAsync", copied).and(waited).map(|()| memory)
    }

    /// Waits until all work on the stream is done, or, if that cannot be waited for, all work on the device.
    /// If that cannot be waited for either, memory of the device is never freed again. Not part of the steady
    /// state.
    pub(super) fn wait_out(&self) -> Result<(), DeviceError> {
        let waited = self.synchronize();
        if waited.is_err()
            && let Err(error) = self.context.synchronize()
        {
            not_released(&error, "it is unknown whether a device is still busy");
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
        // SAFETY: the handle is of a stream that lives as long as `self`.
        self.context.check("cuStreamSynchronize", unsafe { result::stream::synchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: nobody else has the handle; queued work still runs.
            self.context.check("cuStreamDestroy", unsafe { result::stream::destroy(self.handle) })
        });
        if let Err(error) = destroyed {
            not_released(&error, "a stream cannot be destroyed");
        }
    }
}

/// An event of the driver. One that was never recorded counts as having happened.
#[derive(Debug)]
pub(super) struct CudaEvent {
    context: Arc<Context>,
    handle: sys::CUevent,
}

// SAFETY: the driver may be called from any thread; the handle is a name that it returned.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event without a time stamp, whose waits block instead of spinning, because a spinning core cannot
    /// decode.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        CudaEvent::of(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event with a time stamp.
    pub(super) fn timed(context: &Arc<Context>) -> Result<Self, DeviceError> {
        CudaEvent::of(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn of(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Self, DeviceError> {
        let _entered = context.enter()?;
        let handle = context.check("cuEventCreate", create(flags))?;
        Ok(CudaEvent { context: context.clone(), handle })
    }

    /// Whether it has happened; its context must be this thread's current one.
    pub(super) fn query(&self, entered: &Entered<'_>) -> Result<bool, DeviceError> {
        debug_assert_eq!(entered.handle(), self.context.handle());
        // SAFETY: the event lives as long as `self`.
        match unsafe { result::event::query(self.handle) } {
            Err(cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            other => self.context.check("cuEventQuery", other).map(|()| true),
        }
    }

    /// Records the event: it happens when all work that is on the stream now is done.
    ///
    /// # Safety
    ///
    /// The handle is of a live stream of this event's device.
    pub(super) unsafe fn record(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the event lives as long as `self`; the caller promises that the stream is alive.
        self.context.check("cuEventRecord", unsafe { result::event::record(self.handle, stream) })
    }

    /// Makes everything that is enqueued on the stream from here on wait for the event.
    ///
    /// # Safety
    ///
    /// The handle is of a live stream.
    pub(super) unsafe fn hold(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event lives as long as `self`; the caller promises that the stream is alive.
        let waits = unsafe { result::stream::wait_event(stream, self.handle, flags) };
        self.context.check("cuStreamWaitEvent", waits)
    }

    /// The milliseconds from an earlier event to this one; both must be timed and have happened.
    pub(super) fn since(&self, earlier: &CudaEvent) -> Result<f32, DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: both events live as long as they are borrowed.
        let elapsed = unsafe { result::event::elapsed(earlier.handle, self.handle) };
        self.context.check("cuEventElapsedTime", elapsed)
    }
}

/// Copies as much as both memories hold, between two events, and waits for it on every path.
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
    // SAFETY: the memory has this many bytes, and is borrowed until the stream has been waited for.
    let bytes = unsafe { std::slice::from_raw_parts(first, bytes) };
    // SAFETY: the stream is alive while it is borrowed.
    let started = unsafe { start.record(stream.handle) };
    // SAFETY: the device memory has room, and both memories are borrowed until the stream has been waited
    // for.
    let copied = unsafe { result::memcpy_htod_async(to.first(), bytes, stream.handle) };
    // SAFETY: as for the first event.
    let ended = unsafe { end.record(stream.handle) };
    let waited = stream.wait_out();
    started.and(context.check("cuMemcpyHtoDAsync", copied)).and(ended).and(waited)
}

/// Creates an event with `CU_EVENT_BLOCKING_SYNC` besides the given flags: the enum has no name for both.
fn create(flags: sys::CUevent_flags) -> Result<sys::CUevent, cudarc::driver::DriverError> {
    let flags = flags as u32 | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
    let mut event = std::ptr::null_mut();
    // SAFETY: the driver writes a handle to the given address.
    unsafe { sys::cuEventCreate(&raw mut event, flags) }.result().map(|()| event)
}

impl Event for CudaEvent {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        let entered = self.context.enter()?;
        self.query(&entered)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let _entered = self.context.enter()?;
        // SAFETY: the event lives as long as `self`.
        self.context.check("cuEventSynchronize", unsafe { result::event::synchronize(self.handle) })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: nobody else has the handle; the driver frees a pending event when it happens.
            self.context.check("cuEventDestroy", unsafe { result::event::destroy(self.handle) })
        });
        if let Err(error) = destroyed {
            not_released(&error, "an event cannot be destroyed");
        }
    }
}
