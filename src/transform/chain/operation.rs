//! What a user asks for.

use percolator_image::resample::Resampling;
use percolator_image::warp::WarpFilter;

use super::defaults::*;

/// An operation on an image of bytes. Its laws are those of torchvision's classes of the same names, with
/// Pillow as their back end: sizes, distributions, and which pixels come out, bit for bit.
///
/// Probabilities are from 0 to 1; sides are in pixels. What `fill` is for has these levels: one for all
/// channels, or one for each in their order; if there are none, 0.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Operation {
    /// Resizes to this height and width.
    Resize {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// How.
        #[cfg_attr(feature = "serde", serde(default))]
        resampling: Resampling,
    },
    /// Resizes so that the shorter side becomes this, and the longer one `side * longer / shorter`,
    /// truncated.
    ResizeShorter {
        /// The shorter side.
        side: u32,
        /// The most that the longer side may be: if it would be longer, it is this, and the shorter one
        /// follows.
        #[cfg_attr(feature = "serde", serde(default))]
        max_size: Option<u32>,
        /// How.
        #[cfg_attr(feature = "serde", serde(default))]
        resampling: Resampling,
    },
    /// Cuts this out of the centre. A smaller image is padded with zeros first.
    CenterCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// Adds pixels around the image.
    Pad {
        /// How many: left, top, right and bottom.
        padding: [u32; 4],
        /// Which.
        #[cfg_attr(feature = "serde", serde(default))]
        mode: PadMode,
        /// The levels of constant ones.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// Pads each side, and cuts a random place out.
    RandomCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// How many pixels are added at each of the four sides.
        #[cfg_attr(feature = "serde", serde(default))]
        padding: u32,
        /// Whether what a side lacks of the crop then is added at both of its ends.
        #[cfg_attr(feature = "serde", serde(default))]
        pad_if_needed: bool,
        /// Which pixels are added.
        #[cfg_attr(feature = "serde", serde(default))]
        mode: PadMode,
        /// The levels of constant ones.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// Cuts out a part of random area and ratio, and resizes that.
    RandomResizedCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// The least and the most of the image's area.
        #[cfg_attr(feature = "serde", serde(default = "scale"))]
        scale: [f64; 2],
        /// The least and the greatest ratio of width to height.
        #[cfg_attr(feature = "serde", serde(default = "ratio"))]
        ratio: [f64; 2],
        /// How.
        #[cfg_attr(feature = "serde", serde(default))]
        resampling: Resampling,
    },
    /// Mirrors left to right.
    HorizontalFlip {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Mirrors top to bottom.
    VerticalFlip {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Rotates about the centre. The size stays.
    RandomRotation {
        /// The least and the greatest angle in degrees, anticlockwise.
        degrees: [f64; 2],
        /// How pixels are found.
        #[cfg_attr(feature = "serde", serde(default))]
        filter: WarpFilter,
        /// What comes in from outside.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// Rotates, shears and scales about the centre, and moves. The size stays.
    RandomAffine {
        /// The least and the greatest angle in degrees, clockwise.
        degrees: [f64; 2],
        /// At most this much of the width to the left or right, and of the height up or down: by whole
        /// pixels.
        #[cfg_attr(feature = "serde", serde(default))]
        translate: [f64; 2],
        /// The least and the greatest factor.
        #[cfg_attr(feature = "serde", serde(default = "one"))]
        scale: [f64; 2],
        /// The least and the greatest shear in degrees along x, and then along y.
        #[cfg_attr(feature = "serde", serde(default))]
        shear: [f64; 4],
        /// How pixels are found.
        #[cfg_attr(feature = "serde", serde(default))]
        filter: WarpFilter,
        /// What comes in from outside.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// Moves the corners inwards, each by up to a part of half a side. An image of one row or column stays.
    RandomPerspective {
        /// That part, from 0 to 1.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        distortion: f64,
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
        /// How pixels are found.
        #[cfg_attr(feature = "serde", serde(default = "bilinear"))]
        filter: WarpFilter,
        /// What comes in from outside.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// Changes brightness, contrast, saturation and hue, in a random order, each by a random factor: the
    /// first three from `1 - x`, or 0, to `1 + x`, the hue from `-x` to `x` of the circle.
    ColorJitter {
        /// At most this much.
        #[cfg_attr(feature = "serde", serde(default))]
        brightness: f64,
        /// At most this much.
        #[cfg_attr(feature = "serde", serde(default))]
        contrast: f64,
        /// At most this much.
        #[cfg_attr(feature = "serde", serde(default))]
        saturation: f64,
        /// At most this much, and at most 0.5.
        #[cfg_attr(feature = "serde", serde(default))]
        hue: f64,
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "always"))]
        probability: f64,
    },
    /// Makes all three channels grey.
    Grayscale {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "tenth"))]
        probability: f64,
    },
    /// Blurs with a Gaussian of random width. A side of at most half the kernel is reflected more than once,
    /// where torchvision refuses it.
    GaussianBlur {
        /// Rows and columns of the kernel: odd.
        kernel: u32,
        /// The least and the greatest standard deviation, in pixels.
        #[cfg_attr(feature = "serde", serde(default = "sigma"))]
        sigma: [f64; 2],
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "always"))]
        probability: f64,
    },
    /// Blurs as Pillow's own `GaussianBlur` does: by boxes.
    PillowBlur {
        /// The least and the greatest radius, which is about the standard deviation in pixels.
        #[cfg_attr(feature = "serde", serde(default = "sigma"))]
        radius: [f64; 2],
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "always"))]
        probability: f64,
    },
    /// Inverts all levels.
    Invert {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Keeps some upper bits of each level.
    Posterize {
        /// How many, from 1 to 8.
        bits: u32,
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Inverts what is not below a threshold.
    Solarize {
        /// From 0 to 256.
        threshold: f64,
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Changes sharpness by a factor.
    Sharpness {
        /// 0 blurs, 1 leaves the image as it is.
        factor: f64,
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Spreads the levels of each channel.
    AutoContrast {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// Makes all levels of a channel about as frequent.
    Equalize {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
    },
    /// `RandAugment`: some of 14 changes, each with this magnitude of 0 to 30.
    RandAugment {
        /// How many.
        #[cfg_attr(feature = "serde", serde(default = "rand_operations"))]
        operations: u32,
        /// How strong.
        #[cfg_attr(feature = "serde", serde(default = "rand_magnitude"))]
        magnitude: u32,
    },
    /// `TrivialAugmentWide`: one of 14 changes, of random magnitude.
    TrivialAugmentWide,
    /// `AutoAugment`: one of 25 pairs of changes.
    AutoAugment {
        /// Learned on which data set.
        #[cfg_attr(feature = "serde", serde(default))]
        policy: AutoAugmentPolicy,
    },
    /// `AugMix`: a mixture of the image and of chains of 1 to 3 changes of it, mixed as torchvision mixes
    /// them. The changes are those of Pillow; torchvision makes them on tensors, even of a PIL image.
    AugMix {
        /// How many of 10 magnitudes there are to choose from: 1 to 10.
        #[cfg_attr(feature = "serde", serde(default = "three"))]
        severity: u32,
        /// How many chains.
        #[cfg_attr(feature = "serde", serde(default = "three"))]
        mixture_width: u32,
        /// How many changes in each chain; 1 to 3 at random if nothing is said.
        #[cfg_attr(feature = "serde", serde(default))]
        chain_depth: Option<u32>,
        /// How evenly it is mixed: the parameter of its Dirichlet and beta distributions.
        #[cfg_attr(feature = "serde", serde(default = "always"))]
        alpha: f64,
        /// Whether brightness, colour, contrast and sharpness are among the changes.
        #[cfg_attr(feature = "serde", serde(default = "yes"))]
        all_ops: bool,
        /// How pixels are found that move.
        #[cfg_attr(feature = "serde", serde(default = "bilinear"))]
        filter: WarpFilter,
        /// What comes in from outside.
        #[cfg_attr(feature = "serde", serde(default))]
        fill: Vec<u8>,
    },
    /// timm's `RandAugment`: some of its 15 changes, each with a probability, with magnitudes of 0 to 10
    /// around one. What it does if nothing is said is `rand-m9-mstd0.5-inc1`, with ImageNet's mean colour.
    TimmRandAugment {
        /// The mean of the magnitude.
        #[cfg_attr(feature = "serde", serde(default = "timm_magnitude"))]
        magnitude: f64,
        /// Its standard deviation; above 100, it is uniform from 0 to `magnitude`.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        magnitude_std: f64,
        /// How many are chosen.
        #[cfg_attr(feature = "serde", serde(default = "rand_operations"))]
        operations: u32,
        /// How often a chosen one is done.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
        /// Whether a greater magnitude is always a stronger change.
        #[cfg_attr(feature = "serde", serde(default = "yes"))]
        increasing: bool,
        /// How pixels are found that move; bilinear or bicubic at random if nothing is said.
        #[cfg_attr(feature = "serde", serde(default))]
        filter: Option<WarpFilter>,
        /// What comes in from outside: ImageNet's mean colour if nothing is said. Grey images need one level.
        #[cfg_attr(feature = "serde", serde(default = "mean_colour"))]
        fill: Vec<u8>,
    },
    /// Erases a random part, after the normalization. It comes last.
    RandomErasing {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
        /// The least and the most of the image's area.
        #[cfg_attr(feature = "serde", serde(default = "erased"))]
        scale: [f64; 2],
        /// The least and the greatest ratio of height to width.
        #[cfg_attr(feature = "serde", serde(default = "erased_ratio"))]
        ratio: [f64; 2],
        /// What its elements become.
        #[cfg_attr(feature = "serde", serde(default))]
        value: ErasedValue,
    },
}

/// The data set that an AutoAugment policy was learned on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum AutoAugmentPolicy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// SVHN.
    Svhn,
}

/// The pixels that are added around an image.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum PadMode {
    /// The same everywhere.
    #[default]
    Constant,
    /// Those of the edge.
    Edge,
    /// Those within, mirrored at the middle of the edge's pixels: `dcb|abcd|cba`, and again as often as it
    /// takes.
    Reflect,
    /// Those within, mirrored at the edge: `cba|abcd|dcb`, and again as often as it takes.
    Symmetric,
}

/// What erased elements become.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ErasedValue {
    /// These numbers: one for all channels, or one for each; if there are none, 0.
    Constant(Vec<f32>),
    /// Noise: each a number of its own of the standard normal distribution.
    Random,
    /// A colour: for each channel, one such number.
    RandomColor,
}

impl ErasedValue {
    /// As in a spec.
    pub(in crate::transform) fn shown(&self) -> String {
        match self {
            ErasedValue::Constant(values) => format!("{values:?}"),
            ErasedValue::Random => "random".to_owned(),
            ErasedValue::RandomColor => "random_color".to_owned(),
        }
    }
}

impl Default for ErasedValue {
    fn default() -> Self {
        ErasedValue::Constant(Vec::new())
    }
}

/// The longest side that an operation makes: OpenCV's own limit.
pub(super) const SIDE_MAX: u32 = 1 << 20;

/// The widest kernel of a blur, and the greatest factor of a colour.
pub(super) const KERNEL_MAX: u32 = 63;
pub(super) const FACTOR_MAX: f64 = 100.0;

impl Operation {
    /// [`RandomResizedCrop`](Self::RandomResizedCrop) to a square, with torchvision's own scale and ratio.
    #[must_use]
    pub fn random_resized_crop(side: u32) -> Self {
        let resampling = Resampling::default();
        Operation::RandomResizedCrop { height: side, width: side, scale: scale(), ratio: ratio(), resampling }
    }

    /// [`ResizeShorter`](Self::ResizeShorter), bilinear.
    #[must_use]
    pub fn resize_shorter(side: u32) -> Self {
        Operation::ResizeShorter { side, max_size: None, resampling: Resampling::default() }
    }

    /// [`Resize`](Self::Resize), bilinear.
    #[must_use]
    pub fn resize(height: u32, width: u32) -> Self {
        Operation::Resize { height, width, resampling: Resampling::default() }
    }

    /// [`CenterCrop`](Self::CenterCrop) to a square.
    #[must_use]
    pub fn center_crop(side: u32) -> Self {
        Operation::CenterCrop { height: side, width: side }
    }

    /// [`RandomCrop`](Self::RandomCrop) to a square, after padding.
    #[must_use]
    pub fn random_crop(side: u32, padding: u32) -> Self {
        let (height, width, mode, fill) = (side, side, PadMode::default(), Vec::new());
        Operation::RandomCrop { height, width, padding, pad_if_needed: false, mode, fill }
    }

    /// [`RandomRotation`](Self::RandomRotation) by up to so many degrees to either side, with the nearest
    /// pixels.
    #[must_use]
    pub fn random_rotation(degrees: f64) -> Self {
        let (filter, fill) = (WarpFilter::default(), Vec::new());
        Operation::RandomRotation { degrees: [-degrees, degrees], filter, fill }
    }

    /// [`RandomPerspective`](Self::RandomPerspective) with torchvision's own distortion.
    #[must_use]
    pub fn random_perspective() -> Self {
        let (distortion, probability, fill) = (half(), half(), Vec::new());
        Operation::RandomPerspective { distortion, probability, filter: bilinear(), fill }
    }

    /// [`HorizontalFlip`](Self::HorizontalFlip) of every second image, on average.
    #[must_use]
    pub fn horizontal_flip() -> Self {
        Operation::HorizontalFlip { probability: 0.5 }
    }

    /// [`ColorJitter`](Self::ColorJitter) of every image.
    #[must_use]
    pub fn color_jitter(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Self {
        Operation::ColorJitter { brightness, contrast, saturation, hue, probability: 1.0 }
    }

    /// [`GaussianBlur`](Self::GaussianBlur) of every image, with torchvision's own widths.
    #[must_use]
    pub fn gaussian_blur(kernel: u32) -> Self {
        Operation::GaussianBlur { kernel, sigma: sigma(), probability: 1.0 }
    }

    /// [`RandAugment`](Self::RandAugment) with torchvision's own number and magnitude.
    #[must_use]
    pub fn rand_augment() -> Self {
        Operation::RandAugment { operations: rand_operations(), magnitude: rand_magnitude() }
    }

    /// [`AugMix`](Self::AugMix) with torchvision's own numbers.
    #[must_use]
    pub fn aug_mix() -> Self {
        Operation::AugMix {
            severity: three(),
            mixture_width: three(),
            chain_depth: None,
            alpha: always(),
            all_ops: yes(),
            filter: bilinear(),
            fill: Vec::new(),
        }
    }

    /// [`TimmRandAugment`](Self::TimmRandAugment) as `rand-m9-mstd0.5-inc1`, with ImageNet's mean colour.
    #[must_use]
    pub fn timm_rand_augment() -> Self {
        Operation::TimmRandAugment {
            magnitude: timm_magnitude(),
            magnitude_std: half(),
            operations: rand_operations(),
            probability: half(),
            increasing: yes(),
            filter: None,
            fill: mean_colour(),
        }
    }

    /// [`RandomErasing`](Self::RandomErasing) with torchvision's own areas and ratios.
    #[must_use]
    pub fn random_erasing(probability: f64) -> Self {
        Operation::RandomErasing {
            probability,
            scale: erased(),
            ratio: erased_ratio(),
            value: ErasedValue::default(),
        }
    }

    /// The same operation with this way to resize, if it resizes.
    #[must_use]
    pub fn resampled(mut self, how: Resampling) -> Self {
        match &mut self {
            Operation::Resize { resampling, .. }
            | Operation::ResizeShorter { resampling, .. }
            | Operation::RandomResizedCrop { resampling, .. } => *resampling = how,
            _ => {}
        }
        self
    }
}
