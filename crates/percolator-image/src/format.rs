//! What format a file is of, by its first bytes, and which formats this build reads.

use super::DecodeError;
use super::{bmp, jpeg, png, pnm};

/// The formats of images. A name plays no part: an ImageNet has a PNG named `.JPEG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jpeg,
    Png,
    Bmp,
    Pnm,
    Gif,
    Tiff,
    Webp,
}

impl Format {
    /// Detects the format by the first bytes, as OpenCV does.
    pub(super) fn of(file: &[u8]) -> Result<Self, DecodeError> {
        const STARTS: [(&[u8], Format); 9] = [
            (jpeg::SIGNATURE, Format::Jpeg),
            (png::SIGNATURE, Format::Png),
            (bmp::SIGNATURE, Format::Bmp),
            (b"GIF87a", Format::Gif),
            (b"GIF89a", Format::Gif),
            (b"II*\0", Format::Tiff),
            (b"MM\0*", Format::Tiff),
            // With offsets of 64 bits.
            (b"II+\0", Format::Tiff),
            (b"MM\0+", Format::Tiff),
        ];
        if pnm::starts(file) {
            return Ok(Format::Pnm);
        }
        if file.starts_with(b"RIFF") && file.get(8..12) == Some(b"WEBP") {
            return Ok(Format::Webp);
        }
        let known = STARTS.iter().find(|(start, _)| file.starts_with(start));
        known.map(|&(_, format)| format).ok_or_else(|| DecodeError::Format { found: name_of(file) })
    }
}

/// The name of a file format that is not read, as far as its first bytes tell.
fn name_of(file: &[u8]) -> &'static str {
    const NAMES: [(&[u8], &str); 13] = [
        (b"GIF8", "a GIF file of another version"),
        (b"P7", "a PAM file"),
        (b"\xff\x4f\xff\x51", "a JPEG 2000 file"),
        (b"\0\0\0\x0cjP  ", "a JPEG 2000 file"),
        (b"\0\0\0\x0cJXL ", "a JPEG XL file"),
        (b"\xff\x0a", "a JPEG XL file"),
        (b"\x76\x2f\x31\x01", "an OpenEXR file"),
        (b"#?R", "a Radiance HDR file"),
        (b"\x59\xa6\x6a\x95", "a Sun raster file"),
        (b"8BPS", "a Photoshop file"),
        (b"\x1f\x8b", "a gzip file"),
        (b"PK\x03\x04", "a zip file"),
        (b"<svg", "an SVG file"),
    ];
    if file.is_empty() {
        return "no data";
    }
    if file.get(4..8) == Some(b"ftyp") {
        return "a HEIF, AVIF or video file";
    }
    let known = NAMES.iter().find(|(magic, _)| file.starts_with(magic));
    let text = if file.starts_with(b"<") { "text" } else { "a file of no known format" };
    known.map_or(text, |&(_, name)| name)
}
