//! What is impossible about an operation, whatever the image.

use percolator_image::resample::Resampling;

use super::Operation;
use super::augment::RAND_BINS;
use super::operation::{FACTOR_MAX, KERNEL_MAX, SIDE_MAX};

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

/// Two positive numbers, in order.
fn range(name: &str, [least, greatest]: [f64; 2], limit: f64) -> Fault {
    let is_allowed = least > 0.0 && least <= greatest && greatest <= limit;
    (!is_allowed).then(|| {
        format!("a {name} from {least} to {greatest}: allowed are numbers above 0, up to {limit}, in order")
    })
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
            Operation::ResizeShorter { side: shorter, resampling } => {
                side("side", shorter).or_else(|| how(resampling))
            }
            Operation::CenterCrop { height, width } => size(height, width),
            Operation::RandomCrop { height, width, padding } => {
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
            | Operation::Equalize { probability } => chance(probability),
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
            Operation::Solarize { threshold, probability } => {
                most("threshold", threshold, 256.0).or_else(|| chance(probability))
            }
            Operation::Sharpness { factor, probability } => {
                most("factor", factor, FACTOR_MAX).or_else(|| chance(probability))
            }
            Operation::RandAugment { operations, magnitude } => {
                let is_allowed = (1..=100).contains(&operations) && magnitude < RAND_BINS;
                (!is_allowed).then(|| {
                    format!(
                        "{operations} operations of magnitude {magnitude}: allowed are 1 to 100, of less \
                         than {RAND_BINS}"
                    )
                })
            }
            Operation::TrivialAugmentWide | Operation::AutoAugment { .. } => None,
            Operation::RandomErasing { probability, scale, ratio } => range("scale", scale, 1.0)
                .or_else(|| range("ratio", ratio, 1000.0))
                .or_else(|| chance(probability)),
        }
    }
}
