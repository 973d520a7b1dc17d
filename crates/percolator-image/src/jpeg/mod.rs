//! JPEG files, bit for bit as libjpeg-turbo reads them, or not at all.
//!
//! ```text
//! markers    headers and tables; each scan's data, up to a marker   walk, frame, scan, quantize
//! codes      to coefficients, block by block or scan by scan        reader, sequential, progressive
//!            from bits, by tables                                   bits, huffman, tables
//! samples    of each component, those that the window needs         part, idct, reduced, picture
//! pixels     upsampled, in their colours                            upsample, ycc, inks, picture
//! ```
//!
//! One pass over the file does it all. A file that is not progressive has its blocks whole: those that the
//! window needs are transformed as they arrive, and the codes of the others are skipped. The coefficients of
//! a progressive file are kept to its end.
//!
//! If a smaller image is enough ([`scale`]), blocks are transformed to fewer samples, as libjpeg-turbo does
//! for a half, a quarter or an eighth.
//!
//! What is refused:
//!
//! - a file without its end marker, even if only that is missing. Data that was cut off cannot be told from
//!   data that was never there. (OpenCV accepts such a file unless it is progressive, and makes up the
//!   missing part.)
//! - a component without a scan, and in a progressive file a bit of a coefficient that no scan contains:
//!   OpenCV accepts such a file, which may well have been truncated and closed, and is blurred;
//! - restart markers that are missing or out of order;
//! - a scan that ends before all its codes, or has a code that is invalid at its place;
//! - stray bytes after the codes of a scan. They are allowed before the end marker, where many cameras leave
//!   some, and between two segments, as in libjpeg;
//! - a second scan of a component, if the frame is neither progressive nor complete with its first scan;
//! - 12 bits, arithmetic coding, lossless, which OpenCV refuses or may refuse.
//!
//! Anything may follow the end marker. Damage that leaves the right number of codes is not detectable.

mod bits;
mod frame;
mod huffman;
mod idct;
mod inks;
mod part;
mod picture;
mod progressive;
mod quantize;
mod reader;
mod reduced;
mod scale;
mod scan;
mod sequential;
mod tables;
mod upsample;
mod walk;
mod ycc;

use super::exif::Orientation;
use super::{ColorMode, Contents, Decode, DecodeError, Window, elements, room};
use crate::ImageShape;
use crate::simd::InstructionSet;
use frame::Frame;
use picture::{Mixing, Rows, Write};
use reader::Reader;
use walk::Walk;

/// The first bytes of a JPEG file.
pub(super) const SIGNATURE: &[u8] = b"\xff\xd8\xff";

/// The maximum number of pixels per byte of a JPEG: a block of 64 takes at least one bit.
pub(super) const PIXELS_PER_BYTE_MAX: usize = 512;

/// The maximum number of scans. Encoders write about ten; a file with many more is made to keep a decoder
/// busy.
const SCANS_MAX: usize = 100;

const FORMAT: &str = "JPEG";

/// The colour space of three components, or of the first three of four, which are then inks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colors {
    Ycc,
    Rgb,
}

/// What the markers before the first scan say.
#[derive(Clone, Copy, Debug)]
struct Head {
    frame: Frame,
    colors: Colors,
    orientation: Orientation,
}

impl Head {
    /// The same head, for the smallest size at which the image may be decoded.
    fn reduced(mut self, wanted: &Decode) -> Self {
        let (image, turn) = ([self.frame.height, self.frame.width], wanted.color.turn(self.orientation));
        if let Some(least) = wanted.least(turn) {
            self.frame = self.frame.reduced(scale::side(image, least));
        }
        self
    }

    fn contents(&self, file: &[u8], color: ColorMode) -> Result<Contents, DecodeError> {
        let channels = color.channels(self.frame.components().len().min(3));
        let whole = ImageShape { channels, height: self.frame.height, width: self.frame.width };
        let wanted = (whole.height.saturating_mul(whole.width)).div_ceil(PIXELS_PER_BYTE_MAX);
        if wanted > file.len() {
            return Err(DecodeError::Claim { format: FORMAT, found: whole, wanted, bytes: file.len() });
        }
        let contents = Contents::new(whole, self.frame.group_pixels(), color.turn(self.orientation))?;
        let [height, width] = self.frame.pixels();
        Ok(Contents { shape: ImageShape { channels, height, width }, ..contents })
    }
}

/// What a file holds, by the markers before its first scan.
pub(super) fn contents(file: &[u8], wanted: &Decode) -> Result<Contents, DecodeError> {
    Walk::new(file).head()?.reduced(wanted).contents(file, wanted.color)
}

/// Decodes JPEG after JPEG, and keeps its buffers.
#[derive(Debug, Default)]
pub(super) struct Jpeg {
    reader: Reader,
    rows: Rows,
    /// The data of a scan, up to a marker.
    data: Vec<u8>,
}

impl Jpeg {
    /// Decodes the planes of a file, or only a window of them if that is enough. The planes' buffer only
    /// grows.
    pub(super) fn read(
        &mut self,
        file: &[u8],
        wanted: &Decode,
        window: impl FnOnce(ImageShape) -> Option<Window>,
        planes: &mut Vec<u8>,
    ) -> Result<Contents, DecodeError> {
        let Self { reader, rows, data } = self;
        let mut walk = Walk::new(file);
        let head = walk.head()?.reduced(wanted);
        let contents = head.contents(file, wanted.color)?;
        // A refused output is refused before anything is allocated.
        let window = wanted.window(&contents, window)?;
        let (frame, shape) = (&head.frame, contents.shape);
        let mixing = Mixing::new(frame.components().len(), head.colors, shape.channels);
        reader.start(frame, window, mixing.components())?;
        data.clear();
        data.try_reserve_exact(file.len()).map_err(|_| DecodeError::Memory { bytes: file.len() })?;
        walk.scans(frame, reader, data)?;
        reader.finish(frame);
        let out = room(planes, elements(shape))?;
        let (planes, is_rgb) = (&reader.planes, wanted.color.is_rgb());
        InstructionSet::widest().run(Write { planes, rows, mixing, is_rgb, shape, window, out });
        Ok(contents)
    }
}

#[cfg(test)]
impl Jpeg {
    /// The bytes of the buffers that grow with the pixels.
    pub(super) fn bytes(&self) -> usize {
        self.reader.bytes()
    }
}

#[cold]
fn damaged(offset: usize, found: impl Into<String>) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, offset, found: found.into() }
}
