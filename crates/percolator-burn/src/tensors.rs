//! A batch as tensors, over the batch's own memory.

use std::fmt;

use burn_core::tensor::{AllocationProperty, Bool, Bytes, DType, Device, Int, Tensor, TensorData};
use percolator::feed::OwnedArray;
use percolator::record::{RecordId, StepEnd};
use percolator::{Batch, Dtype};

use crate::dtype::{self, Kind};
use crate::error::BurnError;

/// A [`Batch`] as burn's tensors.
///
/// ```no_run
/// use burn::tensor::Device;
/// use percolator::{Feed, FeedError};
/// use percolator_burn::{BurnBatch as _, BurnError};
///
/// fn train(feed: &mut Feed, device: &Device) -> Result<(), BurnError> {
///     for batch in feed.epoch()? {
///         let images = batch?.into_tensors(device)?.get::<4>("data")?;
///         println!("{:?}", images.dims());
///     }
///     Ok(())
/// }
/// ```
pub trait BurnBatch {
    /// Makes the batch's arrays available as tensors on the device. Nothing is copied yet.
    ///
    /// # Errors
    ///
    /// [`BurnError::Device`] if the lane's device failed on the way.
    fn into_tensors(self, device: &Device) -> Result<Tensors, BurnError>;
}

impl BurnBatch for Batch {
    fn into_tensors(self, device: &Device) -> Result<Tensors, BurnError> {
        Ok(Tensors { arrays: self.into_bytes()?, device: device.clone() })
    }
}

/// The tensors of a batch by name, and what the batch says about its rows.
///
/// On the CPU (burn's backend `flex`) a tensor's memory is the batch's: nothing is copied. Other backends
/// copy it to their device, once. The batch's memory returns to its lane when the last owner is gone: this
/// value, and every tensor that still uses it, on whatever thread. So hold tensors as long as you use them,
/// and no longer: a lane whose ring is held as a whole waits.
///
/// burn does not write to a batch's memory: an operation in place copies the tensor first. Two tensors of one
/// array are therefore independent of each other.
pub struct Tensors {
    /// At least one: every batch has a field.
    arrays: Vec<OwnedArray>,
    device: Device,
}

impl Tensors {
    /// Returns an array of floats as a tensor: by the name of its field. It has the array's type (f32, f64,
    /// f16 or bf16) and its extents, records first.
    ///
    /// # Errors
    ///
    /// [`BurnError`] if there is no such array, if it has another number of dimensions than `D`, if it holds
    /// no floats, or if the device does not compute with its type.
    pub fn get<const D: usize>(&self, name: &str) -> Result<Tensor<D>, BurnError> {
        let (data, dtype) = self.data(name, Kind::Float, D)?;
        Ok(Tensor::from_data(data, (&self.device, dtype)))
    }

    /// Returns an array of integers as a tensor: by the name of its field, or as `FIELD.offsets` or
    /// `FIELD.lengths`. It has the array's type. Where burn compares integers it wants both alike, and its
    /// own have the device's default type: `i32` on `flex`, as an image's `label` has. So
    /// [`cast`](Tensor::cast) others.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), for an array that holds no integers.
    pub fn get_int<const D: usize>(&self, name: &str) -> Result<Tensor<D, Int>, BurnError> {
        let (data, dtype) = self.data(name, Kind::Int, D)?;
        Ok(Tensor::from_data(data, (&self.device, dtype)))
    }

    /// Returns an array of booleans as a tensor: by the name of its field.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), for an array that holds no booleans.
    pub fn get_bool<const D: usize>(&self, name: &str) -> Result<Tensor<D, Bool>, BurnError> {
        let (data, _) = self.data(name, Kind::Bool, D)?;
        Ok(Tensor::from_data(data, &self.device))
    }

    /// Returns which rows are records, and not padding, as a tensor on the device: see [`mask`](Self::mask).
    #[must_use]
    pub fn mask_tensor(&self) -> Tensor<1, Bool> {
        let mask: Vec<bool> = self.mask().collect();
        Tensor::from_data(TensorData::new(mask, [self.rows()]), &self.device)
    }

    /// The data of a tensor: the array's memory, which it owns a share of.
    fn data(&self, name: &str, wanted: Kind, rank: usize) -> Result<(TensorData, DType), BurnError> {
        let array = self.array(name)?;
        let (found, shape) = (array.dtype(), array.shape());
        let array_name = || name.to_owned();
        let Some(dtype) = dtype::of(found) else {
            return Err(BurnError::Dtype { array: array_name(), found });
        };
        let kind = Kind::of(dtype);
        if kind != wanted {
            let (wanted, method) = (wanted.name(), kind.method());
            return Err(BurnError::Kind { array: array_name(), found, wanted, method });
        }
        if shape.len() != rank {
            let (found, shape) = (shape.len(), shape.to_string());
            return Err(BurnError::Rank { array: array_name(), shape, found, wanted: rank });
        }
        if array.batch().fields().iter().any(|field| field.name() == name && field.made_on_device().is_some())
        {
            return Err(BurnError::OnDevice { field: array_name() });
        }
        // burn stores booleans as the device wants them, also where it does not compute with bytes.
        if kind != Kind::Bool && !self.device.supports_dtype(dtype) {
            let device = format!("{:?}", self.device);
            return Err(BurnError::Unsupported { array: array_name(), found, device });
        }
        Ok((TensorData::from_bytes(memory_of(array.clone()), shape.to_vec(), dtype), dtype))
    }

    fn array(&self, name: &str) -> Result<&OwnedArray, BurnError> {
        self.arrays.iter().find(|array| array.name() == name).ok_or_else(|| {
            let found: Vec<String> = self.names().map(|name| format!("{name:?}")).collect();
            BurnError::Unknown { wanted: name.to_owned(), found: found.join(", ") }
        })
    }

    /// Returns the names of the arrays, field by field.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.arrays.iter().map(OwnedArray::name)
    }

    /// Returns the type of an array's elements.
    ///
    /// # Errors
    ///
    /// [`BurnError::Unknown`] if there is no such array.
    pub fn dtype(&self, name: &str) -> Result<Dtype, BurnError> {
        Ok(self.array(name)?.dtype())
    }

    /// Returns the device that its tensors are made on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the batch, which says everything else about its rows.
    ///
    /// # Panics
    ///
    /// Never: every batch has an array.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        self.arrays.first().expect("every batch has an array").batch()
    }

    /// Returns the number of records: of rows that are not padding. See [`Batch::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch().len()
    }

    /// Whether there are no records. At the end of an epoch a replica may get none while others still have
    /// some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch().is_empty()
    }

    /// Returns the number of rows: the records, and the padding after them. It is the first extent of every
    /// array, but for ragged fields and their offsets.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch().rows()
    }

    /// Returns which rows are records, and not padding: `true` for the first [`len`](Self::len), then
    /// `false`.
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> {
        self.batch().mask()
    }

    /// Returns which records these are, in the order of the rows.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        self.batch().records()
    }

    /// Returns the step, and whether it is the last of its epoch: see [`Batch::step`].
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.batch().step()
    }

    /// Returns the lane that the batch came through.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.batch().lane()
    }
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensors").field("arrays", &self.arrays).field("device", &self.device).finish()
    }
}

/// The array's memory as burn's. burn copies it before it writes to it.
fn memory_of(array: OwnedArray) -> Bytes {
    if array.as_ref().is_empty() {
        // An empty slice of shared bytes need not be aligned, and burn casts it to its elements.
        return Bytes::from_bytes_vec(Vec::new());
    }
    Bytes::from_shared(bytes::Bytes::from_owner(array), AllocationProperty::Other)
}
