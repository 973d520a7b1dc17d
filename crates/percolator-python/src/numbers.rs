//! Numbers of Python as floats: rounded, but never made infinite, and never another integer.

use half::{bf16, f16};
use percolator::Dtype;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// A number that a type of floats has: the nearest to a number of Python.
pub(crate) fn float_of(value: &Bound<'_, PyAny>, dtype: Dtype) -> PyResult<f64> {
    let float: f64 = value.extract()?;
    let rounded = rounded(float, dtype);
    if float.is_finite() && rounded.is_infinite() {
        return Err(PyOverflowError::new_err(format!("it is too large for {dtype}, and would be infinite")));
    }
    // Python compares an integer with a float exactly.
    if value.is_instance_of::<PyInt>() && !value.eq(rounded)? {
        return Err(PyValueError::new_err(format!(
            "{dtype} does not have this integer, and would make {rounded} of it: round it first, with float()"
        )));
    }
    Ok(rounded)
}

#[expect(clippy::cast_possible_truncation, reason = "rounded, to the nearest f32")]
fn rounded(float: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => f16::from_f64(float).to_f64(),
        Dtype::Bf16 => bf16::from_f64(float).to_f64(),
        Dtype::F32 => f64::from(float as f32),
        _ => float,
    }
}
