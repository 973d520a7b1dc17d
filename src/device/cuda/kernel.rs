//! Transforms batches on their device.

#![expect(unsafe_code, reason = "the driver is C, and a kernel trusts its arguments")]

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

/// The kernels as PTX made from `kernels/transform.cu`, which the driver compiles for its GPU.
const TRANSFORM_PTX: &str = concat!(include_str!("kernels/transform.ptx"), "\0");

/// The shape of a block: threads along a row of the result, which form a warp and write adjacent elements;
/// then rows.
const BLOCK: (u32, u32, u32) = (32, 8, 1);

/// The most blocks along the grid's second axis.
const GRID_Y_MAX: u32 = 65_535;

/// The transform of a lane's batches, and the stream on which it runs.
#[derive(Debug)]
pub(super) struct Kernel {
    /// A stream of its own, so that the copy of the next batch does not wait for the transform, with priority
    /// over other streams, so that the transform does not wait for training on the previous batch.
    stream: Stream,
    /// Valid as long as the module. The launcher holds this value until it has waited for the kernels it
    /// launched.
    from_bytes: sys::CUfunction,
    from_floats: Option<sys::CUfunction>,
    _module: Module,
    means: DeviceMemory,
    mean_step: u32,
    mean_width: u32,
    scale: f32,
    layout: Layout,
}

// SAFETY: the driver may be called from any thread; a function is a name that it returned.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The sizes of a batch, laid out like the kernels' `struct Job`.
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

/// The device addresses of the arrays that a kernel reads and writes for a batch.
#[derive(Clone, Copy)]
pub(super) struct StagedAt {
    /// The records' windows: bytes or floats, according to `dtype`.
    pub(super) windows: sys::CUdeviceptr,
    pub(super) dtype: Dtype,
    pub(super) cuts: sys::CUdeviceptr,
    pub(super) transformed: sys::CUdeviceptr,
}

impl Kernel {
    /// Loads the kernels and uploads the means.
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

    /// Enqueues the transform of a batch on the kernel's stream.
    ///
    /// # Safety
    ///
    /// The arrays are on this kernel's device and are as large as a batch of shape `transformed` makes them.
    /// Nobody else uses `transformed` or writes the others until everything then on the stream is done.
    pub(super) unsafe fn launch(&self, at: StagedAt, transformed: BatchShape) -> Result<(), DeviceError> {
        if transformed.records == 0 {
            // A grid without blocks is an error.
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
        // For one record: fewer than 2^31, because an image has no more elements than that.
        let rows = if job.interleaved == 1 { job.height } else { size(image.channels * image.height)? };
        let grid = (rows.div_ceil(BLOCK.1), job.records.min(GRID_Y_MAX), 1);
        let function = match at.dtype {
            Dtype::F32 => self.from_floats.expect("the host refuses floats that would become bytes"),
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
        let stream = self.stream.handle();
        // SAFETY: the function and the stream live as long as `self`, and the arguments match the kernel's;
        // the driver copies them before it returns. The memory that they point to is the caller's promise.
        // The means live as long as `self`, which the batch's transfer keeps until the batch has arrived.
        let launched = unsafe { result::launch_kernel(function, grid, BLOCK, 0, stream, &mut arguments) };
        context.check("cuLaunchKernel", launched)
    }
}

/// Converts a size to the kernels' type.
fn side(context: &Context, size: usize) -> Result<u32, DeviceError> {
    let known = i32::try_from(size).ok().and_then(|size| u32::try_from(size).ok());
    known.ok_or_else(|| DeviceError::Call {
        device: context.name().to_owned(),
        call: "the transform",
        message: format!(
            "a size of {size} pixels, rows or records exceeds the 2^31 - 1 that its kernel can count"
        ),
    })
}
