//! What some of the records are, evenly spread over the source.

use std::num::NonZeroUsize;

use percolator::Progress;
use percolator::batch::ImageShape;
use percolator::decoder::{ImageFileDecoder, RecordCause, image_of};
use percolator::record::{Datum, Image, Pixels};
use percolator::source::{IndexPlace, Source, SourceError};
use percolator::transform::DecodeError;
use percolator_files::parallel::map;
use percolator_messages::PixelOrder;

use crate::error::MeasureError;
use crate::job::{Job, Records};

/// A record's image, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) label: i32,
    pub(super) shape: ImageShape,
    /// Pixels are from 0 to 255, and not floats.
    pub(super) is_bytes: bool,
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

impl Sample {
    fn of(label: i32, image: Image<'_>) -> Self {
        let shape = image.shape;
        let (is_bytes, channels) = match image.pixels {
            Pixels::U8(bytes) => (true, of_planes(bytes, shape, f64::from)),
            Pixels::F32(floats) => {
                let mut gathered = Vec::new();
                floats.gather(&mut gathered);
                (false, of_planes(&gathered, shape, f64::from))
            }
        };
        Sample { label, shape, is_bytes, channels }
    }
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
    /// Runs of neighbours, in key order.
    pub(super) runs: Vec<Vec<Sample>>,
    /// Those without an image that can be decoded, and why.
    pub(super) bad: Vec<(u64, String)>,
    /// In which order the pixels of raw images lie.
    pub(super) order: PixelOrder,
    /// The runs are spread over the whole source, or are all of it.
    pub(super) is_spread: bool,
}

impl Samples {
    pub(super) fn good(&self) -> impl Iterator<Item = &Sample> {
        self.runs.iter().flatten()
    }

    pub(super) fn looked_at(&self) -> usize {
        self.good().count() + self.bad.len()
    }
}

/// The records of a run: neighbours tell whether labels lie together, runs whether they do so everywhere.
const RUN: u64 = 16;

/// Looks at up to so many records: runs that are evenly spread if the source finds records by position, and
/// otherwise the first ones.
pub(super) fn samples(
    source: &dyn Source,
    place: &IndexPlace,
    job: &Job,
    most: u64,
    progress: &Progress,
) -> Result<Samples, MeasureError> {
    // A feed that shuffles needs the same index. A source that cannot have one, such as compressed files, is
    // read from its front; other faults show there.
    let _ = source.index(place);
    let records = source.records();
    let is_spread = source.is_seekable() && records.is_some();
    let starts = starts(if is_spread { records } else { None }, most);
    let each = starts.len().div_ceil(job.threads().max(1)).max(1);
    let parts = match is_spread {
        true => map("samples", job.threads(), starts.chunks(each), |part| look(source, job, part, progress)),
        false => vec![look(source, job, &starts, progress)],
    };
    if progress.is_stopped() {
        return Err(MeasureError::Stopped);
    }
    let mut all = Samples { is_spread, ..Samples::default() };
    for part in parts {
        let part = part?;
        all.runs.extend(part.runs);
        all.bad.extend(part.bad);
        all.order = all.order.and(part.order);
    }
    Ok(all)
}

/// Where the runs start, and how many records each has.
fn starts(records: Option<u64>, most: u64) -> Vec<(u64, u64)> {
    let sampled = records.map_or(most, |records| most.min(records));
    let runs = sampled.div_ceil(RUN);
    let start = |run: u64| match records {
        Some(records) => {
            let spread = u128::from(run) * u128::from(records - sampled) / u128::from(runs.max(2) - 1);
            run * RUN + u64::try_from(spread).unwrap_or(u64::MAX)
        }
        None => run * RUN,
    };
    (0..runs).map(|run| (start(run), RUN.min(sampled - run * RUN))).collect()
}

/// Looks at these runs, which ascend, until it is to stop.
fn look(
    source: &dyn Source,
    job: &Job,
    runs: &[(u64, u64)],
    progress: &Progress,
) -> Result<Samples, SourceError> {
    let mut decoder = ImageFileDecoder::new(job.color);
    let mut cursor = source.cursor()?;
    let (mut samples, mut next) = (Samples::default(), 0);
    for &(start, records) in runs {
        if start != next {
            cursor.seek(start)?;
        }
        next = start + records;
        let mut run = Vec::new();
        for position in start..next {
            if progress.is_stopped() {
                return Ok(samples);
            }
            let Some(entry) = cursor.advance()? else { break };
            match sample(&mut decoder, &job.records, entry.value(), &mut samples.order) {
                Ok(sample) => run.push(sample),
                Err(cause) => samples.bad.push((position, cause.to_string())),
            }
        }
        samples.runs.push(run);
    }
    Ok(samples)
}

fn sample(
    decoder: &mut ImageFileDecoder,
    records: &Records,
    value: &[u8],
    order: &mut PixelOrder,
) -> Result<Sample, RecordCause> {
    let (datum, is_interleaved) = match records {
        Records::Examples(image) => (image.datum(value)?, image.is_interleaved()),
        _ => (Datum::parse(value)?, false),
    };
    if let (false, Ok(Image { shape, pixels: Pixels::U8(bytes) })) = (datum.encoded, datum.image()) {
        order.add(shape, bytes);
    }
    let image = image_of(&datum, decoder)?;
    match image {
        image if !is_interleaved => Ok(Sample::of(datum.label, image)),
        Image { shape, pixels: Pixels::U8(bytes) } => {
            let of = |channel| bytes.iter().skip(channel).step_by(shape.channels);
            let moments = |channel| Moments::of(of(channel).map(|&byte| f64::from(byte)));
            let channels = (0..shape.channels).map(moments).collect();
            Ok(Sample { label: datum.label, shape, is_bytes: true, channels })
        }
        // The decoder refuses them, so they are no image of the feed's.
        Image { pixels: Pixels::F32(_), .. } => Err(DecodeError::InterleavedFloats.into()),
    }
}

/// The moments of each channel of an image whose channels lie one after the other.
fn of_planes<T: Copy>(pixels: &[T], shape: ImageShape, level: impl Fn(T) -> f64) -> Vec<Moments> {
    let plane = NonZeroUsize::new(shape.height * shape.width).map_or(1, NonZeroUsize::get);
    pixels.chunks(plane).map(|plane| Moments::of(plane.iter().map(|&pixel| level(pixel)))).collect()
}

#[cfg(test)]
mod tests {
    use percolator::ColorMode;
    use percolator::example::{ExampleImage, ExampleWriter, ImageShapeFrom};

    use super::*;

    #[test]
    fn floats_with_their_channels_side_by_side_are_bad_as_they_are_to_the_decoder() {
        let shape = ImageShapeFrom::Fixed(ImageShape { channels: 3, height: 1, width: 2 });
        let mut example = ExampleWriter::new();
        example.floats("image", [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        let sample_of = |image: &ExampleImage| {
            let mut decoder = ImageFileDecoder::new(ColorMode::default());
            let records = Records::Examples(image.clone());
            sample(&mut decoder, &records, &example.to_bytes(), &mut PixelOrder::default())
        };
        let planes = sample_of(&ExampleImage::raw("image", shape.clone())).unwrap();
        assert_eq!(planes.channels.len(), 3);
        let reason = sample_of(&ExampleImage::interleaved("image", shape)).unwrap_err();
        assert_eq!(reason, DecodeError::InterleavedFloats.into());
    }

    #[test]
    fn moments_are_those_of_all_pixels() {
        let [one, other] = [[1.0, 2.0], [3.0, 6.0]].map(|pixels| Moments::of(pixels.into_iter()));
        let both = one.and(other);
        assert_eq!((both.mean(), both.deviation()), (3.0, 3.5_f64.sqrt()));
        assert_eq!(Moments::default().mean(), 0.0);
    }

    #[test]
    fn runs_are_spread_from_the_first_record_to_the_last() {
        assert_eq!(starts(Some(1000), 32), [(0, 16), (984, 16)]);
        assert_eq!(starts(Some(1000), 48), [(0, 16), (492, 16), (984, 16)]);
        assert_eq!(starts(Some(40), 512), [(0, 16), (16, 16), (32, 8)]);
        assert_eq!(starts(Some(5), 512), [(0, 5)]);
        assert_eq!(starts(Some(0), 512), []);
        assert_eq!(starts(None, 20), [(0, 16), (16, 4)]);
        for records in 1..300 {
            for most in 1..100 {
                let runs = starts(Some(records), most);
                let sampled: u64 = runs.iter().map(|(_, records)| records).sum();
                assert_eq!(sampled, records.min(most));
                let is_apart = runs.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
                assert!(is_apart && runs.iter().all(|(start, of_it)| start + of_it <= records), "{runs:?}");
            }
        }
    }
}
