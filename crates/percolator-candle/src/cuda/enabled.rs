//! Copies of a batch's arrays into memory that candle allocates and frees.
//!
//! ```text
//! stream of the copies  waits for the batch (`CudaBatch::wait_on`) and for candle's stream, which allocates
//! on it                 one copy an array, from the lane's memory into candle's
//! candle's stream       waits for the copies: whatever candle enqueues from here on finds them done
//! the lane              fills the batch again when the work is done that the stream of the copies has when
//!                       the batch is dropped
//! ```
//!
//! The copies run on candle's own stream, so most of these waits do nothing, except for a device of
//! [`Device::new_cuda`](candle_core::Device::new_cuda): that uses CUDA's per-thread default stream, which is
//! a different one on the thread where the lane checks whether a batch is still in use. There the copies have
//! a separate stream for each thread.

#![expect(unsafe_code, reason = "the driver is C, and knows nothing of borrows")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use candle_core::backend::BackendDevice as _;
use candle_core::cuda::{CudaDType, CudaError};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, DType, Device, DeviceLocation, Storage, Tensor};
use percolator::device::cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DeviceRepr, DeviceSlice, DriverError, SyncOnDrop, sys,
};
use percolator::device::{CudaBatch, DeviceArray};
use percolator::{Batch, half};

use crate::batch::{IsWanted, empty, from_host};
use crate::dtype;
use crate::error::CandleError;

pub(crate) const IS_BUILT: bool = true;

/// Copies the wanted arrays of a batch into tensors on a GPU.
pub(crate) fn copies(
    batch: &Batch,
    gpu: &CudaDevice,
    is_wanted: IsWanted<'_>,
) -> Result<Vec<(Arc<str>, Tensor)>, CandleError> {
    let Some(there) = batch.cuda() else { return upload(batch, gpu, is_wanted) };
    let wanted = ordinal(gpu);
    if there.ordinal() != wanted {
        return Err(CandleError::OtherGpu { found: there.ordinal(), wanted });
    }
    let copying = Copying::begin(there, gpu)?;
    let copied = there.arrays().filter(|(name, _)| is_wanted(name)).map(|(name, array)| {
        let dtype = dtype::of(name, array.dtype)?;
        let tensor = copying.copy(array, dtype).map_err(|error| CandleError::copy(name, error))?;
        Ok((name.into(), tensor))
    });
    // As far as the first error; no tensor is dropped before the copies into it are ordered.
    let (mut tensors, mut failed) = (Vec::new(), None);
    for tensor in copied {
        match tensor {
            Ok(tensor) => tensors.push(tensor),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    copying.end()?;
    failed.map_or(Ok(tensors), Err)
}

/// Copies them out of the host's memory.
fn upload(
    batch: &Batch,
    gpu: &CudaDevice,
    is_wanted: IsWanted<'_>,
) -> Result<Vec<(Arc<str>, Tensor)>, CandleError> {
    let tensors = from_host(batch, &Device::Cuda(gpu.clone()), is_wanted);
    // The driver has read ordinary memory when a copy of it returns. Page-locked memory, which a device of
    // the program's own may have, it reads later.
    if batch.arrays().next().is_some_and(|array| is_page_locked(array.bytes)) {
        gpu.cuda_stream().synchronize().map_err(failed)?;
    }
    tensors
}

/// Copies on their way.
struct Copying<'a> {
    gpu: &'a CudaDevice,
    candle: Arc<CudaStream>,
    copies: Arc<CudaStream>,
}

impl<'a> Copying<'a> {
    fn begin(batch: CudaBatch<'_>, gpu: &'a CudaDevice) -> Result<Self, CandleError> {
        let candle = gpu.cuda_stream();
        let copies = if is_per_thread(&candle) { beside(&candle).map_err(failed)? } else { candle.clone() };
        batch.wait_on(&copies)?;
        Ok(Copying { gpu, candle, copies })
    }

    /// Copies one array into a tensor.
    fn copy(&self, array: DeviceArray, dtype: DType) -> candle_core::Result<Tensor> {
        if array.shape.contains(&0) {
            return empty(&array.shape, dtype, &Device::Cuda(self.gpu.clone()));
        }
        match dtype {
            DType::U8 => self.copy_as::<u8>(array),
            DType::U32 => self.copy_as::<u32>(array),
            DType::I16 => self.copy_as::<i16>(array),
            DType::I32 => self.copy_as::<i32>(array),
            DType::I64 => self.copy_as::<i64>(array),
            DType::F16 => self.copy_as::<half::f16>(array),
            DType::BF16 => self.copy_as::<half::bf16>(array),
            DType::F32 => self.copy_as::<f32>(array),
            DType::F64 => self.copy_as::<f64>(array),
            _ => Err(candle_core::Error::UnsupportedDTypeForOp(dtype, "a copy of a batch")),
        }
    }

    fn copy_as<T: CudaDType + DeviceRepr>(&self, array: DeviceArray) -> candle_core::Result<Tensor> {
        let elements = array.shape.iter().product();
        // SAFETY: the copy below writes every element before anything that candle enqueues later can read
        // one.
        let mut slice = unsafe { self.gpu.alloc::<T>(elements) }?;
        let lent = Lent { pointer: array.pointer, elements, stream: &self.copies };
        let copied = self.allocated().and_then(|()| self.copies.memcpy_dtod::<T, _, _>(&lent, &mut slice));
        if let Err(error) = copied {
            // Unless this is done, candle's stream could give the memory to another tensor while it is
            // written.
            self.end_on_host();
            return Err(candle_core::Error::Cuda(Box::new(CudaError::from(error))));
        }
        let storage = CudaStorage::wrap_cuda_slice(slice, self.gpu.clone());
        Ok(Tensor::from_storage(Storage::Cuda(storage), &*array.shape, BackpropOp::none(), false))
    }

    /// Makes the copies wait for candle's stream, where memory is allocated in order.
    fn allocated(&self) -> Result<(), DriverError> {
        if self.is_apart() { self.copies.join(&self.candle) } else { Ok(()) }
    }

    /// Makes candle's stream wait for the copies.
    fn end(&self) -> Result<(), CandleError> {
        if !self.is_apart() {
            return Ok(());
        }
        self.candle.join(&self.copies).map_err(|error| {
            self.end_on_host();
            failed(error)
        })
    }

    /// Waits for the copies on the host, after an error.
    fn end_on_host(&self) {
        // If this fails as well, the device does nothing any more.
        let _ = self.copies.synchronize();
    }

    fn is_apart(&self) -> bool {
        !Arc::ptr_eq(&self.candle, &self.copies)
    }
}

/// An array of a batch on its GPU, as cudarc takes what is copied.
struct Lent<'a> {
    pointer: u64,
    elements: usize,
    /// The stream that waited for the batch.
    stream: &'a Arc<CudaStream>,
}

impl<T> DeviceSlice<T> for Lent<'_> {
    fn len(&self) -> usize {
        self.elements
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.stream
    }
}

impl<T> DevicePtr<T> for Lent<'_> {
    /// The lane learns from the stream itself when the copy is done: nothing is to be recorded.
    fn device_ptr<'a>(&'a self, _: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        (self.pointer, SyncOnDrop::Record(None))
    }
}

fn ordinal(gpu: &CudaDevice) -> usize {
    match gpu.location() {
        DeviceLocation::Cuda { gpu_id } => gpu_id,
        _ => unreachable!("a CUDA device is where CUDA devices are"),
    }
}

/// Whether it is `CU_STREAM_PER_THREAD`.
fn is_per_thread(stream: &CudaStream) -> bool {
    stream.cu_stream().addr() == 2
}

/// The stream for copies beside this thread's default stream.
///
/// It belongs to a [`CudaContext`] of its own, though the driver's context is the same: in candle's own, one
/// more stream would make cudarc record two events for every operation on a tensor.
fn beside(per_thread: &CudaStream) -> Result<Arc<CudaStream>, DriverError> {
    thread_local! {
        static OF_DEVICES: RefCell<HashMap<usize, Arc<CudaStream>>> = RefCell::default();
    }
    let ordinal = per_thread.context().ordinal();
    if let Some(stream) = OF_DEVICES.with_borrow(|streams| streams.get(&ordinal).cloned()) {
        return Ok(stream);
    }
    let stream = CudaContext::new(ordinal)?.per_thread_stream().fork()?;
    OF_DEVICES.with_borrow_mut(|streams| streams.insert(ordinal, stream.clone()));
    Ok(stream)
}

fn is_page_locked(bytes: &[u8]) -> bool {
    let mut kind = 0_u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the driver looks the address up, and writes a number of 32 bits; for memory that it does not
    // know, it returns an error instead.
    let found = unsafe {
        sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, bytes.as_ptr().addr() as u64)
    };
    found == sys::CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

fn failed(error: DriverError) -> CandleError {
    CandleError::Candle(candle_core::Error::Cuda(Box::new(CudaError::from(error))))
}
