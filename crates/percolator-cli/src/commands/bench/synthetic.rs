//! The kinds of synthetic data, and their default transforms.

use anyhow::Context as _;
use clap::ValueEnum;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use percolator::batch::ImageShape;
use percolator::example::{ExampleField, ExampleFields, ExampleWriter};
use percolator::proto::Datum;
use percolator::transform::MeanImage;
use percolator::{Dtype, Field, Transform};
use prost::Message as _;

use super::dice::Dice;
use super::photos::Photos;
use crate::args::pipeline::DtypeArg;

/// The lists of an Example, as in XLNet's data, each with the bound below which its numbers are.
const LISTS: [(&str, usize); 5] =
    [("input", 32_000), ("is_masked", 2), ("seg_id", 3), ("target", 32_000), ("type", 100)];
/// How many numbers a list has.
const LENGTH: usize = 128;

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// 5,300 images of 3x256x256 bytes, 1 GB; crop 227, mirror, mean image, scale, to f32.
    Raw256,
    /// 100,000 images of 3x32x32 bytes, in batches of 256; crop 28, mirror, mean image, scale, to f32.
    Small,
    /// 4,000 JPEGs of 500x375, quality 90; crop 227, mirror, mean values, to f32.
    Jpeg,
    /// 200,000 sequences of 2,048 bytes, in batches of 256; to u8, as they are.
    Bytes,
    /// 200,000 tf.train.Example of five lists of 128 numbers, in batches of 256; to i64.
    Tokens,
}

impl Kind {
    /// Its word among the arguments.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The shape of a record that is an image, or is treated as one.
    fn shape(self) -> ImageShape {
        let (channels, height, width) = match self {
            Kind::Raw256 => (3, 256, 256),
            Kind::Small => (3, 32, 32),
            Kind::Jpeg => (3, 375, 500),
            Kind::Bytes => (1, 1, 2048),
            Kind::Tokens => (LISTS.len(), 1, LENGTH),
        };
        ImageShape { channels, height, width }
    }

    /// The default number of records.
    pub(super) fn records(self) -> usize {
        match self {
            Kind::Raw256 => 5_300,
            Kind::Small => 100_000,
            Kind::Jpeg => 4_000,
            Kind::Bytes | Kind::Tokens => 200_000,
        }
    }

    /// The largest size of a record, in bytes.
    pub(super) fn record_bytes_max(self) -> usize {
        let ImageShape { channels, height, width } = self.shape();
        // For a JPEG of this quality, half is ample.
        let elements = channels * height * width;
        64 + match self {
            Kind::Jpeg => elements / 2,
            // Numbers are below 2^21; the rest is what surrounds the lists.
            Kind::Tokens => 3 * elements + 32 * LISTS.len(),
            Kind::Raw256 | Kind::Small | Kind::Bytes => elements,
        }
    }

    /// The default batch size, in records.
    pub(super) fn batch_size(self) -> usize {
        match self {
            Kind::Raw256 | Kind::Jpeg => 64,
            Kind::Small | Kind::Bytes | Kind::Tokens => 256,
        }
    }

    pub(super) fn dtype(self) -> DtypeArg {
        match self {
            Kind::Raw256 | Kind::Small | Kind::Jpeg | Kind::Tokens => DtypeArg::F32,
            Kind::Bytes => DtypeArg::U8,
        }
    }

    /// The fields of its records, if they are Examples.
    pub(super) fn fields(self) -> Option<ExampleFields> {
        let field = |&(name, _): &(&str, usize)| ExampleField::new(Field::new(name, Dtype::I64, [LENGTH]));
        (self == Kind::Tokens).then(|| LISTS.iter().map(field).collect())
    }

    /// The transform of a record, added to `transform`, which has the mean. Bytes that stay bytes are not
    /// scaled.
    pub(super) fn transform(self, transform: Transform, is_float: bool) -> Transform {
        let scale = if is_float { 0.017 } else { 1.0 };
        match self {
            Kind::Raw256 => transform.crop(227).mirror(true).scale(scale),
            Kind::Small => transform.crop(28).mirror(true).scale(scale),
            Kind::Jpeg => transform.crop(227).mirror(true),
            Kind::Bytes | Kind::Tokens => transform,
        }
    }

    /// Adds this kind's mean to a transform.
    pub(super) fn with_mean(self, transform: Transform) -> anyhow::Result<Transform> {
        const MEANS: [f32; 3] = [104.0, 117.0, 123.0];

        Ok(match self {
            Kind::Raw256 | Kind::Small => {
                let shape = self.shape();
                let plane = shape.height * shape.width;
                let pixels: Vec<f32> = MEANS.iter().flat_map(|&mean| vec![mean; plane]).collect();
                transform.mean_image(MeanImage::new(shape, pixels)?)
            }
            Kind::Jpeg => transform.mean_values(MEANS),
            Kind::Bytes | Kind::Tokens => transform,
        })
    }

    /// The wire bytes of a record.
    pub(super) fn record(self, photos: &Photos, index: usize) -> anyhow::Result<Vec<u8>> {
        const LABELS: usize = 1000;

        let shape = self.shape();
        let mut dice = Dice::new(index as u64);
        let data = match self {
            Kind::Raw256 | Kind::Small => photos.cut(&mut dice, shape.height, shape.width),
            Kind::Jpeg => jpeg(&photos.cut(&mut dice, shape.height, shape.width), shape)?,
            Kind::Bytes => tokens(&mut dice, shape.width / 2),
            Kind::Tokens => return Ok(example(&mut dice)),
        };
        let label = i32::try_from(index % LABELS)?;
        let mut datum = Datum { data: Some(data), label: Some(label), ..Datum::default() };
        if self == Kind::Jpeg {
            datum.encoded = Some(true);
        } else {
            let sizing = |sizing| i32::try_from(sizing).map(Some);
            (datum.channels, datum.height, datum.width) =
                (sizing(shape.channels)?, sizing(shape.height)?, sizing(shape.width)?);
        }
        Ok(datum.encode_to_vec())
    }
}

/// Encodes planes as a JPEG, with chroma at half the resolution, as cameras do.
fn jpeg(planes: &[u8], shape: ImageShape) -> anyhow::Result<Vec<u8>> {
    const QUALITY: u8 = 90;

    let plane = shape.height * shape.width;
    let (blue, rest) = planes.split_at(plane);
    let (green, red) = rest.split_at(plane);
    let pixels: Vec<u8> =
        blue.iter().zip(green).zip(red).flat_map(|((&blue, &green), &red)| [blue, green, red]).collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, QUALITY);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder
        .encode(&pixels, u16::try_from(shape.width)?, u16::try_from(shape.height)?, ColorType::Bgr)
        .context("an image cannot be encoded")?;
    Ok(file)
}

/// An Example with all lists.
fn example(dice: &mut Dice) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    for (name, below) in LISTS {
        let number = |_| i64::try_from(dice.below(below)).expect("it is small");
        writer.ints(name, (0..LENGTH).map(number));
    }
    writer.to_bytes()
}

/// Makes tokens of two bytes each. Low numbers are frequent, like frequent words: every number of bits is
/// equally likely.
fn tokens(dice: &mut Dice, count: usize) -> Vec<u8> {
    let mut token = || {
        let bits = dice.below(16);
        u16::try_from(dice.below(2 << bits)).expect("it has 16 bits at most")
    };
    (0..count).flat_map(|_| token().to_le_bytes()).collect()
}
