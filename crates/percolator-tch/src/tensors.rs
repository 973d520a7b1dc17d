//! A batch's arrays as torch's tensors.

use std::fmt;
use std::sync::Arc;

use percolator::dlpack::DlpackBatch;
use percolator::record::{RecordId, StepEnd};
use percolator::{Batch, Dtype, Field};
use tch::{Device, Kind, Tensor};

use crate::device;
use crate::error::TchError;
use crate::torch;

/// The arrays of one batch as torch's tensors, by name, and which records they are of.
///
/// There is a tensor for each field, and a second one, of kind `Int64`, for each field of varying length:
/// `FIELD.offsets` or `FIELD.lengths`. On the CPU, and on the GPU at which the batch's lane ends, they are
/// the batch's own memory. It returns to its lane, which fills it again, when nothing in libtorch refers to
/// it any more: no tensor, no view of one, no graph that has saved one. Until then no other code reads or
/// writes it, so operations in place are allowed.
pub struct Tensors {
    tensors: Vec<(Arc<str>, Tensor)>,
    records: Vec<RecordId>,
    rows: usize,
    lane: usize,
    step: Option<StepEnd>,
}

impl Tensors {
    /// Returns a tensor by name. Its first axis is the records'; for a ragged field, it is that of all
    /// elements.
    ///
    /// # Errors
    ///
    /// [`TchError::Unknown`] if there is none of this name.
    pub fn get(&self, name: &str) -> Result<&Tensor, TchError> {
        self.position(name).map(|at| &self.tensors[at].1)
    }

    /// Returns a tensor by name, if it is of this kind. Nothing is converted.
    ///
    /// # Errors
    ///
    /// [`TchError::Unknown`] if there is none of this name, [`TchError::Type`] if it has another kind.
    pub fn get_as(&self, name: &str, wanted: Kind) -> Result<&Tensor, TchError> {
        let tensor = self.get(name)?;
        match tensor.kind() {
            found if found == wanted => Ok(tensor),
            found => Err(TchError::Type { name: name.to_owned(), found, wanted }),
        }
    }

    /// Takes a tensor by name. It is then no longer among the others.
    ///
    /// # Errors
    ///
    /// [`TchError::Unknown`] if there is none of this name, or if it was taken.
    pub fn take(&mut self, name: &str) -> Result<Tensor, TchError> {
        self.position(name).map(|at| self.tensors.remove(at).1)
    }

    /// Returns the tensors' names, field by field.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| &**name)
    }

    /// Returns the tensors with their names, field by field.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (&**name, tensor))
    }

    /// Returns the number of records: the batch size, or fewer at the end of an epoch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of rows: its [records](Self::len), and the padding after them.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns which of the rows are records, and not padding: `true` for the first [`len`](Self::len), then
    /// `false`.
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> {
        let records = self.len();
        (0..self.rows).map(move |row| row < records)
    }

    /// Returns which records these are, in the order of the rows.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        &self.records
    }

    /// Returns the lane of the feed that the batch came through.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// Returns the step that the batch belongs to: see [`Batch::step`].
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.step
    }

    fn position(&self, name: &str) -> Result<usize, TchError> {
        self.tensors.iter().position(|(found, _)| &**found == name).ok_or_else(|| TchError::Unknown {
            wanted: name.to_owned(),
            names: match self.names().collect::<Vec<_>>() {
                names if names.is_empty() => "none left".to_owned(),
                names => names.join(", "),
            },
        })
    }
}

impl IntoIterator for Tensors {
    type Item = (Arc<str>, Tensor);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.tensors.iter().map(|(name, tensor)| (name, tensor))).finish()
    }
}

/// Turns a batch into torch's tensors.
pub trait TchBatch: Sized {
    /// Turns the batch into torch's tensors, on one of torch's devices.
    ///
    /// | the lane ends at | `device` | |
    /// |---|---|---|
    /// | the host | `Cpu` | the batch's memory, nothing is copied |
    /// | the host | another | copied; this call waits until torch has read the batch, which then returns |
    /// | GPU n | `Cuda(n)` | the batch's memory on the GPU, for which torch's stream waits |
    /// | GPU n | another | [`TchError::OtherGpu`] |
    ///
    /// A device that you implement counts as the host, as in [`Batch::into_dlpack`]. If it
    /// [transforms](percolator::device::Backend::transforming) a field, only that device has the field's
    /// elements: that is [`TchError::OnDevice`].
    ///
    /// # Errors
    ///
    /// [`TchError`] if torch does not have the device or refuses the copy, if a field has a type that tch
    /// does not have, or if the batch's device failed on the way.
    fn into_tensors(self, device: Device) -> Result<Tensors, TchError>;
}

impl TchBatch for Batch {
    fn into_tensors(self, device: Device) -> Result<Tensors, TchError> {
        device::check(device)?;
        tensors_of(self, device, torch::is_on_default_stream)
    }
}

/// Makes a batch's arrays tensors at a device that torch has.
fn tensors_of(
    batch: Batch,
    device: Device,
    is_on_default_stream: impl Fn(usize) -> Result<bool, String>,
) -> Result<Tensors, TchError> {
    check_fields(batch.fields())?;
    let records = batch.records().to_vec();
    let (rows, lane, step) = (batch.rows(), batch.lane(), batch.step());
    let arrays = arrays_of(batch, device, is_on_default_stream)?;
    let mut tensors = Vec::with_capacity(arrays.names().len());
    for (name, array) in arrays {
        let failed = |what| {
            let name = (*name).to_owned();
            move |message| TchError::Copy { name, what, message }
        };
        let mut tensor = torch::from_dlpack(array).map_err(failed("take the batch's memory"))?;
        if tensor.device() != device {
            // It blocks: the batch is read when it returns, so nothing has to keep it.
            let copied = tensor.f_to_device(device).map_err(|error| error.to_string());
            tensor = copied.map_err(failed("copy it to the device"))?;
        }
        tensors.push((name, tensor));
    }
    Ok(Tensors { tensors, records, rows, lane, step })
}

/// The arrays of a batch: at the device, for which torch's stream waits, or on the host.
#[cfg(feature = "cuda-driver")]
fn arrays_of(
    batch: Batch,
    device: Device,
    is_on_default_stream: impl Fn(usize) -> Result<bool, String>,
) -> Result<DlpackBatch, TchError> {
    if let Some(there) = batch.cuda() {
        let ordinal = there.ordinal();
        if device != Device::Cuda(ordinal) {
            return Err(TchError::OtherGpu { found: format!("cuda:{ordinal}"), ordinal, wanted: device });
        }
        device::order(there, is_on_default_stream)?;
    } else if let Some(field) = made_on_device(&batch) {
        return Err(TchError::OnDevice { field });
    }
    Ok(batch.into_dlpack()?)
}

/// The arrays of a batch on the host.
#[cfg(not(feature = "cuda-driver"))]
fn arrays_of(
    batch: Batch,
    _device: Device,
    _is_on_default_stream: impl Fn(usize) -> Result<bool, String>,
) -> Result<DlpackBatch, TchError> {
    /// `kDLCPU`.
    const HOST: i32 = 1;

    let made_on_device = made_on_device(&batch);
    let arrays = batch.into_dlpack()?;
    // Another crate may have given percolator its feature: then a lane can end at a GPU.
    let is_on_host = |name| arrays.get(name).is_none_or(|array| array.tensor().device.device_type == HOST);
    if !arrays.names().all(is_on_host) {
        return Err(TchError::NotBuilt);
    }
    made_on_device.map_or(Ok(arrays), |field| Err(TchError::OnDevice { field }))
}

/// The field whose elements the lane's device makes of those on the host.
fn made_on_device(batch: &Batch) -> Option<String> {
    let field = batch.fields().iter().find(|field| field.made_on_device().is_some())?;
    Some(field.name().to_owned())
}

/// Refuses types that tch does not have.
pub(crate) fn check_fields(fields: &[Field]) -> Result<(), TchError> {
    for field in fields {
        let made = field.made_on_device().map(|made| made.dtype);
        for dtype in [Some(field.dtype()), made].into_iter().flatten() {
            let instead = match dtype {
                Dtype::U16 => "i32 or i64",
                Dtype::U32 | Dtype::U64 => "i64",
                _ => continue,
            };
            return Err(TchError::Dtype { field: field.name().to_owned(), dtype, instead });
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "cuda-driver"))]
mod gpu;
