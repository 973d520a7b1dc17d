//! The scan of the images: decoded on all threads, and added up exactly or in order.

use std::num::NonZeroUsize;

use percolator::batch::ImageShape;
use percolator::decoder::{DecodeFailure, ImageFileDecoder, RecordCause};
use percolator::record::Pixels;

use super::sums::{Decoded, EXACT_MAX, Exact, Running};
use super::{ChannelMean, Mean, MeanError, MeanOptions};
use crate::content::{Picture, Values};
use crate::open::DataSet;
use crate::scan::{Progress, Scan, ScanError, Seen};

pub(super) struct Work<'a> {
    pub(super) data: &'a DataSet,
    pub(super) options: &'a MeanOptions,
    pub(super) values: Values,
    /// The shape of the first image, which all others must have.
    pub(super) first: ImageShape,
}

/// What became of a record, unless it is an error.
enum Added {
    Bytes,
    /// It holds floats, so the sums of bytes are of no use.
    Floats,
    Image(Decoded),
}

impl Work<'_> {
    /// Sums bytes exactly, on each thread for itself; `None` if there are floats.
    pub(super) fn exact(&self, progress: &Progress) -> Result<Option<Mean>, MeanError> {
        let start = || (decoder(self.options), Exact::default());
        let add = |(decoder, sums): &mut (ImageFileDecoder, Exact), seen: Seen<'_>| {
            self.with_image(decoder, seen, |image| match image.pixels {
                Pixels::U8(bytes) => {
                    sums.add(image.shape, bytes, !self.options.only_channels);
                    Added::Bytes
                }
                Pixels::F32(_) => Added::Floats,
            })
        };
        let mut records = 0;
        let scanned = self.scan().run(self.data, progress, start, add, |event| {
            match event.done()?.map_err(Ended::Failed)? {
                Added::Floats => return Err(Ended::Floats),
                _ => records += 1,
            }
            Ok(())
        });
        let states = match scanned {
            Err(Ended::Floats) => return Ok(None),
            Err(Ended::Failed(error)) => return Err(error),
            Ok(states) => states,
        };
        let sums = states.into_iter().map(|(_, sums)| sums).fold(Exact::default(), Exact::merge);
        let beyond_caffe = sums.elements.iter().filter(|&&sum| sum > EXACT_MAX).count();
        let pixels = sums.elements.iter().map(|&sum| quotient(sum, records)).collect();
        let channels = sums.channels.into_iter().map(|channel| channel.moments());
        Ok(Some(self.mean(records, pixels, channels, true, beyond_caffe)))
    }

    /// Sums as Caffe does.
    pub(super) fn running(&self, progress: &Progress) -> Result<Mean, MeanError> {
        let start = || decoder(self.options);
        let with_elements = !self.options.only_channels;
        let add = |decoder: &mut ImageFileDecoder, seen: Seen<'_>| {
            self.with_image(decoder, seen, |image| Added::Image(Decoded::new(&image, with_elements)))
        };
        let (mut records, mut are_bytes, mut sums) = (0u64, true, Running::default());
        let at_once = if with_elements { decoded_at_once(self.first) } else { None };
        Scan { at_once, ..self.scan() }.run(self.data, progress, start, add, |event| {
            if let Added::Image(image) = event.done()?? {
                sums.add(&image);
                are_bytes &= image.are_bytes;
                records += 1;
            }
            Ok::<_, MeanError>(())
        })?;
        // As in Caffe: the count, an int, becomes a float.
        #[expect(clippy::cast_precision_loss, reason = "Caffe loses it, too")]
        let count = records as f32;
        let pixels = sums.elements.iter().map(|sum| sum / count).collect();
        let channels = sums.channels.into_iter().map(|channel| channel.moments());
        Ok(self.mean(records, pixels, channels, are_bytes, 0))
    }

    fn mean(
        &self,
        records: u64,
        pixels: Vec<f32>,
        channels: impl Iterator<Item = (f64, f64)>,
        are_bytes: bool,
        beyond_caffe: usize,
    ) -> Mean {
        let channels = channels.map(|(mean, std)| ChannelMean { mean, std }).collect();
        let shape = (!self.options.only_channels).then_some(self.first);
        Mean { records, shape, pixels, channels, are_bytes, beyond_caffe }
    }

    fn scan(&self) -> Scan {
        Scan { threads: self.options.threads, ..Scan::default() }
    }

    /// Decodes a record's image, checks its shape, and gives it to `use_it`.
    fn with_image(
        &self,
        decoder: &mut ImageFileDecoder,
        seen: Seen<'_>,
        use_it: impl FnOnce(percolator::record::Image<'_>) -> Added,
    ) -> Result<Added, MeanError> {
        let failed = |cause: RecordCause| self.wrong(seen, cause);
        let picture = picture_of(&self.values, seen.value).map_err(failed)?;
        let image = picture.decode(decoder).map_err(failed)?;
        let (found, first) = (image.shape, self.first);
        let fits = if self.options.only_channels { found.channels == first.channels } else { found == first };
        if !fits {
            let need = if found.channels == first.channels {
                "a mean image needs one size: resize them, or compute the channels' values only"
            } else {
                "all images must have as many channels: decode them to color, or to gray"
            };
            return Err(self.wrong(seen, format!("the image is {found}, and the first is {first}; {need}")));
        }
        Ok(use_it(image))
    }

    fn wrong(&self, seen: Seen<'_>, message: impl ToString) -> MeanError {
        MeanError::record(self.data.path(), seen.number, seen.key, message)
    }
}

/// How many decoded images a worker makes at once. They wait for their turn to be added, twice as many for
/// each thread.
fn decoded_at_once(shape: ImageShape) -> Option<NonZeroUsize> {
    /// The bytes that wait together, unless one image has more.
    const BYTES: usize = 8 << 20;

    let bytes = (shape.channels * shape.height * shape.width).saturating_mul(size_of::<f32>());
    NonZeroUsize::new((BYTES / bytes.max(1)).max(1))
}

/// Why a scan ended early.
enum Ended {
    Floats,
    Failed(MeanError),
}

impl From<ScanError> for Ended {
    fn from(error: ScanError) -> Self {
        Ended::Failed(error.into())
    }
}

fn decoder(options: &MeanOptions) -> ImageFileDecoder {
    let decoder = ImageFileDecoder::new(options.color);
    match options.resize {
        Some((height, width)) => decoder.resize(height, width),
        None => decoder,
    }
}

/// Decodes the first image.
pub(super) fn first_image(
    data: &DataSet,
    values: &Values,
    options: &MeanOptions,
) -> Result<ImageShape, MeanError> {
    for source in data.sources() {
        let mut cursor = source.cursor().map_err(ScanError::from)?;
        let Some(entry) = cursor.advance().map_err(ScanError::from)? else { continue };
        let failed = |cause: RecordCause| MeanError::record(data.path(), 0, entry.key(), cause);
        let picture = picture_of(values, entry.value()).map_err(failed)?;
        return Ok(picture.decode(&mut decoder(options)).map_err(failed)?.shape);
    }
    Err(MeanError::Empty { path: data.path().to_owned() })
}

/// The image of a record.
fn picture_of<'a>(values: &'a Values, value: &'a [u8]) -> Result<Picture<'a>, RecordCause> {
    const NONE: &str = "there is no image in it; a mean needs Caffe's Datums, or tf.train.Examples or named \
                        parts with one JPEG or PNG file";
    values.parts(value)?.picture.ok_or_else(|| DecodeFailure::new(NONE).into_cause())
}

/// A sum divided by a count, rounded once. Caffe divides two floats; if both are exact, the result is the
/// same, because an f64 has more than twice an f32's digits, and two more.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "sums are below 2^53, and the result is an f32"
)]
fn quotient(sum: u64, count: u64) -> f32 {
    (sum as f64 / count as f64) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_large_images_wait_together() {
        let at_once = |side| decoded_at_once(ImageShape { channels: 3, height: side, width: side }).unwrap();
        assert_eq!(at_once(256).get(), 10);
        assert_eq!(at_once(20_000).get(), 1);
        assert!(at_once(1).get() > 64);
    }

    proptest! {
        #[test]
        fn dividing_rounds_as_caffe_does(sum in 0u64..=EXACT_MAX, count in 1u64..=EXACT_MAX) {
            prop_assert_eq!(quotient(sum, count).to_bits(), (sum as f32 / count as f32).to_bits());
        }
    }
}
