//! What can look wrong, and how it is put into words.

use std::fmt;

use percolator_files::caller::words;
use serde::Serialize;

/// Something that looks wrong in the data, or in how they are used.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Finding {
    /// Records cannot be decoded.
    Undecodable {
        /// How many of those that were read.
        records: usize,
        /// The position of the first one.
        first: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// All labels are the same.
    OneLabel {
        /// The label.
        label: i32,
    },
    /// Each label's records lie together, and the feed does not part them.
    LabelsTogether {
        /// The share of neighbours that have the same label.
        neighbours_alike: f64,
    },
    /// An image is smaller than the crop.
    SmallerThanCrop {
        /// Its shape.
        shape: String,
        /// The side of the crop.
        crop: usize,
    },
    /// The pixels of raw images seem to lie in another order than the one they are read in.
    PixelOrder {
        /// Whether the channels of a pixel seem to lie side by side, and not each channel by itself.
        is_interleaved: bool,
        /// Whether the feed can be told so: the images are those of Examples.
        can_be_said: bool,
    },
    /// Pixels are infinite or no numbers.
    NotFinite {
        /// How many of the records that were read have such pixels.
        records: usize,
    },
    /// The shapes differ, and nothing makes them one.
    ShapesDiffer {
        /// One shape.
        one: String,
        /// Another.
        other: String,
    },
    /// The mean fits the channels in the opposite order.
    ChannelsReversed {
        /// What is subtracted from each channel.
        mean: Vec<f64>,
        /// The mean of each channel's pixels.
        found: Vec<f64>,
    },
    /// The mean is another one than the pixels'.
    MeanDoesNotFit {
        /// What is subtracted from each channel.
        mean: Vec<f64>,
        /// The mean of each channel's pixels.
        found: Vec<f64>,
        /// Whether the mean would fit if pixels were from 0 to 1.
        is_of_unit_pixels: bool,
    },
    /// Images are much larger than what is used of them.
    MuchLarger {
        /// The median of the images' shorter sides, in pixels.
        side: usize,
        /// The shorter side of what is used.
        used: usize,
        /// Whether they are resized, so that they need not be cropped from.
        is_resized: bool,
    },
}

impl Finding {
    /// Whether a training run would fail, or learn worse. Otherwise, it only wastes time.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        !matches!(self, Finding::MuchLarger { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |values: &[f64]| values.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(", ");
        match self {
            Finding::Undecodable { records, first, reason } => {
                write!(f, "{records} record(s) cannot be decoded, the first at position {first}: {reason}")
            }
            Finding::OneLabel { label } => {
                write!(f, "all labels are {label}: a net that learns from labels learns nothing from these")
            }
            Finding::LabelsTogether { neighbours_alike } => write!(
                f,
                "the records of each label lie together ({:.0} % of neighbours have the same one), and the \
                 feed does not part them: a batch has one class or two; shuffle all of them, or shuffle \
                 the records when they are converted",
                neighbours_alike * 100.0
            ),
            Finding::SmallerThanCrop { shape, crop } => write!(
                f,
                "an image is {shape}, and the crop {crop}x{crop}: a run fails when it gets there; resize the \
                 images, or crop less"
            ),
            Finding::PixelOrder { is_interleaved, can_be_said } => {
                f.write_str(&pixel_order(*is_interleaved, *can_be_said))
            }
            Finding::NotFinite { records } => {
                write!(f, "{records} record(s) have pixels that are infinite or no numbers")
            }
            Finding::ShapesDiffer { one, other } => write!(
                f,
                "one image is {one} and another {other}: a batch needs one shape; crop or resize them, and \
                 choose colour or grey"
            ),
            Finding::ChannelsReversed { mean, found } => write!(
                f,
                "the mean ({}) fits the pixels ({}) better in the opposite order: perhaps the records' \
                 channels, or the mean's, are in the wrong order; Caffe's is blue, green, red",
                list(mean),
                list(found)
            ),
            Finding::MeanDoesNotFit { mean, found, is_of_unit_pixels: true } => write!(
                f,
                "the mean ({}) is that of pixels from 0 to 1, and it is subtracted from pixels from 0 to \
                 255, whose mean is {}: multiply it by 255",
                list(mean),
                list(found)
            ),
            Finding::MeanDoesNotFit { mean, found, .. } => write!(
                f,
                "the mean ({}) does not fit the pixels, whose mean is {}: compute the mean of these \
                 records",
                list(mean),
                list(found)
            ),
            Finding::MuchLarger { side, used, is_resized: true } => write!(
                f,
                "images of {side} pixels are resized to {used} each time that they are fed: convert them \
                 with a resize once, or decode them at a smaller scale"
            ),
            Finding::MuchLarger { side, used, .. } => write!(
                f,
                "images of {side} pixels are cropped to {used}: most of each image is decoded, or read, for \
                 nothing; convert them with a resize to somewhat more than the crop"
            ),
        }
    }
}

fn pixel_order(is_interleaved: bool, can_be_said: bool) -> String {
    let orders = ["channel by channel (CxHxW)", "pixel by pixel (HxWxC, as tobytes stores them)"];
    let [found, read] = if is_interleaved { [orders[1], orders[0]] } else { orders };
    let remedy = match (can_be_said, is_interleaved) {
        (false, _) => "write them transposed",
        (true, true) => words(
            "describe them with ExampleImage::interleaved",
            "give --image-order hwc",
            "say so with the image's order",
        ),
        (true, false) => words(
            "describe them with ExampleImage::raw",
            "leave out --image-order hwc",
            "leave out the image's order",
        ),
    };
    format!("the images look scrambled: as if their pixels lay {found}, and they are read {read}; {remedy}")
}
