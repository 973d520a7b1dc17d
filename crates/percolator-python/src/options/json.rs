//! Specs and parts of them, to and from Python, as JSON.

use percolator::feed::FeedSpec;
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wrong;
use crate::errors;

/// A part of a spec, from the objects that `json.loads` makes.
pub(crate) fn part_of<T: DeserializeOwned>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let text = value.py().import("json")?.call_method1("dumps", (value,));
    let text: String = text.map_err(|error| wrong(name, value, &error))?.extract()?;
    serde_json::from_str(&text).map_err(|error| errors::value(format!("{name}: {error}")))
}

/// A spec, from a dict or from JSON.
pub(crate) fn spec_of(value: &Bound<'_, PyAny>) -> PyResult<FeedSpec> {
    let Ok(text) = value.cast::<PyString>() else { return part_of("the spec", value) };
    serde_json::from_str(&text.to_cow()?).map_err(|error| errors::value(format!("the spec: {error}")))
}

/// A part of a spec, as objects that `json.dumps` takes.
pub(crate) fn spec_to<'py>(py: Python<'py>, spec: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(spec).map_err(|error| errors::value(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
