//! JPEG files, bit for bit as libjpeg-turbo reads them, or not at all.
//!
//! ```text
//! markers    what the file says of itself; each scan's data, up to a marker   walk, frame, scan, quantize
//! codes      coefficients, block by block or scan by scan                     reader, sequential, progressive
//!            of bits, by tables                                               bits, huffman, tables
//! samples    of each component, as far as the window needs them               part, idct, reduced, picture
//! pixels     as many as the image has, and their colours                      upsample, ycc, picture
//! ```
//!
//! One walk over the file does it all. A file that is not progressive brings its blocks whole: those that the window
//! needs are transformed as they come, of the others the codes are passed over. Of a progressive one the coefficients
//! are kept to its end.
//!
//! Where a smaller image is enough ([`scale`]), blocks are transformed to fewer samples, as libjpeg-turbo does when it is
//! asked for a half, a quarter or an eighth.
//!
//! What is refused:
//!
//! - a file without its end marker, even if only that is missing. What is cut off cannot be told from what was
//!   never there. (OpenCV takes such a file unless it is progressive, and makes up what is missing.)
//! - a component without a scan, and in a progressive file a bit of a coefficient that no scan brings: OpenCV takes
//!   such a file, which may well be one that was cut and closed, and is blurred;
//! - restart markers that are missing or out of order;
//! - a scan that ends before all its codes are there, or has a code that means nothing there;
//! - stray bytes between two segments, or behind the codes of a scan, but not before the end marker, where many
//!   cameras leave some;
//! - a second scan of a component where the frame is neither progressive nor complete with its first scan;
//! - CMYK, 12 bits, arithmetic coding, lossless: OpenCV reads the first, everything else it refuses or may refuse.
//!
//! Behind the end marker there may be anything. Damage that leaves as many codes as there should be cannot be told.

mod bits;
mod frame;
mod huffman;
mod idct;
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
use crate::base::shape::ImageShape;
use frame::Frame;
use picture::{Mixing, Rows, Write};
use reader::Reader;
use walk::Walk;

/// How a JPEG file starts.
pub(super) const SIGNATURE: &[u8] = b"\xff\xd8\xff";

/// The most pixels that a byte of a JPEG can stand for: a block of 64 takes a bit at the least.
pub(super) const PIXELS_PER_BYTE_MAX: usize = 512;

/// The most scans. Encoders make about ten; a file of many more is made to keep a reader busy.
const SCANS_MAX: usize = 100;

const FORMAT: &str = "JPEG";

/// What the samples of three components are.
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
    /// The same of the image as small as it may be decoded.
    fn reduced(mut self, wanted: &Decode) -> Self {
        let (image, turn) = ([self.frame.height, self.frame.width], wanted.color.turn(self.orientation));
        if let Some(least) = wanted.least(turn) {
            self.frame = self.frame.reduced(scale::side(image, least));
        }
        self
    }

    fn contents(&self, file: &[u8], color: ColorMode) -> Result<Contents, DecodeError> {
        let channels = color.channels(self.frame.components().len());
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

/// Reads JPEG after JPEG. Its buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Jpeg {
    reader: Reader,
    rows: Rows,
    /// The data of a scan, up to a marker.
    data: Vec<u8>,
}

impl Jpeg {
    /// Reads the planes of a file, which only grow; of a file of which a window is enough, the window's part of them.
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
        // An output that is refused is refused before anything is made room for.
        let window = wanted.window(&contents, window)?;
        let (frame, shape) = (&head.frame, contents.shape);
        let mixing = Mixing::new(frame.components().len(), head.colors, shape.channels);
        reader.start(frame, window, mixing.components());
        data.clear();
        data.reserve_exact(file.len());
        walk.scans(frame, reader, data)?;
        reader.finish(frame);
        let out = room(planes, elements(shape));
        pulp::Arch::new().dispatch(Write { planes: &reader.planes, rows, mixing, shape, window, out });
        Ok(contents)
    }
}

#[cfg(test)]
impl Jpeg {
    /// What grows with the pixels.
    pub(super) fn bytes(&self) -> usize {
        self.reader.bytes()
    }
}

#[cold]
fn damaged(offset: usize, found: impl Into<String>) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, offset, found: found.into() }
}
