//! The mean image of a data set, and the mean and the standard deviation of each channel.
//!
//! Caffe's `compute_image_mean` adds images in the order of their keys, in f32, and divides by their count.
//! Sums of bytes are whole numbers, so Caffe's are exact up to 2^24 (65,793 images, all white): any order
//! gives the same bits. [`mean`] sums bytes exactly, on all threads, and so has Caffe's bits up to there.
//! Beyond, Caffe's sums round, and these do not; [`Sums::Caffe`] adds as Caffe does. Floats have no exact
//! sums, and are always added as Caffe does: decoded on all threads, added in order.

mod error;
mod sums;
mod work;

use std::num::NonZeroUsize;

use percolator::ColorMode;
use percolator::batch::ImageShape;
use percolator::proto::BlobProto;
use prost::Message as _;
use serde::Serialize;

use self::work::{Work, first_image};
use crate::content::{ChannelOrder, Content, Values};
use crate::open::DataSet;
use crate::scan::Progress;

pub use self::error::MeanError;

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
    /// Whether all pixels are bytes, and not floats.
    pub are_bytes: bool,
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

/// Computes the mean of a data set's images.
///
/// ```no_run
/// use percolator_data::DataSet;
/// use percolator_data::mean::{MeanOptions, mean};
/// use percolator_data::scan::Progress;
///
/// let data = DataSet::open("train_lmdb")?;
/// let mean = mean(&data, &MeanOptions::default(), &Progress::new())?;
/// // The file gets its name once it is whole.
/// percolator_files::whole_file::write("mean.binaryproto".as_ref(), &[&mean.to_binaryproto()?[..]])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`MeanError`].
pub fn mean(data: &DataSet, options: &MeanOptions, progress: &Progress) -> Result<Mean, MeanError> {
    let values = Values::find(data, options.content, progress)?;
    values.check_one_image(data)?;
    let first = first_image(data, &values, options)?;
    let work = Work { data, options, values, first };
    match options.sums {
        Sums::Exact => match work.exact(progress)? {
            Some(mean) => Ok(mean),
            // There are floats among the records.
            None => work.running(progress),
        },
        Sums::Caffe => work.running(progress),
    }
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

    /// The channels' means as lines of a Caffe layer's `transform_param`, in the order of its channels.
    #[must_use]
    pub fn for_caffe(&self) -> Vec<String> {
        self.channels.iter().map(|channel| format!("mean_value: {}", decimal(channel.mean, 4))).collect()
    }

    /// Means and standard deviations as PyTorch's `Normalize` takes them: bytes as values from 0 to 1, floats
    /// as they are, and three or four channels in the order red, green, blue, alpha. The records' own order
    /// has to be given: nothing in them tells it.
    #[must_use]
    pub fn for_pytorch(&self, order: ChannelOrder) -> (Vec<f64>, Vec<f64>) {
        let mut channels = self.channels.clone();
        if let (ChannelOrder::Bgr, [blue, _, red] | [blue, _, red, _]) = (order, &mut channels[..]) {
            std::mem::swap(blue, red);
        }
        let one = if self.are_bytes { 255.0 } else { 1.0 };
        channels.iter().map(|channel| (channel.mean / one, channel.std / one)).unzip()
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
        let are_bytes = true;
        let mut mean =
            Mean { records: 1, shape: None, pixels: Vec::new(), channels, are_bytes, beyond_caffe: 0 };
        let (means, stds) = mean.for_pytorch(ChannelOrder::Bgr);
        assert_eq!(means, [0.0, 0.2, 1.0]);
        assert_eq!(stds.len(), 3);
        assert_eq!(stds[2], 0.2);
        assert_eq!(mean.for_pytorch(ChannelOrder::Rgb).0, [1.0, 0.2, 0.0]);
        mean.are_bytes = false;
        assert_eq!(mean.for_pytorch(ChannelOrder::Rgb).0, [255.0, 51.0, 0.0]);
        assert_eq!(mean.for_caffe(), ["mean_value: 255.0", "mean_value: 51.0", "mean_value: 0.0"]);
    }
}
