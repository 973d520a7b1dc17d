//! The kinds of synthetic data, and their default transforms.

use anyhow::Context as _;
use clap::ValueEnum;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use percolator::Transform;
use percolator::batch::ImageShape;
use percolator::proto::Datum;
use percolator::transform::MeanImage;
use prost::Message as _;

use super::dice::Dice;
use super::photos::Photos;
use crate::pipeline::DtypeArg;

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// 5,300 images of 3x256x256 bytes, 1 GB; crop 227, mirror, mean image, scale, to f32.
    Raw256,
    /// 100,000 images of 3x32x32 bytes, in batches of 256; crop 28, mirror, mean image, scale, to f32.
    Small,
    /// 4,000 JPEGs of 500x375, quality 90; crop 227, mirror, mean values, to f32.
    Jpeg,
    /// 200,000 sequences of 2,048 bytes, 1,024 tokens each, in batches of 256; to u8, as they are.
    Tokens,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Raw256 => "raw256",
            Kind::Small => "small",
            Kind::Jpeg => "jpeg",
            Kind::Tokens => "tokens",
        }
    }

    pub(super) fn shape(self) -> ImageShape {
        let (channels, height, width) = match self {
            Kind::Raw256 => (3, 256, 256),
            Kind::Small => (3, 32, 32),
            Kind::Jpeg => (3, 375, 500),
            Kind::Tokens => (1, 1, 2048),
        };
        ImageShape { channels, height, width }
    }

    /// The default number of records.
    pub(super) fn records(self) -> usize {
        match self {
            Kind::Raw256 => 5_300,
            Kind::Small => 100_000,
            Kind::Jpeg => 4_000,
            Kind::Tokens => 200_000,
        }
    }

    /// The largest size of a record, in bytes.
    pub(super) fn record_bytes_max(self) -> usize {
        let ImageShape { channels, height, width } = self.shape();
        // For a JPEG of this quality, half is ample.
        let pixels = channels * height * width;
        64 + if self == Kind::Jpeg { pixels / 2 } else { pixels }
    }

    /// The default batch size, in records.
    pub(super) fn batch_size(self) -> usize {
        match self {
            Kind::Raw256 | Kind::Jpeg => 64,
            Kind::Small | Kind::Tokens => 256,
        }
    }

    pub(super) fn dtype(self) -> DtypeArg {
        match self {
            Kind::Raw256 | Kind::Small | Kind::Jpeg => DtypeArg::F32,
            Kind::Tokens => DtypeArg::U8,
        }
    }

    /// The transform of a record, added to `transform`, which has the mean. Bytes that stay bytes are not
    /// scaled.
    pub(super) fn transform(self, transform: Transform, is_float: bool) -> Transform {
        let scale = if is_float { 0.017 } else { 1.0 };
        match self {
            Kind::Raw256 => transform.crop(227).mirror(true).scale(scale),
            Kind::Small => transform.crop(28).mirror(true).scale(scale),
            Kind::Jpeg => transform.crop(227).mirror(true),
            Kind::Tokens => transform,
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
            Kind::Tokens => transform,
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
            Kind::Tokens => tokens(&mut dice, shape.width / 2),
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

/// Makes tokens of two bytes each. Low numbers are frequent, like frequent words: every number of bits is
/// equally likely.
fn tokens(dice: &mut Dice, count: usize) -> Vec<u8> {
    let mut token = || {
        let bits = dice.below(16);
        u16::try_from(dice.below(2 << bits)).expect("it has 16 bits at most")
    };
    (0..count).flat_map(|_| token().to_le_bytes()).collect()
}
