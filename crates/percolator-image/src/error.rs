//! Errors of an encoded file.

use super::{ELEMENTS_MAX, PIXELS_MAX, SIDE_MAX};
use crate::ImageShape;

/// Why an encoded file cannot be read. Offsets count from the file's first byte.
///
/// When Caffe gives up, it says `Could not decode datum`, and so do these messages.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The file is of another format.
    #[error(
        "Could not decode datum: found {found}: allowed are JPEG, PNG, WebP, GIF, TIFF, BMP and PNM files"
    )]
    Format {
        /// The format that its first bytes suggest.
        found: &'static str,
    },
    /// The file is of a format whose decoder was left out of this build.
    #[error(
        "Could not decode datum: found a {format} file, and this program is built without its decoder: \
         enable the Cargo feature \"{feature}\" of percolator or percolator-image"
    )]
    NotBuiltIn {
        /// The format's name.
        format: &'static str,
        /// The Cargo feature that brings the decoder.
        feature: &'static str,
    },
    /// The file is truncated.
    #[error(
        "Could not decode datum: the {format} file is cut short: it ends at byte {offset}, inside {inside}"
    )]
    Truncated {
        /// The format's name.
        format: &'static str,
        /// The file's length.
        offset: usize,
        /// What is not complete.
        inside: &'static str,
    },
    /// The file does not follow its format.
    #[error("Could not decode datum: the {format} file is damaged: at byte {offset} there is {found}")]
    Damaged {
        /// The format's name.
        format: &'static str,
        /// The offset in the file.
        offset: usize,
        /// What is there, and what should be.
        found: String,
    },
    /// The library that reads the format failed, and does not say where. Its panic is such a failure, too.
    #[error("Could not decode datum: the {format} file is damaged: {message}")]
    Library {
        /// The format's name.
        format: &'static str,
        /// The library's message.
        message: String,
    },
    /// The file uses a feature that is not supported.
    #[error("Could not decode datum: the {format} file has {found}: allowed are {allowed}")]
    Unsupported {
        /// The format's name.
        format: &'static str,
        /// What was found.
        found: String,
        /// What is supported.
        allowed: &'static str,
    },
    /// Samples of 16 bits, which Caffe accepts only if `force_color` or `force_gray` converts them to bytes,
    /// as any color mode but native does.
    #[error(
        "Image data type must be unsigned byte: the {format} file has samples of {bits} bits: allowed are 1 \
         to 8, or any where they become bytes: with force_color or force_gray, or any color mode but native"
    )]
    Depth {
        /// The format's name.
        format: &'static str,
        /// The number of bits per sample.
        bits: u8,
    },
    /// The channels are stated to lie side by side, but the record holds floats.
    #[error("only pixels of bytes are read with their channels side by side, found a record of floats")]
    InterleavedFloats,
    /// A resize is requested, but the record holds floats.
    #[error("only images of bytes are resized, found a record of floats")]
    ResizeOfFloats,
    /// The image is empty, or larger than OpenCV or Caffe can count.
    #[error(
        "Could not decode datum: the image is {found}: allowed are sides of 1 to {SIDE_MAX}, {PIXELS_MAX} \
         pixels and {ELEMENTS_MAX} elements"
    )]
    Size {
        /// Channels, rows and columns, after the resize if there is one.
        found: ImageShape,
    },
    /// The image has a size that is allowed, but the system has no memory to decode it.
    #[error("there is no memory to decode the image: the system refused {bytes} bytes")]
    Memory {
        /// The length of the buffer that could not be had.
        bytes: usize,
    },
    /// The image is larger than the file could hold.
    #[error(
        "Could not decode datum: the {format} file claims an image of {found}, which takes at least \
         {wanted} bytes of data, but has {bytes}"
    )]
    Claim {
        /// The format's name.
        format: &'static str,
        /// Channels, rows and columns.
        found: ImageShape,
        /// The minimum number of bytes for an image of this size.
        wanted: usize,
        /// The number of bytes found.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_is_not_built_in_is_named_with_the_feature_that_brings_it() {
        let error = DecodeError::NotBuiltIn { format: "WebP", feature: "webp" };
        let said = "found a WebP file, and this program is built without its decoder: enable the Cargo \
                    feature \"webp\" of percolator or percolator-image";
        assert!(error.to_string().ends_with(said), "{error}");
        assert!(error.to_string().starts_with("Could not decode datum: "), "{error}");
    }
}
