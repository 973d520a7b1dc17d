//! What a user asks for.

use percolator_image::resample::Resampling;

/// An operation on an image of bytes. Its laws are those of torchvision's classes of the same names, with
/// Pillow as their back end: sizes, distributions, and which pixels come out, bit for bit.
///
/// Probabilities are from 0 to 1; sides are in pixels.
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
    /// Pads each side with zeros, and cuts a random place out.
    RandomCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// How many pixels are added at each of the four sides.
        #[cfg_attr(feature = "serde", serde(default))]
        padding: u32,
    },
    /// Cuts out a part of random area and ratio, and resizes that.
    RandomResizedCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// The least and the most of the image's area.
        #[cfg_attr(feature = "serde", serde(default = "default_scale"))]
        scale: [f64; 2],
        /// The least and the greatest ratio of width to height.
        #[cfg_attr(feature = "serde", serde(default = "default_ratio"))]
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
        #[cfg_attr(feature = "serde", serde(default = "default_sigma"))]
        sigma: [f64; 2],
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "always"))]
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
        #[cfg_attr(feature = "serde", serde(default = "default_rand_operations"))]
        operations: u32,
        /// How strong.
        #[cfg_attr(feature = "serde", serde(default = "default_rand_magnitude"))]
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
    /// Erases a random part: its elements become 0, after the normalization. It comes last.
    RandomErasing {
        /// How often.
        #[cfg_attr(feature = "serde", serde(default = "half"))]
        probability: f64,
        /// The least and the most of the image's area.
        #[cfg_attr(feature = "serde", serde(default = "default_erased"))]
        scale: [f64; 2],
        /// The least and the greatest ratio of height to width.
        #[cfg_attr(feature = "serde", serde(default = "default_erased_ratio"))]
        ratio: [f64; 2],
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

#[cfg(feature = "serde")]
fn always() -> f64 {
    1.0
}

#[cfg(feature = "serde")]
fn half() -> f64 {
    0.5
}

#[cfg(feature = "serde")]
fn tenth() -> f64 {
    0.1
}

#[cfg(feature = "serde")]
fn default_sigma() -> [f64; 2] {
    SIGMA
}

#[cfg(feature = "serde")]
fn default_rand_operations() -> u32 {
    RAND.0
}

#[cfg(feature = "serde")]
fn default_rand_magnitude() -> u32 {
    RAND.1
}

#[cfg(feature = "serde")]
fn default_erased() -> [f64; 2] {
    ERASED
}

#[cfg(feature = "serde")]
fn default_erased_ratio() -> [f64; 2] {
    ERASED_RATIO
}

/// What torchvision's classes do if nothing is said.
const SIGMA: [f64; 2] = [0.1, 2.0];
const RAND: (u32, u32) = (2, 9);
const ERASED: [f64; 2] = [0.02, 0.33];
const ERASED_RATIO: [f64; 2] = [0.3, 3.3];

#[cfg(feature = "serde")]
fn default_scale() -> [f64; 2] {
    SCALE
}

#[cfg(feature = "serde")]
fn default_ratio() -> [f64; 2] {
    RATIO
}

/// What torchvision's `RandomResizedCrop` takes of an image's area, and its ratios, if nothing is said.
const SCALE: [f64; 2] = [0.08, 1.0];
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

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
        Operation::RandomResizedCrop { height: side, width: side, scale: SCALE, ratio: RATIO, resampling }
    }

    /// [`ResizeShorter`](Self::ResizeShorter), bilinear.
    #[must_use]
    pub fn resize_shorter(side: u32) -> Self {
        Operation::ResizeShorter { side, resampling: Resampling::default() }
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
        Operation::RandomCrop { height: side, width: side, padding }
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
        Operation::GaussianBlur { kernel, sigma: SIGMA, probability: 1.0 }
    }

    /// [`RandAugment`](Self::RandAugment) with torchvision's own number and magnitude.
    #[must_use]
    pub fn rand_augment() -> Self {
        Operation::RandAugment { operations: RAND.0, magnitude: RAND.1 }
    }

    /// [`RandomErasing`](Self::RandomErasing) with torchvision's own areas and ratios.
    #[must_use]
    pub fn random_erasing(probability: f64) -> Self {
        Operation::RandomErasing { probability, scale: ERASED, ratio: ERASED_RATIO }
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

    /// Its name, as in a spec.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Resize { .. } => "resize",
            Operation::ResizeShorter { .. } => "resize_shorter",
            Operation::CenterCrop { .. } => "center_crop",
            Operation::RandomCrop { .. } => "random_crop",
            Operation::RandomResizedCrop { .. } => "random_resized_crop",
            Operation::HorizontalFlip { .. } => "horizontal_flip",
            Operation::VerticalFlip { .. } => "vertical_flip",
            Operation::ColorJitter { .. } => "color_jitter",
            Operation::Grayscale { .. } => "grayscale",
            Operation::GaussianBlur { .. } => "gaussian_blur",
            Operation::Solarize { .. } => "solarize",
            Operation::Sharpness { .. } => "sharpness",
            Operation::AutoContrast { .. } => "auto_contrast",
            Operation::Equalize { .. } => "equalize",
            Operation::RandAugment { .. } => "rand_augment",
            Operation::TrivialAugmentWide => "trivial_augment_wide",
            Operation::AutoAugment { .. } => "auto_augment",
            Operation::RandomErasing { .. } => "random_erasing",
        }
    }

    /// Whether it takes the first of three channels for red.
    pub(super) fn takes_colours(&self) -> bool {
        matches!(
            self,
            Operation::ColorJitter { .. }
                | Operation::Grayscale { .. }
                | Operation::RandAugment { .. }
                | Operation::TrivialAugmentWide
                | Operation::AutoAugment { .. }
        )
    }

    /// Whether it takes images of one or three channels alone.
    pub(super) fn takes_planes(&self) -> bool {
        self.takes_colours()
            || matches!(
                self,
                Operation::GaussianBlur { .. }
                    | Operation::Solarize { .. }
                    | Operation::Sharpness { .. }
                    | Operation::AutoContrast { .. }
                    | Operation::Equalize { .. }
            )
    }

    /// Whether it resizes.
    pub(in crate::transform) fn resizes(&self) -> bool {
        matches!(
            self,
            Operation::Resize { .. } | Operation::ResizeShorter { .. } | Operation::RandomResizedCrop { .. }
        )
    }

    /// The size that it leaves, of an image of this size.
    pub(super) fn size_after(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        match *self {
            Operation::Resize { height, width, .. }
            | Operation::CenterCrop { height, width }
            | Operation::RandomCrop { height, width, .. }
            | Operation::RandomResizedCrop { height, width, .. } => [height as usize, width as usize],
            Operation::ResizeShorter { side, .. } => {
                let (side, shorter) = (side as usize, height.min(width));
                let longer = side.saturating_mul(height.max(width)) / shorter.max(1);
                if height <= width { [side, longer] } else { [longer, side] }
            }
            _ => [height, width],
        }
    }

    /// Whether all images that it leaves have one size.
    pub(in crate::transform) fn fixes_size(&self) -> bool {
        matches!(
            self,
            Operation::Resize { .. }
                | Operation::CenterCrop { .. }
                | Operation::RandomCrop { .. }
                | Operation::RandomResizedCrop { .. }
        )
    }
}
