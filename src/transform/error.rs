//! Why a transform cannot be made, or cannot be applied to a record.

use crate::base::shape::{Dtype, ImageShape};

/// Why a [`Transform`](crate::Transform) cannot be made, or cannot be applied to a record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TransformError {
    /// Images of a type that none is made of.
    #[error("no image is made of {dtype}; say f32, u8, f16 or bf16")]
    Dtype {
        /// The type that was asked for.
        dtype: Dtype,
    },
    /// Both a mean image and mean values were asked for.
    #[error(
        "cannot specify mean_file and mean_value at the same time: found {image} and {values} mean_value"
    )]
    TwoMeans {
        /// The shape of the mean image.
        image: ImageShape,
        /// How many mean values there are.
        values: usize,
    },

    /// The mean file holds no mean image.
    #[error("{message}")]
    MeanFile {
        /// Which file, and why not.
        message: String,
    },

    /// A batch of bytes was asked for together with a mean, which bytes cannot represent.
    #[error("u8 output takes no mean, found {found}; f32, f16 and bf16 output take one")]
    MeanOfBytes {
        /// What was subtracted.
        found: String,
    },

    /// A batch of bytes was asked for together with a scale, which bytes cannot represent.
    #[error("u8 output takes no scale but 1, found {found}; f32, f16 and bf16 output take any")]
    ScaleOfBytes {
        /// The scale.
        found: f32,
    },

    /// A batch of bytes was asked for of a record that holds floats.
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

    /// There are neither one nor as many mean values as channels.
    #[error("specify either 1 mean_value or as many as channels: {channels}, found {found}")]
    MeanValueCount {
        /// How many mean values there are.
        found: usize,
        /// How many channels the record has.
        channels: usize,
    },

    /// The mean image is not of the record's shape, before the crop.
    #[error("the mean image must have the shape of the uncropped image: {image}, found {mean}")]
    MeanImageShape {
        /// The shape of the mean image.
        mean: ImageShape,
        /// The record's shape.
        image: ImageShape,
    },

    /// The record does not hold as many pixels as its shape says.
    #[error("an image of {image} must hold as many pixels, found {found}")]
    PixelCount {
        /// The record's shape.
        image: ImageShape,
        /// How many pixels it holds.
        found: usize,
    },

    /// The record's output does not fill its place in the batch, whose shape another record set.
    #[error(
        "a record of {output} must fill its place in the batch: {place_bytes} bytes, found {found_bytes}"
    )]
    PlaceSize {
        /// The shape of the record's output.
        output: ImageShape,
        /// How many bytes its place in the batch has.
        place_bytes: usize,
        /// How many bytes the output takes.
        found_bytes: usize,
    },
}
