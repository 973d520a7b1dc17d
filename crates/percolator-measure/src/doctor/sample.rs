//! What some of the records are, evenly spread over the source.

use std::num::NonZeroUsize;
use std::thread;

use percolator::ColorMode;
use percolator::batch::ImageShape;
use percolator::decoder::ImageFileDecoder;
use percolator::record::{Datum, Pixels};
use percolator::source::{Source, SourceError};

use crate::error::MeasureError;

/// A record's image, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) position: u64,
    pub(super) label: i32,
    pub(super) is_encoded: bool,
    pub(super) shape: ImageShape,
    /// Of each channel.
    pub(super) channels: Vec<Moments>,
}

/// How many pixels there are, their sum, and that of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(super) fn of(pixels: impl Iterator<Item = f64>) -> Self {
        pixels.fold(Self::default(), |Moments { count, sum, squares }, pixel| Moments {
            count: count + 1.0,
            sum: sum + pixel,
            squares: squares + pixel * pixel,
        })
    }

    pub(super) fn and(self, other: Self) -> Self {
        Moments {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    pub(super) fn mean(self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    pub(super) fn deviation(self) -> f64 {
        (self.squares / self.count.max(1.0) - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

/// The records that were looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// In key order.
    pub(super) good: Vec<Sample>,
    /// Those without an image that can be decoded, and why.
    pub(super) bad: Vec<(u64, String)>,
}

/// Looks at up to so many records: evenly spread if the source is seekable, otherwise the first ones.
pub(super) fn samples(
    source: &dyn Source,
    color: ColorMode,
    most: usize,
    threads: usize,
) -> Result<Samples, MeasureError> {
    let positions = positions(source, most as u64);
    let each = positions.len().div_ceil(threads.max(1)).max(1);
    let parts: Vec<Result<Samples, SourceError>> = if source.is_seekable() {
        thread::scope(|scope| {
            let look = |part| scope.spawn(move || look(source, color, part));
            let looking: Vec<_> = positions.chunks(each).map(look).collect();
            let joined = looking.into_iter().map(|part| part.join());
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    } else {
        vec![look(source, color, &positions)]
    };
    let mut all = Samples::default();
    for part in parts {
        let part = part?;
        all.good.extend(part.good);
        all.bad.extend(part.bad);
    }
    Ok(all)
}

fn positions(source: &dyn Source, most: u64) -> Vec<u64> {
    match source.records().filter(|_| source.is_seekable()) {
        Some(records) => {
            let samples = most.min(records);
            let spread = |sample| u128::from(sample) * u128::from(records) / u128::from(samples.max(1));
            (0..samples).map(|sample| u64::try_from(spread(sample)).unwrap_or(u64::MAX)).collect()
        }
        None => (0..most).collect(),
    }
}

/// Looks at the records at these positions, which ascend.
fn look(source: &dyn Source, color: ColorMode, positions: &[u64]) -> Result<Samples, SourceError> {
    let mut decoder = ImageFileDecoder::new(color);
    let mut cursor = source.cursor()?;
    let (mut samples, mut next) = (Samples::default(), 0);
    for &position in positions {
        if position != next {
            cursor.seek(position)?;
        }
        next = position + 1;
        let Some(entry) = cursor.advance()? else { break };
        match sample(&mut decoder, position, entry.value()) {
            Ok(sample) => samples.good.push(sample),
            Err(reason) => samples.bad.push((position, reason)),
        }
    }
    Ok(samples)
}

fn sample(decoder: &mut ImageFileDecoder, position: u64, value: &[u8]) -> Result<Sample, String> {
    let datum = Datum::parse(value).map_err(|error| error.to_string())?;
    let image = decoder.image(&datum).map_err(|error| error.to_string())?;
    let plane = NonZeroUsize::new(image.shape.height * image.shape.width).map_or(1, NonZeroUsize::get);
    let channels = match image.pixels {
        Pixels::U8(bytes) => {
            bytes.chunks(plane).map(|plane| Moments::of(plane.iter().map(|&byte| f64::from(byte)))).collect()
        }
        Pixels::F32(floats) => {
            let mut gathered = Vec::new();
            floats.gather(&mut gathered);
            let of = |plane: &[f32]| Moments::of(plane.iter().map(|&pixel| f64::from(pixel)));
            gathered.chunks(plane).map(of).collect()
        }
    };
    let (label, is_encoded, shape) = (datum.label, datum.encoded, image.shape);
    Ok(Sample { position, label, is_encoded, shape, channels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_all_pixels() {
        let [one, other] = [[1.0, 2.0], [3.0, 6.0]].map(|pixels| Moments::of(pixels.into_iter()));
        let both = one.and(other);
        assert_eq!((both.mean(), both.deviation()), (3.0, 3.5_f64.sqrt()));
        assert_eq!(Moments::default().mean(), 0.0);
    }
}
