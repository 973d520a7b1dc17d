//! In which order the pixels of a raw image are stored, judged by how smooth it is.

use percolator_image::ImageShape;

/// How much smoother an image must be in the other order to count as one of it.
const SMOOTHER: f64 = 0.7;
/// The least difference of neighbours, in levels of 255: flat images say nothing about the order.
const DIFFERENCE_MIN: f64 = 1.0;
/// The fewest images that tell, and the part of them that must agree.
const IMAGES_MIN: u32 = 16;
const AGREE: f64 = 0.9;

/// In which order the raw images of a data set are stored: channel by channel, as in a Datum, or with the
/// channels of a pixel side by side, as an image's `tobytes` stores them.
///
/// In its own order, an image's neighbours are similar. The row below in one order is elsewhere in the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct PixelOrder {
    /// Images that show their order, and those of them whose channels seem to be side by side.
    told: u32,
    interleaved: u32,
}

impl PixelOrder {
    /// Inspects the bytes of an image of 3 or 4 channels; others say nothing about the order.
    #[expect(clippy::cast_precision_loss, reason = "a mean of differences of bytes")]
    pub fn add(&mut self, shape: ImageShape, bytes: &[u8]) {
        let ImageShape { channels, height, width } = shape;
        if !(3..=4).contains(&channels) || height < 8 || width < 8 || bytes.len() != channels * height * width
        {
            return;
        }
        // The mean difference of bytes that are this far apart.
        let difference = |apart: usize| {
            let pairs = bytes.iter().zip(&bytes[apart..]);
            let count = bytes.len() - apart;
            let sum: u64 = pairs.map(|(one, other)| u64::from(one.abs_diff(*other))).sum();
            sum as f64 / count as f64
        };
        let planes = difference(1) + difference(width);
        let interleaved = difference(channels) + difference(channels * width);
        if planes.max(interleaved) < DIFFERENCE_MIN {
            return;
        }
        let is_told = planes.min(interleaved) < SMOOTHER * planes.max(interleaved);
        self.told += u32::from(is_told);
        self.interleaved += u32::from(is_told && interleaved < planes);
    }

    /// The sum of both observations.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        PixelOrder { told: self.told + other.told, interleaved: self.interleaved + other.interleaved }
    }

    /// Whether the images are stored with their channels side by side, judged by nearly all that show their
    /// order.
    #[must_use]
    pub fn is_interleaved(&self) -> bool {
        self.agree(self.interleaved)
    }

    /// Whether the images are stored channel by channel, judged by nearly all that show their order.
    #[must_use]
    pub fn is_planar(&self) -> bool {
        self.agree(self.told - self.interleaved)
    }

    fn agree(&self, images: u32) -> bool {
        self.told >= IMAGES_MIN && f64::from(images) >= AGREE * f64::from(self.told)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]
mod tests {
    use super::*;

    const SHAPE: ImageShape = ImageShape { channels: 3, height: 24, width: 20 };

    /// A soft picture, or noise.
    fn picture(seed: u64, is_soft: bool, order: impl Fn(usize, usize, usize) -> usize) -> Vec<u8> {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 40
        };
        let slopes: Vec<f64> = (0..6).map(|_| (random() % 900) as f64 / 100.0 - 4.5).collect();
        let mut bytes = vec![0; 3 * 24 * 20];
        for channel in 0..3 {
            for y in 0..24 {
                for x in 0..20 {
                    let soft = 120.0 + slopes[channel] * y as f64 + slopes[3 + channel] * x as f64;
                    let value = if is_soft { soft.clamp(0.0, 255.0) as u8 } else { random() as u8 };
                    bytes[order(channel, y, x)] = value;
                }
            }
        }
        bytes
    }

    #[test]
    fn the_order_is_told_by_smooth_images_alone() {
        let planes = |channel, y, x| (channel * 24 + y) * 20 + x;
        let interleaved = |channel, y, x| (y * 20 + x) * 3 + channel;
        let told = |is_soft: bool, order: &dyn Fn(usize, usize, usize) -> usize| {
            let mut told = PixelOrder::default();
            (0..40).for_each(|seed| told.add(SHAPE, &picture(seed, is_soft, order)));
            (told.is_interleaved(), told.is_planar())
        };
        assert_eq!(told(true, &interleaved), (true, false));
        assert_eq!(told(true, &planes), (false, true));
        assert_eq!([told(false, &interleaved), told(false, &planes)], [(false, false); 2]);
        // Grey images, flat ones, and too few tell nothing.
        let mut grey = PixelOrder::default();
        (0..40).for_each(|_| grey.add(SHAPE, &[7; 3 * 24 * 20]));
        (0..15).for_each(|seed| grey.add(SHAPE, &picture(seed, true, interleaved)));
        assert!(!grey.is_interleaved());
        let mut one = PixelOrder::default();
        one.add(SHAPE, &picture(15, true, interleaved));
        assert!(grey.and(one).is_interleaved());
    }
}
