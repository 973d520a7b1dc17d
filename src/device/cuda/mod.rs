//! NVIDIA's GPUs, through the driver that is loaded at run time.
//!
//! A lane's batches are in page-locked host memory. A complete batch is copied in one piece, on a stream of
//! the device's own, while the previous batch is trained on. Its consumer's stream waits for it on the
//! device, and releases it there: the host never waits.

mod array;
mod driver;
mod ending;
mod kernel;
mod memory;
mod module;
mod step;
mod stream;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{result, sys};

use self::driver::Context;
use self::ending::Call;
use self::kernel::Kernel;
use self::memory::{DeviceMemory, Pinned};
use self::stream::{CudaEvent, Stream};
use self::transfer::CudaTransfer;
use super::{Backend, Capacity, DeviceError, Event as _, Transfer, find_unused};
use crate::base::numa;
use crate::batch::memory::{HostMemory, PageMemory};
use crate::transform::DeviceTransform;

pub use self::array::DeviceArray;
pub use self::driver::Version;
pub use self::step::{StepTimes, SyntheticStep};
pub use self::transfer::CudaBatch;

/// A GPU, and the stream on which its batches are copied.
#[derive(Clone, Debug)]
pub(super) struct Cuda {
    copies: Arc<Stream>,
    /// The transform, if the device transforms the batches.
    kernel: Option<Arc<Kernel>>,
    numa_node: Option<usize>,
    /// Whether a warning about batches in ordinary memory was logged.
    has_warned: Arc<AtomicBool>,
}

impl Cuda {
    pub(super) fn new(ordinal: usize) -> Result<Self, DeviceError> {
        let context = Context::of(ordinal)?;
        // If the driver cannot tell, the node is unknown. Its error is reported where it matters.
        let pci =
            driver::begin(context.name()).and_then(|call| pci_name(&call, context.name(), context.device()));
        let numa_node = pci.ok().and_then(|pci| numa::node_of_pci(&pci));
        let copies = Arc::new(Stream::new(&context)?);
        Ok(Cuda { copies, kernel: None, numa_node, has_warned: Arc::default() })
    }

    fn context(&self) -> &Arc<Context> {
        self.copies.context()
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        self.context().name().to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        let error = match Pinned::new(self.context(), bytes) {
            Ok(memory) => return Ok(Box::new(memory)),
            Err(error) => error,
        };
        // Once per device, not once per batch: what holds for one batch holds for nearly all.
        if self.has_warned.swap(true, Ordering::Relaxed) || ending::has_begun() {
            tracing::debug!(%error, bytes, "no page-locked memory again");
        } else {
            tracing::warn!(
                %error,
                bytes,
                "no page-locked memory: using ordinary memory, from which the driver copies at about half \
                 the speed, while the lane's thread waits"
            );
        }
        match PageMemory::new(bytes) {
            Ok(memory) => Ok(Box::new(memory)),
            Err(error) => {
                Err(DeviceError::OutOfMemory { device: self.name(), bytes, message: error.to_string() })
            }
        }
    }

    fn transfer(&self, capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(CudaTransfer::new(&self.copies, self.kernel.as_ref(), capacity)?))
    }

    fn transforming(&self, transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        let kernel = Kernel::new(self.context(), transform)?;
        Ok(Arc::new(Cuda { kernel: Some(Arc::new(kernel)), ..self.clone() }))
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        self.context().memory().map(|(free, _)| Some(free))
    }

    /// Enters the context once: that takes four driver calls, a query takes one.
    fn first_unused(
        &self,
        transfers: &mut dyn Iterator<Item = &dyn Transfer>,
    ) -> Option<(usize, Result<(), DeviceError>)> {
        let mut transfers = transfers.peekable();
        transfers.peek()?;
        match self.context().enter() {
            Ok(entered) => {
                find_unused(&mut transfers, |transfer| CudaTransfer::is_unused(transfer, &entered))
            }
            Err(error) => Some((0, Err(error))),
        }
    }

    fn numa_node(&self) -> Option<usize> {
        self.numa_node
    }
}

/// A GPU as the driver describes it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its number: `cuda:ordinal`.
    pub ordinal: usize,
    /// Its model name.
    pub name: String,
    /// The size of its memory in bytes.
    pub memory_bytes: usize,
    /// The free bytes of its memory; `None` if this process can get no context in which to ask.
    pub free_bytes: Option<usize>,
    /// Its compute capability: major and minor.
    pub compute_capability: (i32, i32),
    /// Its place on the PCI bus, as in `/sys/bus/pci/devices`.
    pub pci: String,
    /// The NUMA node nearest to it, if the system has several and reports it.
    pub numa_node: Option<usize>,
    /// The version of CUDA that the driver supports.
    pub driver: Version,
}

impl CudaDevice {
    /// All GPUs that the driver lists, in its order.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no driver, if it is too old, or if it fails.
    pub fn all() -> Result<Vec<Self>, DeviceError> {
        match driver::count()? {
            0 => Ok(Vec::new()),
            count => {
                let driver = driver::start()?;
                (0..count).map(|ordinal| CudaDevice::look(ordinal, driver)).collect()
            }
        }
    }

    fn look(ordinal: usize, driver: Version) -> Result<Self, DeviceError> {
        use sys::CUdevice_attribute as Attribute;

        let known = format!("cuda:{ordinal}");
        let call = driver::begin(&known)?;
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let device = driver::check(&known, "cuDeviceGet", result::device::get(number))?;
        let number = |attribute| driver::attribute(&call, &known, device, attribute);
        let pci = pci_name(&call, &known, device)?;
        Ok(CudaDevice {
            ordinal,
            name: driver::check(&known, "cuDeviceGetName", result::device::get_name(device))?,
            memory_bytes: driver::memory_bytes(&call, &known, device)?,
            free_bytes: Context::of(ordinal).and_then(|context| context.memory()).ok().map(|(free, _)| free),
            compute_capability: (
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            numa_node: numa::node_of_pci(&pci),
            pci,
            driver,
        })
    }

    /// The name of its [`Device`](crate::Device): `cuda:0`.
    #[must_use]
    pub fn device(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }

    /// Measures the rate at which page-locked memory is copied to the device as a lane copies it, in bytes a
    /// second: the fastest of `rounds` copies of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the memory cannot be allocated, or the device fails.
    pub fn copy_rate(&self, bytes: usize, rounds: usize) -> Result<f64, DeviceError> {
        let context = Context::of(self.ordinal)?;
        let mut host = Pinned::new(&context, bytes)?;
        let memory = DeviceMemory::new(&context, bytes)?;
        let stream = Stream::new(&context)?;
        let [start, end] = [CudaEvent::timed(&context)?, CudaEvent::timed(&context)?];
        let mut best = f32::INFINITY;
        for _round in 0..rounds.max(1) {
            stream::copy_timed(&stream, &memory, &mut host, [&start, &end])?;
            end.wait()?;
            best = best.min(end.since(&start)?);
        }
        Ok(bytes as f64 / (f64::from(best) / 1e3))
    }
}

/// A device's place on the PCI bus, as Linux names it.
fn pci_name(call: &Call, known: &str, device: sys::CUdevice) -> Result<String, DeviceError> {
    use sys::CUdevice_attribute as Attribute;

    let number = |attribute| driver::attribute(call, known, device, attribute);
    Ok(format!(
        "{:04x}:{:02x}:{:02x}.0",
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
    ))
}
