//! From a record's pixels to a batch's elements: crop, mirror, subtract the mean, scale.
//!
//! [`Transform`] is the user's description, in the terms of Caffe's `transform_param`. `Transformer` is the
//! same after all checks that need no record. The workers run it, each with its own `Scratch`.

mod caffe_random;
mod chain;
mod erase;
mod error;
mod kernels;
mod mean;
mod mixing;
#[cfg(test)]
mod naive;
mod narrow;
mod on_device;
mod random;
mod sink;
mod transformer;

use std::path::{Path, PathBuf};

use percolator_image::Decode;

pub use crate::base::shape::Phase;
pub use caffe_random::CaffeEra;
pub(crate) use caffe_random::{LayerKind, LayerSeeds, SetUp, Taken, Takes};
pub use chain::{AutoAugmentPolicy, ErasedValue, Operation, PadMode, UsualOperations};
pub(crate) use chain::{Chain, ChainScratch, Made};
pub use error::TransformError;
pub use mean::{MeanImage, MeanImageError};
pub(crate) use mixing::{Mixed, MixedPart};
pub use mixing::{Mixing, MixingError};
pub(crate) use on_device::Cutter;
pub use on_device::{Cut, DeviceTransform, Staged, TransformPlace};
pub use percolator_image::resample::{Filter, Resampling, ResizeLaw};
pub use percolator_image::warp::WarpFilter;
pub use percolator_image::{ColorMode, DecodeError};
pub(crate) use random::{Draw, Draws, Randomness};
pub(crate) use transformer::{Scratch, Transformer};

/// The transform of every record, as in Caffe's `transform_param`.
///
/// An element of the output is `(pixel - mean) * scale`, computed in f32 with both operations rounded, as
/// Caffe computes it. A pixel's mean is that of its place in the stored image, before crop and mirror.
///
/// ```
/// use percolator::Transform;
///
/// let transform = Transform::new().crop(227).mirror(true).mean_values([104.0, 117.0, 123.0]);
/// # assert_ne!(transform, Transform::new());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Transform {
    /// The height and width of the output, or 0 for those of the image.
    crop: u32,
    mirror: bool,
    mean_values: Vec<f32>,
    mean_image: Option<MeanChoice>,
    scale: f32,
    decode: Decode,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    operations: Vec<Operation>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    normalize: Option<Normalization>,
}

/// What is done to each level of a channel, as torchvision does it: `(level / 255 - mean) / std`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
struct Normalization {
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// A mean image, or the file that holds it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
enum MeanChoice {
    Image(MeanImage),
    File(PathBuf),
}

impl Transform {
    /// A transform that leaves the pixels as they are.
    #[must_use]
    pub fn new() -> Self {
        Self {
            crop: 0,
            mirror: false,
            mean_values: Vec::new(),
            mean_image: None,
            scale: 1.0,
            decode: Decode::default(),
            operations: Vec::new(),
            normalize: None,
        }
    }

    /// Adds an operation on the whole image, after those that there are. Operations take the place of
    /// [`crop`](Self::crop), [`mirror`](Self::mirror), [`resize`](Self::resize) and the mean image.
    ///
    /// ```
    /// use percolator::{ColorMode, Transform};
    /// use percolator::transform::Operation;
    ///
    /// let transform = Transform::new()
    ///     .color(ColorMode::Rgb)
    ///     .operation(Operation::resize_shorter(256))
    ///     .operation(Operation::center_crop(224))
    ///     .normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    /// assert_eq!(transform, Transform::imagenet_eval(256, 224));
    /// ```
    #[must_use]
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Adds [operations](Self::operation), in this order.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Resizes this way in all operations so far that resize.
    #[must_use]
    pub fn resampled(mut self, how: Resampling) -> Self {
        self.operations = self.operations.into_iter().map(|operation| operation.resampled(how)).collect();
        self
    }

    /// Makes each element `(level * (1 / 255) - mean) / std`, in f32, each step rounded, as torchvision's
    /// `ToDtype(float32, scale=True)` and `Normalize` do; a 16-bit element is rounded from that. There is one
    /// mean and one standard deviation for all channels, or one for each, in the order of the channels. It
    /// takes the place of the mean and of [`scale`](Self::scale), and images of bytes alone.
    #[must_use]
    pub fn normalize(self, mean: impl Into<Vec<f32>>, std: impl Into<Vec<f32>>) -> Self {
        let normalize = Some(Normalization { mean: mean.into(), std: std.into() });
        Self { normalize, ..self }
    }

    /// Cuts a square of this height and width out of every image, or none if 0: Caffe's `crop_size`.
    ///
    /// The square's place is random in [`Phase::Train`] and central in [`Phase::Test`]. If the centre is not
    /// exact, the odd pixel is left over at the bottom and at the right.
    #[must_use]
    pub fn crop(self, crop: u32) -> Self {
        Self { crop, ..self }
    }

    /// Whether images are mirrored left to right at random, every second one on average: Caffe's `mirror`. As
    /// in Caffe, this applies in [`Phase::Test`] too.
    #[must_use]
    pub fn mirror(self, mirror: bool) -> Self {
        Self { mirror, ..self }
    }

    /// Adds one value to the mean values, as one `mean_value` line of a prototxt does.
    #[must_use]
    pub fn mean_value(mut self, value: f32) -> Self {
        self.mean_values.push(value);
        self
    }

    /// Subtracts these values: one for all channels, one for each channel, or none.
    #[must_use]
    pub fn mean_values(self, values: impl Into<Vec<f32>>) -> Self {
        Self { mean_values: values.into(), ..self }
    }

    /// Subtracts an image, which has the shape of every record before the crop: Caffe's `mean_file`.
    #[must_use]
    pub fn mean_image(self, image: MeanImage) -> Self {
        Self { mean_image: Some(MeanChoice::Image(image)), ..self }
    }

    /// As [`mean_image`](Self::mean_image), read from a binaryproto file when the feed is built.
    #[must_use]
    pub fn mean_file(self, path: impl Into<PathBuf>) -> Self {
        Self { mean_image: Some(MeanChoice::File(path.into())), ..self }
    }

    /// Multiplies by this after the mean is subtracted: Caffe's `scale`.
    #[must_use]
    pub fn scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Sets the channels that an encoded record is decoded to: Caffe's `force_color` and `force_gray`.
    /// Records that are not encoded stay as they are.
    #[must_use]
    pub fn color(mut self, color: ColorMode) -> Self {
        self.decode.color = color;
        self
    }

    /// Resizes every image of bytes before anything else is done to it, as OpenCV's bilinear `cv::resize`
    /// does: the `new_height` and `new_width` of Caffe's `ImageData`.
    #[must_use]
    pub fn resize(mut self, height: u32, width: u32) -> Self {
        self.decode.resize = Some((height as usize, width as usize));
        self
    }

    /// Whether a JPEG that [`resize`](Self::resize) makes smaller is first decoded to a half, a quarter or an
    /// eighth of its sides (default: no). On our test images this is 1.3 to 2.6 times as fast
    /// (docs/benchmarks.md), and it **changes the pixels**: they are no longer Caffe's.
    ///
    /// Of the three reduced sizes and the full size, the decoder picks the smallest that has at least as many
    /// rows and columns as the resize produces. If [`color`](Self::color) applies EXIF orientation, this
    /// holds for the turned image. Reduced sides are rounded up: 375 rows become 188, 94 and 47. The reduced
    /// image is what OpenCV reads with `IMREAD_REDUCED_COLOR_2`, `_4` and `_8`, bit for bit: each pixel is
    /// about the mean of those that it replaces. The resize then works as usual.
    ///
    /// A plain resize computes each output pixel from four pixels of the full image and ignores the others.
    /// So fine detail is smooth here and aliased in Caffe. On our test photographs, 500x375 pixels each, the
    /// two differ by a mean of 3.1 levels of 255 per pixel at 128x128 (from a half), by 5.0 at 90x90 (from a
    /// quarter) and by 9.2 at 40x40 (from an eighth).
    ///
    /// Content also moves. A resize stretches its whole input, and a side that was rounded up covers slightly
    /// more than the image. So content shifts to the left and up: by nothing at the left and upper edges, and
    /// by the most at the right and lower ones. The shift is 0.34 of an output pixel for 375 rows at 128 and
    /// 0.9 for 57 at 8. It is always less than one, and zero if the side is a multiple of the reduction. A
    /// paired target that is decoded at full size, or is not a JPEG, is misaligned with its image by as much.
    ///
    /// The option has no effect without a resize, on PNGs, on records that are not encoded, and on images of
    /// which a half has too few pixels. At every size, all of a file's codes are read and damage is found.
    /// The memory budget stays that of full-size images.
    ///
    /// ```
    /// use percolator::{ColorMode, Transform};
    ///
    /// let transform =
    ///     Transform::new().color(ColorMode::Color).resize(256, 256).scaled_decode(true).crop(227);
    /// # assert_ne!(transform, transform.clone().scaled_decode(false));
    /// ```
    #[must_use]
    pub fn scaled_decode(mut self, scaled: bool) -> Self {
        self.decode.scaled = scaled;
        self
    }

    /// The same crops and operations, without what makes other numbers of levels: no mean, no scale and no
    /// normalization, and what is erased becomes 0. The elements can be bytes then, and be looked at.
    #[must_use]
    pub fn levels(mut self) -> Self {
        for operation in &mut self.operations {
            if let Operation::RandomErasing { value, .. } = operation {
                *value = ErasedValue::default();
            }
        }
        Self { mean_values: Vec::new(), mean_image: None, scale: 1.0, normalize: None, ..self }
    }

    /// What of it only the host does, if anything.
    pub(crate) fn on_host_alone(&self) -> Option<&'static str> {
        match (&self.operations[..], &self.normalize) {
            ([], None) => None,
            ([], Some(_)) => Some("normalizations"),
            _ => Some("operations"),
        }
    }

    /// Whether scaled decoding is set without a resize, and therefore has no effect.
    pub(crate) fn scales_in_vain(&self) -> bool {
        self.decode.scaled && self.decode.resize.is_none()
    }

    /// Whether the channels are set to something that an encoded record may not have.
    pub(crate) fn forces_color(&self) -> bool {
        matches!(self.decode.color, ColorMode::Color | ColorMode::Gray)
    }

    /// Whether there are operations.
    pub(crate) fn has_operations(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Whether an operation resizes.
    fn resizes_by_operations(&self) -> bool {
        self.operations.iter().any(Operation::resizes)
    }

    /// Whether channels are to be in the order red, green, blue.
    pub(crate) fn wants_rgb(&self) -> bool {
        self.decode.color.is_rgb()
    }

    /// Whether operations give all images one size.
    #[must_use]
    pub fn operations_fix_size(&self) -> bool {
        self.operations.iter().any(Operation::fixes_size)
    }

    /// The side of the crop in pixels, or 0 for none.
    pub(crate) fn crop_side(&self) -> u32 {
        self.crop
    }

    /// Returns the channels that encoded records are [decoded to](Self::color).
    #[must_use]
    pub fn decoded_to(&self) -> ColorMode {
        self.decode.color
    }

    /// Returns the side of the [crop](Self::crop) in pixels, if there is one.
    #[must_use]
    pub fn cropped_to(&self) -> Option<usize> {
        usize::try_from(self.crop).ok().filter(|&side| side > 0)
    }

    /// Returns the rows and columns that each image is [resized](Self::resize) to first, if it is.
    #[must_use]
    pub fn resized_to(&self) -> Option<[usize; 2]> {
        self.decode.resize.map(|(height, width)| [height, width])
    }

    /// Returns what is subtracted from each channel, on average: one value for all channels, or one for each;
    /// nothing if no mean is set. A mean file is read; a relative path starts from `root`.
    ///
    /// # Errors
    ///
    /// [`MeanImageError`] if the mean file cannot be read.
    pub fn mean_of_channels(&self, root: &Path) -> Result<Vec<f32>, MeanImageError> {
        let image = match &self.mean_image {
            None => {
                let normalized = self.normalize.iter().flat_map(|normalize| &normalize.mean);
                let levels = normalized.map(|mean| mean * 255.0);
                return Ok(self.mean_values.iter().copied().chain(levels).collect());
            }
            Some(MeanChoice::Image(image)) => image,
            Some(MeanChoice::File(path)) => &MeanImage::open(root.join(path))?,
        };
        let plane = image.pixels().len() / image.shape().channels;
        let average = |plane: &[f32]| {
            let sum: f64 = plane.iter().map(|&pixel| f64::from(pixel)).sum();
            #[expect(clippy::cast_possible_truncation, reason = "it is between the pixels, which are f32")]
            let average = (sum / plane.len() as f64) as f32;
            average
        };
        Ok(image.pixels().chunks(plane).map(average).collect())
    }

    /// The random numbers that a record draws.
    pub(crate) fn takes(&self, phase: Phase) -> Takes {
        Takes { mirror: self.mirror, crop: self.crop > 0 && phase == Phase::Train }
    }
}

/// As [`Transform::new`].
impl Default for Transform {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::ImageShape;

    #[test]
    fn the_parts_of_a_transform_do_not_depend_on_their_order() {
        let one = Transform::default().crop(2).mean_value(1.0).mean_value(2.0).scale(0.5).mirror(true);
        let other = Transform::new().mirror(true).scale(0.5).mean_values(vec![1.0, 2.0]).crop(2);
        assert_eq!(one, other);
    }

    #[test]
    fn the_mean_of_a_channel_is_that_of_its_plane() {
        let shape = ImageShape { channels: 2, height: 1, width: 2 };
        let image = MeanImage::new(shape, [1.0, 3.0, 10.0, 20.0]).unwrap();
        let of = |transform: Transform| transform.mean_of_channels(Path::new("")).unwrap();
        assert_eq!(of(Transform::new()), []);
        assert_eq!(of(Transform::new().mean_values([104.0, 117.0])), [104.0, 117.0]);
        assert_eq!(of(Transform::new().mean_image(image)), [2.0, 15.0]);
        assert!(Transform::new().mean_file("missing").mean_of_channels(Path::new("/none")).is_err());
    }
}
