//! What is impossible about an operation, whatever the image.

use percolator_image::resample::Resampling;

use super::augment::{MIX_BINS, MIXED_MAX, RAND_BINS};
use super::operation::{FACTOR_MAX, KERNEL_MAX, SIDE_MAX};
use super::{ErasedValue, Operation};

/// What was found, and what is allowed.
type Fault = Option<String>;

fn side(name: &str, side: u32) -> Fault {
    let is_allowed = (1..=SIDE_MAX).contains(&side);
    (!is_allowed).then(|| format!("a {name} of {side}: allowed are 1 to {SIDE_MAX}"))
}

fn size(height: u32, width: u32) -> Fault {
    side("height", height).or_else(|| side("width", width))
}

/// A number from 0 to a limit.
fn most(name: &str, value: f64, limit: f64) -> Fault {
    let is_allowed = (0.0..=limit).contains(&value);
    (!is_allowed).then(|| format!("a {name} of {value}: allowed are 0 to {limit}"))
}

fn chance(probability: f64) -> Fault {
    most("probability", probability, 1.0)
}

/// The least standard deviation of a blur, in pixels: what is narrower changes nothing.
const SIGMA_MIN: f64 = 0.001;

/// The longest radius of a blur by boxes, in pixels.
const RADIUS_MAX: f64 = 1000.0;

/// The steepest shear, in degrees: one of 90 has no finite length.
const SHEAR_MAX: f64 = 89.0;

/// The least parameter of a distribution of shares: below, one of them is always everything.
const ALPHA_MIN: f64 = 0.001;

/// Two positive numbers, in order.
fn range(name: &str, [least, greatest]: [f64; 2], limit: f64) -> Fault {
    let is_allowed = least > 0.0 && least <= greatest && greatest <= limit;
    (!is_allowed).then(|| {
        format!("a {name} from {least} to {greatest}: allowed are numbers above 0, up to {limit}, in order")
    })
}

/// Two numbers within a limit on either side, in order.
fn between(name: &str, [least, greatest]: [f64; 2], limit: f64) -> Fault {
    let is_allowed = -limit <= least && least <= greatest && greatest <= limit;
    (!is_allowed).then(|| {
        format!("{name} from {least} to {greatest}: allowed are numbers from -{limit} to {limit}, in order")
    })
}

/// A whole number from 1 to a limit.
fn count(name: &str, value: u32, limit: u32) -> Fault {
    let is_allowed = (1..=limit).contains(&value);
    (!is_allowed).then(|| format!("{name} of {value}: allowed are 1 to {limit}"))
}

fn how(resampling: Resampling) -> Fault {
    resampling.impossible().map(str::to_owned)
}

impl Operation {
    /// What is impossible about it, whatever the image.
    pub(super) fn fault(&self) -> Fault {
        match *self {
            Operation::Resize { height, width, resampling } => {
                size(height, width).or_else(|| how(resampling))
            }
            Operation::ResizeShorter { side: shorter, max_size, resampling } => side("side", shorter)
                .or_else(|| max_size.and_then(|most| side("max_size", most)))
                .or_else(|| {
                    let most = max_size.filter(|most| *most <= shorter)?;
                    Some(format!("a max_size of {most}: allowed is more than the shorter side's {shorter}"))
                })
                .or_else(|| how(resampling)),
            Operation::CenterCrop { height, width } => size(height, width),
            Operation::Pad { padding, .. } => {
                padding.into_iter().find_map(|padding| most("padding", padding.into(), SIDE_MAX.into()))
            }
            Operation::RandomCrop { height, width, padding, .. } => {
                size(height, width).or_else(|| most("padding", padding.into(), SIDE_MAX.into()))
            }
            Operation::RandomResizedCrop { height, width, scale, ratio, resampling } => size(height, width)
                .or_else(|| range("scale", scale, 1.0))
                .or_else(|| range("ratio", ratio, 1000.0))
                .or_else(|| how(resampling)),
            Operation::HorizontalFlip { probability }
            | Operation::VerticalFlip { probability }
            | Operation::Grayscale { probability }
            | Operation::AutoContrast { probability }
            | Operation::Equalize { probability }
            | Operation::Invert { probability } => chance(probability),
            Operation::RandomRotation { .. }
            | Operation::RandomAffine { .. }
            | Operation::RandomPerspective { .. } => self.fault_of_move(),
            Operation::ColorJitter { .. }
            | Operation::GaussianBlur { .. }
            | Operation::PillowBlur { .. }
            | Operation::Posterize { .. }
            | Operation::Solarize { .. }
            | Operation::Sharpness { .. } => self.fault_of_colour(),
            Operation::RandAugment { .. }
            | Operation::TrivialAugmentWide
            | Operation::AutoAugment { .. }
            | Operation::AugMix { .. }
            | Operation::TimmRandAugment { .. } => self.fault_of_policy(),
            Operation::RandomErasing { probability, scale, ratio, ref value } => range("scale", scale, 1.0)
                .or_else(|| range("ratio", ratio, 1000.0))
                .or_else(|| chance(probability))
                .or_else(|| match value {
                    ErasedValue::Constant(values) => {
                        let odd = values.iter().find(|value| !value.is_finite())?;
                        Some(format!("a value of {odd}: allowed are finite numbers"))
                    }
                    ErasedValue::Random | ErasedValue::RandomColor => None,
                }),
        }
    }

    /// What is impossible about it for images of so many channels.
    pub(super) fn fault_of(&self, channels: usize) -> Fault {
        let none_or_each = |found: usize| found <= 1 || found == channels;
        if self.takes_planes() && !matches!(channels, 1 | 3) {
            return Some(format!("an image of {channels} channels: allowed are 1 and 3"));
        }
        if let Some(fill) = self.fill().filter(|fill| !none_or_each(fill.len())) {
            let found = fill.len();
            return Some(format!(
                "a fill of {found} levels: allowed are 1 or as many as channels: {channels}"
            ));
        }
        match self {
            Operation::RandomErasing { value: ErasedValue::Constant(values), .. }
                if !none_or_each(values.len()) =>
            {
                let found = values.len();
                Some(format!("a value of {found} numbers: allowed are 1 or as many as channels: {channels}"))
            }
            _ => None,
        }
    }

    /// As [`fault`](Self::fault), if it moves pixels.
    fn fault_of_move(&self) -> Fault {
        match *self {
            Operation::RandomRotation { degrees, .. } => between("degrees", degrees, 360.0),
            Operation::RandomAffine { degrees, translate, scale, shear, .. } => {
                let [least_x, most_x, least_y, most_y] = shear;
                let shears = [[least_x, most_x], [least_y, most_y]];
                between("degrees", degrees, 360.0)
                    .or_else(|| translate.into_iter().find_map(|part| most("translate", part, 1.0)))
                    .or_else(|| range("scale", scale, 1000.0))
                    .or_else(|| shears.into_iter().find_map(|shear| between("a shear", shear, SHEAR_MAX)))
            }
            Operation::RandomPerspective { distortion, probability, .. } => {
                most("distortion", distortion, 1.0).or_else(|| chance(probability))
            }
            _ => None,
        }
    }

    /// As [`fault`](Self::fault), if it changes colours by numbers.
    fn fault_of_colour(&self) -> Fault {
        match *self {
            Operation::ColorJitter { brightness, contrast, saturation, hue, probability } => {
                most("brightness", brightness, FACTOR_MAX)
                    .or_else(|| most("contrast", contrast, FACTOR_MAX))
                    .or_else(|| most("saturation", saturation, FACTOR_MAX))
                    .or_else(|| most("hue", hue, 0.5))
                    .or_else(|| chance(probability))
            }
            Operation::GaussianBlur { kernel, sigma, probability } => {
                let is_kernel = kernel % 2 == 1 && kernel <= KERNEL_MAX;
                let kernel = (!is_kernel)
                    .then(|| format!("a kernel of {kernel}: allowed are odd sides up to {KERNEL_MAX}"));
                let least = (sigma[0] < SIGMA_MIN)
                    .then(|| format!("a sigma of {}: allowed are {SIGMA_MIN} and more", sigma[0]));
                kernel.or(least).or_else(|| range("sigma", sigma, 1000.0)).or_else(|| chance(probability))
            }
            Operation::PillowBlur { radius, probability } => most("radius", radius[0], RADIUS_MAX)
                .or_else(|| between("a radius", radius, RADIUS_MAX))
                .or_else(|| chance(probability)),
            Operation::Posterize { bits, probability } => {
                count("bits", bits, 8).or_else(|| chance(probability))
            }
            Operation::Solarize { threshold, probability } => {
                most("threshold", threshold, 256.0).or_else(|| chance(probability))
            }
            Operation::Sharpness { factor, probability } => {
                most("factor", factor, FACTOR_MAX).or_else(|| chance(probability))
            }
            _ => None,
        }
    }

    /// As [`fault`](Self::fault), if it chooses from a list of changes.
    fn fault_of_policy(&self) -> Fault {
        match *self {
            Operation::RandAugment { operations, magnitude } => {
                let is_allowed = (1..=100).contains(&operations) && magnitude < RAND_BINS;
                (!is_allowed).then(|| {
                    format!(
                        "{operations} operations of magnitude {magnitude}: allowed are 1 to 100, of less \
                         than {RAND_BINS}"
                    )
                })
            }
            Operation::AugMix { severity, mixture_width, chain_depth, alpha, .. } => {
                let is_alpha = (ALPHA_MIN..=1000.0).contains(&alpha);
                count("a severity", severity, MIX_BINS)
                    .or_else(|| count("a mixture_width", mixture_width, MIXED_MAX))
                    .or_else(|| chain_depth.and_then(|depth| count("a chain_depth", depth, 100)))
                    .or_else(|| {
                        (!is_alpha).then(|| format!("an alpha of {alpha}: allowed are {ALPHA_MIN} to 1000"))
                    })
            }
            Operation::TimmRandAugment { magnitude, magnitude_std, operations, probability, .. } => {
                most("magnitude", magnitude, 10.0)
                    .or_else(|| most("magnitude_std", magnitude_std, 1e9))
                    .or_else(|| count("operations", operations, 100))
                    .or_else(|| chance(probability))
            }
            _ => None,
        }
    }
}
