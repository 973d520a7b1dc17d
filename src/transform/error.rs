//! Errors of a transform: it cannot be made, or it cannot be applied to a record.

use super::{ErasedValue, MeanImageError};
use crate::base::shape::{Dtype, ImageShape};
use percolator_files::caller::words;
use percolator_image::DecodeError;

/// Why a [`Transform`](crate::Transform) cannot be made, or cannot be applied to a record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TransformError {
    /// An element type that images do not have.
    #[error("no image has elements of {dtype}; choose f32, u8, f16 or bf16")]
    Dtype {
        /// The requested type.
        dtype: Dtype,
    },
    /// Both a mean image and mean values are set.
    #[error(
        "cannot specify mean_file and mean_value at the same time: found {image} and {values} mean_value"
    )]
    TwoMeans {
        /// The shape of the mean image.
        image: ImageShape,
        /// The number of mean values.
        values: usize,
    },

    /// The mean file does not hold a mean image.
    #[error(transparent)]
    MeanFile(#[from] MeanImageError),

    /// A batch of bytes is requested together with a mean, which bytes cannot represent.
    #[error("u8 output takes no mean, found {found}; f32, f16 and bf16 output take one")]
    MeanOfBytes {
        /// The mean.
        found: String,
    },

    /// A batch of bytes is requested together with a scale, which bytes cannot represent.
    #[error("u8 output takes no scale but 1, found {found}; f32, f16 and bf16 output take any")]
    ScaleOfBytes {
        /// The scale.
        found: f32,
    },

    /// Parts of a batch of bytes are to be erased to something else than 0, which is meant for what has been
    /// normalized.
    #[error(
        "parts of u8 output are erased only to 0, found {}; f32, f16 and bf16 output take any",
        found.shown()
    )]
    ErasedBytes {
        /// What they are to become.
        found: ErasedValue,
    },

    /// An operation that no image can have.
    #[error("operation {place}, {name}: {fault}")]
    Operation {
        /// Which of the operations, from 1.
        place: usize,
        /// Its name.
        name: &'static str,
        /// What was found, and what is allowed.
        fault: String,
    },

    /// There is no recipe of this name.
    #[error("there is no recipe {found:?}: known are {known}")]
    Recipe {
        /// The name.
        found: String,
        /// The names that there are.
        known: &'static str,
    },

    /// An option that has nothing to change, or would change what is said already.
    #[error("{what} cannot be set: {why}")]
    Unused {
        /// The option.
        what: &'static str,
        /// Why.
        why: &'static str,
    },

    /// Operations are set together with a part of Caffe's transform, of which nobody says what comes first.
    #[error("operations take the place of {what}: leave it out, or make it an operation")]
    OperationsWith {
        /// What is set as well.
        what: &'static str,
    },

    /// An operation looks at colours, and the channels may be in the order blue, green, red.
    #[error(
        "{name} takes red first: decode images to RGB or to grey ({})",
        words("Transform::color(ColorMode::Rgb)", "--color rgb", "color=\"rgb\"")
    )]
    OrderOfColours {
        /// The operation's name.
        name: &'static str,
    },

    /// Something that only the host does, and only to images without targets.
    #[error("{what} are for images alone, on the host, and not {where_else}")]
    OnlyOfImages {
        /// Operations, or a normalization.
        what: &'static str,
        /// Where they were requested.
        where_else: &'static str,
    },

    /// Operations, a normalization or a program's function are requested of a record that holds floats.
    #[error(
        "{what} take images of bytes, found a record of floats; {}",
        words(
            ".after_transform(...) takes a function of any row",
            "leave them out",
            "decode=FUNCTION takes any record"
        )
    )]
    OfFloats {
        /// Operations, or normalizations.
        what: &'static str,
    },

    /// A random crop is larger than the padded image.
    #[error(
        "operation {place}, random_crop: {}x{} are cut out, and the image must be at least that, found \
         {image} with a padding of {padding}", crop[0], crop[1]
    )]
    RandomCropTooLarge {
        /// Which of the operations, from 1.
        place: usize,
        /// The crop's height and width.
        crop: [u32; 2],
        /// The image before it.
        image: ImageShape,
        /// The pixels added at each side.
        padding: u32,
    },

    /// An image would become too large.
    #[error(transparent)]
    Decode(#[from] DecodeError),

    /// A normalization is set together with a mean or a scale.
    #[error("a normalization takes the place of mean and scale, found {found} as well")]
    NormalizedTwice {
        /// What is set as well.
        found: &'static str,
    },

    /// A normalization has neither one value nor one for each channel.
    #[error("a normalization takes 1 mean or as many as channels: {channels}, found {found}")]
    NormalizationCount {
        /// The number of means.
        found: usize,
        /// The number of the record's channels.
        channels: usize,
    },

    /// A normalization without a deviation for each mean, or with one that nothing can be divided by.
    #[error(
        "a normalization takes as many means as deviations, all finite, and no deviation of 0, found means \
         {mean:?} and deviations {std:?}"
    )]
    Normalization {
        /// The means.
        mean: Vec<f32>,
        /// The standard deviations.
        std: Vec<f32>,
    },

    /// A batch of bytes is requested, but the record holds floats.
    #[error("u8 output takes records of bytes, found a record of floats")]
    BytesOfFloats,

    /// The record's image has no pixels.
    #[error("an image has at least 1 channel, row and column, found {image}")]
    EmptyImage {
        /// The record's shape.
        image: ImageShape,
    },

    /// The crop is larger than the record's image.
    #[error("crop_size must be at most the height and width of the image: {image}, found {crop}")]
    CropTooLarge {
        /// The crop's height and width.
        crop: u32,
        /// The record's shape.
        image: ImageShape,
    },

    /// The number of mean values is neither one nor the number of channels.
    #[error("specify either 1 mean_value or as many as channels: {channels}, found {found}")]
    MeanValueCount {
        /// The number of mean values.
        found: usize,
        /// The number of the record's channels.
        channels: usize,
    },

    /// The mean image does not have the record's shape before the crop.
    #[error("the mean image must have the shape of the uncropped image: {image}, found {mean}")]
    MeanImageShape {
        /// The shape of the mean image.
        mean: ImageShape,
        /// The record's shape.
        image: ImageShape,
    },

    /// The record's number of pixels does not match its shape.
    #[error("the number of pixels must match the shape {image}, found {found}")]
    PixelCount {
        /// The record's shape.
        image: ImageShape,
        /// The number of pixels in the record.
        found: usize,
    },

    /// The record's output does not fill its place in the batch, whose shape another record determined.
    #[error(
        "a record of {output} must fill its place in the batch: {place_bytes} bytes, found {found_bytes}"
    )]
    PlaceSize {
        /// The shape of the record's output.
        output: ImageShape,
        /// The size of its place in the batch, in bytes.
        place_bytes: usize,
        /// The size of the output, in bytes.
        found_bytes: usize,
    },
}
