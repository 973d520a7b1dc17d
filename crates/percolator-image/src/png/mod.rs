//! PNG files: what their chunks say, and how OpenCV with libpng reads them.
//!
//! | the file has | Native | Color | Gray |
//! |---|---|---|---|
//! | grey | 1 | 3, all the same | 1 |
//! | grey and alpha | 4: grey three times, alpha | 3 | 1 |
//! | colour or a palette | 3 | 3 | grey from colour |
//! | colour with alpha, or a transparent colour | 4 | 3 | grey from colour |
//!
//! A transparent grey does not count as transparency. Unwanted alpha is dropped, not blended. Gamma plays no
//! part except in grey from colour: libpng computes it in linear light if the file gives its gamma, or has a
//! profile that is known to be sRGB. Rgb is Color in the other order, but grey of 16 bits is cut at 255, as
//! Pillow cuts it, where Color takes the upper byte.

mod chroma;
mod chunks;
mod gamma;
mod grey;
mod pixels;
mod profile;

use super::exif::Orientation;
use super::{ColorMode, Contents, DecodeError};
use crate::ImageShape;
pub(super) use pixels::read;

/// The first bytes of a PNG file.
pub(super) const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The maximum number of bytes that a byte of deflated data expands to: two bits can encode 258 bytes.
pub(super) const INFLATED_PER_BYTE_MAX: usize = 1032;

const FORMAT: &str = "PNG";

/// One, in the units of 1/100000 in which a PNG gives gamma and chromaticities.
const ONE: u32 = 100_000;

/// The checksum of these parts, concatenated, as a PNG stores it after each chunk.
fn crc32<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc);
    parts.into_iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a checksum of 32 bits has 32")
}

/// The colour type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
    Palette,
}

impl Kind {
    fn has_colors(self) -> bool {
        !matches!(self, Kind::Grey | Kind::GreyAlpha)
    }

    fn samples(self) -> usize {
        match self {
            Kind::Grey | Kind::Palette => 1,
            Kind::GreyAlpha => 2,
            Kind::Rgb => 3,
            Kind::Rgba => 4,
        }
    }
}

/// What the chunks of a file say.
#[derive(Clone, Copy, Debug)]
struct Head {
    height: usize,
    width: usize,
    /// The number of bits per sample.
    bits: u8,
    kind: Kind,
    /// Whether a colour, or colours of the palette, are transparent.
    transparent: bool,
    /// The gamma in units of 1/100000, if the file gives it.
    gamma: Option<u32>,
    orientation: Orientation,
    /// The number of bytes of image data.
    data_bytes: usize,
}

impl Head {
    fn contents(&self, color: ColorMode) -> Result<Contents, DecodeError> {
        if self.bits == 16 && color == ColorMode::Native {
            return Err(DecodeError::Depth { format: FORMAT, bits: self.bits });
        }
        let native = match self.kind {
            Kind::Grey => 1,
            Kind::Rgb | Kind::Palette if !self.transparent => 3,
            _ => 4,
        };
        let channels = color.channels(native);
        let shape = ImageShape { channels, height: self.height, width: self.width };
        let row_bits = self.width.saturating_mul(self.kind.samples()).saturating_mul(self.bits.into());
        let row_bytes = row_bits.div_ceil(8).saturating_add(1);
        let wanted = row_bytes.saturating_mul(self.height).div_ceil(INFLATED_PER_BYTE_MAX);
        if wanted > self.data_bytes {
            return Err(DecodeError::Claim { format: FORMAT, found: shape, wanted, bytes: self.data_bytes });
        }
        Contents::new(shape, self.height.saturating_mul(self.width), color.turn(self.orientation))
    }
}

/// What a file holds, by its chunks. No data is inflated.
pub(super) fn contents(file: &[u8], color: ColorMode) -> Result<Contents, DecodeError> {
    // The gamma does not affect the size.
    Head::parse(file, false)?.contents(color)
}
