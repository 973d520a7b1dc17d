//! The devices that batches go to. The interface is asynchronous: start something, and wait for an event.
//!
//! For each batch of a lane's ring a [`Device`] makes two things: host memory that the device can read
//! ([`HostMemory`]), and a [`Transfer`]. The transfer moves a filled batch to the device, and reports when it
//! has arrived and when its memory may be written again. Both are made when the feed is launched, and then
//! serve one batch after another. Few are made later: for a batch that a ring gains, for one that must grow,
//! and for the empty batches of a lane that has ended.

#[cfg(feature = "cuda-driver")]
mod cuda;
mod host;

use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::shape::{Dtype, Extents};
use crate::batch::{BatchLayout, Filled};
use crate::transform::{DeviceTransform, Staged};
use percolator_files::caller::words;

pub use crate::batch::{Capacity, HostMemory, PageMemory};

#[cfg(feature = "cuda-driver")]
pub use self::cuda::{CudaBatch, CudaDevice, DeviceArray, StepTimes, SyntheticStep, Version};
/// The crate of the streams that [`CudaBatch`] takes.
#[cfg(feature = "cuda-driver")]
pub use cudarc;

/// Something that happens at some time, and can be waited for.
pub trait Event: Send + Sync + fmt::Debug {
    /// Whether it has happened.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device can no longer tell.
    fn is_complete(&self) -> Result<bool, DeviceError>;

    /// Waits until it has happened.
    ///
    /// # Errors
    ///
    /// As for [`is_complete`](Self::is_complete).
    fn wait(&self) -> Result<(), DeviceError>;
}

/// A filled batch in host memory, as a transfer sees it.
#[derive(Clone, Copy)]
pub struct HostBatch<'a> {
    filled: &'a Filled,
}

/// One array of a batch in host memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct HostArray<'a> {
    /// Its name: that of its field, or `FIELD.offsets` or `FIELD.lengths` for the second array of a ragged or
    /// padded field.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its extents, records first.
    pub shape: Extents,
    /// Where it starts in the [memory](HostBatch::memory), in bytes: a multiple of 64.
    pub offset: usize,
    /// The bytes of its elements.
    pub bytes: &'a [u8],
}

impl<'a> HostBatch<'a> {
    pub(crate) fn new(filled: &'a Filled) -> Self {
        HostBatch { filled }
    }

    /// The memory from [`Backend::host_memory`], up to the end of the last array. The arrays are where they
    /// are in a full batch.
    #[must_use]
    pub fn memory(&self) -> &'a [u8] {
        self.filled.memory()
    }

    /// The layout of the memory, for a full batch.
    #[must_use]
    pub fn layout(&self) -> &'a Arc<BatchLayout> {
        self.filled.layout()
    }

    /// The number of rows: its records and any padding.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.filled.rows()
    }

    /// Its arrays, in the order of their fields.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = HostArray<'a>> + use<'a> {
        let filled = self.filled;
        filled.layout().arrays().iter().map(move |array| HostArray {
            name: &array.name,
            dtype: array.dtype,
            shape: filled.extents(array),
            offset: array.offset,
            bytes: filled.array_bytes(array),
        })
    }

    /// One of its arrays, by name.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<HostArray<'a>> {
        self.arrays().find(|array| array.name == name)
    }

    /// What the device still has to do to the first field, if the device [transforms](Backend::transforming)
    /// batches.
    #[must_use]
    pub fn staged(&self) -> Option<Staged<'a>> {
        let (_, transformed, cuts_offset) = self.filled.layout().staged(self.rows())?;
        Some(Staged { transformed, cuts: self.filled.cuts(), cuts_offset })
    }
}

impl fmt::Debug for HostBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.arrays().map(|array| (array.name, array.dtype, array.shape))).finish()
    }
}

/// Moves one of a lane's batches to the device, again and again.
///
/// A transfer is dropped before the memory of its batches, even if a copy is in progress: its drop must wait
/// until the device no longer reads that memory. It is dropped on its lane's own thread, so that a consumer
/// that drops a batch or the lane never waits for a device; only [`Lane::close`](crate::Lane::close) does.
/// Before the first submission, both events have happened.
pub trait Transfer: Any + Send + Sync + fmt::Debug {
    /// Starts to move a batch, without waiting for it.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError>;

    /// The event of the arrival of the batch that was submitted last.
    fn arrival(&self) -> &dyn Event;

    /// Notes that the consumer has dropped the batch. Work that it has queued on the device may still read
    /// the batch.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    fn release(&mut self) -> Result<(), DeviceError>;

    /// The event after which neither the device nor the consumer reads the batch. Its memory is not written
    /// before.
    fn last_use(&self) -> &dyn Event;

    /// The transfer of another device to which this one passes batches on, if it does. Code that knows the
    /// other device by its type, such as [`Batch::cuda`](crate::Batch), then finds it.
    fn inner(&self) -> Option<&dyn Transfer> {
        None
    }
}

impl dyn Transfer {
    /// The transfer that moves the batch itself, behind all those that only pass it on.
    #[cfg(feature = "cuda-driver")]
    pub(crate) fn innermost(&self) -> &dyn Transfer {
        let mut transfer = self;
        while let Some(inner) = transfer.inner() {
            transfer = inner;
        }
        transfer
    }
}

/// A kind of device.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The device's name in messages: `host:0`, `cuda:3`.
    fn name(&self) -> String;

    /// Allocates host memory that this device reads fast.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is none left.
    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError>;

    /// Creates a transfer for batches of up to this capacity.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device has no room.
    fn transfer(&self, capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError>;

    /// The same device, with transfers that transform the pixels of each batch: every batch submitted to them
    /// is [staged](HostBatch::staged), and has arrived when it is transformed.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoTransform`] if the device cannot do that, which is the default; another if the device
    /// fails.
    fn transforming(&self, transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        let _ = transform;
        Err(DeviceError::NoTransform { device: self.name() })
    }

    /// Whether it has memory of its own that a transfer takes up. A lane's ring then does not deepen by
    /// itself, because that memory is for the program that trains there.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// The free bytes of the device's own memory, if a transfer takes that up. A feed that needs more is
    /// refused before it starts.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device cannot tell.
    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }

    /// The first of several of its transfers whose [last use](Transfer::last_use) is over, or can no longer
    /// be determined. A lane calls this up to four thousand times a second, with all transfers whose batches
    /// its consumer has dropped. If queries of the device are expensive, it can answer for all of them at
    /// once.
    fn first_unused(
        &self,
        transfers: &mut dyn Iterator<Item = &dyn Transfer>,
    ) -> Option<(usize, Result<(), DeviceError>)> {
        find_unused(transfers, |transfer| transfer.last_use().is_complete())
    }

    /// The NUMA node of the host that is nearest to the device, by the system's number, if there is one and
    /// it is known.
    ///
    /// If the machine has several nodes, a lane of this device stays near that node:
    /// [`host_memory`](Self::host_memory) and [`transfer`](Self::transfer) are called on a thread that is
    /// bound to the node's processors during the call, so that the memory they touch is placed there. A
    /// thread that they start would inherit the binding and keep it.
    fn numa_node(&self) -> Option<usize> {
        None
    }
}

/// The first of several transfers for which `ask` reports that it is unused, or fails.
fn find_unused(
    transfers: &mut dyn Iterator<Item = &dyn Transfer>,
    ask: impl Fn(&dyn Transfer) -> Result<bool, DeviceError>,
) -> Option<(usize, Result<(), DeviceError>)> {
    transfers.enumerate().find_map(|(place, transfer)| match ask(transfer) {
        Ok(false) => None,
        Ok(true) => Some((place, Ok(()))),
        Err(error) => Some((place, Err(error))),
    })
}

/// The destination of a lane's batches.
#[derive(Clone, Debug)]
pub struct Device {
    backend: Arc<dyn Backend>,
    /// Whether it is the host itself, which releases a batch as soon as its consumer drops it.
    is_host: bool,
}

impl Device {
    /// A transfer to nowhere.
    pub(crate) fn nowhere() -> Box<dyn Transfer> {
        Box::new(host::InPlace)
    }

    /// The host itself, for training on the CPU, for tests and for measurements. Several lanes may end at the
    /// host; the number tells them apart in messages.
    #[must_use]
    pub fn host(number: usize) -> Self {
        Device { backend: Arc::new(host::Host::new(number)), is_host: true }
    }

    /// An NVIDIA GPU, by the driver's number for it. Feeds that share this value, or clones of it, share the
    /// stream on which batches are copied.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no driver, if it is too old, if it lists no such GPU, or if the GPU fails.
    #[cfg(feature = "cuda-driver")]
    pub fn cuda(ordinal: usize) -> Result<Self, DeviceError> {
        Ok(Device::from_backend(Arc::new(cuda::Cuda::new(ordinal)?)))
    }

    /// A device with a caller-implemented backend.
    #[must_use]
    pub fn from_backend(backend: Arc<dyn Backend>) -> Self {
        Device { backend, is_host: false }
    }

    /// The device's name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.backend.name()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Its backend, for one that wraps it.
    ///
    /// # Safety
    ///
    /// A lane keeps promises to the [`Transfer`]s of its device, and devices rely on them. Whoever makes a
    /// transfer by this backend must keep them in its place:
    ///
    /// - the memory of a submitted batch is not freed before the transfer is dropped, and the transfer is
    ///   dropped, not forgotten;
    /// - the memory is not written between a submission and the end of the transfer's last use;
    /// - no batch is submitted before the last use of the one before has ended.
    #[must_use]
    #[expect(unsafe_code, reason = "what a device relies on is the caller's to keep")]
    pub unsafe fn backend_to_wrap(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Whether dropping a transfer of this device may have to wait.
    pub(crate) fn keeps_batches(&self) -> bool {
        !self.is_host
    }

    /// Whether both are clones of one device.
    pub(crate) fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    /// The same device, which transforms the pixels of each batch in transfer.
    pub(crate) fn transforming(&self, transform: &DeviceTransform) -> Result<Self, DeviceError> {
        self.backend.transforming(transform).map(Device::from_backend)
    }

    /// Allocates host memory of at least the requested size that this device reads fast. Also returns the
    /// capacity for a transfer of anything that fits there.
    pub(crate) fn host_memory(
        &self,
        capacity: Capacity,
    ) -> Result<(Box<dyn HostMemory>, Capacity), DeviceError> {
        let bytes = capacity.bytes;
        let memory = self.backend.host_memory(bytes)?;
        if memory.len() < bytes {
            let message = format!("the device provided {} bytes", memory.len());
            return Err(DeviceError::OutOfMemory { device: self.name(), bytes, message });
        }
        let bytes = memory.len();
        Ok((memory, Capacity { bytes, ..capacity }))
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    /// Reads `host`, `host:N`, `cuda` or `cuda:N`.
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let (kind, number) = text.split_once(':').unwrap_or((text, "0"));
        match (kind, number.parse()) {
            ("host", Ok(number)) => Ok(Device::host(number)),
            #[cfg(feature = "cuda-driver")]
            ("cuda", Ok(number)) => Device::cuda(number),
            #[cfg(not(feature = "cuda-driver"))]
            ("cuda", Ok(_)) => Err(DeviceError::NotBuilt { device: text.to_owned() }),
            _ => Err(DeviceError::Unknown { device: text.to_owned() }),
        }
    }
}

/// What can be wrong with a device.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No such kind of device.
    #[error("there is no device {device:?}; there are host, host:N, cuda and cuda:N")]
    Unknown {
        /// The name.
        device: String,
    },
    /// A kind of device that this build does not drive.
    #[error("device {device:?}: this build drives no GPUs; build it with the feature cuda, or feed host:N")]
    NotBuilt {
        /// The name.
        device: String,
    },
    /// There is no CUDA driver.
    #[error(
        "no CUDA driver found: looked for libcuda.so, libcuda.so.1 and the like in the system's library \
         paths and in LD_LIBRARY_PATH; install NVIDIA's driver, or feed host:N"
    )]
    NoDriver,
    /// The CUDA driver is too old for the calls that this crate makes.
    #[cfg(feature = "cuda-driver")]
    #[error("the CUDA driver is for CUDA {found}, but at least {needed} is needed; update NVIDIA's driver")]
    DriverTooOld {
        /// The version of CUDA that the driver supports.
        found: cuda::Version,
        /// The version that is needed.
        needed: cuda::Version,
    },
    /// The driver lists no such device.
    #[error("there is no {device}: the driver lists {found} device(s), counted from 0")]
    NoSuchDevice {
        /// The device.
        device: String,
        /// The number of devices.
        found: usize,
    },
    /// The device was asked to transform batches, but cannot.
    #[error(
        "{device} does not transform batches by itself: let the workers do it ({}), or feed a GPU (cuda:N)",
        words("TransformPlace::Host", "--transform-on host", "transform_on=\"host\"")
    )]
    NoTransform {
        /// The device.
        device: String,
    },
    /// A stream of one device cannot wait for a batch on another.
    #[error("the batch is on {device}, but the stream is on {found}: let a stream of {device} wait for it")]
    OtherDevice {
        /// The batch's device.
        device: String,
        /// The stream's device.
        found: String,
    },
    /// A stream on which the end of a batch's use could not be observed.
    #[error("{device}: a batch cannot be used on this stream: it is {reason}; create a stream for it")]
    Stream {
        /// The device.
        device: String,
        /// What kind of stream it is.
        reason: &'static str,
    },
    /// The device has no memory left, or not enough.
    #[error("{device}: cannot reserve {bytes} bytes: {message}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// The requested size.
        bytes: usize,
        /// The system's message.
        message: String,
    },
    /// A call to the device failed.
    #[error("{device}: {call} failed: {message}")]
    Call {
        /// The device.
        device: String,
        /// The call.
        call: &'static str,
        /// The device's message.
        message: String,
    },
}
