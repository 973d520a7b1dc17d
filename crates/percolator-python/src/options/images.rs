//! What is done to images.

use std::path::PathBuf;

use percolator::Transform;
use percolator::feed::FeedSpec;
use percolator::transform::ColorMode;
use pyo3::prelude::*;

use super::{Keywords, dtype_of, json};
use crate::errors;
use crate::transform;

pub(super) fn apply(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let whole: Option<Bound<'_, transform::Transform>> = match keywords.object("transform") {
        Some(value) => Some(value.cast_into::<transform::Transform>().map_err(|_| {
            errors::value(
                "transform takes a percolator.Transform; or give crop, mirror, scale, ...".to_owned(),
            )
        })?),
        None => None,
    };
    let (from, is_whole) = match &whole {
        Some(whole) => (whole.get().inner.clone(), true),
        None => (spec.transform.clone(), false),
    };
    let changed = transform_of(keywords, from.clone())?;
    if is_whole && changed != from {
        let message =
            "transform is set, and so are keywords of a transform: put all of them into the Transform";
        return Err(errors::config(keywords.py(), message));
    }
    spec.transform = changed;
    spec.transform_on = keywords.named("transform_on")?.unwrap_or(spec.transform_on);
    if let Some(dtype) = keywords.object("dtype") {
        spec.dtype = dtype_of(&dtype)?;
    }
    if let Some(layout) = keywords.take::<String>("layout")? {
        spec.layout = super::named("layout", &layout.to_ascii_lowercase())?;
    }
    spec.labels_i64 = keywords.take("labels_i64")?.unwrap_or(spec.labels_i64);
    if let Some(target) = keywords.object("target") {
        spec.target = Some(json::part_of("target", &target)?);
    }
    if let Some(phase) = keywords.take::<String>("phase")? {
        spec.phase = super::named("phase", &phase.to_ascii_lowercase())?;
    }
    if let Some(layer) = keywords.take("layer")? {
        spec.layer = layer;
    }
    Ok(())
}

/// How encoded images are decoded.
fn color_of(keywords: &mut Keywords<'_>) -> PyResult<Option<ColorMode>> {
    let Some(name) = keywords.take::<String>("color")? else { return Ok(None) };
    if ["rgb", "bgr"].contains(&&*name.to_ascii_lowercase()) {
        return Err(errors::value(format!(
            "color={name:?}: it says how many channels there are (\"color\" is 3, \"gray\" is 1, \"native\" \
             as many as the file has), and not their order, which is BGR always; make RGB of a batch with \
             x[:, [2, 1, 0]] (layout NCHW) or x[..., [2, 1, 0]] (NHWC), after mean_values, which are in BGR"
        )));
    }
    super::named("color", &name).map(Some)
}

/// Changes what the keywords of a transform say.
pub(crate) fn transform_of(keywords: &mut Keywords<'_>, mut transform: Transform) -> PyResult<Transform> {
    transform = with(transform, keywords.take("crop")?, Transform::crop);
    transform = with(transform, keywords.take("mirror")?, Transform::mirror);
    let means = Some(keywords.several::<f32>("mean_values")?).filter(|means| !means.is_empty());
    transform = with(transform, means, Transform::mean_values);
    transform = with(transform, keywords.take::<PathBuf>("mean_file")?, Transform::mean_file);
    transform = with(transform, keywords.take("scale")?, Transform::scale);
    transform = with(transform, color_of(keywords)?, Transform::color);
    let resize = |transform: Transform, (height, width)| transform.resize(height, width);
    transform = with(transform, keywords.take("resize")?, resize);
    Ok(with(transform, keywords.take("scaled_decode")?, Transform::scaled_decode))
}

/// Sets what was given.
fn with<T>(transform: Transform, value: Option<T>, set: impl FnOnce(Transform, T) -> Transform) -> Transform {
    match value {
        Some(value) => set(transform, value),
        None => transform,
    }
}
