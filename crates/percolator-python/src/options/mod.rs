//! Keywords of `Feed(...)`, onto a feed's spec. They set what the methods of
//! `FeedBuilder` set.

mod decoding;
mod images;
pub(crate) mod json;
mod keywords;
mod order;
mod resources;
mod server;
mod sources;

use std::sync::Arc;

use percolator::feed::FeedSpec;
use percolator::snapshot::Snapshot as CoreSnapshot;
use percolator::{Dtype, FeedBuilder};
use percolator_formats::feed::Formats;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde::de::DeserializeOwned;

pub(crate) use self::images::transform_of;
pub(crate) use self::keywords::{Keywords, wrong};
pub(crate) use self::resources::duration;
pub(crate) use self::server::{AtServer, at_server};
use crate::decoder::{Failures, PythonDecoder};
use crate::errors;
use crate::feed::Feed;
use crate::snapshot::Snapshot;

/// What the keywords describe.
pub(crate) struct Described {
    pub(crate) builder: FeedBuilder,
    /// The decoder, if it is a function of Python.
    pub(crate) function: Option<Arc<Py<PyAny>>>,
    /// Where it keeps its exceptions.
    pub(crate) failures: Arc<Failures>,
    /// The feed in whose place this one comes.
    pub(crate) replaces: Option<Py<Feed>>,
}

/// Sets what the keywords say.
pub(crate) fn apply(
    py: Python<'_>,
    builder: FeedBuilder,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Described> {
    let failures = Arc::new(Failures::default());
    let mut spec = builder.spec().clone();
    let mut keywords = Keywords::of(py, keywords)?;
    let (decoder, function) = describe(&mut keywords, &mut spec, &failures)?.unzip();
    let resume = keywords.object("resume").map(|resume| snapshot_of(&resume)).transpose()?;
    let replaces =
        keywords.object("_replaces").map(Bound::cast_into::<Feed>).transpose().map_err(PyErr::from)?;
    let replaces = replaces.map(Bound::unbind);
    keywords.finish("Feed")?;
    Ok(Described { builder: attach(spec, decoder, resume), function, failures, replaces })
}

/// Sets what a spec holds. Returns the decoder, if it is a function of Python, and the function.
fn describe(
    keywords: &mut Keywords<'_>,
    spec: &mut FeedSpec,
    failures: &Arc<Failures>,
) -> PyResult<Option<(PythonDecoder, Arc<Py<PyAny>>)>> {
    sources::apply(keywords, spec)?;
    images::apply(keywords, spec)?;
    let decoder = decoding::apply(keywords, spec, failures)?;
    // The job has a replica for each device, so the devices come first.
    resources::apply(keywords, spec)?;
    order::apply(keywords, spec)?;
    Ok(decoder)
}

/// A builder of a spec, with what a spec cannot hold.
fn attach(spec: FeedSpec, decoder: Option<PythonDecoder>, resume: Option<CoreSnapshot>) -> FeedBuilder {
    let mut builder = FeedBuilder::from(spec).opener(Formats);
    if let Some(decoder) = decoder {
        builder = builder.decoder(decoder);
    }
    match resume {
        Some(snapshot) => builder.resume(&snapshot),
        None => builder,
    }
}

/// A snapshot, or its text.
fn snapshot_of(value: &Bound<'_, PyAny>) -> PyResult<CoreSnapshot> {
    if let Ok(snapshot) = value.cast::<Snapshot>() {
        return Ok(snapshot.get().inner.clone());
    }
    let Ok(text) = value.cast::<PyString>() else {
        let found = value.get_type().name()?;
        return Err(errors::value(format!(
            "resume takes a Snapshot or its text, and not {found}: percolator.Snapshot.load(path) reads \
             a file"
        )));
    };
    let parsed = text.to_cow()?.parse();
    parsed.map_err(|error| errors::snapshot(value.py(), &error))
}

/// One of the names that a type of the library has in JSON.
pub(crate) fn named<T: DeserializeOwned>(keyword: &str, name: &str) -> PyResult<T> {
    let value = serde_json::Value::String(name.to_owned());
    serde_json::from_value(value).map_err(|error| errors::value(format!("{keyword}={name:?}: {error}")))
}

/// A type of elements: the library's name for it, or that of NumPy, PyTorch or JAX, or their objects.
pub(crate) fn dtype_of(value: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_string(),
        // A NumPy dtype has a `name`, a class a `__name__`; PyTorch's are written `torch.float32`.
        Err(_) => ["name", "__name__"]
            .iter()
            .find_map(|name| value.getattr(*name).ok()?.extract::<String>().ok())
            .unwrap_or_else(|| value.to_string()),
    };
    let name = text.rsplit('.').next().unwrap_or_default();
    let name = match name {
        "float32" | "single" => "f32",
        "float64" | "double" => "f64",
        "float16" | "half" => "f16",
        "bfloat16" => "bf16",
        "uint8" | "byte" => "u8",
        "uint16" => "u16",
        "uint32" => "u32",
        "uint64" => "u64",
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" | "long" => "i64",
        "bool_" => "bool",
        // How wide they are depends on whom one asks: Python's have 64 bits, and those of C and PyTorch 32.
        "float" | "int" => {
            return Err(errors::value(format!(
                "dtype={name:?} does not say how wide: write one of f16, bf16, f32, f64, i8, i16, i32, i64, \
                 u8, u16, u32, u64, bool"
            )));
        }
        name => name,
    };
    named("dtype", name)
}
