//! Encodes images, as `cv::imencode` does by default.

use std::fmt::Display;
use std::str::FromStr;

use jpeg_encoder::SamplingFactor;
use percolator_image::Planes;

/// The quality with which OpenCV writes JPEG files.
const JPEG_QUALITY: u8 = 95;

/// A format of image files.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JPEG, with quality 95 and 4:2:0 subsampling as OpenCV writes it. The bytes are not OpenCV's, whose
    /// encoder rounds differently.
    Jpeg,
    /// PNG. The pixels are exact, but the bytes are not OpenCV's, which compresses differently.
    Png,
}

/// The name of a format that is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("images are encoded as jpg or png")]
pub struct UnknownEncoding;

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    /// Reads an ending of files, in any case: jpg, jpeg or png.
    fn from_str(ending: &str) -> Result<Self, UnknownEncoding> {
        match &*ending.to_ascii_lowercase() {
            "jpg" | "jpeg" => Ok(Encoding::Jpeg),
            "png" => Ok(Encoding::Png),
            _ => Err(UnknownEncoding),
        }
    }
}

impl Encoding {
    /// Whether a file with this name is one of the format already. Caffe compares the ending with the
    /// requested one, and takes `.jpeg` for `jpg`, but not `.jpg` for `jpeg`; here they are the same.
    pub(super) fn is_of(self, name: &str) -> bool {
        name.rsplit('.').next().is_some_and(|ending| ending.parse() == Ok(self))
    }

    /// Appends the file of an image of 1 or 3 channels: grey, or blue, green and red.
    pub(super) fn encode(self, image: Planes<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let (height, width) = (image.shape.height, image.shape.width);
        let planes: Vec<&[u8]> = image.bytes.chunks_exact(height * width).collect();
        let (pixels, is_color) = match planes[..] {
            [blue, green, red] => (interleaved([red, green, blue]), true),
            _ => (image.bytes.to_vec(), false),
        };
        let failed = |error: &dyn Display| format!("it cannot be encoded: {error}");
        match self {
            Encoding::Jpeg => {
                let side = |side: usize| u16::try_from(side).map_err(|_| "it is too large for a JPEG file");
                let color =
                    if is_color { jpeg_encoder::ColorType::Rgb } else { jpeg_encoder::ColorType::Luma };
                let mut encoder = jpeg_encoder::Encoder::new(out, JPEG_QUALITY);
                encoder.set_sampling_factor(SamplingFactor::F_2_2);
                let encoded = encoder.encode(&pixels, side(width)?, side(height)?, color);
                encoded.map_err(|error| failed(&error))
            }
            Encoding::Png => {
                let side = |side: usize| u32::try_from(side).map_err(|_| "it is too large for a PNG file");
                let mut encoder = png::Encoder::new(out, side(width)?, side(height)?);
                encoder.set_color(if is_color { png::ColorType::Rgb } else { png::ColorType::Grayscale });
                encoder.set_compression(png::Compression::Fast);
                let write = || encoder.write_header()?.write_image_data(&pixels);
                write().map_err(|error| failed(&error))
            }
        }
    }
}

/// The pixels of three planes, one after another.
fn interleaved([first, second, third]: [&[u8]; 3]) -> Vec<u8> {
    first
        .iter()
        .zip(second)
        .zip(third)
        .flat_map(|((&first, &second), &third)| [first, second, third])
        .collect()
}

#[cfg(test)]
mod tests {
    use percolator::ColorMode;
    use percolator::batch::ImageShape;
    use percolator::decoder::ImageFileDecoder;

    use super::*;

    /// Soft shapes of other colours in each plane.
    fn planes(channels: usize, height: usize, width: usize) -> Vec<u8> {
        let value = |plane: usize, y: usize, x: usize| 40 * plane + 2 * y + x * (3 - plane) / 2;
        let pixels = (0..channels)
            .flat_map(|plane| (0..height).flat_map(move |y| (0..width).map(move |x| value(plane, y, x))));
        pixels.map(|value| u8::try_from(value % 256).unwrap()).collect()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for (channels, color) in [(1, ColorMode::Gray), (3, ColorMode::Color)] {
            let shape = ImageShape { channels, height: 29, width: 41 };
            let planes = planes(channels, 29, 41);
            let image = Planes { shape, bytes: &planes };
            for (encoding, allowed) in [(Encoding::Png, 0), (Encoding::Jpeg, 4)] {
                let mut file = Vec::new();
                encoding.encode(image, &mut file).unwrap();
                let mut decoder = ImageFileDecoder::new(color);
                let decoded = decoder.decode(&file).unwrap();
                assert_eq!(decoded.shape, shape);
                let worst = decoded.bytes.iter().zip(&planes).map(|(one, other)| one.abs_diff(*other)).max();
                assert!(worst <= Some(allowed), "{encoding:?}, {channels} channels: {worst:?}");
            }
        }
    }

    #[test]
    fn endings_name_encodings() {
        assert!(Encoding::Jpeg.is_of("a/b.c.JPEG") && Encoding::Jpeg.is_of("x.jpg"));
        assert!(!Encoding::Png.is_of("x.jpg") && !Encoding::Png.is_of("x"));
        assert_eq!("bmp".parse::<Encoding>(), Err(UnknownEncoding));
    }
}
