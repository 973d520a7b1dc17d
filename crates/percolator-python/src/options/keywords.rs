//! Keyword arguments, taken one after the other. Those that remain at the end are unknown.

use pyo3::conversion::FromPyObject;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde::de::DeserializeOwned;

use crate::errors;

/// What other libraries call it, and what does it here.
const INSTEAD: [(&str, &str); 9] = [
    ("bgr", "color=\"color\" has the order BGR, as OpenCV and Caffe have it"),
    ("data", "name the kind of the data: lmdb, leveldb, tfrecord, image_list or files"),
    ("folder", "images in a folder are read by a list of them: image_list"),
    ("normalize", "use mean and std, of levels from 0 to 1"),
    ("num_workers", "use threads: a feed has no worker processes"),
    ("pad", "use last_batch=\"pad\""),
    ("path", "name the kind of the data: lmdb, leveldb, tfrecord, image_list or files"),
    ("rgb", "use color=\"rgb\""),
    ("size", "use resize=(height, width), or crop"),
];

/// Keyword arguments. One that is `None` counts as not given.
pub(crate) struct Keywords<'py> {
    left: Bound<'py, PyDict>,
    /// All that were asked for.
    known: Vec<&'static str>,
}

impl<'py> Keywords<'py> {
    pub(crate) fn of(py: Python<'py>, keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let left = keywords.map_or_else(|| Ok(PyDict::new(py)), |keywords| keywords.copy())?;
        Ok(Keywords { left, known: Vec::new() })
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.left.py()
    }

    /// The names that were given, in their order.
    pub(crate) fn given(&self) -> Vec<String> {
        self.left.keys().iter().map(|name| name.to_string()).collect()
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Option<Bound<'py, PyAny>> {
        self.known.push(name);
        // A dict's own keys are strings, whose lookup does not fail.
        let value = self.left.get_item(name).ok().flatten()?;
        let _ = self.left.del_item(name);
        (!value.is_none()).then_some(value)
    }

    /// A value of a type of Rust.
    pub(crate) fn take<T>(&mut self, name: &'static str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let Some(value) = self.object(name) else { return Ok(None) };
        value.extract().map(Some).map_err(|error| wrong(name, &value, &error))
    }

    /// One of the names that a type of the library has in JSON.
    pub(crate) fn named<T: DeserializeOwned>(&mut self, name: &'static str) -> PyResult<Option<T>> {
        self.take::<String>(name)?.map(|value| super::named(name, &value)).transpose()
    }

    /// One value, or several in a list, a tuple or an array; none if the keyword was not given.
    pub(crate) fn several<T>(&mut self, name: &'static str) -> PyResult<Vec<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let Some(value) = self.object(name) else { return Ok(Vec::new()) };
        // Arrays have a method that makes lists of numbers of them.
        let value = if value.hasattr("tolist")? { value.call_method0("tolist")? } else { value };
        let one = |value: &Bound<'py, PyAny>| value.extract().map_err(|error| wrong(name, value, &error));
        if !value.is_instance_of::<PyList>() && !value.is_instance_of::<PyTuple>() {
            return Ok(vec![one(&value)?]);
        }
        if value.len()? == 0 {
            return Err(errors::value(format!("{name}={value}: give at least one, or leave {name} out")));
        }
        value.try_iter()?.map(|value| one(&value?)).collect()
    }

    /// Refuses what nothing has asked for.
    pub(crate) fn finish(self, function: &str) -> PyResult<()> {
        let Some(unknown) = self.given().into_iter().next() else { return Ok(()) };
        let near = self.known.iter().map(|known| (distance(known, &unknown), known)).min();
        let instead = INSTEAD.iter().find(|(name, _)| *name == unknown);
        let hint = match (instead, near) {
            (Some((_, instead)), _) => format!(": {instead}"),
            (None, Some((distance, known))) if distance * 3 <= known.len().min(unknown.len()) => {
                format!(" (did you mean {known:?}?)")
            }
            _ => String::new(),
        };
        Err(PyTypeError::new_err(format!("{function}() has no keyword {unknown:?}{hint}")))
    }
}

/// Says which keyword a value does not suit.
pub(crate) fn wrong(name: &str, value: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let shown = value.repr().map_or_else(|_| "?".to_owned(), |shown| shown.to_string());
    errors::value(format!("{name}={shown}: {}", error.value(value.py())))
}

/// The number of letters that are inserted, removed or replaced between two words.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (column, found) in other.bytes().enumerate() {
            let replaced = before + usize::from(letter != found);
            before = row[column + 1];
            row[column + 1] = replaced.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
