//! Sums over images: exact ones, which any thread may add up in any order, and Caffe's.

use percolator::batch::ImageShape;
use percolator::record::{Image, Pixels};

/// Up to here, every whole number is an f32. Caffe sums bytes in f32, so its sums are exact as long as they
/// are no greater.
pub(super) const EXACT_MAX: u64 = 1 << 24;

/// Sums of bytes, which are exact. Nothing overflows: there are fewer than 2^48 images.
#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    /// Of each element of the image; empty if only channels are wanted.
    pub(super) elements: Vec<u64>,
    pub(super) channels: Vec<Squares>,
}

/// What a channel's mean and standard deviation are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Squares {
    count: u64,
    sum: u64,
    squares: u128,
}

impl Exact {
    /// Adds an image of bytes.
    pub(super) fn add(&mut self, shape: ImageShape, bytes: &[u8], with_elements: bool) {
        if with_elements {
            self.elements.resize(bytes.len(), 0);
            for (sum, &byte) in self.elements.iter_mut().zip(bytes) {
                *sum += u64::from(byte);
            }
        }
        self.channels.resize(shape.channels, Squares::default());
        let plane = shape.height * shape.width;
        for (channel, plane) in self.channels.iter_mut().zip(bytes.chunks_exact(plane)) {
            channel.add(plane);
        }
    }

    /// Adds what another thread summed up.
    pub(super) fn merge(mut self, other: Exact) -> Exact {
        if self.channels.is_empty() {
            return other;
        }
        self.elements.iter_mut().zip(&other.elements).for_each(|(sum, more)| *sum += more);
        for (channel, more) in self.channels.iter_mut().zip(&other.channels) {
            channel.count += more.count;
            channel.sum += more.sum;
            channel.squares += more.squares;
        }
        self
    }
}

impl Squares {
    fn add(&mut self, bytes: &[u8]) {
        /// The most bytes whose squares fit 32 bits.
        const RUN: usize = (u32::MAX / (255 * 255)) as usize;
        for run in bytes.chunks(RUN) {
            let sum: u32 = run.iter().map(|&byte| u32::from(byte)).sum();
            let squares: u32 = run.iter().map(|&byte| u32::from(byte) * u32::from(byte)).sum();
            self.sum += u64::from(sum);
            self.squares += u128::from(squares);
        }
        self.count += bytes.len() as u64;
    }

    /// The mean, and the standard deviation of the whole population.
    #[expect(clippy::cast_precision_loss, reason = "the numbers are exact up to here")]
    pub(super) fn moments(self) -> (f64, f64) {
        let count = u128::from(self.count.max(1));
        let sum = u128::from(self.sum);
        // Exact: n * squares - sum^2 is never negative, and stays below 2^128 for fewer than 2^56 elements.
        let spread = count * self.squares - sum * sum;
        (self.sum as f64 / count as f64, (spread as f64).sqrt() / count as f64)
    }
}

/// Caffe's sums: f32, image after image in the order of the keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    pub(super) elements: Vec<f32>,
    pub(super) channels: Vec<Spread>,
}

/// A channel's mean and the sum of squared distances from it, by Chan's rule for the parts of a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    count: f64,
    mean: f64,
    distances: f64,
}

impl Running {
    pub(super) fn add(&mut self, image: &Decoded) {
        if let Some(values) = &image.values {
            let values = values.iter();
            match self.elements.is_empty() {
                // Caffe begins with zeros; 0 + x is x, but for a negative zero.
                true => self.elements = values.map(|value| 0.0 + value).collect(),
                false => self.elements.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            }
        }
        self.channels.resize(image.channels.len(), Spread::default());
        for (channel, more) in self.channels.iter_mut().zip(&image.channels) {
            channel.merge(more);
        }
    }
}

impl Spread {
    #[expect(clippy::cast_precision_loss, reason = "an image has fewer than 2^31 elements")]
    fn of(values: &[f32]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
        let distances = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum();
        Spread { count, mean, distances }
    }

    fn merge(&mut self, other: &Spread) {
        let count = self.count + other.count;
        let between = other.mean - self.mean;
        self.mean += between * (other.count / count);
        self.distances += other.distances + between * between * (self.count * other.count / count);
        self.count = count;
    }

    pub(super) fn moments(self) -> (f64, f64) {
        (self.mean, (self.distances / self.count).sqrt())
    }
}

/// A decoded image on its way to the sums.
#[derive(Clone, Debug)]
pub(super) struct Decoded {
    /// Its elements; `None` if only channels are wanted.
    values: Option<Vec<f32>>,
    channels: Vec<Spread>,
    pub(super) are_bytes: bool,
}

impl Decoded {
    pub(super) fn new(image: &Image<'_>, with_elements: bool) -> Self {
        let values: Vec<f32> = match image.pixels {
            Pixels::U8(bytes) => bytes.iter().map(|&byte| f32::from(byte)).collect(),
            Pixels::F32(floats) => {
                let mut gathered = Vec::with_capacity(floats.len());
                floats.gather(&mut gathered);
                gathered
            }
        };
        let plane = image.shape.height * image.shape.width;
        let channels = values.chunks_exact(plane).map(Spread::of).collect();
        let are_bytes = matches!(image.pixels, Pixels::U8(_));
        Decoded { values: with_elements.then_some(values), channels, are_bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(channels: usize, width: usize) -> ImageShape {
        ImageShape { channels, height: 1, width }
    }

    fn naive(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, (squares / values.len() as f64).sqrt())
    }

    fn images() -> impl Strategy<Value = (usize, Vec<Vec<u8>>)> {
        (1usize..4, 1usize..20).prop_flat_map(|(channels, width)| {
            let image = proptest::collection::vec(any::<u8>(), channels * width);
            (Just(channels), proptest::collection::vec(image, 1..20))
        })
    }

    proptest! {
        #[test]
        fn all_ways_to_sum_agree((channels, images) in images(), cut in 0usize..20) {
            let shape = shape(channels, images[0].len() / channels);
            let add = |mut sums: Exact, image: &Vec<u8>| { sums.add(shape, image, true); sums };
            let (one, other) = images.split_at(cut.min(images.len()));
            let exact = one.iter().fold(Exact::default(), add);
            let exact = exact.merge(other.iter().fold(Exact::default(), add));
            let mut running = Running::default();
            for image in &images {
                running.add(&Decoded::new(&Image { shape, pixels: Pixels::U8(image) }, true));
            }
            for place in 0..images[0].len() {
                let sum: u64 = images.iter().map(|image| u64::from(image[place])).sum();
                prop_assert_eq!(exact.elements[place], sum);
                prop_assert_eq!(running.elements[place], sum as f32);
            }
            for channel in 0..channels {
                let width = shape.width;
                let values: Vec<f64> = images
                    .iter()
                    .flat_map(|image| &image[channel * width..(channel + 1) * width])
                    .map(|&byte| f64::from(byte))
                    .collect();
                let wanted = naive(&values);
                for found in [exact.channels[channel].moments(), running.channels[channel].moments()] {
                    prop_assert!((found.0 - wanted.0).abs() < 1e-9, "{:?} {:?}", found, wanted);
                    prop_assert!((found.1 - wanted.1).abs() < 1e-6, "{:?} {:?}", found, wanted);
                }
            }
        }
    }
}
