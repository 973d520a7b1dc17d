//! JPEG files: what their markers say, and whether everything is there that they announce.
//!
//! The markers are walked here, once before the library reads the pixels, because the libraries do not agree with
//! one another on a damaged file, and neither takes every colour space to be what libjpeg does. What is refused:
//!
//! - a file without its end marker, even if only that is missing. What is cut off cannot be told from what was
//!   never there: zune-jpeg would fill it with something. (OpenCV takes such a file unless it is progressive.)
//! - a component without a scan;
//! - stray bytes between two segments, but not behind the last scan, where many cameras leave some;
//! - CMYK, 12 bits, arithmetic coding, lossless: OpenCV reads the first, everything else it refuses or may refuse.
//!
//! Behind the end marker there may be anything.

#[cfg(not(feature = "turbojpeg"))]
mod color;
mod frame;
#[cfg(feature = "turbojpeg")]
mod turbo;
mod walk;
#[cfg(not(feature = "turbojpeg"))]
mod zune;

use super::exif::Orientation;
use super::{ColorMode, Contents, Decode, DecodeError};
use crate::shape::ImageShape;
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

/// The end of a stretch of scan data.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "turbojpeg", expect(dead_code, reason = "libjpeg-turbo needs to be told nothing"))]
struct End {
    /// Where the marker lies that ends it.
    offset: usize,
    /// Whether that is a restart marker.
    restart: bool,
    /// Scans up to here.
    scans: usize,
    /// Whether the scan brings all components.
    all_members: bool,
}

/// A file that is there to its end.
#[cfg_attr(feature = "turbojpeg", expect(dead_code, reason = "libjpeg-turbo needs to be told nothing"))]
struct Whole {
    head: Head,
    contents: Contents,
    /// Its length, without what lies behind it.
    len: usize,
}

impl Whole {
    /// As [`contents`], and that everything is there that the markers announce.
    fn check(file: &[u8], wanted: &Decode, ended: impl FnMut(End)) -> Result<Self, DecodeError> {
        let mut walk = Walk::new(file);
        let head = walk.head()?;
        let contents = head.contents(file, wanted.color)?;
        // An output that is refused is refused before anything is made room for.
        wanted.output(&contents)?;
        let len = walk.scans(&head.frame, ended)?;
        Ok(Self { head, contents, len })
    }
}

#[cold]
fn damaged(offset: usize, found: impl Into<String>) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, offset, found: found.into() }
}
