//! What all formats but JPEG and PNG have in common: they are read whole, by a [`Still`] each.
//!
//! ```text
//! parse     the headers: nothing is unpacked                         bmp.rs, gif.rs, pnm.rs, tiff.rs, ...
//! head      size, channels, turn; whether so few bytes can hold it
//! pixels    interleaved: grey, red, green and blue, or with alpha    by a library, or by us
//! planes    in the order that is wanted, or grey                     here
//! ```

use super::exif::Orientation;
use super::luma::Luma;
use super::planes::Interleaved;
use super::{ColorMode, Contents, Decode, DecodeError, elements, room};
use crate::ImageShape;

/// The pixels that a file of few bytes may have, if its format can state many equal ones in so few: a blank
/// picture of 2048x2048.
pub(super) const BLANK_PIXELS_MAX: usize = 1 << 22;

/// The pixels that a byte may stand for beyond [`BLANK_PIXELS_MAX`]: as many as a PNG's of one bit.
pub(super) const PIXELS_PER_BYTE_MAX: usize = 8 * super::png::INFLATED_PER_BYTE_MAX;

/// What a file's headers say, in the channels that are wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) height: usize,
    pub(super) width: usize,
    /// The number of channels in [`ColorMode::Native`]: 1, 3 or 4.
    pub(super) native: usize,
    /// How the pixels are turned.
    pub(super) turn: Orientation,
    /// The least number of bytes of data that such an image takes, and how many there are.
    pub(super) least: usize,
    pub(super) bytes: usize,
}

/// The least bytes of so many pixels, of a format that can state any number of equal ones in a few.
pub(super) fn least_of_blank(height: usize, width: usize) -> usize {
    height.saturating_mul(width).saturating_sub(BLANK_PIXELS_MAX).div_ceil(PIXELS_PER_BYTE_MAX)
}

/// Interleaved pixels of bytes, in a buffer from `start` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    pub(super) start: usize,
    /// Samples per pixel: grey; red, green, blue; or these and alpha.
    pub(super) samples: usize,
    /// How OpenCV makes grey of the format's colours.
    pub(super) luma: Luma,
}

/// A file of a format that is read whole.
pub(super) trait Still<'a>: Sized {
    /// The format's name.
    const NAME: &'static str;

    /// Reads the headers.
    fn parse(file: &'a [u8]) -> Result<Self, DecodeError>;

    /// What they say.
    fn head(&self, color: ColorMode) -> Result<Outline, DecodeError>;

    /// Unpacks the pixels into a buffer that only grows, by at most 8 bytes a pixel.
    fn pixels(self, color: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError>;
}

/// What a file holds, by its headers.
pub(super) fn contents<'a, S: Still<'a>>(file: &'a [u8], color: ColorMode) -> Result<Contents, DecodeError> {
    contents_of(&S::parse(file)?, color)
}

fn contents_of<'a, S: Still<'a>>(still: &S, color: ColorMode) -> Result<Contents, DecodeError> {
    let Outline { height, width, native, turn, least, bytes } = still.head(color)?;
    let found = ImageShape { channels: color.channels(native), height, width };
    if height == 0 || width == 0 {
        return Err(DecodeError::Size { found });
    }
    // First what no file may be, then what this one cannot be.
    let contents = Contents::new(found, height.saturating_mul(width), turn)?;
    if least > bytes {
        return Err(DecodeError::Claim { format: S::NAME, found, wanted: least, bytes });
    }
    Ok(contents)
}

/// Reads the planes of a file. The buffers only grow.
pub(super) fn read<'a, S: Still<'a>>(
    file: &'a [u8],
    wanted: &Decode,
    interleaved: &mut Vec<u8>,
    planes: &mut Vec<u8>,
) -> Result<Contents, DecodeError> {
    let still = S::parse(file)?;
    let contents = contents_of(&still, wanted.color)?;
    // A refused output is refused before anything is allocated.
    wanted.output(&contents)?;
    let shape = contents.shape;
    let pixels = still.pixels(wanted.color, interleaved)?;
    let len = shape.height * shape.width * pixels.samples;
    let interleaved = &interleaved[pixels.start..pixels.start + len];
    separate(pixels, interleaved, shape, wanted.color, room(planes, elements(shape))?);
    Ok(contents)
}

/// Makes the planes that are wanted of interleaved pixels.
fn separate(pixels: Pixels, interleaved: &[u8], shape: ImageShape, color: ColorMode, planes: &mut [u8]) {
    let Pixels { samples: step, luma, .. } = pixels;
    let places: &[usize] = match (shape.channels, step) {
        (1, 1) => &[0],
        (1, _) => return luma.plane(interleaved, step, planes),
        (_, 1) => &[0, 0, 0],
        (3, _) if color.is_rgb() => &[0, 1, 2],
        (3, _) => &[2, 1, 0],
        _ => &[2, 1, 0, 3],
    };
    let named = &mut planes[..elements(shape)];
    Interleaved { step, places }.separate(interleaved, named);
}

/// Bytes from a file, read one after another; each may be missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    pub(super) file: &'a [u8],
    pub(super) at: usize,
    /// The format's name, for errors.
    pub(super) format: &'static str,
}

impl<'a> Bytes<'a> {
    /// The next `len` bytes, which are a part of `inside`.
    pub(super) fn take(&mut self, len: usize, inside: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(DecodeError::Truncated { format: self.format, offset: self.file.len(), inside });
        };
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }

    /// The next bytes, of a number that is known.
    pub(super) fn array<const N: usize>(&mut self, inside: &'static str) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N, inside)?;
        Ok(*taken.first_chunk().expect("as many were taken"))
    }

    /// A little-endian number of 16 bits.
    pub(super) fn u16(&mut self, inside: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(inside)?))
    }

    /// A little-endian number of 32 bits.
    pub(super) fn u32(&mut self, inside: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(inside)?))
    }

    /// The error of what lies at an offset.
    #[cold]
    pub(super) fn damaged(&self, offset: usize, found: impl Into<String>) -> DecodeError {
        DecodeError::Damaged { format: self.format, offset, found: found.into() }
    }
}

/// The numbers in bytes of which each holds eight, four, two or one: of 1, 2, 4 or 8 bits.
pub(super) fn unpacked(bytes: &[u8], bits: u32) -> impl Iterator<Item = u8> {
    bytes.iter().flat_map(move |&byte| (0..8 / bits).map(move |at| byte << (at * bits) >> (8 - bits)))
}

/// Runs a library that may panic on what a file says. Nothing of what it worked on is used after that.
#[cfg(any(feature = "gif", feature = "tiff", feature = "webp"))]
pub(super) fn guarded<T>(
    format: &'static str,
    library: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(library));
    run.unwrap_or_else(|_| Err(DecodeError::Library { format, message: "its library panicked".to_owned() }))
}
