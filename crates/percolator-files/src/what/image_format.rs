//! The image formats that are decoded, by their first bytes.

/// A format of image files that is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
}

impl ImageFormat {
    /// The format of a file with these first bytes, told as OpenCV does: by the whole signature. `None` if it
    /// is of another format, or too short for a signature.
    #[must_use]
    pub fn of(file: &[u8]) -> Option<Self> {
        [ImageFormat::Jpeg, ImageFormat::Png].into_iter().find(|format| file.starts_with(format.signature()))
    }

    /// The bytes that every file of the format begins with.
    #[must_use]
    pub const fn signature(self) -> &'static [u8] {
        match self {
            ImageFormat::Jpeg => b"\xff\xd8\xff",
            ImageFormat::Png => b"\x89PNG\r\n\x1a\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_told_by_its_whole_signature() {
        for (format, signature) in [
            (ImageFormat::Jpeg, &[0xff, 0xd8, 0xff][..]),
            (ImageFormat::Png, &[0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
        ] {
            let file = [signature, b"and more"].concat();
            assert_eq!(ImageFormat::of(&file), Some(format));
            assert_eq!(ImageFormat::of(signature), Some(format));
            assert_eq!(ImageFormat::of(&signature[..signature.len() - 1]), None);
            assert_eq!(ImageFormat::of(&file[1..]), None);
        }
        assert_eq!(ImageFormat::of(b""), None);
        assert_eq!(ImageFormat::of(b"GIF89a"), None);
    }
}
