//! The class `Transform`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{Keywords, json, transform_of};

/// What is done to every image.
#[pyclass(frozen, eq, module = "percolator")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transform {
    pub(crate) inner: percolator::Transform,
}

#[pymethods]
impl Transform {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut keywords = Keywords::of(py, options)?;
        let inner = transform_of(&mut keywords, percolator::Transform::new())?;
        keywords.finish("Transform")?;
        Ok(Transform { inner })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Transform({})", json::spec_to(py, &self.inner)?))
    }
}
