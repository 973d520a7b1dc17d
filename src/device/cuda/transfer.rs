//! The way of a batch to a CUDA device: one copy, an event for its arrival, and one a stream for its last use.
//!
//! ```text
//! submit   one asynchronous copy of the whole memory, on the device's copy stream; then `arrived` is recorded
//!          (where the device transforms: on the kernel's stream, which waits for the copy, after the kernel)
//! wait_on  a stream of the consumer's waits for `arrived`, and is remembered
//! release  on each stream that is remembered an event is recorded: together they are the last use
//! submit   again, once the prefetcher has seen that all of them have happened
//! ```
//!
//! # Invariants
//!
//! 1. The host's memory is read by the device only between `submit` and `arrived`; the device's memory is used by
//!    the consumer only between `submit` and the last use. Neither is given back, or written, before.
//! 2. The events are ours, and every record of one is checked: where one fails, the whole device is waited for
//!    before the passage is gone; where that fails too, no memory of the device's is given back any more.

#![expect(unsafe_code, reason = "the driver is C, and knows nothing of borrows")]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaStream, result, sys};
use parking_lot::Mutex;

use super::array::DeviceArray;
use super::driver::{Context, Entered};
use super::kernel::{Kernel, StagedAt};
use super::memory::DeviceMemory;
use super::stream::{CudaEvent, Stream};
use crate::base::shape::{BatchShape, Extents};
use crate::batch::{ARRAY_ALIGNMENT, Array, BatchLayout};
use crate::decoder::image::name;
use crate::device::{Capacity, DeviceError, Event, HostBatch, Transfer};

/// The way of one of a lane's batches to a CUDA device, and its place there.
pub(super) struct CudaTransfer {
    copies: Arc<Stream>,
    /// What is copied, and behind it what is made of it.
    memory: DeviceMemory,
    capacity: Capacity,
    transform: Option<Transform>,
    arrived: CudaEvent,
    arrays: Option<ArraysAt>,
    last_use: LastUse,
    /// A copy is under way that `arrived` does not tell of.
    is_untold: bool,
}

/// What is done to a batch once it is copied.
struct Transform {
    kernel: Arc<Kernel>,
    copied: CudaEvent,
}

/// Where the arrays of a batch lie in the device's memory.
#[derive(Clone, Debug)]
struct ArraysAt {
    layout: Arc<BatchLayout>,
    rows: usize,
    /// The shape of what was made of the first field, and where it lies.
    made: Option<(BatchShape, usize)>,
    /// The extents of each array: those of ragged fields are the batch's own. Reused from batch to batch.
    extents: Vec<Extents>,
}

/// When nobody on the device uses a batch any more.
#[derive(Debug, Default)]
struct LastUse(Mutex<Uses>);

#[derive(Debug, Default)]
struct Uses {
    /// The consumer's streams that wait for the batch, each once.
    streams: Vec<Used>,
    /// One a stream; what there is more of is kept for batches that are used on more.
    events: Vec<CudaEvent>,
    /// How many of the events tell of the batch that was released last.
    recorded: usize,
}

/// A stream of the consumer's.
enum Used {
    /// It stays for as long as it is needed here.
    Held(Arc<CudaStream>),
    /// Likewise; one of this module's.
    Own(Arc<Stream>),
    /// Somebody promised that it does.
    Raw(sys::CUstream),
}

// SAFETY: a raw stream is a name that the driver gave out, and the driver may be called from any thread.
unsafe impl Send for Used {}

impl Used {
    fn handle(&self) -> sys::CUstream {
        match self {
            Used::Held(stream) => stream.cu_stream(),
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
        // Each is less than half of what can be counted.
        let bytes = capacity.bytes.next_multiple_of(ARRAY_ALIGNMENT) + capacity.transformed_bytes;
        Ok(CudaTransfer {
            memory: DeviceMemory::new(context, bytes)?,
            capacity,
            transform,
            arrived: CudaEvent::new(context)?,
            copies: copies.clone(),
            arrays: None,
            last_use: LastUse::default(),
            is_untold: false,
        })
    }

    fn context(&self) -> &Arc<Context> {
        self.copies.context()
    }

    /// Whether a passage's last use is over, asked in its own context, which is this thread's current one.
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

    /// Has a batch transformed once it is copied; then it has arrived.
    ///
    /// # Safety
    ///
    /// As [`Kernel::launch`].
    unsafe fn transform(
        &self,
        Transform { kernel, copied }: &Transform,
        at: StagedAt,
        transformed: BatchShape,
    ) -> Result<(), DeviceError> {
        let stream = kernel.stream().handle();
        // SAFETY: the copy stream is this passage's.
        unsafe { copied.record(self.copies.handle()) }?;
        // SAFETY: the kernel's stream is there as long as the kernel is.
        unsafe { copied.hold(stream) }?;
        // SAFETY: that is what the caller promises.
        unsafe { kernel.launch(at, transformed) }?;
        // SAFETY: as above.
        unsafe { self.arrived.record(stream) }
    }

    /// Makes a stream wait for the batch, and remembers it.
    ///
    /// # Safety
    ///
    /// The stream is there until the batch is dropped.
    unsafe fn use_on(&self, stream: Used) -> Result<(), DeviceError> {
        // SAFETY: the caller says that the stream is there.
        unsafe { self.check(stream.handle()) }?;
        let mut uses = self.last_use.0.lock();
        let is_known = uses.streams.iter().any(|used| used.handle() == stream.handle());
        // Whatever can fail comes first: a stream that waits is remembered.
        if !is_known && uses.events.len() <= uses.streams.len() {
            uses.events.push(CudaEvent::new(self.context())?);
        }
        // SAFETY: the caller says that the stream is there.
        unsafe { self.arrived.hold(stream.handle()) }?;
        if !is_known {
            uses.streams.push(stream);
        }
        Ok(())
    }

    /// Refuses a stream on which no event could say when the batch's use is over.
    ///
    /// # Safety
    ///
    /// The stream is there.
    unsafe fn check(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let context = self.context();
        let refused = |reason| Err(DeviceError::Stream { device: context.name().to_owned(), reason });
        if stream.addr() == PER_THREAD {
            return refused(
                "the per-thread default stream, which is another one on the thread that drops the batch",
            );
        }
        let _entered = context.enter()?;
        // SAFETY: the caller says that the stream is there.
        let status = context.told("cuStreamIsCapturing", unsafe { result::stream::is_capturing(stream) })?;
        match status {
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
            _ => refused("capturing a graph, of which the batch's memory would become a part"),
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
        // Even a call that fails may have queued something: its error may be an earlier one's.
        self.is_untold = true;
        // SAFETY: the device's memory is as large, as was just seen, and nobody uses it: its last use is over
        // (the prefetcher's invariant 4). The host's memory stays, unwritten, until `arrived`: the lane drops
        // this passage before the memory, and its drop waits.
        let copied = unsafe { result::memcpy_htod_async(self.memory.first(), memory, self.copies.handle()) };
        context.told("cuMemcpyHtoDAsync", copied)?;
        match (&self.transform, staged) {
            (Some(transform), Some(staged)) => {
                let first = self.memory.first();
                let at = StagedAt {
                    windows: first,
                    dtype: batch.layout().fields()[0].dtype(),
                    cuts: first + staged.cuts_offset as u64,
                    transformed: first + behind as u64,
                };
                // SAFETY: the arrays lie in this passage's memory, as large as was just seen, and nobody uses it: as
                // above.
                unsafe { self.transform(transform, at, staged.transformed) }?;
            }
            // SAFETY: the copy stream is this passage's.
            _ => unsafe { self.arrived.record(self.copies.handle()) }?,
        }
        self.is_untold = false;
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        &self.arrived
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        // The streams that are held may go here, and with them what makes other contexts current.
        let context = self.copies.context().clone();
        let _entered = context.enter()?;
        for stream in &self.last_use.0.lock().streams {
            // SAFETY: a stream that is held is there; of a raw one it was promised, until the batch is dropped.
            unsafe { self.check(stream.handle()) }?;
        }
        let uses = self.last_use.0.get_mut();
        for (stream, event) in uses.streams.iter().zip(&uses.events) {
            // SAFETY: a stream that is held is there; of a raw one it was promised, until the batch is dropped.
            unsafe { event.record(stream.handle()) }?;
            uses.recorded += 1;
        }
        uses.streams.clear();
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        // A batch that no stream waited for was used, if at all, once it had arrived and before it was dropped.
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
    /// Waits until the device neither reads the host's memory nor uses its own: for the events, or, where they
    /// cannot tell, for all that the device has to do.
    fn drop(&mut self) {
        let is_told = !self.is_untold && self.last_use.0.get_mut().streams.is_empty();
        let told = if is_told { self.arrived.wait().and_then(|()| self.last_use.wait()) } else { Ok(()) };
        if (!is_told || told.is_err())
            && let Err(error) = self.context().synchronize()
        {
            tracing::warn!(%error, "nobody can say whether a device still uses a batch");
            self.context().lose_sight();
        }
    }
}

/// A batch on a CUDA device.
///
/// It is the batch's own memory on the device, which goes round: it is lent for as long as the
/// [`Batch`](crate::Batch) lives, and for whatever the streams that waited for it have queued by the time the
/// batch is dropped.
///
/// ```no_run
/// # fn train(batch: percolator::Batch, stream: std::sync::Arc<percolator::device::cudarc::driver::CudaStream>)
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
    /// What a passage carries, if it is one of this kind and carries something.
    pub(crate) fn of(transfer: &'a dyn Transfer) -> Option<Self> {
        let transfer = (transfer as &dyn std::any::Any).downcast_ref::<CudaTransfer>()?;
        Some(CudaBatch { transfer, arrays: transfer.arrays.as_ref()? })
    }

    /// Makes what is put on `stream` from here on wait until the batch has arrived. The host does not wait.
    ///
    /// When the batch is dropped, what is on the stream by then counts as its use.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the stream is another device's, if it is the per-thread default stream or captures a
    /// graph, or if the device refuses.
    pub fn wait_on(&self, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        self.check_context(stream.context().cu_ctx(), stream.context().ordinal())?;
        // SAFETY: the passage holds the stream until the batch is released.
        unsafe { self.transfer.use_on(Used::Held(stream.clone())) }
    }

    /// The same for a stream that another library made: a `CUstream`, or a `cudaStream_t`; null is the legacy
    /// default stream.
    ///
    /// # Safety
    ///
    /// It is a stream of the primary context of this batch's device, which is the context of all that the CUDA
    /// runtime makes, and it lives until the batch is dropped.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    pub unsafe fn wait_on_raw(&self, stream: *mut c_void) -> Result<(), DeviceError> {
        // SAFETY: that is what the caller promises.
        unsafe { self.transfer.use_on(Used::Raw(stream.cast())) }
    }

    /// The same for a stream of this module's.
    pub(super) fn wait_on_own(&self, stream: &Arc<Stream>) -> Result<(), DeviceError> {
        self.check_context(stream.context().handle(), stream.context().ordinal())?;
        // SAFETY: the passage holds the stream until the batch is released.
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

    /// Its device's number.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.transfer.context().ordinal()
    }

    /// The stream that batches of this device are copied on.
    #[must_use]
    pub fn copy_stream(&self) -> *mut c_void {
        self.transfer.copies.handle().cast()
    }

    /// Its arrays, field by field, each with its name. Of images that the device transforms, it is what was made of them.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = (&'a str, DeviceArray)> + use<'a> {
        let this = *self;
        let arrays = this.arrays.layout.arrays();
        arrays
            .iter()
            .zip(&this.arrays.extents)
            .map(move |(array, &extents)| (&*array.name, this.at(array, extents)))
    }

    /// One of its arrays: the elements of a field, or, of a field of varying length, its `FIELD.offsets` or `FIELD.lengths`.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<DeviceArray> {
        self.arrays().find_map(|(found, array)| (found == name).then_some(array))
    }

    /// Its first field: of images, their pixels. The type of their elements is that of
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

    /// Its rows: its records, and padding.
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
