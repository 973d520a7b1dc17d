//! Fields that Caffe's schema has but its layers do not read. Caffe ignores them silently; here they are
//! warnings.

use super::error::TextPlace;
use super::layer::TransformSpec;
use super::text::notes::LayerNotes;
use super::warning::{Ignored, WarningKind};
use crate::proto::{DataParameter, ImageDataParameter, LayerParameter};

const MOVED: &str = "write it in transform_param";

/// A field of a message, its name in a net, whether it is set to something, and what to write instead.
type Row = (&'static str, &'static str, bool, &'static str);

/// The fields of `data_param` that a Data layer ignores.
pub(super) fn of_data(param: &DataParameter, notes: &LayerNotes) -> Vec<Ignored> {
    let rows = [
        ("scale", "data_param.scale", is_scale(param.scale()), MOVED),
        ("mean_file", "data_param.mean_file", param.mean_file.is_some(), MOVED),
        ("crop_size", "data_param.crop_size", param.crop_size() > 0, MOVED),
        ("mirror", "data_param.mirror", param.mirror(), MOVED),
        (
            "rand_skip",
            "data_param.rand_skip",
            param.rand_skip() > 0,
            "a Data layer starts at the first record",
        ),
        (
            "force_encoded_color",
            "data_param.force_encoded_color",
            param.force_encoded_color(),
            "write transform_param { force_color: true }",
        ),
    ];
    warnings("DataParameter", &rows, notes)
}

/// The fields of `image_data_param` that an ImageData layer ignores.
pub(super) fn of_image_data(param: &ImageDataParameter, notes: &LayerNotes) -> Vec<Ignored> {
    let rows = [
        ("scale", "image_data_param.scale", is_scale(param.scale()), MOVED),
        ("mean_file", "image_data_param.mean_file", param.mean_file.is_some(), MOVED),
        ("crop_size", "image_data_param.crop_size", param.crop_size() > 0, MOVED),
        ("mirror", "image_data_param.mirror", param.mirror(), MOVED),
    ];
    warnings("ImageDataParameter", &rows, notes)
}

/// The fields of `transform_param` that an ImageData layer ignores: its images are decoded before the
/// transform.
pub(super) fn of_image_transform(transform: &TransformSpec, notes: &LayerNotes) -> Vec<Ignored> {
    let instead = "an ImageData layer has image_data_param.is_color";
    let rows = [
        ("force_color", "transform_param.force_color", transform.force_color, instead),
        ("force_gray", "transform_param.force_gray", transform.force_gray, instead),
    ];
    warnings("TransformationParameter", &rows, notes)
}

/// The parameters of other layer types in a Data layer.
pub(super) fn of_other_kinds_than_data(layer: &LayerParameter, notes: &LayerNotes) -> Vec<Ignored> {
    let instead = "a Data layer has data_param";
    let images = ("image_data_param", "image_data_param", layer.image_data_param.is_some(), instead);
    let [hdf5, memory, window] = of_unfed_kinds(layer, instead);
    in_layer(&[images, hdf5, memory, window], notes)
}

/// The parameters of other layer types in an ImageData layer.
pub(super) fn of_other_kinds_than_image_data(layer: &LayerParameter, notes: &LayerNotes) -> Vec<Ignored> {
    let instead = "an ImageData layer has image_data_param";
    let mut warnings = in_layer(&of_unfed_kinds(layer, instead), notes);
    let Some(data) = &layer.data_param else { return warnings };
    // Every layer that prefetches reads this field of data_param.
    if (DataParameter { prefetch: None, ..data.clone() }) != DataParameter::default() {
        let is_other = |field: &&(&str, &str, TextPlace)| field.0 == "DataParameter" && field.1 != "prefetch";
        let at = notes.fields.iter().find(is_other).map(|&(_, _, at)| at).or(notes.at);
        warnings.push((at, WarningKind::IgnoredBut { message: "data_param", read: "prefetch", instead }));
    }
    warnings
}

fn of_unfed_kinds(layer: &LayerParameter, instead: &'static str) -> [Row; 3] {
    [
        ("hdf5_data_param", "hdf5_data_param", layer.hdf5_data_param.is_some(), instead),
        ("memory_data_param", "memory_data_param", layer.memory_data_param.is_some(), instead),
        ("window_data_param", "window_data_param", layer.window_data_param.is_some(), instead),
    ]
}

/// Whether a factor changes anything.
fn is_scale(scale: f32) -> bool {
    scale.to_bits() != 1_f32.to_bits()
}

fn warnings(message: &'static str, rows: &[Row], notes: &LayerNotes) -> Vec<Ignored> {
    of_messages(&[message, "V0LayerParameter"], rows, notes)
}

fn in_layer(rows: &[Row], notes: &LayerNotes) -> Vec<Ignored> {
    of_messages(&["LayerParameter", "V1LayerParameter"], rows, notes)
}

fn of_messages(messages: &[&'static str; 2], rows: &[Row], notes: &LayerNotes) -> Vec<Ignored> {
    let set = rows.iter().filter(|(_, _, is_set, _)| *is_set);
    set.map(|&(field, name, _, instead)| {
        let at = notes.place(&messages.map(|message| (message, field)));
        (at, WarningKind::Ignored { field: name, instead })
    })
    .collect()
}
