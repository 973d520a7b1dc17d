//! A batch as tensors.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use percolator::Batch;
use percolator::device::HostArray;

use crate::cuda;
use crate::dtype;
use crate::error::CandleError;
use crate::tensors::Tensors;

/// A [`Batch`] as candle's tensors.
///
/// A batch can be dropped as soon as the call returns: the tensors do not use its memory, and what a GPU
/// still copies out of it, the lane waits for.
///
/// ```no_run
/// use candle_core::Device;
/// use percolator::{Feed, Lane};
/// use percolator_candle::{CandleBatch as _, CandleError};
///
/// fn train(lane: Lane, device: &Device) -> Result<(), CandleError> {
///     for batch in lane {
///         let images = batch?.to_tensor("data", device)?;
///         println!("{:?}", images.shape());
///     }
///     Ok(())
/// }
/// ```
pub trait CandleBatch {
    /// Copies every array of the batch into a tensor of its own: one copy each.
    ///
    /// # Errors
    ///
    /// [`CandleError`] if candle has no tensors of a field's type, if this build has no such device, if the
    /// batch is on another GPU, or if a device or candle fails.
    fn to_tensors(&self, device: &Device) -> Result<Tensors, CandleError>;

    /// Copies one array into a tensor: by the name of its field, or as `FIELD.offsets` or `FIELD.lengths`.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if the batch has no array of that name; as [`to_tensors`](Self::to_tensors).
    fn to_tensor(&self, name: &str, device: &Device) -> Result<Tensor, CandleError>;
}

impl CandleBatch for Batch {
    fn to_tensors(&self, device: &Device) -> Result<Tensors, CandleError> {
        check(device)?;
        Ok(Tensors::new(self, copies(self, device, &|_| true)?))
    }

    fn to_tensor(&self, name: &str, device: &Device) -> Result<Tensor, CandleError> {
        check(device)?;
        match copies(self, device, &|array| array == name)?.pop() {
            Some((_, tensor)) => Ok(tensor),
            None => Err(CandleError::unknown(name, self.arrays().map(|array| array.name))),
        }
    }
}

/// Refuses a device that this build has not. candle lets a program have one, and fails at its first tensor.
pub(crate) fn check(device: &Device) -> Result<(), CandleError> {
    let (device, with) = match device {
        Device::Cuda(_) if !cuda::IS_BUILT => ("cuda", "percolator-candle with its feature cuda"),
        Device::Metal(_) if !candle_core::utils::metal_is_available() => {
            ("metal", "candle-core with its feature metal")
        }
        _ => return Ok(()),
    };
    Err(CandleError::NotBuilt { device, with })
}

/// Which arrays are copied, by their names.
pub(crate) type IsWanted<'a> = &'a dyn Fn(&str) -> bool;

/// Copies the wanted arrays of a batch into tensors, in the order of the fields.
pub(crate) fn copies(
    batch: &Batch,
    device: &Device,
    is_wanted: IsWanted<'_>,
) -> Result<Vec<(Arc<str>, Tensor)>, CandleError> {
    match device {
        Device::Cuda(gpu) => cuda::copies(batch, gpu, is_wanted),
        _ => from_host(batch, device, is_wanted),
    }
}

/// Copies them out of the host's memory.
pub(crate) fn from_host(
    batch: &Batch,
    device: &Device,
    is_wanted: IsWanted<'_>,
) -> Result<Vec<(Arc<str>, Tensor)>, CandleError> {
    let made_on_device = batch.fields().iter().find(|field| field.made_on_device().is_some());
    let copy = |array: HostArray<'_>| {
        if made_on_device.is_some_and(|field| field.name() == array.name) {
            return Err(CandleError::OnDevice { field: array.name.to_owned() });
        }
        let dtype = dtype::of(array.name, array.dtype)?;
        let tensor = if array.bytes.is_empty() {
            empty(&array.shape, dtype, device)
        } else {
            // One copy, into memory that was not written before: an array's alignment suits its type.
            Tensor::from_raw_buffer(array.bytes, dtype, &array.shape, device)
        };
        Ok((array.name.into(), tensor.map_err(|error| CandleError::copy(array.name, error))?))
    };
    batch.arrays().filter(|array| is_wanted(array.name)).map(copy).collect()
}

/// A tensor without elements. It is a part of one with elements, because a GPU allocates no memory of no
/// bytes.
pub(crate) fn empty(shape: &[usize], dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
    let not_empty: Vec<usize> = shape.iter().map(|&extent| extent.max(1)).collect();
    let tensor = Tensor::zeros(not_empty, dtype, device)?;
    let mut axes = shape.iter().enumerate().filter(|(_, extent)| **extent == 0);
    axes.try_fold(tensor, |tensor, (axis, _)| tensor.narrow(axis, 0, 0))
}
