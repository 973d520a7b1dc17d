//! A batch: fields by name, and which records they are of.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use percolator::bad::BadRecord;
use percolator::batch::FieldError;
use percolator::record::{RecordId, StepEnd};
use percolator::{Batch as CoreBatch, DeviceError};
use percolator_serve::RemoteBatch;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::capsule::{ServerArray, SharedArray};
use crate::errors;
use crate::field::{Field, data_type_of};
use crate::options::dtype_of;

/// A complete batch. Its memory goes back to the feed when the batch, its fields, and all that frameworks
/// made of them are gone.
#[pyclass(frozen, mapping, module = "percolator")]
pub(crate) struct Batch {
    /// `None` once it was released.
    fields: Mutex<Option<Vec<Py<Field>>>>,
    names: Vec<Arc<str>>,
    /// The number of records.
    size: usize,
    /// Which they are; empty if a server did not say it.
    records: Vec<RecordId>,
    bad_records: Vec<BadRecord>,
    step: Option<StepEnd>,
    lane: usize,
    rows: usize,
}

/// A batch whose arrays can be shared. Made without the interpreter, because it may wait for a device.
pub(crate) struct Taken {
    arrays: Vec<(Arc<str>, Arc<SharedArray>)>,
    size: usize,
    records: Vec<RecordId>,
    bad_records: Vec<BadRecord>,
    step: Option<StepEnd>,
    lane: usize,
    rows: usize,
}

impl Taken {
    pub(crate) fn of(batch: CoreBatch) -> Result<Self, DeviceError> {
        let (lane, rows, step, records) =
            (batch.lane(), batch.rows(), batch.step(), batch.records().to_vec());
        let bad_records = batch.bad_records().to_vec();
        let arrays = batch.into_dlpack()?.into_iter();
        let arrays = arrays.map(|(name, tensor)| (name, Arc::new(SharedArray::new(tensor)))).collect();
        Ok(Taken { arrays, size: records.len(), records, bad_records, step, lane, rows })
    }

    /// A batch of a server. `held` lives as long as its memory.
    pub(crate) fn of_server(
        batch: RemoteBatch,
        lane: usize,
        is_read_only: bool,
        held: &Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let (size, rows, step) = (batch.records(), batch.rows(), batch.step());
        let arrays = batch.into_arrays().into_iter().map(|array| {
            let name: Arc<str> = array.name().into();
            let dtype = data_type_of(array.dtype());
            let array = ServerArray::new(array, dtype, is_read_only, held.clone());
            (name, Arc::new(SharedArray::of_server(array)))
        });
        let arrays = arrays.collect();
        Taken { arrays, size, records: Vec::new(), bad_records: Vec::new(), step, lane, rows }
    }

    pub(crate) fn step(&self) -> Option<StepEnd> {
        self.step
    }
}

impl Batch {
    pub(crate) fn new(py: Python<'_>, taken: Taken) -> PyResult<Self> {
        let Taken { arrays, size, records, bad_records, step, lane, rows } = taken;
        let names = arrays.iter().map(|(name, _)| name.clone()).collect();
        let fields: PyResult<_> =
            arrays.into_iter().map(|(name, array)| Py::new(py, Field::new(name, array))).collect();
        Ok(Batch { fields: Mutex::new(Some(fields?)), names, size, records, bad_records, step, lane, rows })
    }

    fn fields(&self, py: Python<'_>) -> PyResult<Vec<Py<Field>>> {
        let all = |fields: &Vec<Py<Field>>| fields.iter().map(|field| field.clone_ref(py)).collect();
        // The lock is free before an exception is made: that may run Python, and let other threads run.
        let fields = self.fields.lock().as_ref().map(all);
        fields.ok_or_else(|| {
            errors::closed(py, "the batch was released: read its fields before release(), or copy them")
        })
    }

    fn position(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.names.iter().position(|found| &**found == name).ok_or_else(|| {
            let unknown = FieldError::Unknown { wanted: format!("{name:?}"), fields: self.names.join(", ") };
            errors::unknown_field(py, &unknown)
        })
    }
}

fn bad_to<'py>(py: Python<'py>, bad: &BadRecord) -> PyResult<Bound<'py, PyDict>> {
    let name = |id: RecordId| (id.epoch, id.index);
    let found = PyDict::new(py);
    found.set_item("record", name(bad.id))?;
    found.set_item("file", bad.path.as_os_str())?;
    found.set_item("key", PyBytes::new(py, &bad.key.0))?;
    found.set_item("reason", &bad.reason)?;
    found.set_item("replaced_by", bad.replaced_by.map(name))?;
    Ok(found)
}

#[pymethods]
impl Batch {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Field>> {
        let position = self.position(py, name)?;
        Ok(self.fields(py)?.swap_remove(position))
    }

    /// A field whose elements must have a type.
    #[pyo3(signature = (name, dtype=None))]
    fn field(&self, py: Python<'_>, name: &str, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Py<Field>> {
        let field = self.__getitem__(py, name)?;
        if let Some(dtype) = dtype {
            field.get().check_dtype(py, dtype_of(dtype)?)?;
        }
        Ok(field)
    }

    fn __len__(&self) -> usize {
        self.names.len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.names.iter().any(|found| &**found == name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, self.keys())?.try_iter()?.into_any())
    }

    /// The names of the fields.
    fn keys(&self) -> Vec<&str> {
        self.names.iter().map(|name| &**name).collect()
    }

    /// The fields.
    fn values(&self, py: Python<'_>) -> PyResult<Vec<Py<Field>>> {
        self.fields(py)
    }

    /// The fields with their names.
    fn items(&self, py: Python<'_>) -> PyResult<Vec<(&str, Py<Field>)>> {
        Ok(self.keys().into_iter().zip(self.fields(py)?).collect())
    }

    /// The number of records.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// The number of rows: the records, and the padding after them.
    #[getter]
    fn rows(&self) -> usize {
        self.rows
    }

    /// Which rows are records, and not padding.
    #[getter]
    fn mask(&self) -> Vec<bool> {
        (0..self.rows).map(|row| row < self.size).collect()
    }

    /// The bad records that the batch goes without.
    #[getter]
    fn bad_records<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.bad_records.iter().map(|bad| bad_to(py, bad)).collect()
    }

    /// The epoch and the position of each record.
    #[getter]
    fn records(&self) -> Vec<(u64, u64)> {
        self.records.iter().map(|id| (id.epoch, id.index)).collect()
    }

    /// The number of its lane, which is that of its device.
    #[getter]
    fn lane(&self) -> usize {
        self.lane
    }

    /// The epoch of its step.
    #[getter]
    fn epoch(&self) -> Option<u64> {
        self.step.map(|step| step.epoch)
    }

    /// The step in its epoch.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.step.map(|step| step.step)
    }

    /// Whether its step is the last of the epoch.
    #[getter]
    fn is_last(&self) -> bool {
        self.step.is_some_and(|step| step.is_last)
    }

    /// Gives up this hold on the memory.
    fn release(&self) {
        let fields = self.fields.lock().take();
        drop(fields);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.release();
    }

    fn __repr__(&self) -> String {
        format!("Batch({}: {} records, lane {})", self.names.join(", "), self.size, self.lane)
    }

    fn __reduce_ex__(&self, _protocol: i32) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a batch is memory of a feed, and is not pickled: pickle copies of its fields, \
             batch[name].numpy().copy()",
        ))
    }
}
