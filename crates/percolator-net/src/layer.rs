//! One layer that loads data: its parameters, checked as Caffe checks them when it sets the layer up.

use std::path::PathBuf;

use super::error::{TextPlace, clip};
use super::ignored;
use super::text::notes::LayerNotes;
use super::warning::{Ignored, WarningKind};
use crate::proto::{ImageDataParameter, LayerParameter};

/// The maximum number of elements in a Caffe blob, which counts them in an `int`.
const BLOB_ELEMENTS_MAX: u32 = i32::MAX as u32;

/// Where a layer's records come from. Paths are as the net has them; see [`rooted`](super::rooted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerSource {
    /// An LMDB of Caffe's Datum records.
    Lmdb {
        /// The folder, or the data file in it.
        path: PathBuf,
    },
    /// A LevelDB of Caffe's Datum records.
    LevelDb {
        /// The folder.
        path: PathBuf,
    },
    /// A text file of image files and their labels.
    ImageList {
        /// The text file.
        list: PathBuf,
        /// Prepended to each name as it is: no slash is added.
        root_folder: String,
        /// Whether the list is shuffled before each pass.
        shuffle: bool,
        /// If not 0, a random number of lines below this is skipped at the start.
        rand_skip: u32,
        /// The height of the images in pixels, or 0 for the file's own. Never 0 unless the width is.
        new_height: u32,
        /// The width of the images in pixels, or 0 for the file's own. Never 0 unless the height is.
        new_width: u32,
        /// Whether images are decoded to three channels instead of one.
        is_color: bool,
    },
}

/// The transform of each image, as the net has it: no file is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformSpec {
    /// The factor of each pixel, applied after the mean is subtracted.
    pub scale: f32,
    /// Whether images are mirrored at random.
    pub mirror: bool,
    /// The side of the square crop in pixels, or 0 for no crop.
    pub crop_size: u32,
    /// The file of a `BlobProto` of the images' own shape. Never set together with mean values.
    pub mean_file: Option<PathBuf>,
    /// The mean values: one for all channels, or one for each.
    pub mean_values: Vec<f32>,
    /// Whether encoded records are decoded to three channels. Never set together with `force_gray`.
    pub force_color: bool,
    /// Whether encoded records are decoded to one channel.
    pub force_gray: bool,
}

/// A layer's parameters after all checks.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) batch_size: usize,
    pub(super) prefetch: Option<usize>,
    pub(super) transform: TransformSpec,
    pub(super) source: LayerSource,
    pub(super) warnings: Vec<Ignored>,
}

/// What is wrong with a layer, and its place.
type Fault = (Option<TextPlace>, String);

const DATA: &str = "DataParameter";
const IMAGE_DATA: &str = "ImageDataParameter";
const TRANSFORM: &str = "TransformationParameter";
const V0: &str = "V0LayerParameter";
const LAYER: &str = "LayerParameter";
const V1: &str = "V1LayerParameter";

/// Reads a layer of type Data.
pub(super) fn data(layer: &LayerParameter, notes: &LayerNotes) -> Result<Checked, Fault> {
    check_blobs("Data", layer, notes, 1)?;
    let param = layer.data_param.clone().unwrap_or_default();
    let placed = |field, v0, fault| (notes.place(&[(DATA, field), (V0, v0)]), fault);
    let batch_size = batch_size("data_param.batch_size", param.batch_size())
        .map_err(|fault| placed("batch_size", "batchsize", fault))?;
    let path =
        path("data_param.source", param.source()).map_err(|fault| placed("source", "source", fault))?;
    let source = match param.backend() {
        0 => LayerSource::LevelDb { path },
        1 => LayerSource::Lmdb { path },
        found => {
            let fault = format!("unknown database backend {found}: allowed are LEVELDB (0) and LMDB (1)");
            return Err(placed("backend", "", fault));
        }
    };
    let transform = transform(layer, notes)?;
    if transform.force_color && transform.force_gray {
        let fault = "cannot set both force_color and force_gray".to_owned();
        return Err((notes.place(&[(TRANSFORM, "force_gray")]), fault));
    }
    let mut warnings = ignored::of_data(&param, notes);
    warnings.extend(ignored::of_other_kinds_than_data(layer, notes));
    warnings.extend(not_finite(layer, &transform, notes));
    Ok(Checked { batch_size, prefetch: prefetch(layer, notes)?, transform, source, warnings })
}

/// Reads a layer of type ImageData.
pub(super) fn image_data(layer: &LayerParameter, notes: &LayerNotes) -> Result<Checked, Fault> {
    check_blobs("ImageData", layer, notes, 2)?;
    let param = layer.image_data_param.clone().unwrap_or_default();
    let placed = |field, v0, fault| (notes.place(&[(IMAGE_DATA, field), (V0, v0)]), fault);
    let batch_size = batch_size("image_data_param.batch_size", param.batch_size())
        .map_err(|fault| placed("batch_size", "batchsize", fault))?;
    let list =
        path("image_data_param.source", param.source()).map_err(|fault| placed("source", "source", fault))?;
    check_size(&param).map_err(|(field, fault)| placed(field, field, fault))?;
    let mut transform = transform(layer, notes)?;
    let mut warnings = ignored::of_image_data(&param, notes);
    warnings.extend(ignored::of_image_transform(&transform, notes));
    warnings.extend(ignored::of_other_kinds_than_image_data(layer, notes));
    warnings.extend(not_finite(layer, &transform, notes));
    (transform.force_color, transform.force_gray) = (false, false);
    let source = LayerSource::ImageList {
        list,
        root_folder: param.root_folder().to_owned(),
        shuffle: param.shuffle(),
        rand_skip: param.rand_skip(),
        new_height: param.new_height(),
        new_width: param.new_width(),
        is_color: param.is_color(),
    };
    Ok(Checked { batch_size, prefetch: prefetch(layer, notes)?, transform, source, warnings })
}

/// Checks the numbers of blobs: no bottoms, and data or data and labels as tops. ImageData always has both.
fn check_blobs(
    kind: &'static str,
    layer: &LayerParameter,
    notes: &LayerNotes,
    tops_min: usize,
) -> Result<(), Fault> {
    let (bottoms, tops) = (layer.bottom.len(), layer.top.len());
    let found = layer.propagate_down.len();
    if found > 0 && found != bottoms {
        let at = notes.place(&[(LAYER, "propagate_down")]);
        let fault = format!(
            "propagate_down must be specified either 0 times or once per bottom blob: found {found}, and the \
             layer has {bottoms} bottom blobs; leave it out"
        );
        return Err((at, fault));
    }
    let article = if kind.starts_with('I') { "an" } else { "a" };
    if bottoms > 0 {
        let at = notes.place(&[(LAYER, "bottom"), (V1, "bottom")]);
        let fault = format!("{article} {kind} layer takes 0 bottom blobs as input, found {bottoms}");
        return Err((at, fault));
    }
    if !(tops_min..=2).contains(&tops) {
        let at = notes.place(&[(LAYER, "top"), (V1, "top")]);
        let least = if tops_min < 2 { "at least 1 and at most " } else { "" };
        let fault = format!("{article} {kind} layer produces {least}2 top blobs as output, found {tops}");
        return Err((at, fault));
    }
    Ok(())
}

/// Checks the numbers that Caffe checks when it sets a layer up: one loss weight for each top, unless the
/// weights were moved, and no more `param` than the layer has blobs of its own.
pub(super) fn check_counts(
    layer: &LayerParameter,
    notes: &LayerNotes,
    has_weights: impl FnOnce() -> bool,
) -> Result<(), Fault> {
    let (found, tops) = (layer.loss_weight.len(), layer.top.len());
    if found > 0 && found != tops && has_weights() {
        let at = notes.place(&[(LAYER, "loss_weight"), (V1, "loss_weight")]);
        let fault = format!(
            "loss_weight must be unspecified or specified once per top blob: found {found}, and the layer \
             has {tops} top blobs; leave it out"
        );
        return Err((at, fault));
    }
    let found = layer.param.len();
    if found > 0 {
        let of_v1 = ["param", "blobs_lr", "weight_decay", "blob_share_mode"].map(|field| (V1, field));
        // What is beside a V0 layer has no effect.
        let of_others = [(V0, "blobs_lr"), (V0, "weight_decay"), (LAYER, "param")];
        let at = notes.place(&[&of_others[..], &of_v1].concat());
        let fault = format!(
            "too many params specified: found {found}, and a data layer has 0 blobs to train; leave them out \
             (param, and in old layers blobs_lr, weight_decay and blob_share_mode)"
        );
        return Err((at, fault));
    }
    Ok(())
}

fn batch_size(field: &str, found: u32) -> Result<usize, String> {
    match usize::try_from(found) {
        Ok(0) => Err(format!("positive batch size required: {field} is not set, or 0")),
        Ok(size) if found <= BLOB_ELEMENTS_MAX => Ok(size),
        _ => Err(format!("{field} is {found}: allowed are 1 to {BLOB_ELEMENTS_MAX}")),
    }
}

/// The number of batches that are read ahead, if the net sets it. All of Caffe's prefetching layers read it
/// from `data_param`.
fn prefetch(layer: &LayerParameter, notes: &LayerNotes) -> Result<Option<usize>, Fault> {
    match layer.data_param.as_ref().and_then(|param| param.prefetch) {
        Some(0) => {
            let fault = "data_param.prefetch is 0: allowed are 1 batch or more, and 4 are the default";
            Err((notes.place(&[(DATA, "prefetch")]), fault.to_owned()))
        }
        found => Ok(found.map(|batches| usize::try_from(batches).unwrap_or(usize::MAX))),
    }
}

fn path(field: &str, found: &str) -> Result<PathBuf, String> {
    if found.is_empty() { Err(format!("{field} is not set, or empty")) } else { Ok(PathBuf::from(found)) }
}

/// Checks the image size: both sides or none, and no more elements than Caffe can count.
fn check_size(param: &ImageDataParameter) -> Result<(), (&'static str, String)> {
    let (new_height, new_width) = (param.new_height(), param.new_width());
    if (new_height == 0) != (new_width == 0) {
        let set = if new_height > 0 { "new_height" } else { "new_width" };
        let fault = format!(
            "current implementation requires new_height and new_width to be set at the same time: found \
             {new_height} and {new_width}"
        );
        return Err((set, fault));
    }
    let channels: u64 = if param.is_color() { 3 } else { 1 };
    let elements = u64::from(new_height).saturating_mul(u64::from(new_width)).saturating_mul(channels);
    if elements > u64::from(BLOB_ELEMENTS_MAX) {
        let fault = format!(
            "images of {new_height}x{new_width} are too large: allowed are {BLOB_ELEMENTS_MAX} elements"
        );
        return Err(("new_height", fault));
    }
    Ok(())
}

/// The place of the `scale` or `mean_file` that takes effect. It is a V0 layer's own. Or it is the one that
/// the V1 upgrade moved out of the data parameter, which no longer has it. Otherwise it is that of
/// `transform_param`.
fn transform_place(
    layer: &LayerParameter,
    notes: &LayerNotes,
    field: &'static str,
    v0: &'static str,
) -> Option<TextPlace> {
    let stays = |mean: &Option<String>, scale: Option<f32>| match field {
        "mean_file" => mean.is_some(),
        _ => scale.is_some(),
    };
    let of_data = layer.data_param.as_ref().map(|param| stays(&param.mean_file, param.scale));
    let of_images = layer.image_data_param.as_ref().map(|param| stays(&param.mean_file, param.scale));
    let moved = [(DATA, of_data), (IMAGE_DATA, of_images)]
        .into_iter()
        .find(|&(message, stays)| stays == Some(false) && notes.has((message, field)));
    notes.place(&[(V0, v0), (moved.map_or(TRANSFORM, |(message, _)| message), field)])
}

/// Warns of factors and means that are not finite, which Caffe accepts silently.
fn not_finite(layer: &LayerParameter, transform: &TransformSpec, notes: &LayerNotes) -> Vec<Ignored> {
    let mut warnings = Vec::new();
    let mut check = |field, number: f32, at: Option<TextPlace>| {
        if !number.is_finite() {
            warnings.push((at, WarningKind::NotFinite { field, found: number.to_string() }));
        }
    };
    check("transform_param.scale", transform.scale, transform_place(layer, notes, "scale", "scale"));
    if let Some(&mean) = transform.mean_values.iter().find(|mean| !mean.is_finite()) {
        check("transform_param.mean_value", mean, notes.place(&[(TRANSFORM, "mean_value")]));
    }
    warnings
}

fn transform(layer: &LayerParameter, notes: &LayerNotes) -> Result<TransformSpec, Fault> {
    let param = layer.transform_param.clone().unwrap_or_default();
    let at = || transform_place(layer, notes, "mean_file", "meanfile");
    let mean_file = match &param.mean_file {
        Some(file) if !param.mean_value.is_empty() => {
            let (file, values) = (clip(file), param.mean_value.len());
            let fault = format!(
                "cannot specify mean_file and mean_value at the same time: found \"{file}\" and {values} \
                 mean_value"
            );
            return Err((at(), fault));
        }
        Some(file) => Some(path("transform_param.mean_file", file).map_err(|fault| (at(), fault))?),
        None => None,
    };
    Ok(TransformSpec {
        scale: param.scale(),
        mirror: param.mirror(),
        crop_size: param.crop_size(),
        mean_file,
        force_color: param.force_color(),
        force_gray: param.force_gray(),
        mean_values: param.mean_value,
    })
}
