//! JPEG files: what their markers say, and whether everything is there that they announce.
//!
//! The markers are walked here, once before the library reads the pixels, because the libraries do not agree with
//! one another on a damaged file, and neither takes every colour space to be what libjpeg does. What is refused:
//!
//! - a file without its end marker, even if only that is missing. What is cut off cannot be told from what was
//!   never there: zune-jpeg would fill it with something. (OpenCV takes such a file unless it is progressive.)
//! - a component without a scan, and in a progressive file a bit of a coefficient that no scan brings: OpenCV takes
//!   such a file, which may well be one that was cut and closed, and is blurred;
//! - restart markers that are missing or out of order;
//! - of a progressive file, a scan that ends before all its codes are there. It is read code by code ([`codes`]). Of
//!   other files, whose codes the libraries find missing, that would take too long;
//! - stray bytes between two segments, but not behind the last scan, where many cameras leave some;
//! - CMYK, 12 bits, arithmetic coding, lossless: OpenCV reads the first, everything else it refuses or may refuse.
//!
//! Behind the end marker there may be anything. Damage that leaves as many codes as there should be cannot be told.

mod codes;
#[cfg(not(feature = "turbojpeg"))]
mod color;
mod frame;
mod huffman;
mod scan;
#[cfg(feature = "turbojpeg")]
mod turbo;
mod walk;
#[cfg(not(feature = "turbojpeg"))]
mod zune;

use super::exif::Orientation;
use super::{ColorMode, Contents, Decode, DecodeError};
use crate::shape::ImageShape;
use codes::Codes;
use frame::Frame;
#[cfg(feature = "turbojpeg")]
pub(super) use turbo::Jpeg;
use walk::Walk;
#[cfg(not(feature = "turbojpeg"))]
pub(super) use zune::Jpeg;

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
#[cfg_attr(feature = "turbojpeg", expect(dead_code, reason = "libjpeg-turbo needs to be told nothing"))]
struct Head {
    frame: Frame,
    colors: Colors,
    /// The colour transform of the last Adobe segment.
    adobe: Option<u8>,
    orientation: Orientation,
}

impl Head {
    fn contents(&self, file: &[u8], color: ColorMode) -> Result<Contents, DecodeError> {
        let channels = color.channels(self.frame.components().len());
        let shape = ImageShape { channels, height: self.frame.height, width: self.frame.width };
        let wanted = (shape.height.saturating_mul(shape.width)).div_ceil(PIXELS_PER_BYTE_MAX);
        if wanted > file.len() {
            return Err(DecodeError::Claim { format: FORMAT, found: shape, wanted, bytes: file.len() });
        }
        Contents::new(shape, color.turn(self.orientation))
    }
}

/// What a file holds, by the markers before its first scan.
pub(super) fn contents(file: &[u8], color: ColorMode) -> Result<Contents, DecodeError> {
    Walk::new(file).head()?.contents(file, color)
}

/// A file that is there to its end.
#[cfg_attr(feature = "turbojpeg", expect(dead_code, reason = "libjpeg-turbo needs to be told nothing"))]
struct Whole {
    head: Head,
    contents: Contents,
    /// Whether its first scan brings all components.
    joint: bool,
    /// Its length, without what lies behind it.
    len: usize,
}

impl Whole {
    /// As [`contents`], and that everything is there that the markers announce; the codes of the scans too, where
    /// `read_codes` says so. `ended` is told where each stretch of scan data ends.
    fn check<'c>(
        file: &[u8],
        wanted: &Decode,
        read_codes: impl FnOnce(&Frame) -> Option<&'c mut Codes>,
        ended: impl FnMut(usize),
    ) -> Result<Self, DecodeError> {
        let mut walk = Walk::new(file);
        let head = walk.head()?;
        let contents = head.contents(file, wanted.color)?;
        // An output that is refused is refused before anything is made room for.
        wanted.output(&contents)?;
        let joint = walk.scans(&head.frame, read_codes(&head.frame), ended)?;
        Ok(Self { head, contents, joint, len: walk.at() })
    }
}

#[cold]
fn damaged(offset: usize, found: impl Into<String>) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, offset, found: found.into() }
}
