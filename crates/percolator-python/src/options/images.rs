//! What is done to images.

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
    if let Some(place) = keywords.named("transform_on")? {
        spec.transform_on = place;
    }
    if let Some(dtype) = keywords.object("dtype") {
        spec.dtype = dtype_of(&dtype)?;
    }
    if let Some(layout) = keywords.take::<String>("layout")? {
        spec.layout = super::named("layout", &layout.to_ascii_lowercase())?;
    }
    if let Some(has) = keywords.take("labels_i64")? {
        spec.labels_i64 = has;
    }
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
    if let Some(crop) = keywords.take("crop")? {
        transform = transform.crop(crop);
    }
    if let Some(mirror) = keywords.take("mirror")? {
        transform = transform.mirror(mirror);
    }
    let means = keywords.several::<f32>("mean_values")?;
    if !means.is_empty() {
        transform = transform.mean_values(means);
    }
    if let Some(path) = keywords.take::<std::path::PathBuf>("mean_file")? {
        transform = transform.mean_file(path);
    }
    if let Some(scale) = keywords.take("scale")? {
        transform = transform.scale(scale);
    }
    if let Some(color) = color_of(keywords)? {
        transform = transform.color(color);
    }
    if let Some((height, width)) = keywords.take("resize")? {
        transform = transform.resize(height, width);
    }
    if let Some(scaled) = keywords.take("scaled_decode")? {
        transform = transform.scaled_decode(scaled);
    }
    Ok(transform)
}
