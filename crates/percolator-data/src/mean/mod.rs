//! The mean image of a data set, and the mean and the standard deviation of each channel.
//!
//! Caffe's `compute_image_mean` adds images in the order of their keys, in f32, and divides by their count.
//! Sums of bytes are whole numbers, so Caffe's are exact up to 2^24 (65,793 images, all white): any order
//! gives the same bits. [`mean`] sums bytes exactly, on all threads, and so has Caffe's bits up to there.
//! Beyond, Caffe's sums round, and these do not; [`Sums::Caffe`] adds as Caffe does. Floats have no exact
//! sums, and are always added as Caffe does: decoded on all threads, added in order.

mod sums;

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use percolator::batch::{ImageShape, RecordCause};
use percolator::decoder::ImageFileDecoder;
use percolator::proto::BlobProto;
use percolator::record::{Key, Pixels};
use percolator::{ColorMode, shown, whole_file};
use prost::Message as _;
use serde::Serialize;

use self::sums::{Decoded, EXACT_MAX, Exact, Running};
use crate::content::Content;
use crate::open::DataSet;
use crate::scan::{Event, Progress, Scan, ScanError, Seen};

/// How bytes are summed up. Floats are always summed as Caffe does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sums {
    /// As whole numbers, which are exact.
    #[default]
    Exact,
    /// As Caffe does: in f32, in the order of the keys, rounded beyond 2^24.
    Caffe,
}

/// What is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanOptions {
    /// Resizes each image first, to so many rows and columns.
    pub resize: Option<(usize, usize)>,
    /// What values are; by default what [most records](Content::of) are.
    pub content: Option<Content>,
    /// The channels that encoded images are decoded to.
    pub color: ColorMode,
    /// How bytes are summed up.
    pub sums: Sums,
    /// Computes only the channels' values, for which images may differ in height and width.
    pub only_channels: bool,
    /// How many threads work; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
}

/// The mean of a data set's images.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Mean {
    /// The number of images.
    pub records: u64,
    /// Channels, rows and columns of the mean image; `None` if only channels were wanted.
    #[serde(skip)]
    pub shape: Option<ImageShape>,
    /// The mean image, in the order channel, row, column; empty if only channels were wanted.
    #[serde(skip)]
    pub pixels: Vec<f32>,
    /// Each channel's values, in the order of the records' channels: blue, green, red if they were decoded.
    pub channels: Vec<ChannelMean>,
    /// How many elements' sums are beyond 2^24, where Caffe's own would be rounded, and these are not.
    pub beyond_caffe: usize,
}

/// The values of one channel over all pixels of all images.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChannelMean {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of the whole population.
    pub std: f64,
}

/// Why there is no mean.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum MeanError {
    /// The data set cannot be scanned.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A record has no image, or one that cannot be decoded.
    #[error("{}: record {number}, key {key}: {cause}", shown::path(path))]
    Record {
        /// The data set.
        path: std::path::PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// What is wrong with it.
        cause: Box<RecordCause>,
    },
    /// A record has no image.
    #[error(
        "{}: record {number}, key {key}: there is no image in it; a mean needs Caffe's Datums, or \
         tf.train.Examples with a feature image/encoded",
        shown::path(path)
    )]
    NoImage {
        /// The data set.
        path: std::path::PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
    },
    /// A record's shape is not the first one's.
    #[error(
        "{}: record {number}, key {key}: the image is {found}, and the first is {first}; {}",
        shown::path(path),
        if found.channels == first.channels {
            "a mean image needs one size: resize them, or compute the channels' values only"
        } else {
            "all images must have as many channels: decode them to color, or to gray"
        }
    )]
    Shape {
        /// The data set.
        path: std::path::PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// Its shape.
        found: ImageShape,
        /// The first record's.
        first: ImageShape,
    },
    /// There is no record.
    #[error("{}: there is no record, so there is no mean", shown::path(path))]
    Empty {
        /// The data set.
        path: std::path::PathBuf,
    },
    /// The mean image would be larger than a `BlobProto` of Caffe can be.
    #[error("a mean image of {shape} does not fit Caffe's BlobProto")]
    TooLarge {
        /// Its shape.
        shape: ImageShape,
    },
    /// The file cannot be written.
    #[error("{}: cannot write the mean: {error}", shown::path(path))]
    Write {
        /// The file.
        path: std::path::PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Computes the mean of a data set's images.
///
/// ```no_run
/// use percolator_data::DataSet;
/// use percolator_data::mean::{MeanOptions, mean};
/// use percolator_data::scan::Progress;
///
/// let data = DataSet::open("train_lmdb")?;
/// let mean = mean(&data, &MeanOptions::default(), &Progress::new())?;
/// mean.save("mean.binaryproto")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`MeanError`].
pub fn mean(data: &DataSet, options: &MeanOptions, progress: &Progress) -> Result<Mean, MeanError> {
    let content = Content::find(data, options.content, progress)?;
    let work = Work { data, options, content, first: first_image(data, content, options)? };
    match options.sums {
        Sums::Exact => match work.exact(progress)? {
            Some(mean) => Ok(mean),
            // There are floats among the records.
            None => work.running(progress),
        },
        Sums::Caffe => work.running(progress),
    }
}

struct Work<'a> {
    data: &'a DataSet,
    options: &'a MeanOptions,
    content: Content,
    /// The shape of the first image, which all others must have.
    first: ImageShape,
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
    fn exact(&self, progress: &Progress) -> Result<Option<Mean>, MeanError> {
        struct State {
            decoder: ImageFileDecoder,
            sums: Exact,
        }
        let start = || State { decoder: decoder(self.options), sums: Exact::default() };
        let add = |State { decoder, sums }: &mut State, seen: Seen<'_>| {
            self.with_image(decoder, seen, |image| match image.pixels {
                Pixels::U8(bytes) => {
                    sums.add(image.shape, bytes, !self.options.only_channels);
                    Added::Bytes
                }
                Pixels::F32(_) => Added::Floats,
            })
        };
        let (mut records, mut has_floats) = (0, false);
        let scanned = self.scan().run(self.data, progress, start, add, |event| {
            match done(event)? {
                Added::Floats => {
                    has_floats = true;
                    return Err(Ended::Floats);
                }
                _ => records += 1,
            }
            Ok(())
        });
        let states = match scanned {
            Err(Ended::Floats) => return Ok(None),
            Err(Ended::Failed(error)) => return Err(error),
            Ok(states) => states,
        };
        let sums = states.into_iter().map(|state| state.sums).fold(Exact::default(), Exact::merge);
        let beyond_caffe = sums.elements.iter().filter(|&&sum| sum > EXACT_MAX).count();
        let pixels = sums.elements.iter().map(|&sum| quotient(sum, records)).collect();
        let channels = sums.channels.into_iter().map(|channel| channel.moments());
        Ok(Some(self.mean(records, pixels, channels, beyond_caffe)))
    }

    /// Sums as Caffe does.
    fn running(&self, progress: &Progress) -> Result<Mean, MeanError> {
        let start = || decoder(self.options);
        let with_elements = !self.options.only_channels;
        let add = |decoder: &mut ImageFileDecoder, seen: Seen<'_>| {
            self.with_image(decoder, seen, |image| Added::Image(Decoded::new(&image, with_elements)))
        };
        let (mut records, mut sums) = (0u64, Running::default());
        let at_once = if with_elements { decoded_at_once(self.first) } else { None };
        let scanned = Scan { at_once, ..self.scan() }.run(self.data, progress, start, add, |event| {
            if let Added::Image(image) = done(event)? {
                sums.add(&image);
                records += 1;
            }
            Ok(())
        });
        match scanned {
            Err(Ended::Failed(error)) => return Err(error),
            Err(Ended::Floats) | Ok(_) => {}
        }
        // As in Caffe: the count, an int, becomes a float.
        #[expect(clippy::cast_precision_loss, reason = "Caffe loses it, too")]
        let count = records as f32;
        let pixels = sums.elements.iter().map(|sum| sum / count).collect();
        let channels = sums.channels.into_iter().map(|channel| channel.moments());
        Ok(self.mean(records, pixels, channels, 0))
    }

    fn mean(
        &self,
        records: u64,
        pixels: Vec<f32>,
        channels: impl Iterator<Item = (f64, f64)>,
        beyond_caffe: usize,
    ) -> Mean {
        let channels = channels.map(|(mean, std)| ChannelMean { mean, std }).collect();
        let shape = (!self.options.only_channels).then_some(self.first);
        Mean { records, shape, pixels, channels, beyond_caffe }
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
        let (path, number) = (self.data.path().to_owned(), seen.number);
        let key = || Key(seen.key.to_owned());
        let failed = |cause, path| MeanError::Record { path, number, key: key(), cause: Box::new(cause) };
        let parts = match self.content.parts(seen.value) {
            Ok(parts) => parts,
            Err(cause) => return Err(failed(cause, path)),
        };
        let Some(picture) = parts.picture else {
            return Err(MeanError::NoImage { path, number, key: key() });
        };
        let image = match picture.decode(decoder) {
            Ok(image) => image,
            Err(cause) => return Err(failed(cause, path)),
        };
        let (found, first) = (image.shape, self.first);
        let fits = if self.options.only_channels { found.channels == first.channels } else { found == first };
        if !fits {
            return Err(MeanError::Shape { path, number, key: key(), found, first });
        }
        Ok(use_it(image))
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

fn done(event: Event<Result<Added, MeanError>>) -> Result<Added, Ended> {
    match event {
        Event::Done(added) => added.map_err(Ended::Failed),
        Event::Unreadable(unreadable) => Err(ScanError::Source(unreadable.error).into()),
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
fn first_image(data: &DataSet, content: Content, options: &MeanOptions) -> Result<ImageShape, MeanError> {
    let path = || data.path().to_owned();
    for source in data.sources() {
        let mut cursor = source.cursor().map_err(ScanError::from)?;
        let Some(entry) = cursor.advance().map_err(ScanError::from)? else { continue };
        let key = || Key(entry.key().to_owned());
        let failed =
            |cause| MeanError::Record { path: path(), number: 0, key: key(), cause: Box::new(cause) };
        let picture = content.parts(entry.value()).map_err(failed)?.picture;
        let picture = picture.ok_or_else(|| MeanError::NoImage { path: path(), number: 0, key: key() })?;
        return Ok(picture.decode(&mut decoder(options)).map_err(failed)?.shape);
    }
    Err(MeanError::Empty { path: path() })
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

impl Mean {
    /// The file that `compute_image_mean` writes: a `BlobProto` with the dimensions of old.
    ///
    /// # Errors
    ///
    /// [`MeanError::TooLarge`].
    pub fn to_binaryproto(&self) -> Result<Vec<u8>, MeanError> {
        let shape = self.shape.unwrap_or(ImageShape { channels: 0, height: 0, width: 0 });
        let too_large = |_| MeanError::TooLarge { shape };
        let side = |side: usize| i32::try_from(side).map_err(too_large);
        let blob = BlobProto {
            num: Some(1),
            channels: Some(side(shape.channels)?),
            height: Some(side(shape.height)?),
            width: Some(side(shape.width)?),
            data: self.pixels.clone(),
            ..BlobProto::default()
        };
        Ok(blob.encode_to_vec())
    }

    /// Writes that file. It is whole, or absent.
    ///
    /// # Errors
    ///
    /// [`MeanError::TooLarge`] and [`MeanError::Write`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), MeanError> {
        let path = path.as_ref();
        let bytes = self.to_binaryproto()?;
        whole_file::write(path, &[&bytes]).map_err(|error| MeanError::Write { path: path.to_owned(), error })
    }

    /// The channels' means as lines of a Caffe layer's `transform_param`, in the order of its channels.
    #[must_use]
    pub fn for_caffe(&self) -> Vec<String> {
        self.channels.iter().map(|channel| format!("mean_value: {}", decimal(channel.mean, 4))).collect()
    }

    /// Means and standard deviations as PyTorch's `Normalize` takes them: of values from 0 to 1, and of three
    /// or four channels in the order red, green, blue, alpha.
    #[must_use]
    pub fn for_pytorch(&self) -> (Vec<f64>, Vec<f64>) {
        let mut channels = self.channels.clone();
        if let [blue, _, red] | [blue, _, red, _] = &mut channels[..] {
            std::mem::swap(blue, red);
        }
        channels.iter().map(|channel| (channel.mean / 255.0, channel.std / 255.0)).unzip()
    }
}

/// A number with so many decimals at most, and one at least.
fn decimal(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    let trimmed = text.trim_end_matches('0');
    if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_short_and_keep_a_decimal() {
        assert_eq!(decimal(104.0, 4), "104.0");
        assert_eq!(decimal(104.00698793, 4), "104.007");
        assert_eq!(decimal(-0.5, 4), "-0.5");
    }

    #[test]
    fn pytorch_has_red_first() {
        let channels = [(255.0, 51.0), (51.0, 5.1), (0.0, 0.0)];
        let channels = channels.map(|(mean, std)| ChannelMean { mean, std }).to_vec();
        let mean = Mean { records: 1, shape: None, pixels: Vec::new(), channels, beyond_caffe: 0 };
        let (means, stds) = mean.for_pytorch();
        assert_eq!(means, [0.0, 0.2, 1.0]);
        assert_eq!(stds.len(), 3);
        assert_eq!(stds[2], 0.2);
        assert_eq!(mean.for_caffe(), ["mean_value: 255.0", "mean_value: 51.0", "mean_value: 0.0"]);
    }

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
