//! Images for tools: whole, as a feed's workers would decode them.

use crate::base::shape::ImageShape;
use crate::batch::RecordCause;
use crate::image::{ColorMode, Decode, DecodeError, Decoder, shape};
use crate::record::{Datum, Image};

/// Decodes JPEG and PNG files to the pixels that Caffe with OpenCV 4.6 gets from them, bit for bit, and
/// resizes images as its `cv::resize` does (bilinear). Its buffers are reused from image to image.
///
/// ```no_run
/// use percolator::ColorMode;
/// use percolator::decoder::ImageFileDecoder;
///
/// let mut decoder = ImageFileDecoder::new(ColorMode::Color).resize(256, 256);
/// let image = decoder.decode(&std::fs::read("cat.jpg")?)?;
/// assert_eq!(image.shape.channels, 3); // blue, green, red: a plane each
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ImageFileDecoder {
    wanted: Decode,
    decoder: Decoder,
}

impl ImageFileDecoder {
    /// A decoder to these channels.
    #[must_use]
    pub fn new(color: ColorMode) -> Self {
        ImageFileDecoder { wanted: Decode { color, ..Decode::default() }, decoder: Decoder::default() }
    }

    /// Resizes each image to this many rows and columns.
    #[must_use]
    pub fn resize(mut self, height: usize, width: usize) -> Self {
        self.wanted.resize = Some((height, width));
        self
    }

    /// Returns the shape of a file's image after decoding and resizing. It reads the file's headers.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the headers are not those of a JPEG or PNG file that can be decoded.
    pub fn shape(&self, file: &[u8]) -> Result<ImageShape, DecodeError> {
        shape(file, &self.wanted)
    }

    /// Decodes a file. Its pixels are bytes: a plane for each channel, in the order blue, green, red, alpha.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the file is not a JPEG or PNG file, or is damaged or truncated.
    pub fn decode(&mut self, file: &[u8]) -> Result<Image<'_>, DecodeError> {
        self.decoder.decode(file, &self.wanted, |_| None)
    }

    /// Returns a record's image: decoded if it is encoded, resized if that is wanted, otherwise in place. A
    /// raw image keeps its channels.
    ///
    /// # Errors
    ///
    /// [`RecordCause`] if the record has no image, or one that cannot be decoded or resized.
    pub fn image<'a>(&'a mut self, datum: &Datum<'a>) -> Result<Image<'a>, RecordCause> {
        match datum.encoded {
            true => Ok(self.decode(datum.data)?),
            false => Ok(self.decoder.resize(datum.image()?, &self.wanted)?),
        }
    }
}
