//! Batches as DLPack tensors: any framework that speaks it takes them as they lie, without a copy.
//!
//! The layout is that of `dlpack.h` 1.0, `DLManagedTensorVersioned`.

#![expect(unsafe_code, reason = "DLPack is C: a struct that frees itself through a function pointer")]

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use super::batch::Batch;
use crate::device::DeviceError;
use crate::shape::{BatchShape, Dtype};
use crate::sync::panic_message;

/// The version of DLPack that tensors are laid out for.
pub const DLPACK_VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes where the layout does.
    pub major: u32,
    /// Changes where something is added.
    pub minor: u32,
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// 1 is the host (`kDLCPU`), 2 a CUDA device (`kDLCUDA`).
    pub device_type: i32,
    /// Which of them.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 is a signed integer, 1 an unsigned one, 2 a float, 4 a bfloat.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// 1: elements are no vectors.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// Where the first element lies, on the device.
    pub data: *mut c_void,
    /// The device.
    pub device: DLDevice,
    /// How many axes there are.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The extents of the axes, outermost first.
    pub shape: *mut i64,
    /// How many elements apart neighbours along each axis lie.
    pub strides: *mut i64,
    /// 0: `data` is the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensorVersioned`: a tensor, and how it is given back.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Of the layout.
    pub version: DLPackVersion,
    /// The deleter's own.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back; called once, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// None: the tensor may be written to, for nobody else sees it.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// The arrays of a batch as tensors. The batch's memory goes back to its lane when the last of them is given back.
#[derive(Debug)]
pub struct DlpackBatch {
    /// The pixels, of the shape [`BatchShape::dims`].
    pub pixels: DlpackTensor,
    /// The targets, if the feed has any.
    pub target: Option<DlpackTensor>,
    /// The labels: one axis of `i32`.
    pub labels: DlpackTensor,
}

/// A tensor that is given back when it is dropped, unless it was [handed on](Self::into_raw).
pub struct DlpackTensor(NonNull<DLManagedTensorVersioned>);

// SAFETY: the tensor's memory is the batch's, which may be dropped on any thread; nobody else has the tensor.
unsafe impl Send for DlpackTensor {}
// SAFETY: a shared reference only reads the description.
unsafe impl Sync for DlpackTensor {}

const AXES_MAX: usize = 4;

/// What a tensor is made of: the struct that the other side sees, and what its pointers lead to.
struct Managed {
    tensor: DLManagedTensorVersioned,
    shape: [i64; AXES_MAX],
    strides: [i64; AXES_MAX],
    /// Keeps the memory; the last of its tensors gives it back.
    _batch: Arc<Batch>,
}

/// An array of a batch before it is one of a [`Managed`].
struct Array<'a> {
    data: *mut c_void,
    dims: &'a [usize],
    dtype: DLDataType,
}

impl Batch {
    /// The batch as DLPack tensors, without a copy.
    ///
    /// On a CUDA device, let the streams that will read the tensors [wait for the batch](crate::CudaBatch::wait_on)
    /// first: what they have queued when the last tensor is given back counts as its use. Where none waits, this
    /// call itself waits until the batch has arrived, and whoever gives back the last tensor must be done with it.
    ///
    /// Of a device of the caller's own making the tensors are what lies on the host: [`host_shape`](Self::host_shape).
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device failed on the way.
    pub fn into_dlpack(self) -> Result<DlpackBatch, DeviceError> {
        let Addresses { device, pixels, shape, target, labels } = self.located()?;
        let target_shape = self.target_shape();
        let batch = Arc::new(self);
        let records = [shape.records];
        let tensor =
            |data, dims: &[usize], dtype| DlpackTensor::new(&batch, device, &Array { data, dims, dtype });
        Ok(DlpackBatch {
            pixels: tensor(pixels, &shape.dims(), data_type(shape.dtype)),
            target: target_shape
                .map(|shape: BatchShape| tensor(target, &shape.dims(), data_type(shape.dtype))),
            labels: tensor(labels, &records, DLDataType { code: INT, bits: 32, lanes: 1 }),
        })
    }

    /// Where its arrays lie, once it has arrived or a stream waits for it.
    fn located(&self) -> Result<Addresses, DeviceError> {
        #[cfg(feature = "cuda-driver")]
        if let Some(there) = self.cuda() {
            if !there.is_awaited() {
                self.wait()?;
            }
            let at = |array: &crate::device::DeviceArray| {
                let address = usize::try_from(array.pointer);
                std::ptr::without_provenance_mut(address.expect("CUDA runs where addresses have 64 bits"))
            };
            return Ok(Addresses {
                device: DLDevice {
                    device_type: CUDA,
                    device_id: i32::try_from(there.ordinal()).expect("CUDA counts devices in an int"),
                },
                pixels: at(&there.pixels()),
                shape: self.shape(),
                target: there.target().as_ref().map_or(std::ptr::null_mut(), at),
                labels: at(&there.labels()),
            });
        }
        self.wait()?;
        let [pixels, target, labels] = self.addresses();
        let device = DLDevice { device_type: HOST, device_id: 0 };
        let shape = self.host_shape();
        Ok(Addresses { device, pixels: pixels.cast(), shape, target: target.cast(), labels: labels.cast() })
    }
}

/// Where the arrays of a batch lie.
struct Addresses {
    device: DLDevice,
    pixels: *mut c_void,
    /// Of what lies there.
    shape: BatchShape,
    target: *mut c_void,
    labels: *mut c_void,
}

const HOST: i32 = 1;
#[cfg(feature = "cuda-driver")]
const CUDA: i32 = 2;

const INT: u8 = 0;
const UNSIGNED: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;

fn data_type(dtype: Dtype) -> DLDataType {
    let (code, bits) = match dtype {
        Dtype::U8 => (UNSIGNED, 8),
        Dtype::F16 => (FLOAT, 16),
        Dtype::Bf16 => (BFLOAT, 16),
        Dtype::F32 => (FLOAT, 32),
    };
    DLDataType { code, bits, lanes: 1 }
}

impl DlpackTensor {
    fn new(batch: &Arc<Batch>, device: DLDevice, array: &Array<'_>) -> Self {
        let (mut shape, mut strides) = ([1; AXES_MAX], [1; AXES_MAX]);
        let mut stride = 1_i64;
        for (axis, &extent) in array.dims.iter().enumerate().rev() {
            // An array has fewer elements than an isize counts.
            let extent = i64::try_from(extent).expect("an array is no larger than memory");
            (shape[axis], strides[axis]) = (extent, stride);
            stride = stride.checked_mul(extent).expect("an array is no larger than memory");
        }
        let tensor = DLManagedTensorVersioned {
            version: DLPACK_VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor: DLTensor {
                data: array.data,
                device,
                ndim: i32::try_from(array.dims.len()).expect("there are four axes at the most"),
                dtype: array.dtype,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        };
        let managed = Box::into_raw(Box::new(Managed { tensor, shape, strides, _batch: batch.clone() }));
        // SAFETY: the box was just given up, and nobody else knows where it is.
        let whole = unsafe { &mut *managed };
        whole.tensor.dl_tensor.shape = (&raw mut whole.shape).cast();
        whole.tensor.dl_tensor.strides = (&raw mut whole.strides).cast();
        whole.tensor.manager_ctx = managed.cast();
        DlpackTensor(NonNull::from(&mut whole.tensor))
    }

    /// The tensor, to look at.
    #[must_use]
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: the struct is there until the deleter has been called, which only the drop does.
        unsafe { &self.0.as_ref().dl_tensor }
    }

    /// Hands it on: to a framework, or into a capsule named `dltensor_versioned`. Whoever has it calls its deleter
    /// once; otherwise the batch never goes back to its lane.
    #[must_use = "a tensor that is lost never gives its memory back"]
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and not handed on.
        unsafe { delete(self.0.as_ptr()) };
    }
}

impl fmt::Debug for DlpackTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlpackTensor").field(self.tensor()).finish()
    }
}

/// Gives a tensor back.
///
/// # Safety
///
/// It is one of ours, and was not given back before.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: it is one of ours, and still there.
    let managed = unsafe { (*tensor).manager_ctx }.cast::<Managed>();
    // SAFETY: `new` gave the box up, and put it there; it is taken back once.
    let managed = unsafe { Box::from_raw(managed) };
    // A panic that comes to a function of C ends the process.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(managed))) {
        let message = panic_message(&*panic);
        // Whoever listens may be what panics.
        let _ = catch_unwind(|| tracing::error!(message, "giving a tensor back panicked; this is a bug"));
    }
}
