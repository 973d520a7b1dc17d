//! What a function of Python returns, as the bytes of a field.
//!
//! Arrays are read through `memoryview`, for which the stable interface of CPython 3.10 lacks a C function.

use bytemuck::NoUninit;
use half::{bf16, f16};
use percolator::batch::FieldKind;
use percolator::{Dtype, Field};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PyTuple};

use crate::numbers;

/// Why a value is none of its field: words, or the exception that reading it raised.
pub(crate) enum Unfit {
    Words(String),
    Raised(PyErr),
}

impl From<PyErr> for Unfit {
    fn from(error: PyErr) -> Self {
        Unfit::Raised(error)
    }
}

/// The extents of what one record has of a field; of a varying number of elements, the most.
pub(crate) fn shape_of(field: &Field) -> Vec<usize> {
    match field.kind() {
        FieldKind::Fixed(extents) => extents.to_vec(),
        FieldKind::Padded { max, .. } | FieldKind::Ragged { max } => vec![max],
        _ => Vec::new(),
    }
}

/// The elements of a field, in the machine's byte order: as Python has them, or made of numbers.
pub(crate) enum Elements<'py> {
    Python(Bound<'py, PyBytes>),
    Made(Vec<u8>),
}

impl Elements<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Elements::Python(bytes) => bytes.as_bytes(),
            Elements::Made(bytes) => bytes,
        }
    }
}

/// The elements of a field that a value has.
pub(crate) fn elements_of<'py>(field: &Field, value: &Bound<'py, PyAny>) -> Result<Elements<'py>, Unfit> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Elements::Python(bytes.clone()));
    }
    if let Some(bytes) = bytes_of(value)? {
        return Ok(Elements::Made(bytes));
    }
    if is_number(value) {
        check_shape(field, &[])?;
        return number_of(field, value).map(Elements::Made);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let numbers: Vec<Bound<'_, PyAny>> = value.extract()?;
        check_shape(field, &[numbers.len()])?;
        let mut bytes = Vec::new();
        for number in &numbers {
            bytes.extend(number_of(field, number)?);
        }
        return Ok(Elements::Made(bytes));
    }
    let array = Array::of(field.name(), value)?;
    if array.dtype != field.dtype() {
        let (name, found, wanted) = (field.name(), array.dtype, field.dtype());
        return Err(Unfit::Words(format!(
            "field {name:?} takes {wanted}, but decode returned {found}: convert it, or declare {found} in \
             decode_fields"
        )));
    }
    check_shape(field, &array.shape)?;
    let bytes = array.view.call_method0("tobytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
    Ok(Elements::Python(bytes))
}

/// The bytes of a bytearray, or of a view of bytes, which say no type of elements, as bytes do not; `None` of
/// anything else.
pub(crate) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Some(bytes.to_vec()));
    }
    if !value.is_instance_of::<PyMemoryView>() {
        return Ok(None);
    }
    let (format, axes): (String, usize) =
        (value.getattr("format")?.extract()?, value.getattr("ndim")?.extract()?);
    if axes != 1 || !["B", "b", "c"].contains(&&*format) {
        return Ok(None);
    }
    value.call_method0("tobytes")?.extract().map(Some)
}

/// The field that a value of the first record suggests.
pub(crate) fn field_of(name: &str, value: &Bound<'_, PyAny>) -> Result<Field, Unfit> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Field::new(name, Dtype::U8, [bytes.as_bytes().len()]));
    }
    if value.is_exact_instance_of::<PyBool>() {
        return Ok(Field::scalar(name, Dtype::Bool));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Field::scalar(name, Dtype::I64));
    }
    // NumPy's float64 is a float of Python as well, and has a type of its own.
    if value.is_exact_instance_of::<PyFloat>() {
        return Ok(Field::scalar(name, Dtype::F32));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Err(Unfit::Words(format!(
            "decode returned a list for {name:?}, whose type and length nothing says: declare the field in \
             decode_fields"
        )));
    }
    let array = Array::of(name, value)?;
    if array.shape.len() >= percolator::batch::AXES_MAX {
        let axes = array.shape.len();
        return Err(Unfit::Words(format!("decode returned {axes} axes for {name:?}; at most 7 are allowed")));
    }
    Ok(Field::new(name, array.dtype, array.shape))
}

fn is_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>()
}

fn check_shape(field: &Field, found: &[usize]) -> Result<(), Unfit> {
    let fits = match field.kind() {
        FieldKind::Fixed(extents) => *extents == *found,
        _ => found.len() == 1,
    };
    if fits {
        return Ok(());
    }
    Err(Unfit::Words(format!("field {field} takes another shape than the {found:?} that decode returned")))
}

fn bytes(element: impl NoUninit) -> Vec<u8> {
    bytemuck::bytes_of(&element).to_vec()
}

/// One element.
fn number_of(field: &Field, value: &Bound<'_, PyAny>) -> Result<Vec<u8>, Unfit> {
    let wrong = |error: PyErr| {
        let (name, dtype) = (field.name(), field.dtype());
        Unfit::Words(format!("field {name:?} takes {dtype}, but decode returned {value}: {error}"))
    };
    let float = || numbers::float_of(value, field.dtype()).map_err(wrong);
    #[expect(clippy::cast_possible_truncation, reason = "an f32 already")]
    let narrow = |float: f64| float as f32;
    Ok(match field.dtype() {
        Dtype::U8 => bytes(value.extract::<u8>().map_err(wrong)?),
        Dtype::U16 => bytes(value.extract::<u16>().map_err(wrong)?),
        Dtype::U32 => bytes(value.extract::<u32>().map_err(wrong)?),
        Dtype::U64 => bytes(value.extract::<u64>().map_err(wrong)?),
        Dtype::I8 => bytes(value.extract::<i8>().map_err(wrong)?),
        Dtype::I16 => bytes(value.extract::<i16>().map_err(wrong)?),
        Dtype::I32 => bytes(value.extract::<i32>().map_err(wrong)?),
        Dtype::I64 => bytes(value.extract::<i64>().map_err(wrong)?),
        Dtype::F16 => bytes(f16::from_f64(float()?)),
        Dtype::Bf16 => bytes(bf16::from_f64(float()?)),
        Dtype::F32 => bytes(narrow(float()?)),
        Dtype::F64 => bytes(float()?),
        Dtype::Bool => bytes(u8::from(value.extract::<bool>().map_err(wrong)?)),
        other => return Err(Unfit::Words(format!("fields of {other} cannot be made in Python"))),
    })
}

/// An array of any library.
struct Array<'py> {
    view: Bound<'py, PyAny>,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl<'py> Array<'py> {
    fn of(name: &str, value: &Bound<'py, PyAny>) -> Result<Self, Unfit> {
        let view = match PyMemoryView::from(value) {
            Ok(view) => view,
            // Tensors of frameworks become arrays of NumPy, on the host without a copy.
            Err(_) if value.hasattr("__array__")? => PyMemoryView::from(&value.call_method0("__array__")?)?,
            Err(_) => {
                let found = value.get_type().name()?;
                return Err(Unfit::Words(format!(
                    "decode returned {found} for {name:?}; it returns arrays, bytes, numbers or lists of them"
                )));
            }
        };
        let view = view.into_any();
        let format: String = view.getattr("format")?.extract()?;
        let size: usize = view.getattr("itemsize")?.extract()?;
        let dtype = dtype_of(&format, size).ok_or_else(|| {
            Unfit::Words(format!(
                "decode returned elements of the type {format:?} for {name:?}; no field has it"
            ))
        })?;
        let shape = view.getattr("shape")?.extract()?;
        Ok(Array { view, dtype, shape })
    }
}

/// The type of a format of the module `struct`, in the machine's byte order.
fn dtype_of(format: &str, size: usize) -> Option<Dtype> {
    let native = if cfg!(target_endian = "little") { ['@', '=', '<'] } else { ['@', '=', '>'] };
    let letter = format.trim_start_matches(native);
    Some(match (letter, size) {
        ("?", 1) => Dtype::Bool,
        ("B", 1) => Dtype::U8,
        ("H" | "I" | "L" | "Q" | "N", 2) => Dtype::U16,
        ("I" | "L" | "Q" | "N", 4) => Dtype::U32,
        ("L" | "Q" | "N", 8) => Dtype::U64,
        ("b", 1) => Dtype::I8,
        ("h" | "i" | "l" | "q" | "n", 2) => Dtype::I16,
        ("i" | "l" | "q" | "n", 4) => Dtype::I32,
        ("l" | "q" | "n", 8) => Dtype::I64,
        ("e", 2) => Dtype::F16,
        ("f", 4) => Dtype::F32,
        ("d", 8) => Dtype::F64,
        _ => return None,
    })
}
