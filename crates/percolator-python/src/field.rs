//! A field of a batch: an array that frameworks take without a copy.

use std::sync::Arc;

use percolator::Dtype;
use percolator::batch::FieldError;
use percolator::dlpack::{DLDataType, DLDevice};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::capsule::{self, SharedArray};
use crate::errors;
use crate::options::dtype_of;

/// DLPack's numbers of kinds of devices.
const HOST: i32 = 1;

/// DLPack's numbers of CUDA streams: the legacy default stream, and "no stream: do not synchronise".
#[cfg(feature = "cuda")]
const LEGACY_DEFAULT_STREAM: isize = 1;
#[cfg(feature = "cuda")]
const NO_STREAM: isize = -1;

/// One array of a batch; pixels are in the order BGR. It keeps the batch's memory as long as it lives, and so
/// does whatever a framework makes of it.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Field {
    name: Arc<str>,
    array: Arc<SharedArray>,
}

/// The types, with DLPack's and NumPy's names for them: kind, bits, and NumPy's letter and bytes.
const TYPES: [(Dtype, u8, u8, Option<&str>); 13] = [
    (Dtype::U8, 1, 8, Some("u1")),
    (Dtype::U16, 1, 16, Some("u2")),
    (Dtype::U32, 1, 32, Some("u4")),
    (Dtype::U64, 1, 64, Some("u8")),
    (Dtype::I8, 0, 8, Some("i1")),
    (Dtype::I16, 0, 16, Some("i2")),
    (Dtype::I32, 0, 32, Some("i4")),
    (Dtype::I64, 0, 64, Some("i8")),
    (Dtype::F16, 2, 16, Some("f2")),
    (Dtype::F32, 2, 32, Some("f4")),
    (Dtype::F64, 2, 64, Some("f8")),
    (Dtype::Bf16, 4, 16, None),
    (Dtype::Bool, 6, 8, Some("b1")),
];

/// DLPack's name for a type.
pub(crate) fn data_type_of(dtype: Dtype) -> DLDataType {
    let known = TYPES.iter().find(|(known, ..)| *known == dtype);
    let (_, code, bits, _) = *known.expect("a batch's types are all listed");
    DLDataType { code, bits, lanes: 1 }
}

fn type_of(found: DLDataType) -> (Dtype, Option<&'static str>) {
    let known = TYPES.iter().find(|(_, code, bits, _)| (*code, *bits) == (found.code, found.bits));
    let (dtype, _, _, numpy) = known.expect("a batch's types are all listed");
    (*dtype, *numpy)
}

impl Field {
    pub(crate) fn new(name: Arc<str>, array: Arc<SharedArray>) -> Self {
        Field { name, array }
    }

    /// Checks that its elements have this type.
    pub(crate) fn check_dtype(&self, py: Python<'_>, wanted: Dtype) -> PyResult<()> {
        let found = type_of(self.array.data_type()).0;
        match found == wanted {
            true => Ok(()),
            false => {
                let field = self.name.to_string();
                Err(errors::field(py, &FieldError::Dtype { field, found, wanted }))
            }
        }
    }

    fn is_on_host(&self) -> bool {
        self.array.device().device_type == HOST
    }

    fn device_name(&self) -> String {
        let DLDevice { device_id, .. } = self.array.device();
        if self.is_on_host() { "cpu".to_owned() } else { format!("cuda:{device_id}") }
    }

    /// Checks what a consumer asks of the capsule; whether it gets a copy.
    fn check_request(&self, device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<bool> {
        let here = self.array.device();
        let (name, at) = (&self.name, self.device_name());
        if device.is_some_and(|wanted| wanted != (here.device_type, here.device_id)) {
            return Err(PyBufferError::new_err(format!(
                "field {name:?} is on {at}, and is not copied to another device: take it there, and copy the \
                 tensor, or feed that device (devices=...)"
            )));
        }
        let is_copy = copy == Some(true);
        if is_copy && !self.is_on_host() {
            return Err(PyBufferError::new_err(format!(
                "field {name:?} is on {at}, where percolator makes no copies: take it without one, and clone \
                 the tensor"
            )));
        }
        Ok(is_copy)
    }

    /// Lets the consumer's stream wait for the array.
    #[cfg(feature = "cuda")]
    fn synchronise(&self, py: Python<'_>, stream: Option<isize>) -> PyResult<()> {
        let stream = stream.unwrap_or(LEGACY_DEFAULT_STREAM);
        if self.is_on_host() || stream == NO_STREAM {
            return Ok(());
        }
        let stream = usize::try_from(stream).ok().filter(|&stream| stream != 0).ok_or_else(|| {
            PyValueError::new_err("stream must be None, -1, 1, 2 or the address of a stream; 0 is ambiguous")
        })?;
        py.detach(|| self.array.wait_on(stream)).map_err(|error| errors::device(py, &error))
    }

    #[cfg(not(feature = "cuda"))]
    fn synchronise(&self, _py: Python<'_>, _stream: Option<isize>) -> PyResult<()> {
        Ok(())
    }
}

#[pymethods]
impl Field {
    /// Its name in the batch.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements, such as `"f32"`.
    #[getter]
    fn dtype(&self) -> String {
        type_of(self.array.data_type()).0.to_string()
    }

    /// The extents, rows first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.shape())
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.bytes()
    }

    /// `"cpu"`, or `"cuda:N"`.
    #[getter]
    fn device(&self) -> String {
        self.device_name()
    }

    /// The address of the first element.
    #[getter]
    fn address(&self) -> usize {
        self.array.address()
    }

    fn __len__(&self) -> usize {
        let rows = self.array.shape().first().copied();
        rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or_default()
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        let DLDevice { device_type, device_id } = self.array.device();
        (device_type, device_id)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_copy = self.check_request(dl_device, copy)?;
        self.synchronise(py, stream)?;
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if self.array.is_read_only() && !is_versioned && !is_copy {
            return Err(PyBufferError::new_err(format!(
                "field {:?} is a server's memory, which is only read, and what takes it knows no DLPack that \
                 says so (1.0): take it with NumPy or a newer framework, or ask the server for copies \
                 (grpc+unix:// in the place of shared://)",
                self.name
            )));
        }
        capsule::capsule(py, &self.array, is_versioned, is_copy)
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let name = &self.name;
        if !self.is_on_host() {
            let at = self.device_name();
            return Err(PyTypeError::new_err(format!(
                "field {name:?} is on {at}, which NumPy does not have: take it with torch.from_dlpack or \
                 jax.dlpack.from_dlpack, or feed the host (devices=\"host\")"
            )));
        }
        let (dtype, Some(letters)) = type_of(self.array.data_type()) else {
            return Err(PyTypeError::new_err(format!(
                "field {name:?} holds bf16, which NumPy does not have: take it with torch.from_dlpack or \
                 jax.dlpack.from_dlpack, or feed dtype=\"f32\" or \"f16\""
            )));
        };
        let order = match (dtype.size(), cfg!(target_endian = "little")) {
            (1, _) => '|',
            (_, true) => '<',
            (_, false) => '>',
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", format!("{order}{letters}"))?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("data", (self.array.address(), self.array.is_read_only()))?;
        Ok(interface)
    }

    /// The array as a `numpy.ndarray`, without a copy.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf,))
    }

    /// The array as a `torch.Tensor`, without a copy.
    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("torch")?.call_method1("from_dlpack", (slf,))
    }

    /// The array as a `jax.Array`, without a copy.
    fn jax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, array) = (slf.py(), &slf.get().array);
        let field = match array.is_read_only() {
            true => Bound::new(py, Unwritten(array.clone()))?.into_any(),
            false => slf.clone().into_any(),
        };
        py.import("jax.dlpack")?.call_method1("from_dlpack", (field,))
    }

    /// The array as a `tf.Tensor`, without a copy, unless it is in a server's memory. It must be on the
    /// host: TensorFlow does not say on which streams it works, so the memory could be filled again while it
    /// is read.
    fn tensorflow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let field = slf.get();
        if !field.is_on_host() {
            let (name, at) = (&field.name, field.device_name());
            return Err(PyBufferError::new_err(format!(
                "field {name:?} is on {at}, and TensorFlow does not say which of its streams read it, so the \
                 feed could fill the memory too early: feed the host (devices=\"host\"), and let TensorFlow \
                 copy the tensor to its device"
            )));
        }
        // It writes into tensors that nothing else refers to.
        let capsule = capsule::capsule(slf.py(), &field.array, false, field.array.is_read_only())?;
        slf.py().import("tensorflow.experimental.dlpack")?.call_method1("from_dlpack", (capsule,))
    }

    /// Checks the type of the elements.
    fn expect<'py>(slf: Bound<'py, Self>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().check_dtype(slf.py(), dtype_of(dtype)?)?;
        Ok(slf)
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.array.shape().iter().map(ToString::to_string).collect();
        format!("Field({:?}: {} [{}] on {})", self.name, self.dtype(), shape.join("x"), self.device_name())
    }

    fn __reduce_ex__(slf: &Bound<'_, Self>, _protocol: i32) -> PyResult<()> {
        let name = &slf.get().name;
        Err(PyTypeError::new_err(format!(
            "field {name:?} is memory of a feed, and is not pickled: pickle a copy, field.numpy().copy()"
        )))
    }
}

/// A field for a framework that never writes to an array, and so need not be told that this one is only read.
#[pyclass(frozen, module = "percolator")]
struct Unwritten(Arc<SharedArray>);

#[pymethods]
impl Unwritten {
    fn __dlpack_device__(&self) -> (i32, i32) {
        let DLDevice { device_type, device_id } = self.0.device();
        (device_type, device_id)
    }

    #[pyo3(signature = (**_options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        _options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        capsule::capsule(py, &self.0, false, false)
    }
}
