//! What is done to images.

use std::path::PathBuf;

use percolator::Transform;
use percolator::feed::FeedSpec;
use percolator::transform::{ColorMode, Operation, UsualOperations};
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
    if let Some(views) = keywords.object("views") {
        spec.views = json::part_of("views", &views)?;
    }
    spec.transform_on = keywords.named("transform_on")?.unwrap_or(spec.transform_on);
    if let Some(dtype) = keywords.object("dtype") {
        spec.dtype = dtype_of(&dtype)?;
    }
    if let Some(layout) = keywords.take::<String>("layout")? {
        spec.layout = super::named("layout", &layout.to_ascii_lowercase())?;
    }
    spec.labels_i64 = keywords.take("labels_i64")?.unwrap_or(spec.labels_i64);
    spec.soft_labels = keywords.take("soft_labels")?.or(spec.soft_labels);
    let (mixup, cutmix) = (keywords.take::<f64>("mixup")?, keywords.take::<f64>("cutmix")?);
    if mixup.or(cutmix).is_some() {
        let mixing = spec.mixing.unwrap_or_default();
        let mixing = mixup.map_or(mixing, |alpha| mixing.mixup(alpha));
        spec.mixing = Some(cutmix.map_or(mixing, |alpha| mixing.cutmix(alpha)));
    }
    if let Some(probability) = keywords.take::<f64>("mix_probability")? {
        spec.mixing = Some(spec.mixing.unwrap_or_default().probability(probability));
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
    if name.eq_ignore_ascii_case("bgr") {
        return Err(errors::value(format!(
            "color={name:?}: channels in the order BGR, as OpenCV has them, are \"color\""
        )));
    }
    super::named("color", &name).map(Some)
}

/// Changes what the keywords of a transform say.
pub(crate) fn transform_of(keywords: &mut Keywords<'_>, mut transform: Transform) -> PyResult<Transform> {
    if let Some(name) = keywords.take::<String>("recipe")? {
        transform = Transform::recipe(&name).map_err(|error| errors::value(error.to_string()))?;
    }
    if let Some(operations) = keywords.object("operations") {
        transform = transform.operations(json::part_of::<Vec<Operation>>("operations", &operations)?);
    }
    let usual = UsualOperations {
        resize_shorter: keywords.take("resize_shorter")?,
        random_resized_crop: keywords.take("random_resized_crop")?,
        center_crop: keywords.take("center_crop")?,
        random_crop: keywords.take("random_crop")?,
        padding: keywords.take("padding")?,
        flip: keywords.take("flip")?.unwrap_or_default(),
        filter: keywords.named("filter")?,
        antialias: keywords.take("antialias")?,
        law: keywords.named("resize_law")?,
    };
    transform = usual.added_to(transform).map_err(|error| errors::value(error.to_string()))?;
    let (mean, std) = (keywords.several::<f32>("mean")?, keywords.several::<f32>("std")?);
    if !mean.is_empty() || !std.is_empty() {
        transform = transform.normalize(mean, std);
    }
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
