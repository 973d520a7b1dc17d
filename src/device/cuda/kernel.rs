//! The transform of a batch on its device.

#![expect(unsafe_code, reason = "the driver is C, and a kernel takes what it is given")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::Context;
use super::memory::DeviceMemory;
use super::module::Module;
use super::stream::Stream;
use crate::base::shape::{BatchShape, Dtype, ImageShape, Layout};
use crate::device::DeviceError;
use crate::transform::DeviceTransform;

/// The kernels, for the driver to compile for its GPU. It is made of `kernels/transform.cu`.
const TRANSFORM_PTX: &str = concat!(include_str!("kernels/transform.ptx"), "\0");

/// Threads along a row of the result, which the warp that they are writes side by side; and rows of a block.
const BLOCK: (u32, u32, u32) = (32, 8, 1);

/// The most blocks along the grid's second axis.
const GRID_Y_MAX: u32 = 65_535;

/// What is done to a lane's batches, and the stream on which it is done.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Of its own, so that the copy of the next batch does not wait for it, and before others, so that it does not
    /// wait for what trains on the batch before.
    stream: Stream,
    /// Whoever has launched them waits for them, and holds this value until then: they go with their module.
    from_bytes: sys::CUfunction,
    from_floats: Option<sys::CUfunction>,
    _module: Module,
    means: DeviceMemory,
    mean_step: u32,
    mean_width: u32,
    scale: f32,
    layout: Layout,
}

// SAFETY: the driver may be called from any thread; a function is a name that it gave out.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The sizes of a batch, as `struct Job` of the kernels has them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Job {
    records: u32,
    channels: u32,
    height: u32,
    width: u32,
    mean_step: u32,
    mean_width: u32,
    interleaved: u32,
    scale: f32,
}

/// Where the arrays of a batch lie that a kernel reads and writes, on the device.
#[derive(Clone, Copy)]
pub(super) struct StagedAt {
    /// The records' windows: bytes or floats, as `dtype` says.
    pub(super) windows: sys::CUdeviceptr,
    pub(super) dtype: Dtype,
    pub(super) cuts: sys::CUdeviceptr,
    pub(super) transformed: sys::CUdeviceptr,
}

impl Kernel {
    /// Compiles the kernels and sends the means.
    pub(super) fn new(context: &Arc<Context>, transform: &DeviceTransform) -> Result<Self, DeviceError> {
        let stream = Stream::urgent(context)?;
        let (means, mean_step, mean_width) = match transform.mean_image() {
            Some(image) => {
                let ImageShape { height, width, .. } = image.shape();
                (image.pixels(), side(context, height * width)?, side(context, width)?)
            }
            None => (transform.mean_values(), u32::from(transform.mean_values().len() > 1), 0),
        };
        let module = Module::new(context, TRANSFORM_PTX)?;
        let (from_bytes, from_floats) = match transform.dtype() {
            Dtype::U8 => (c"u8_to_u8", None),
            Dtype::F32 => (c"u8_to_f32", Some(c"f32_to_f32")),
            Dtype::F16 => (c"u8_to_f16", Some(c"f32_to_f16")),
            Dtype::Bf16 => (c"u8_to_bf16", Some(c"f32_to_bf16")),
            _ => unreachable!("no image is made of other types"),
        };
        Ok(Kernel {
            from_bytes: module.function(from_bytes)?,
            from_floats: from_floats.map(|name| module.function(name)).transpose()?,
            _module: module,
            means: stream.upload(bytemuck::cast_slice(means))?,
            mean_step,
            mean_width,
            scale: transform.scale(),
            layout: transform.layout(),
            stream,
        })
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Puts the transform of a batch on the kernel's stream.
    ///
    /// # Safety
    ///
    /// The arrays are on this kernel's device, as large as a batch of shape `transformed` makes them, and nobody else
    /// uses `transformed` or writes the others until what is on the stream then has been done.
    pub(super) unsafe fn launch(&self, at: StagedAt, transformed: BatchShape) -> Result<(), DeviceError> {
        if transformed.records == 0 {
            // A grid of no blocks is an error.
            return Ok(());
        }
        let context = self.stream.context();
        let image = transformed.image;
        let size = |size| side(context, size);
        let mut job = Job {
            records: size(transformed.records)?,
            channels: size(image.channels)?,
            height: size(image.height)?,
            width: size(image.width)?,
            mean_step: self.mean_step,
            mean_width: self.mean_width,
            interleaved: (self.layout == Layout::Nhwc).into(),
            scale: self.scale,
        };
        // Of one record: fewer than 2^31, for an image has no more elements.
        let rows = if job.interleaved == 1 { job.height } else { size(image.channels * image.height)? };
        let grid = (rows.div_ceil(BLOCK.1), job.records.min(GRID_Y_MAX), 1);
        let function = match at.dtype {
            Dtype::F32 => self.from_floats.expect("floats that were to become bytes are refused on the host"),
            _ => self.from_bytes,
        };
        let StagedAt { mut windows, mut cuts, mut transformed, .. } = at;
        let mut means = self.means.first();
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut windows).cast(),
            (&raw mut means).cast(),
            (&raw mut cuts).cast(),
            (&raw mut transformed).cast(),
            (&raw mut job).cast(),
        ];
        let _entered = context.enter()?;
        // SAFETY: the function and the stream are there as long as `self` is, and the arguments are those that the
        // kernel has; the driver copies them before it returns. What they lead to is the caller's promise; the means
        // are there as long as `self` is, which the passage of the batch keeps until it has arrived.
        let launched =
            unsafe { result::launch_kernel(function, grid, BLOCK, 0, self.stream.handle(), &mut arguments) };
        context.told("cuLaunchKernel", launched)
    }
}

/// A size as the kernels take it.
fn side(context: &Context, size: usize) -> Result<u32, DeviceError> {
    let known = i32::try_from(size).ok().and_then(|size| u32::try_from(size).ok());
    known.ok_or_else(|| DeviceError::Call {
        device: context.name().to_owned(),
        call: "the transform",
        message: format!(
            "a size of {size} pixels, rows or records is more than the 2^31 - 1 that its kernel counts"
        ),
    })
}
