//! DLPack capsules: an array of a batch, handed to a framework without a copy.
//!
//! # Invariants
//!
//! 1. A capsule named [`VERSIONED`] or [`UNVERSIONED`] holds the address of the like-named part of one
//!    [`Managed`], which has not been released. A consumer renames the capsule, and must then call the
//!    deleter. If it is not renamed, its destructor makes that call.
//! 2. What the pointers of a [`Managed`] lead to lives as long as its `owner` and `copy` do.
//! 3. A deleter may be called on any thread, with or without the interpreter. So releasing an array touches
//!    no Python object, and does nothing in a forked child, which has no thread to fill the memory again.

#![expect(unsafe_code, reason = "DLPack and capsules are C: structs that free themselves through a pointer")]

use std::any::Any;
use std::collections::TryReserveError;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use percolator::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_VERSION, DLTensor, DlpackTensor,
};
use percolator_serve::RemoteArray;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::process::OfProcess;

const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// The flag of a tensor that is not to be written to.
const IS_READ_ONLY: u64 = 1;

/// The flag of a tensor that is a copy of its own.
const IS_COPIED: u64 = 1 << 1;

/// Where arrays on the host are.
const HOST: DLDevice = DLDevice { device_type: 1, device_id: 0 };

/// Where frameworks want an array to start.
const ALIGNMENT: usize = 64;

/// An array of a batch, shared by everybody who has it.
pub(crate) struct SharedArray(OfProcess<ArrayMemory>);

/// Whose memory an array is.
enum ArrayMemory {
    Feed(DlpackTensor),
    Server(ServerArray),
}

/// An array of a batch of a server.
pub(crate) struct ServerArray {
    array: RemoteArray,
    dtype: DLDataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Whether it is the server's own memory, which its other clients read.
    is_read_only: bool,
    /// Counts while the array lives.
    _held: Arc<dyn Any + Send + Sync>,
}

impl ServerArray {
    pub(crate) fn new(
        array: RemoteArray,
        dtype: DLDataType,
        is_read_only: bool,
        held: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // An array without elements may have any extents.
        let number = |&extent: &usize| i64::try_from(extent).unwrap_or(i64::MAX);
        let shape: Vec<i64> = array.shape().iter().map(number).collect();
        let mut strides = vec![1_i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
        }
        ServerArray { array, dtype, shape, strides, is_read_only, _held: held }
    }

    fn description(&self) -> DLTensor {
        DLTensor {
            // Nothing of this library reads what came, so whoever has it may write to it.
            data: self.array.as_ref().as_ptr().cast_mut().cast(),
            device: HOST,
            ndim: i32::try_from(self.shape.len()).unwrap_or(i32::MAX),
            dtype: self.dtype,
            // DLPack has no constants. Nobody writes there.
            shape: self.shape.as_ptr().cast_mut(),
            strides: self.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }
}

impl SharedArray {
    pub(crate) fn new(tensor: DlpackTensor) -> Self {
        SharedArray(OfProcess::new(ArrayMemory::Feed(tensor)))
    }

    pub(crate) fn of_server(array: ServerArray) -> Self {
        SharedArray(OfProcess::new(ArrayMemory::Server(array)))
    }

    /// The memory. Only its description is read, so a forked child may do it.
    fn memory(&self) -> &ArrayMemory {
        self.0.get_anywhere()
    }

    /// Describes the array, by pointers to what lives as long as it does.
    fn description(&self) -> DLTensor {
        let of = match self.memory() {
            ArrayMemory::Feed(tensor) => tensor.tensor(),
            ArrayMemory::Server(array) => return array.description(),
        };
        DLTensor {
            data: of.data,
            device: of.device,
            ndim: of.ndim,
            dtype: of.dtype,
            shape: of.shape,
            strides: of.strides,
            byte_offset: 0,
        }
    }

    /// Its extents, rows first.
    pub(crate) fn shape(&self) -> &[i64] {
        match self.memory() {
            ArrayMemory::Feed(tensor) => tensor.shape(),
            ArrayMemory::Server(array) => &array.shape,
        }
    }

    pub(crate) fn data_type(&self) -> DLDataType {
        self.description().dtype
    }

    pub(crate) fn device(&self) -> DLDevice {
        self.description().device
    }

    pub(crate) fn address(&self) -> usize {
        self.description().data.addr()
    }

    /// Whether it is memory that only its owner writes to.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.memory(), ArrayMemory::Server(ServerArray { is_read_only: true, .. }))
    }

    pub(crate) fn bytes(&self) -> usize {
        if let ArrayMemory::Server(array) = self.memory() {
            return array.array.as_ref().len();
        }
        let elements: i64 = self.shape().iter().product();
        let size = usize::from(self.data_type().bits).div_ceil(8);
        usize::try_from(elements).unwrap_or_default().saturating_mul(size)
    }

    /// Makes a CUDA stream wait until the array has arrived. The stream's work until the array is released
    /// counts as its use.
    #[cfg(feature = "cuda")]
    pub(crate) fn wait_on(&self, stream: usize) -> Result<(), percolator::DeviceError> {
        let stream = std::ptr::without_provenance_mut(stream);
        match self.memory() {
            // SAFETY: DLPack's consumer passes a stream of the array's device, which its framework keeps.
            ArrayMemory::Feed(tensor) => unsafe { tensor.wait_on_raw(stream) },
            ArrayMemory::Server(_) => Ok(()),
        }
    }
}

/// What a capsule's tensor consists of. Boxed, and given up until a deleter is called.
struct Managed {
    versioned: DLManagedTensorVersioned,
    unversioned: DLManagedTensor,
    /// Keeps the array, its shape and its strides.
    owner: Arc<SharedArray>,
    /// If the consumer wanted a copy.
    copy: Option<Vec<Line>>,
}

/// A piece of memory that starts where frameworks want it.
#[repr(align(64))]
#[derive(Clone)]
struct Line(#[expect(dead_code, reason = "it is read through its address")] [u8; ALIGNMENT]);

/// Puts an array into a capsule.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    owner: &Arc<SharedArray>,
    is_versioned: bool,
    is_copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    // A copy may be large: other threads run meanwhile.
    let copy = is_copy.then(|| py.detach(|| copied(owner))).transpose();
    let copy = copy.map_err(|error| {
        let bytes = owner.bytes();
        PyMemoryError::new_err(format!("there is no memory for a copy of {bytes} bytes: {error}"))
    })?;
    let managed = Managed::new(owner.clone(), copy);
    let (pointer, name): (*mut c_void, _) = match is_versioned {
        // SAFETY: the box was just given up; only the address of a part is taken.
        true => (unsafe { &raw mut (*managed).versioned }.cast(), VERSIONED),
        // SAFETY: as above.
        false => (unsafe { &raw mut (*managed).unversioned }.cast(), UNVERSIONED),
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor follows the invariants.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy)) };
    if capsule.is_null() {
        // SAFETY: no capsule was made, so nobody else has the box.
        unsafe { release(managed) };
    }
    // SAFETY: it is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// A copy of an array on the host.
fn copied(array: &SharedArray) -> Result<Vec<Line>, TryReserveError> {
    let bytes = array.bytes();
    let count = bytes.div_ceil(ALIGNMENT);
    let mut lines = Vec::new();
    lines.try_reserve_exact(count)?;
    // The array need not fill the last line.
    if let Some(last) = lines.spare_capacity_mut()[..count].last_mut() {
        last.write(Line([0; ALIGNMENT]));
    }
    let from: *const u8 = array.description().data.cast();
    let to: *mut u8 = lines.as_mut_ptr().cast();
    // SAFETY: the array has that many bytes, on the host (the caller checked), and lives as long as `array`;
    // the lines are new, and at least as long.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    // SAFETY: the array fills all of these lines but the end of the last one, which was written before.
    unsafe { lines.set_len(count) };
    Ok(lines)
}

impl Managed {
    /// A box that is given up, and whose parts have its address.
    fn new(owner: Arc<SharedArray>, mut copy: Option<Vec<Line>>) -> *mut Self {
        let (mut one, mut other) = (owner.description(), owner.description());
        if let Some(lines) = &mut copy {
            one.data = lines.as_mut_ptr().cast();
            other.data = one.data;
        }
        let flags = match &copy {
            Some(_) => IS_COPIED,
            None if owner.is_read_only() => IS_READ_ONLY,
            None => 0,
        };
        let context = std::ptr::null_mut();
        let managed = Box::into_raw(Box::new(Managed {
            versioned: DLManagedTensorVersioned {
                version: DLPACK_VERSION,
                manager_ctx: context,
                deleter: Some(delete_versioned),
                flags,
                dl_tensor: one,
            },
            unversioned: DLManagedTensor {
                dl_tensor: other,
                manager_ctx: context,
                deleter: Some(delete_unversioned),
            },
            owner,
            copy,
        }));
        // SAFETY: the box was just given up, and nobody else has its address.
        unsafe { (*managed).versioned.manager_ctx = managed.cast() };
        // SAFETY: as above.
        unsafe { (*managed).unversioned.manager_ctx = managed.cast() };
        managed
    }
}

/// # Safety
///
/// `tensor` is null, or one of ours that was not released before.
unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    if !tensor.is_null() {
        // SAFETY: it is one of ours, and was not released before.
        let managed = unsafe { (*tensor).manager_ctx };
        // SAFETY: `new` put the box's address there.
        unsafe { release(managed.cast()) };
    }
}

/// # Safety
///
/// As for [`delete_versioned`].
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: it is one of ours, and was not released before.
        let managed = unsafe { (*tensor).manager_ctx };
        // SAFETY: `new` put the box's address there.
        unsafe { release(managed.cast()) };
    }
}

/// # Safety
///
/// The box of this address was given up, and was not released before.
unsafe fn release(managed: *mut Managed) {
    // SAFETY: that is what the caller promises.
    let managed = unsafe { Box::from_raw(managed) };
    // A panic that leaves an `extern "C"` function ends the process.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Managed { owner, copy, .. } = *managed;
        drop((owner, copy));
    }));
}

/// A capsule's destructor: releases what no consumer took.
///
/// # Safety
///
/// The interpreter calls it, once, with a capsule of [`capsule`].
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: it is a capsule, whatever its name is now.
    if unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } == 1 {
        // SAFETY: it has this name, hence this pointer, and nobody took it.
        let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()) };
        // SAFETY: as above.
        unsafe { delete_versioned(tensor.cast()) };
    }
    // SAFETY: as above.
    if unsafe { ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) } == 1 {
        // SAFETY: it has this name, hence this pointer, and nobody took it.
        let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()) };
        // SAFETY: as above.
        unsafe { delete_unversioned(tensor.cast()) };
    }
}
