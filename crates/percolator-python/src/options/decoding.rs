//! What turns records into rows: TensorFlow's Examples, or a function of Python.

use std::sync::Arc;

use percolator::Field;
use percolator::batch::{AXES_MAX, ImageShape};
use percolator::example::{ExampleFields, ExampleImage, ImageShapeFrom};
use percolator::feed::{DecoderSpec, FeedSpec};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::{Keywords, dtype_of, wrong};
use crate::decoder::{Failures, PythonDecoder};
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
    let py = keywords.py();
    if decode.is_none() && declared.is_some() {
        let message = "decode_fields is set without decode: give the function that makes the fields";
        return Err(errors::config(py, message));
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
        let function = Arc::new(decode.unbind());
        return Ok(Some((PythonDecoder::new(function.clone(), declared, failures.clone()), function)));
    }
    if fields.is_some() || image.is_some() {
        let fields = fields.map_or(Ok(ExampleFields::new()), |text| example_fields("fields", &text))?;
        let image = image.map(|image| example_image(&image)).transpose()?;
        spec.decoder = DecoderSpec::Example { fields, image };
    }
    Ok(None)
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
