//! Transfers to CUDA devices: one copy, an event for the arrival, and one event a stream for the last use.
//!
//! ```text
//! submit   one asynchronous copy of the whole memory, on the device's copy stream; then `arrived` is
//!          recorded (if the device transforms: on the kernel's stream, which waits for the copy, after the
//!          kernel)
//! wait_on  a stream of the consumer's waits for `arrived`, and is remembered
//! release  on each remembered stream an event is recorded: together they are the last use
//! submit   again, once the prefetcher has seen that all of them have happened
//! ```
//!
//! # Invariants
//!
//! 1. The device reads the host memory only between `submit` and `arrived`; the consumer uses the device
//!    memory only between `submit` and the last use. Neither is freed, or written, before.
//! 2. The events are ours, and every recording of one is checked. If one fails, the drop of the transfer
//!    first waits for the whole device; if that fails too, memory of the device is never freed again.

#![expect(unsafe_code, reason = "the driver is C, and knows nothing of borrows")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaStream, result, sys};
use parking_lot::Mutex;

use super::array::DeviceArray;
use super::driver::{Context, Entered, not_released};
use super::ending::Call;
use super::kernel::{Kernel, StagedAt};
use super::memory::DeviceMemory;
use super::stream::{CudaEvent, Stream};
use crate::base::shape::{BatchShape, Extents};
use crate::batch::{ARRAY_ALIGNMENT, Array, BatchLayout};
use crate::decoder::image::name;
use crate::device::{Capacity, DeviceError, Event, HostBatch, Transfer};

/// One transfer of a lane's ring to a CUDA device, with its memory there.
pub(super) struct CudaTransfer {
    copies: Arc<Stream>,
    /// The copied batch, followed by the result of the transform.
    memory: DeviceMemory,
    capacity: Capacity,
    transform: Option<Transform>,
    arrived: CudaEvent,
    arrays: Option<ArraysAt>,
    last_use: LastUse,
    /// Whether a copy may be in progress that `arrived` does not cover.
    has_uncovered_copy: bool,
}

/// The transform of a batch after its copy.
struct Transform {
    kernel: Arc<Kernel>,
    copied: CudaEvent,
}

/// Where the arrays of a batch are in the device's memory.
#[derive(Clone, Debug)]
struct ArraysAt {
    layout: Arc<BatchLayout>,
    rows: usize,
    /// The shape and the offset of the device's result for the first field.
    made: Option<(BatchShape, usize)>,
    /// The extents of each array; those of ragged fields differ from batch to batch. The allocation is
    /// reused.
    extents: Vec<Extents>,
}

/// When no stream of the device uses a batch any more.
#[derive(Debug, Default)]
struct LastUse(Mutex<Uses>);

#[derive(Debug, Default)]
struct Uses {
    /// The consumer's streams that wait for the batch, each once.
    streams: Vec<Used>,
    /// One for each stream; spare ones are kept for batches that are used on more streams.
    events: Vec<CudaEvent>,
    /// How many of the events belong to the batch that was released last.
    recorded: usize,
}

/// A stream of the consumer's.
enum Used {
    /// Held here, and so alive as long as it is needed.
    Held(HeldStream),
    /// Likewise, for a stream of this module.
    Own(Arc<Stream>),
    /// Alive as long as it is needed, by a caller's promise.
    Raw(sys::CUstream),
}

/// A stream of the consumer's, whose last holder calls the driver when it drops it. At the end of the process
/// it is left to the driver.
struct HeldStream(ManuallyDrop<Arc<CudaStream>>);

impl Drop for HeldStream {
    fn drop(&mut self) {
        if let Some(_call) = Call::begin() {
            // SAFETY: it is dropped here alone, once.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

// SAFETY: the other two kinds are `Send`. A raw stream is a name that the driver returned, and the driver may
// be called from any thread.
unsafe impl Send for Used {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<HeldStream>();
    is_send::<Arc<Stream>>();
};

impl Used {
    fn handle(&self) -> sys::CUstream {
        match self {
            Used::Held(stream) => stream.0.cu_stream(),
            Used::Own(stream) => stream.handle(),
            Used::Raw(stream) => *stream,
        }
    }
}

impl fmt::Debug for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:?}", self.handle())
    }
}

impl CudaTransfer {
    pub(super) fn new(
        copies: &Arc<Stream>,
        kernel: Option<&Arc<Kernel>>,
        capacity: Capacity,
    ) -> Result<Self, DeviceError> {
        let context = copies.context();
        let transform = match kernel {
            Some(kernel) => Some(Transform { kernel: kernel.clone(), copied: CudaEvent::new(context)? }),
            None => None,
        };
        // Each of the two is less than half of the largest `usize`.
        let bytes = capacity.bytes.next_multiple_of(ARRAY_ALIGNMENT) + capacity.transformed_bytes;
        Ok(CudaTransfer {
            memory: DeviceMemory::new(context, bytes)?,
            capacity,
            transform,
            arrived: CudaEvent::new(context)?,
            copies: copies.clone(),
            arrays: None,
            last_use: LastUse::default(),
            has_uncovered_copy: false,
        })
    }

    fn context(&self) -> &Arc<Context> {
        self.copies.context()
    }

    /// Whether a transfer's last use is over; its context must be this thread's current one.
    pub(super) fn is_unused(transfer: &dyn Transfer, entered: &Entered<'_>) -> Result<bool, DeviceError> {
        let Some(transfer) = (transfer as &dyn std::any::Any).downcast_ref::<Self>() else {
            return transfer.last_use().is_complete();
        };
        let uses = transfer.last_use.0.lock();
        match &uses.events[..uses.recorded] {
            [] => transfer.arrived.query(entered),
            events => uses_are_over(events, |event| event.query(entered)),
        }
    }

    /// Enqueues the transform of a batch after its copy; the batch has arrived when both are done.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::launch`].
    unsafe fn transform(
        &self,
        Transform { kernel, copied }: &Transform,
        at: StagedAt,
        transformed: BatchShape,
    ) -> Result<(), DeviceError> {
        let stream = kernel.stream().handle();
        // SAFETY: the copy stream belongs to this transfer.
        unsafe { copied.record(self.copies.handle()) }?;
        // SAFETY: the kernel's stream lives as long as the kernel.
        unsafe { copied.hold(stream) }?;
        // SAFETY: the caller promises this.
        unsafe { kernel.launch(at, transformed) }?;
        // SAFETY: as above.
        unsafe { self.arrived.record(stream) }
    }

    /// Makes a stream wait for the batch, and remembers it.
    ///
    /// # Safety
    ///
    /// The stream lives until the batch is dropped.
    unsafe fn use_on(&self, stream: Used) -> Result<(), DeviceError> {
        // SAFETY: the caller promises that the stream is alive.
        unsafe { self.check(stream.handle()) }?;
        let mut uses = self.last_use.0.lock();
        let is_known = uses.streams.iter().any(|used| used.handle() == stream.handle());
        // Everything that can fail comes first: a stream that waits must be remembered.
        if !is_known && uses.events.len() <= uses.streams.len() {
            uses.events.push(CudaEvent::new(self.context())?);
        }
        // SAFETY: the caller promises that the stream is alive.
        unsafe { self.arrived.hold(stream.handle()) }?;
        if !is_known {
            uses.streams.push(stream);
        }
        Ok(())
    }

    /// Refuses a stream on which no event could tell when the batch's use is over.
    ///
    /// # Safety
    ///
    /// The stream is alive.
    unsafe fn check(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let context = self.context();
        let refused = |reason| Err(DeviceError::Stream { device: context.name().to_owned(), reason });
        if stream.addr() == PER_THREAD {
            return refused(
                "the per-thread default stream, which is a different one on the thread that drops the batch",
            );
        }
        let _entered = context.enter()?;
        // SAFETY: the caller promises that the stream is alive.
        let status = context.check("cuStreamIsCapturing", unsafe { result::stream::is_capturing(stream) })?;
        match status {
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
            _ => refused("capturing a graph, which would then include the batch's memory"),
        }
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

impl fmt::Debug for CudaTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaTransfer")
            .field("device", &self.context().name())
            .field("bytes", &self.memory.bytes())
            .finish_non_exhaustive()
    }
}

impl Transfer for CudaTransfer {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        let (staged, memory) = (batch.staged(), batch.memory());
        let transformed_bytes = staged.map_or(0, |staged| staged.transformed.bytes());
        let fits =
            memory.len() <= self.capacity.bytes && transformed_bytes <= self.capacity.transformed_bytes;
        assert!(fits, "the device has room for a batch of its lane");
        self.last_use.0.lock().recorded = 0;
        let behind = self.capacity.bytes.next_multiple_of(ARRAY_ALIGNMENT);
        let mut extents = self.arrays.take().map(|arrays| arrays.extents).unwrap_or_default();
        extents.clear();
        extents.extend(batch.arrays().map(|array| array.shape));
        self.arrays = Some(ArraysAt {
            layout: batch.layout().clone(),
            rows: batch.rows(),
            made: staged.map(|staged| (staged.transformed, behind)),
            extents,
        });
        let context = self.copies.context();
        let _entered = context.enter()?;
        // Even a call that fails may have queued something: its error may be an earlier call's.
        self.has_uncovered_copy = true;
        // SAFETY: the device memory is large enough, as asserted above, and nobody uses it: its last use is
        // over (the prefetcher's invariant 4). The host memory stays, unwritten, until `arrived`: the lane
        // drops this transfer before the memory, and its drop waits.
        let copied = unsafe { result::memcpy_htod_async(self.memory.first(), memory, self.copies.handle()) };
        context.check("cuMemcpyHtoDAsync", copied)?;
        match (&self.transform, staged) {
            (Some(transform), Some(staged)) => {
                let first = self.memory.first();
                let at = StagedAt {
                    windows: first,
                    dtype: batch.layout().fields()[0].dtype(),
                    cuts: first + staged.cuts_offset as u64,
                    transformed: first + behind as u64,
                };
                // SAFETY: the arrays are in this transfer's memory, which is large enough, as asserted above,
                // and nobody uses it, for the same reason.
                unsafe { self.transform(transform, at, staged.transformed) }?;
            }
            // SAFETY: the copy stream belongs to this transfer.
            _ => unsafe { self.arrived.record(self.copies.handle()) }?,
        }
        self.has_uncovered_copy = false;
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        &self.arrived
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        // Held streams may be dropped here, which makes other contexts current.
        let context = self.copies.context().clone();
        let _entered = context.enter()?;
        for stream in &self.last_use.0.lock().streams {
            // SAFETY: a held stream is alive; a raw one is alive until the batch is dropped, as promised.
            unsafe { self.check(stream.handle()) }?;
        }
        let uses = self.last_use.0.get_mut();
        for (stream, event) in uses.streams.iter().zip(&uses.events) {
            // SAFETY: a held stream is alive; a raw one is alive until the batch is dropped, as promised.
            unsafe { event.record(stream.handle()) }?;
            uses.recorded += 1;
        }
        uses.streams.clear();
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        // If no stream waited for the batch, any use of it was after its arrival and before its drop.
        if self.last_use.0.lock().recorded == 0 { &self.arrived } else { &self.last_use }
    }
}

fn uses_are_over(
    events: &[CudaEvent],
    is_over: impl Fn(&CudaEvent) -> Result<bool, DeviceError>,
) -> Result<bool, DeviceError> {
    for event in events {
        if !is_over(event)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Event for LastUse {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        let uses = self.0.lock();
        uses_are_over(&uses.events[..uses.recorded], Event::is_complete)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let uses = self.0.lock();
        uses.events[..uses.recorded].iter().try_for_each(Event::wait)
    }
}

impl Drop for CudaTransfer {
    /// Waits until the device neither reads the host memory nor uses its own: for the events, or, if they
    /// cannot tell, for all work on the device.
    fn drop(&mut self) {
        let can_tell = !self.has_uncovered_copy && self.last_use.0.get_mut().streams.is_empty();
        let waited = if can_tell { self.arrived.wait().and_then(|()| self.last_use.wait()) } else { Ok(()) };
        if (!can_tell || waited.is_err())
            && let Err(error) = self.context().synchronize()
        {
            not_released(&error, "it is unknown whether a device still uses a batch");
            self.context().lose_sight();
        }
    }
}

/// A batch on a CUDA device.
///
/// It is the batch's own memory on the device, which is recycled. It is lent for as long as the
/// [`Batch`](crate::Batch) lives, and for everything that the streams that waited for it have queued by the
/// time the batch is dropped.
///
/// ```no_run
/// # fn train(batch: percolator::Batch, stream:
/// std::sync::Arc<percolator::device::cudarc::driver::CudaStream>)
/// # -> Result<(), percolator::DeviceError> {
/// let on_device = batch.cuda().expect("the lane ends at a CUDA device");
/// on_device.wait_on(&stream)?;
/// let pixels = on_device.pixels();
/// // ... kernels on `stream` that read `pixels.pointer` ...
/// drop(batch); // at once: the memory is filled again only after those kernels
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CudaBatch<'a> {
    transfer: &'a CudaTransfer,
    arrays: &'a ArraysAt,
}

impl<'a> CudaBatch<'a> {
    /// The batch of a transfer, if this is a CUDA transfer and a batch was submitted to it.
    pub(crate) fn of(transfer: &'a dyn Transfer) -> Option<Self> {
        let transfer = (transfer as &dyn std::any::Any).downcast_ref::<CudaTransfer>()?;
        Some(CudaBatch { transfer, arrays: transfer.arrays.as_ref()? })
    }

    /// Makes everything enqueued on `stream` from here on wait until the batch has arrived. The host does not
    /// wait.
    ///
    /// The work that is on the stream when the batch is dropped counts as use of the batch.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the stream is another device's, if it is the per-thread default stream or captures
    /// a graph, or if the device refuses.
    pub fn wait_on(&self, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        self.check_context(stream.context().cu_ctx(), stream.context().ordinal())?;
        // SAFETY: the transfer holds the stream until the batch is released.
        unsafe { self.transfer.use_on(Used::Held(HeldStream(ManuallyDrop::new(stream.clone())))) }
    }

    /// Like [`wait_on`](Self::wait_on) for a stream that another library made: a `CUstream` or a
    /// `cudaStream_t`; null is the legacy default stream.
    ///
    /// # Safety
    ///
    /// It is a stream of the primary context of this batch's device, which is the context of everything that
    /// the CUDA runtime makes, and it lives until the batch is dropped.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    pub unsafe fn wait_on_raw(&self, stream: *mut c_void) -> Result<(), DeviceError> {
        // SAFETY: the caller promises this.
        unsafe { self.transfer.use_on(Used::Raw(stream.cast())) }
    }

    /// Like [`wait_on`](Self::wait_on) for a stream of this module.
    pub(super) fn wait_on_own(&self, stream: &Arc<Stream>) -> Result<(), DeviceError> {
        self.check_context(stream.context().handle(), stream.context().ordinal())?;
        // SAFETY: the transfer holds the stream until the batch is released.
        unsafe { self.transfer.use_on(Used::Own(stream.clone())) }
    }

    /// Refuses a stream of another context.
    fn check_context(&self, found: sys::CUcontext, ordinal: usize) -> Result<(), DeviceError> {
        let context = self.transfer.context();
        if found == context.handle() {
            return Ok(());
        }
        let other = if ordinal == context.ordinal() { "another context of " } else { "" };
        let found = format!("{other}cuda:{ordinal}");
        Err(DeviceError::OtherDevice { device: context.name().to_owned(), found })
    }

    /// Whether a stream waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.transfer.last_use.0.lock().streams.is_empty()
    }

    /// The number of its device.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.transfer.context().ordinal()
    }

    /// The stream on which batches of this device are copied.
    #[must_use]
    pub fn copy_stream(&self) -> *mut c_void {
        self.transfer.copies.handle().cast()
    }

    /// Its arrays with their names, in the order of their fields. For images that the device transforms, the
    /// result of the transform.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = (&'a str, DeviceArray)> + use<'a> {
        let this = *self;
        let arrays = this.arrays.layout.arrays();
        arrays
            .iter()
            .zip(&this.arrays.extents)
            .map(move |(array, &extents)| (&*array.name, this.at(array, extents)))
    }

    /// One of its arrays: the elements of a field, or `FIELD.offsets` or `FIELD.lengths` of a ragged or
    /// padded field.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<DeviceArray> {
        self.arrays().find_map(|(found, array)| (found == name).then_some(array))
    }

    /// Its first field; for image records, their pixels. The element type is that of
    /// [`Batch::shape`](crate::Batch::shape).
    #[must_use]
    pub fn pixels(&self) -> DeviceArray {
        self.at(&self.arrays.layout.arrays()[0], self.arrays.extents[0])
    }

    /// The targets of its images, if it has any.
    #[must_use]
    pub fn target(&self) -> Option<DeviceArray> {
        self.array(name::TARGET)
    }

    /// The labels of its images as `i32`, if it has any.
    #[must_use]
    pub fn labels(&self) -> Option<DeviceArray> {
        self.array(name::LABEL)
    }

    /// The labels of its images as `f32`, if it has any.
    #[must_use]
    pub fn labels_f32(&self) -> Option<DeviceArray> {
        self.array(name::LABEL_F32)
    }

    /// The number of rows: its records and any padding.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.arrays.rows
    }

    fn at(&self, array: &Array, extents: Extents) -> DeviceArray {
        let first = self.transfer.memory.first();
        match self.arrays.made {
            Some((shape, offset)) if array.field == 0 => {
                DeviceArray::new(first + offset as u64, shape.dtype, Extents::new(&shape.dims()))
            }
            _ => DeviceArray::new(first + array.offset as u64, array.dtype, extents),
        }
    }
}
