//! Writing data: TFRecord files, and the `tf.train.Example`s in them.

use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};
use percolator::Dtype;
use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter as Writer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PySet, PyString, PyTuple};

use crate::process::OfProcess;
use crate::{errors, numbers, options, values};

/// The bytes from which on a record is written without the interpreter. To let go of it for fewer takes
/// longer than to write them, and a thread that computes then keeps it for milliseconds.
const LONG_BYTES: usize = 2048;

/// Writes a TFRecord file.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct TfRecordWriter {
    /// `None` once it was closed.
    writer: OfProcess<Mutex<Option<Writer>>>,
}

impl TfRecordWriter {
    fn write_bytes(&self, py: Python<'_>, record: &[u8]) -> PyResult<()> {
        let shared = self.writer.get(py)?;
        let write =
            |mut writer: MutexGuard<'_, Option<Writer>>| writer.as_mut().map(|writer| writer.write(record));
        // The lock is free before an exception is made: that may run Python, and let other threads run.
        let written = match shared.try_lock() {
            Some(writer) if record.len() < LONG_BYTES => write(writer),
            writer => {
                drop(writer);
                py.detach(|| write(shared.lock()))
            }
        };
        let written = written.ok_or_else(|| errors::closed(py, "the file is closed"))?;
        written.map_err(|error| errors::source(py, error.into()))
    }
}

#[pymethods]
impl TfRecordWriter {
    /// Creates the file, or replaces it.
    #[new]
    #[pyo3(signature = (path, *, compression="plain"))]
    fn new(py: Python<'_>, path: PathBuf, compression: &str) -> PyResult<Self> {
        let compression: Compression = options::named("compression", compression)?;
        let writer = Writer::create(path, compression).map_err(|error| errors::source(py, error.into()))?;
        Ok(TfRecordWriter { writer: OfProcess::new(Mutex::new(Some(writer))) })
    }

    /// Adds a record of these bytes: a bytes, a bytearray or a memoryview.
    fn write(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        match values::bytes_of(record)? {
            Some(bytes) => self.write_bytes(py, &bytes),
            None => self.write_bytes(py, record.extract()?),
        }
    }

    /// Adds a record that is a `tf.train.Example` of these features.
    fn write_example(&self, py: Python<'_>, features: &Bound<'_, PyDict>) -> PyResult<()> {
        self.write_bytes(py, &written(features)?.to_bytes())
    }

    /// Completes the file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.writer.get(py)?;
        let finished = py.detach(|| {
            let writer = shared.lock().take();
            writer.map_or(Ok(()), Writer::finish)
        });
        finished.map_err(|error| errors::source(py, error.into()))
    }

    /// The number of records so far; `None` once it is closed.
    #[getter]
    fn records(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let shared = self.writer.get(py)?;
        Ok(py.detach(|| shared.lock().as_ref().map(Writer::records)))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Completes the file, unless something was raised: the records may then be some of those that were
    /// meant, so there is no file, and an earlier one of that name stays.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if exception.get_item(0).is_ok_and(|class| !class.is_none()) {
            // A fork leaves the file to its parent, and what was raised goes on.
            if let Ok(shared) = self.writer.get(py) {
                py.detach(|| {
                    let writer = shared.lock().take();
                    drop(writer);
                });
            }
            return Ok(());
        }
        self.close(py)
    }
}

/// The bytes of a `tf.train.Example` of these features.
#[pyfunction]
pub(crate) fn example<'py>(py: Python<'py>, features: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &written(features)?.to_bytes()))
}

fn written(features: &Bound<'_, PyDict>) -> PyResult<ExampleWriter> {
    let mut example = ExampleWriter::new();
    for (name, value) in features {
        write(&mut example, &name.extract::<String>()?, &value)?;
    }
    Ok(example)
}

/// A feature: bytes or text, integers, or floats; one, or several.
fn write(example: &mut ExampleWriter, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let has_no_order = value.is_instance_of::<PyDict>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    if has_no_order {
        let found = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "feature {name:?} holds a {found}, which has no order of values; it holds bytes or text, \
             integers, or floats, one or a flat list"
        )));
    }
    if let Some(bytes) = values::bytes_of(value)? {
        example.bytes(name, [bytes]);
        return Ok(());
    }
    let is_one = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    // Arrays have a method that makes lists of numbers of them.
    let value = if value.hasattr("tolist")? { value.call_method0("tolist")? } else { value.clone() };
    let values: Vec<Bound<'_, PyAny>> = if is_one || value.try_iter().is_err() {
        vec![value]
    } else {
        value.try_iter()?.collect::<PyResult<_>>()?
    };
    let all = |is: fn(&Bound<'_, PyAny>) -> bool| values.iter().all(is);
    if values.is_empty() {
        example.unset(name);
    } else if all(|value| value.is_instance_of::<PyInt>()) {
        let int = |value: &Bound<'_, PyAny>| value.extract::<i64>().map_err(|error| of(name, value, &error));
        example.ints(name, values.iter().map(int).collect::<PyResult<Vec<i64>>>()?);
    } else if all(|value| value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()) {
        #[expect(clippy::cast_possible_truncation, reason = "an f32 already")]
        let float = |value: &Bound<'_, PyAny>| {
            let float = numbers::float_of(value, Dtype::F32);
            float.map(|float| float as f32).map_err(|error| of(name, value, &error))
        };
        example.floats(name, values.iter().map(float).collect::<PyResult<Vec<f32>>>()?);
    } else {
        let bytes: PyResult<Vec<Vec<u8>>> = values.iter().map(|value| bytes_of(name, value)).collect();
        example.bytes(name, bytes?);
    }
    Ok(())
}

/// The error of a number, with the feature's name.
fn of(name: &str, value: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let message = format!("feature {name:?} holds {value}: {}", error.value(value.py()));
    match error.is_instance_of::<PyOverflowError>(value.py()) {
        true => PyOverflowError::new_err(message),
        false => PyValueError::new_err(message),
    }
}

fn bytes_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(text.into_bytes());
    }
    if let Some(bytes) = values::bytes_of(value)? {
        return Ok(bytes);
    }
    if value.is_instance_of::<PyBytes>() {
        return value.extract();
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "feature {name:?} holds {found}; it holds bytes or text, integers, or floats, one or a flat list"
    )))
}
