//! What turns records into rows: TensorFlow's Examples, or a function of Python.

use std::sync::Arc;

use percolator::Field;
use percolator::batch::{AXES_MAX, ImageShape};
use percolator::example::{ExampleFields, ExampleImage, ImageShapeFrom};
use percolator::feed::{DecoderSpec, FeedSpec};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::{Keywords, dtype_of, wrong};
use crate::decoder::{Failures, PythonDecoder, turn_of};
use crate::errors;

pub(super) fn apply(
    keywords: &mut Keywords<'_>,
    spec: &mut FeedSpec,
    failures: &Arc<Failures>,
) -> PyResult<Option<(PythonDecoder, Arc<Py<PyAny>>)>> {
    let fields: Option<String> = keywords.take("fields")?;
    let image = keywords.object("image");
    let decode = keywords.object("decode");
    let declared = keywords.object("decode_fields");
    let overlaps: Option<bool> = keywords.take("decode_overlaps")?;
    let py = keywords.py();
    for (name, is_set) in [("decode_fields", declared.is_some()), ("decode_overlaps", overlaps.is_some())] {
        if decode.is_none() && is_set {
            let message = format!("{name} is set without decode: give the function that makes the fields");
            return Err(errors::config(py, &message));
        }
    }
    if let Some(decode) = decode {
        if fields.is_some() || image.is_some() {
            let message = "decode is set, and so is fields or image, which are for tf.train.Examples: leave \
                           one of the two out (decode_fields declares what decode returns)";
            return Err(errors::config(py, message));
        }
        if !decode.is_callable() {
            let found = decode.get_type().name()?;
            return Err(errors::value(format!("decode takes a function of a record, and not {found}")));
        }
        let declared = declared.map(|declared| declared_fields(&declared)).transpose()?;
        let turn = match overlaps {
            Some(true) => {
                refuse_shared_files(&decode)?;
                None
            }
            _ => Some(turn_of(&decode)),
        };
        let function = Arc::new(decode.unbind());
        return Ok(Some((PythonDecoder::new(function.clone(), declared, turn, failures.clone()), function)));
    }
    if fields.is_some() || image.is_some() {
        let fields = fields.map_or(Ok(ExampleFields::new()), |text| example_fields("fields", &text))?;
        let image = image.map(|image| example_image(&image)).transpose()?;
        spec.decoder = DecoderSpec::Example { fields, image };
    }
    Ok(None)
}

/// Refuses a function whose calls are to overlap, and that has an open file: among the global variables that
/// it uses, those that it encloses, and those of its object. All its threads would share that file's place.
fn refuse_shared_files(decode: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = decode.py();
    let mut held: Vec<(String, Bound<'_, PyAny>)> = Vec::new();
    if let (Ok(code), Ok(cells)) = (decode.getattr("__code__"), decode.getattr("__closure__"))
        && !cells.is_none()
    {
        let names = code.getattr("co_freevars")?;
        for (name, cell) in names.try_iter()?.zip(cells.try_iter()?) {
            // An empty cell has no contents.
            let Ok(contents) = cell?.getattr("cell_contents") else { continue };
            held.push((name?.to_string(), contents));
        }
    }
    if let (Ok(code), Ok(globals)) = (decode.getattr("__code__"), decode.getattr("__globals__")) {
        for name in code.getattr("co_names")?.try_iter()? {
            let name = name?;
            if let Ok(value) = globals.get_item(&name) {
                held.push((name.to_string(), value));
            }
        }
    }
    let object = decode.getattr("__self__").unwrap_or_else(|_| decode.clone());
    if let Ok(variables) = object.getattr("__dict__")
        && let Ok(variables) = variables.cast_into::<PyDict>()
    {
        held.extend(variables.iter().map(|(name, value)| (name.to_string(), value)));
    }
    let file = py.import("io")?.getattr("IOBase")?;
    for (name, value) in held {
        if value.is_instance(&file)? && !value.getattr("closed")?.is_truthy()? {
            let message = format!(
                "decode_overlaps=True, and decode has the open file {name:?}: threads that read it at once \
                 move each other's position, and get each other's bytes. Open one for each thread \
                 (threading.local), read with os.pread, or leave decode_overlaps out"
            );
            return Err(errors::config(py, &message));
        }
    }
    Ok(())
}

fn example_fields(keyword: &str, text: &str) -> PyResult<ExampleFields> {
    text.parse().map_err(|error| errors::value(format!("{keyword}: {error}")))
}

/// The name of a feature with an encoded file, or a dict with `feature`, `label` and, of raw pixels, `shape`
/// and their `order`.
fn example_image(value: &Bound<'_, PyAny>) -> PyResult<ExampleImage> {
    if let Ok(feature) = value.cast::<PyString>() {
        return Ok(ExampleImage::encoded(feature.to_string()));
    }
    let dict = value.cast::<PyDict>().map_err(|_| {
        let message = "image takes the name of a feature, or a dict with feature, label and shape";
        errors::value(message.to_owned())
    })?;
    let mut keywords = Keywords::of(value.py(), Some(dict))?;
    let feature: Option<String> = keywords.take("feature")?;
    let feature =
        feature.ok_or_else(|| errors::value("image has no feature: name the one it is in".to_owned()))?;
    let order: Option<String> = keywords.take("order")?;
    let mut image = match (keywords.object("shape"), order.as_deref()) {
        (None, None) => ExampleImage::encoded(feature),
        (Some(shape), None | Some("chw")) => {
            ExampleImage::raw(feature, image_shape(&shape, |[c, h, w]| [c, h, w])?)
        }
        (Some(shape), Some("hwc")) => {
            ExampleImage::interleaved(feature, image_shape(&shape, |[h, w, c]| [c, h, w])?)
        }
        (None, Some(_)) => {
            let message = "image has an order and no shape: leave order out for JPEG and PNG files";
            return Err(errors::value(message.to_owned()));
        }
        (Some(_), Some(other)) => {
            let message = format!("image has the order {other:?}: give \"chw\" or \"hwc\"");
            return Err(errors::value(message));
        }
    };
    if let Some(label) = keywords.take::<String>("label")? {
        image = image.label(label);
    }
    keywords.finish("image")?;
    Ok(image)
}

fn image_shape(
    value: &Bound<'_, PyAny>,
    order: impl Fn([usize; 3]) -> [usize; 3],
) -> PyResult<ImageShapeFrom> {
    if let Ok(feature) = value.cast::<PyString>() {
        return Ok(ImageShapeFrom::Feature(feature.to_string()));
    }
    let extents: [usize; 3] = value.extract().map_err(|error| wrong("shape", value, &error))?;
    let [channels, height, width] = order(extents);
    Ok(ImageShapeFrom::Fixed(ImageShape { channels, height, width }))
}

/// The fields that a function returns: text, as for Examples, or a dict of types and shapes.
fn declared_fields(value: &Bound<'_, PyAny>) -> PyResult<Vec<Field>> {
    if let Ok(text) = value.cast::<PyString>() {
        let fields = example_fields("decode_fields", &text.to_cow()?)?;
        return Ok(fields.fields().iter().map(|field| field.field().clone()).collect());
    }
    let dict = value.cast::<PyDict>().map_err(|_| {
        let message = "decode_fields takes a dict such as {\"x\": (\"f32\", (3, 32, 32)), \"y\": \"i64\"}, \
                       or text such as \"x:f32[3,32,32],y:i64,tokens:i32[<=128]\"";
        errors::value(message.to_owned())
    })?;
    let named = |name: Bound<'_, PyAny>| {
        name.extract::<String>().map_err(|error| wrong("decode_fields", value, &error))
    };
    dict.iter().map(|(name, kind)| declared_field(named(name)?, &kind)).collect()
}

fn declared_field(name: String, kind: &Bound<'_, PyAny>) -> PyResult<Field> {
    let Ok((dtype, shape)) = kind.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Ok(Field::scalar(name, dtype_of(kind)?));
    };
    let extents: Vec<usize> = match shape.extract::<usize>() {
        Ok(extent) => vec![extent],
        Err(_) => shape.extract().map_err(|error| wrong("decode_fields", kind, &error))?,
    };
    if extents.len() >= AXES_MAX {
        let found = extents.len();
        return Err(errors::value(format!(
            "decode_fields: {name:?} has {found} axes; at most 7 are allowed"
        )));
    }
    Ok(Field::new(name, dtype_of(&dtype)?, extents))
}
