//! What an image file becomes: the flags of Caffe's `convert_imageset`.

use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;

use super::encode::Encoding;

/// What image files become. By default, Datums with the pixels of colour images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Decodes to grey instead of colour: one channel instead of three (`--gray`).
    pub gray: bool,
    /// Resizes each image to this many rows and columns, bilinearly as OpenCV does, whatever its aspect ratio
    /// (`--resize-height`, `--resize-width`). Neither may be 0.
    pub resize: Option<[u32; 2]>,
    /// Stores encoded files instead of pixels (`--encoded`).
    pub encoded: Option<Encoded>,
    /// Skips images whose size differs from that of the first one that is stored (`--check-size`).
    pub check_size: bool,
}

/// Which files are stored.
///
/// A file is stored unchanged if the image is not resized and the file's name has an ending of the format;
/// otherwise the image is re-encoded. With `gray`, so is a file that is not grey; Caffe stores its colours. A
/// PNG file with samples of 16 bits is always re-encoded, with 8 bits: Caffe stores it as it is, and then
/// cannot read it without `force_encoded_color`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// In the format that each file's name ends with.
    AsNamed,
    /// All in this format (`--encode-type`).
    As(Encoding),
}

impl ImageOptions {
    pub(super) fn decoder(&self) -> ImageFileDecoder {
        let decoder = ImageFileDecoder::new(if self.gray { ColorMode::Gray } else { ColorMode::Color });
        match self.resize {
            // A side that does not fit is refused by the decoder.
            Some(sides) => {
                let [height, width] = sides.map(|side| usize::try_from(side).unwrap_or(usize::MAX));
                decoder.resize(height, width)
            }
            None => decoder,
        }
    }

    /// The format in which the image of a file is stored, and whether the file is stored as it is; `None` if
    /// pixels are stored.
    pub(super) fn encoding_of(&self, name: &str) -> Result<Option<(Encoding, bool)>, String> {
        let encoding = match self.encoded {
            None => return Ok(None),
            Some(Encoded::As(encoding)) => encoding,
            Some(Encoded::AsNamed) => {
                let ending = name.rsplit_once('.').map(|(_, ending)| ending);
                let ending =
                    ending.ok_or("its name has no ending that tells its format: name one for all")?;
                ending.parse().map_err(|_| {
                    format!(
                        "its name ends with .{ending}, and images are encoded as jpg or png: name one for all"
                    )
                })?
            }
        };
        Ok(Some((encoding, self.resize.is_none() && encoding.is_of(name))))
    }
}
