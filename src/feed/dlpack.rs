//! Batches as DLPack tensors, which many frameworks take without a copy.
//!
//! [`Batch::into_dlpack`] turns a batch into a [`DlpackBatch`]: one [`DlpackTensor`] for each array.
//! [`DlpackTensor::into_raw`] hands a tensor to a framework. The batch's memory returns to its lane when the
//! last tensor is released.
//!
//! The structs are laid out as in `dlpack.h` 1.0 (`DLManagedTensorVersioned`).

#![expect(unsafe_code, reason = "DLPack is C: a struct that frees itself through a function pointer")]

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use super::batch::Batch;
use crate::base::shape::{AXES_MAX, Dtype, Extents};
use crate::base::sync::panic_message;
use crate::device::DeviceError;
use crate::record::{RecordId, StepEnd};

/// The DLPack version of the tensors' layout.
pub const DLPACK_VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes when the layout changes.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// 1 is the host (`kDLCPU`), 2 a CUDA device (`kDLCUDA`).
    pub device_type: i32,
    /// Which device of this type.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// The kind of number: 0 is a signed integer, 1 an unsigned one, 2 a float, 4 a bfloat, 6 a bool.
    pub code: u8,
    /// The bits of an element.
    pub bits: u8,
    /// 1: elements are not vectors.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The address of the first element, on the device.
    pub data: *mut c_void,
    /// The device.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The extents of the axes, outermost first.
    pub shape: *mut i64,
    /// The distance of neighbours along each axis, in elements.
    pub strides: *mut i64,
    /// 0: `data` is the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensorVersioned`: a tensor, and how it is released.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the layout.
    pub version: DLPackVersion,
    /// For the deleter alone.
    pub manager_ctx: *mut c_void,
    /// Releases the tensor. To be called once, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// No flags: the tensor may be written to, because nobody else uses it.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// `DLManagedTensor`: the struct of DLPack before it had versions, which older frameworks expect.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// For the deleter alone.
    pub manager_ctx: *mut c_void,
    /// Releases the tensor. To be called once, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// The arrays of a batch as tensors, by name: its fields, and `FIELD.offsets` or `FIELD.lengths` for fields
/// of varying length. The batch's memory returns to its lane when the last tensor is released.
#[derive(Debug)]
pub struct DlpackBatch(Vec<(Arc<str>, DlpackTensor)>);

impl DlpackBatch {
    /// Returns a tensor by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DlpackTensor> {
        self.0.iter().find_map(|(found, tensor)| (&**found == name).then_some(tensor))
    }

    /// Takes a tensor by name, to hand it on, and removes it from the batch.
    #[must_use]
    pub fn take(&mut self, name: &str) -> Option<DlpackTensor> {
        let at = self.0.iter().position(|(found, _)| &**found == name)?;
        Some(self.0.remove(at).1)
    }

    /// Returns the tensors' names, field by field.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }
}

impl IntoIterator for DlpackBatch {
    type Item = (Arc<str>, DlpackTensor);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A tensor that is released when it is dropped, unless it was [handed on](Self::into_raw).
pub struct DlpackTensor(NonNull<Managed>);

// SAFETY: the tensor's memory is the batch's, which may be dropped on any thread; nobody else has the tensor.
unsafe impl Send for DlpackTensor {}
// SAFETY: a shared reference only reads the description.
unsafe impl Sync for DlpackTensor {}

/// What a tensor consists of: the structs that the other side sees, and what their pointers lead to.
struct Managed {
    versioned: DLManagedTensorVersioned,
    unversioned: DLManagedTensor,
    shape: [i64; AXES_MAX],
    strides: [i64; AXES_MAX],
    /// Keeps the memory, which the last of the batch's tensors releases.
    batch: Arc<Batch>,
}

/// An array of a batch, from which a [`Managed`] is made.
struct Array {
    name: Arc<str>,
    data: *mut c_void,
    shape: Extents,
    dtype: Dtype,
}

impl Batch {
    /// Turns the batch into DLPack tensors, without a copy.
    ///
    /// On a CUDA device, first let the streams that will read the tensors [wait for the
    /// batch](crate::device::CudaBatch::wait_on). The work that they have queued when the last tensor is
    /// released counts as its use. If no stream waits, this call itself waits until the batch has arrived,
    /// and the tensors must no longer be in use when the last of them is released.
    ///
    /// For a caller-implemented device, the tensors are the arrays on the host:
    /// [`host_shape`](Self::host_shape).
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device failed on the way.
    pub fn into_dlpack(self) -> Result<DlpackBatch, DeviceError> {
        let (device, arrays) = self.located()?;
        let batch = Arc::new(self);
        let tensor = |array: Array| (array.name.clone(), DlpackTensor::new(&batch, device, &array));
        Ok(DlpackBatch(arrays.into_iter().map(tensor).collect()))
    }

    /// Where its arrays are, once it has arrived or a stream waits for it.
    fn located(&self) -> Result<(DLDevice, Vec<Array>), DeviceError> {
        let layout = self.filled().layout();
        #[cfg(feature = "cuda-driver")]
        if let Some(there) = self.cuda() {
            if !there.is_awaited() {
                self.wait()?;
            }
            let device_id = i32::try_from(there.ordinal()).expect("CUDA counts devices in an int");
            let array = |(array, (_, there)): (&crate::batch::Array, (&str, crate::device::DeviceArray))| {
                let address = usize::try_from(there.pointer);
                let address = address.expect("CUDA runs where addresses have 64 bits");
                Array {
                    name: array.name.clone(),
                    data: std::ptr::without_provenance_mut(address),
                    shape: there.shape,
                    dtype: there.dtype,
                }
            };
            let arrays = layout.arrays().iter().zip(there.arrays()).map(array).collect();
            return Ok((DLDevice { device_type: CUDA, device_id }, arrays));
        }
        self.wait()?;
        let array = |array: &crate::batch::Array| Array {
            name: array.name.clone(),
            data: self.filled().address(array).cast(),
            shape: self.filled().extents(array),
            dtype: array.dtype,
        };
        let arrays = layout.arrays().iter().map(array).collect();
        Ok((DLDevice { device_type: HOST, device_id: 0 }, arrays))
    }
}

const HOST: i32 = 1;
#[cfg(feature = "cuda-driver")]
const CUDA: i32 = 2;

const INT: u8 = 0;
const UNSIGNED: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

fn data_type(dtype: Dtype) -> DLDataType {
    let (code, bits) = match dtype {
        Dtype::U8 => (UNSIGNED, 8),
        Dtype::U16 => (UNSIGNED, 16),
        Dtype::U32 => (UNSIGNED, 32),
        Dtype::U64 => (UNSIGNED, 64),
        Dtype::I8 => (INT, 8),
        Dtype::I16 => (INT, 16),
        Dtype::I32 => (INT, 32),
        Dtype::I64 => (INT, 64),
        Dtype::F16 => (FLOAT, 16),
        Dtype::F32 => (FLOAT, 32),
        Dtype::F64 => (FLOAT, 64),
        Dtype::Bf16 => (BFLOAT, 16),
        Dtype::Bool => (BOOL, 8),
    };
    DLDataType { code, bits, lanes: 1 }
}

impl DlpackTensor {
    fn new(batch: &Arc<Batch>, device: DLDevice, array: &Array) -> Self {
        let (mut shape, mut strides) = ([1; AXES_MAX], [1; AXES_MAX]);
        let apart = array.shape.strides();
        let of_axes = shape.iter_mut().zip(&mut strides).zip(array.shape.iter().zip(&*apart));
        for ((shape, strides), (&sizing, &stride)) in of_axes {
            // An array has fewer elements than an isize counts.
            let number = |number| i64::try_from(number).expect("an array is no larger than memory");
            (*shape, *strides) = (number(sizing), number(stride));
        }
        // Its pointers lead into the box, and are set when the box has its final address.
        let tensor = || DLTensor {
            data: array.data,
            device,
            ndim: i32::try_from(array.shape.len()).expect("there are at most eight axes"),
            dtype: data_type(array.dtype),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let manager_ctx = std::ptr::null_mut();
        let versioned = DLManagedTensorVersioned {
            version: DLPACK_VERSION,
            manager_ctx,
            deleter: Some(delete_versioned),
            flags: 0,
            dl_tensor: tensor(),
        };
        let unversioned =
            DLManagedTensor { dl_tensor: tensor(), manager_ctx, deleter: Some(delete_unversioned) };
        let managed = Box::new(Managed { versioned, unversioned, shape, strides, batch: batch.clone() });
        let managed = Box::into_raw(managed);
        // No reference to the whole struct is made from here on, so the addresses of its parts stay valid.
        // SAFETY: the box was just given up, and nobody else has its address; only an address in it is taken.
        let shape = unsafe { &raw mut (*managed).shape };
        // SAFETY: as above.
        let strides = unsafe { &raw mut (*managed).strides };
        // SAFETY: as above; the reference is to this part, and to no other.
        let versioned = unsafe { &mut (*managed).versioned };
        versioned.manager_ctx = managed.cast();
        (versioned.dl_tensor.shape, versioned.dl_tensor.strides) = (shape.cast(), strides.cast());
        // SAFETY: as above.
        let unversioned = unsafe { &mut (*managed).unversioned };
        unversioned.manager_ctx = managed.cast();
        (unversioned.dl_tensor.shape, unversioned.dl_tensor.strides) = (shape.cast(), strides.cast());
        DlpackTensor(NonNull::new(managed).expect("a box is somewhere"))
    }

    /// Returns the tensor's description.
    #[must_use]
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: the struct exists until a deleter has been called, which only the drop does.
        unsafe { &(*self.0.as_ptr()).versioned.dl_tensor }
    }

    /// Returns its extents, records first. Its elements follow one another without gaps.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        let axes = usize::try_from(self.tensor().ndim).unwrap_or_default();
        // SAFETY: as in `tensor`. Nobody writes to this part after `new`.
        unsafe { &(&(*self.0.as_ptr()).shape)[..axes] }
    }

    /// Makes everything enqueued on a CUDA stream from here on wait until the batch has arrived, as
    /// [`CudaBatch::wait_on_raw`](crate::device::CudaBatch::wait_on_raw) does. What the stream has queued
    /// when the batch's last tensor is released counts as its use. For a batch on another device, it does
    /// nothing.
    ///
    /// # Safety
    ///
    /// As for [`CudaBatch::wait_on_raw`](crate::device::CudaBatch::wait_on_raw).
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device refuses.
    #[cfg(feature = "cuda-driver")]
    pub unsafe fn wait_on_raw(&self, stream: *mut c_void) -> Result<(), DeviceError> {
        match self.batch().cuda() {
            // SAFETY: the caller promises this.
            Some(there) => unsafe { there.wait_on_raw(stream) },
            None => Ok(()),
        }
    }

    /// The batch. Its arrays belong to the holders of the tensors; only what accompanies the arrays may be
    /// read.
    fn batch(&self) -> &Batch {
        // SAFETY: as in `tensor`. No `&mut` to this part is ever made.
        unsafe { &(*self.0.as_ptr()).batch }
    }

    /// Returns the records of the batch, in the order of its rows. Rows after them are padding.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        self.batch().records()
    }

    /// Returns the [step](Batch::step) that the batch belongs to.
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.batch().step()
    }

    /// Hands the tensor on: to a framework, or into a capsule named `dltensor_versioned`. The new owner must
    /// call its deleter once; otherwise the batch never returns to its lane.
    #[must_use = "a tensor that is lost never releases its memory"]
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        let managed = self.0.as_ptr();
        std::mem::forget(self);
        // SAFETY: the struct exists until its deleter is called; only the address of a part is taken.
        unsafe { &raw mut (*managed).versioned }
    }

    /// Hands the tensor on without a version: to an older framework, or into a capsule named `dltensor`.
    /// Otherwise the same as [`into_raw`](Self::into_raw).
    #[must_use = "a tensor that is lost never releases its memory"]
    pub fn into_raw_unversioned(self) -> *mut DLManagedTensor {
        let managed = self.0.as_ptr();
        std::mem::forget(self);
        // SAFETY: the struct exists until its deleter is called; only the address of a part is taken.
        unsafe { &raw mut (*managed).unversioned }
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and it was not handed on.
        unsafe { give_back(self.0.as_ptr()) };
    }
}

impl fmt::Debug for DlpackTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlpackTensor").field(self.tensor()).finish()
    }
}

/// Releases a tensor.
///
/// # Safety
///
/// `tensor` is null, or one of ours that was not released before.
unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    if !tensor.is_null() {
        // SAFETY: it is one of ours, and was not released before.
        let managed = unsafe { (*tensor).manager_ctx };
        // SAFETY: `new` put the box's address there.
        unsafe { give_back(managed.cast()) };
    }
}

/// Releases a tensor without a version.
///
/// # Safety
///
/// As for [`delete_versioned`].
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: it is one of ours, and was not released before.
        let managed = unsafe { (*tensor).manager_ctx };
        // SAFETY: `new` put the box's address there.
        unsafe { give_back(managed.cast()) };
    }
}

/// # Safety
///
/// `new` gave up the box, and it was not released before.
unsafe fn give_back(managed: *mut Managed) {
    // SAFETY: that is what the caller promises.
    let managed = unsafe { Box::from_raw(managed) };
    // A panic that leaves an `extern "C"` function ends the process.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(managed))) {
        let message = panic_message(&*panic);
        // The log's subscriber may be what panics.
        let _ = catch_unwind(|| tracing::error!(message, "releasing a tensor panicked; this is a bug"));
    }
}
