//! Where batches go. Everything is asynchronous in form: start, and wait for an event.
//!
//! A [`Device`] hands out two things for each batch of a lane's ring, both made once, before the first
//! record is read: memory of the host that the device can read ([`HostMemory`]), and a [`Transfer`], which
//! takes a filled batch across and says when it has arrived and when its memory may be written again.

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

pub use crate::batch::{Capacity, HostMemory, PageMemory};

#[cfg(feature = "cuda-driver")]
pub use self::cuda::{CudaBatch, CudaDevice, DeviceArray, StepTimes, SyntheticStep, Version};
/// What [`CudaBatch`] speaks of streams with.
#[cfg(feature = "cuda-driver")]
pub use cudarc;

/// Something that will have happened.
pub trait Event: Send + Sync + fmt::Debug {
    /// Whether it has happened.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device can no longer tell.
    fn is_complete(&self) -> Result<bool, DeviceError>;

    /// Waits until it has.
    ///
    /// # Errors
    ///
    /// As [`is_complete`](Self::is_complete).
    fn wait(&self) -> Result<(), DeviceError>;
}

/// A filled batch in host memory, as a passage sees it.
#[derive(Clone, Copy)]
pub struct HostBatch<'a> {
    filled: &'a Filled,
}

/// One array of a batch in host memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct HostArray<'a> {
    /// Its name: that of its field, or, of what goes with a field of varying length, `FIELD.offsets` or `FIELD.lengths`.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its extents, records first.
    pub shape: Extents,
    /// Where it begins in the [memory](HostBatch::memory): a multiple of 64 bytes.
    pub offset: usize,
    /// Its elements.
    pub bytes: &'a [u8],
}

impl<'a> HostBatch<'a> {
    pub(crate) fn new(filled: &'a Filled) -> Self {
        HostBatch { filled }
    }

    /// The memory that came from [`Backend::host_memory`], from its first byte to the end of the last array, as the
    /// arrays lie in a batch that is full.
    #[must_use]
    pub fn memory(&self) -> &'a [u8] {
        self.filled.memory()
    }

    /// What lies where in it, of a batch that is full.
    #[must_use]
    pub fn layout(&self) -> &'a Arc<BatchLayout> {
        self.filled.layout()
    }

    /// Its rows: its records, and padding.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.filled.rows()
    }

    /// Its arrays, field by field.
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

    /// What the device has still to make of its first field, if it is one that [transforms](Backend::transforming).
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

/// The way of one of a lane's batches to the device, again and again.
///
/// A passage is dropped before the memory that its batches lie in, whatever is under way: its drop must wait
/// until the device no longer reads that memory. It is dropped on its lane's own thread, so that a consumer
/// that lets go of a batch, or of the lane, waits for no device; only [`Lane::close`](crate::Lane::close) does.
/// Of a passage that nothing was submitted to yet, both events have happened.
pub trait Transfer: Any + Send + Sync + fmt::Debug {
    /// Starts to move a batch, and returns without waiting for it.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError>;

    /// The event that the batch submitted last has arrived.
    fn arrival(&self) -> &dyn Event;

    /// Takes note that the consumer has let go of the batch. What it has queued on the device may still
    /// be reading it.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    fn release(&mut self) -> Result<(), DeviceError>;

    /// The event that nobody reads the batch any more, neither the device nor the consumer. Its memory is
    /// not written before.
    fn last_use(&self) -> &dyn Event;
}

/// A kind of device.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The device's name in messages: `host:0`, `cuda:3`.
    fn name(&self) -> String;

    /// Memory of the host that this device reads fast.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is none left.
    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError>;

    /// A way across for batches that need no more room than this.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device has no room.
    fn transfer(&self, capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError>;

    /// The same device, whose passages transform the pixels of each batch on the way: each batch that is submitted to
    /// them is [staged](HostBatch::staged), and has arrived when it is transformed.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoTransform`] if the device is no such device, which is what is said if nothing else is;
    /// another if the device fails.
    fn transforming(&self, transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        let _ = transform;
        Err(DeviceError::NoTransform { device: self.name() })
    }

    /// Whether it has memory of its own, of which a passage takes. Then a lane's ring does not become deeper by itself:
    /// that memory is for the program that trains there.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// Bytes of its own memory that are free, where a passage takes of that: a feed that needs more is refused
    /// before it is started.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device cannot tell.
    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }

    /// The first of several of its passages whose [last use](Transfer::last_use) is over, or cannot be told any
    /// more. A lane asks this up to four thousand times a second, of all passages that its consumer has let go of:
    /// a device to which a question is dear can answer all of them at once.
    fn first_unused(
        &self,
        transfers: &mut dyn Iterator<Item = &dyn Transfer>,
    ) -> Option<(usize, Result<(), DeviceError>)> {
        find_unused(transfers, |transfer| transfer.last_use().is_complete())
    }

    /// The NUMA node of the host that the device is nearest to, by the system's number, where there is one and it is
    /// known.
    ///
    /// Where the machine has several, a lane of this device keeps to it: both calls above that reserve memory are made
    /// by a thread that is bound to the node's processors for as long, so that what they touch lies there. A thread
    /// that they start would be bound as well, and stay so.
    fn numa_node(&self) -> Option<usize> {
        None
    }
}

/// The first of several passages that is unused, as `ask` says of each, or of which it cannot say that.
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

/// A place that a lane of batches ends at.
#[derive(Clone, Debug)]
pub struct Device {
    backend: Arc<dyn Backend>,
    /// The host itself, which has let go of a batch as soon as its consumer has.
    is_host: bool,
}

impl Device {
    /// A passage that leads nowhere.
    pub(crate) fn nowhere() -> Box<dyn Transfer> {
        Box::new(host::Standing)
    }

    /// The host itself, for training on the CPU, for tests and for measurements. Several lanes may end at
    /// the host; the number tells them apart in messages.
    #[must_use]
    pub fn host(number: usize) -> Self {
        Device { backend: Arc::new(host::Host::new(number)), is_host: true }
    }

    /// An NVIDIA GPU, by the number that its driver gives it. Feeds that share the answer, or a clone of it,
    /// share the stream that it is fed on.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no driver, if it is too old, if it lists no such GPU, or if the GPU fails.
    #[cfg(feature = "cuda-driver")]
    pub fn cuda(ordinal: usize) -> Result<Self, DeviceError> {
        Ok(Device::from_backend(Arc::new(cuda::Cuda::new(ordinal)?)))
    }

    /// A device of the caller's own making.
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

    /// Whether whoever drops a passage of this device may have to wait.
    pub(crate) fn keeps_batches(&self) -> bool {
        !self.is_host
    }

    /// Whether the two are clones of one.
    pub(crate) fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    /// The same device, which transforms the pixels of each batch on the way.
    pub(crate) fn transforming(&self, transform: &DeviceTransform) -> Result<Self, DeviceError> {
        self.backend.transforming(transform).map(Device::from_backend)
    }

    /// Memory of the host that this device reads fast, and as much as was asked for; and what a passage needs room for
    /// that takes whatever fits there.
    pub(crate) fn host_memory(
        &self,
        capacity: Capacity,
    ) -> Result<(Box<dyn HostMemory>, Capacity), DeviceError> {
        let bytes = capacity.bytes;
        let memory = self.backend.host_memory(bytes)?;
        if memory.len() < bytes {
            let message = format!("the device gave {} bytes", memory.len());
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
        /// The name that was given.
        device: String,
    },
    /// A kind of device that this build does not drive.
    #[error("device {device:?}: this build drives no GPUs; build it with the feature cuda, or feed host:N")]
    NotBuilt {
        /// The name that was given.
        device: String,
    },
    /// There is no CUDA driver.
    #[error(
        "no CUDA driver is found: looked for libcuda.so, libcuda.so.1 and the like where the system looks for \
         libraries, and in LD_LIBRARY_PATH; install NVIDIA's driver, or feed host:N"
    )]
    NoDriver,
    /// The CUDA driver lacks calls that are made here.
    #[cfg(feature = "cuda-driver")]
    #[error("the CUDA driver is for CUDA {found}, and at least {needed} is needed; update NVIDIA's driver")]
    DriverTooOld {
        /// What it is for.
        found: cuda::Version,
        /// What is needed.
        needed: cuda::Version,
    },
    /// The driver lists no such device.
    #[error("there is no {device}: the driver lists {found} device(s), counted from 0")]
    NoSuchDevice {
        /// The device.
        device: String,
        /// How many there are.
        found: usize,
    },
    /// The device was to transform batches.
    #[error(
        "{device} does not transform batches by itself: let the workers do it (Place::Host, --transform-on host), or feed a GPU (cuda:N)"
    )]
    NoTransform {
        /// The device.
        device: String,
    },
    /// A stream of one device was to wait for a batch on another.
    #[error("the batch is on {device}, and the stream is of {found}: let a stream of {device} wait for it")]
    OtherDevice {
        /// Where the batch is.
        device: String,
        /// Where the stream is.
        found: String,
    },
    /// A stream on which the end of a batch's use could not be seen.
    #[error(
        "{device}: a batch cannot be used on this stream: it is {reason}; use a stream of your own making"
    )]
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
        /// The size that was asked for.
        bytes: usize,
        /// What the system said.
        message: String,
    },
    /// A call to the device failed.
    #[error("{device}: {call} failed: {message}")]
    Call {
        /// The device.
        device: String,
        /// The call.
        call: &'static str,
        /// What the device said.
        message: String,
    },
}
