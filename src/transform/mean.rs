//! The mean image, and how it is read from a `.binaryproto` file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message as _;

use crate::base::shape::ImageShape;
use crate::proto::BlobProto;
use percolator_files::IoCause;
use percolator_files::input_file;
use percolator_files::shown;
use percolator_files::what;

/// The largest mean file that is read, in bytes: Caffe's `kProtoReadBytesLimit`.
const FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// A mean image, which is subtracted from every record pixel by pixel.
///
/// It holds f32 elements in the order channel, row, column. Cloning is cheap: clones share the pixels.
#[derive(Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "MeanPixels", into = "MeanPixels")
)]
pub struct MeanImage {
    shape: ImageShape,
    /// As many as the shape says, and at least one.
    pixels: Arc<[f32]>,
}

/// A mean image in serialised form: f32 pixels in the order channel, row, column.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct MeanPixels {
    shape: ImageShape,
    pixels: Vec<f32>,
}

#[cfg(feature = "serde")]
impl From<MeanImage> for MeanPixels {
    fn from(MeanImage { shape, pixels }: MeanImage) -> Self {
        MeanPixels { shape, pixels: pixels.to_vec() }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<MeanPixels> for MeanImage {
    type Error = MeanImageError;

    fn try_from(MeanPixels { shape, pixels }: MeanPixels) -> Result<Self, MeanImageError> {
        MeanImage::new(shape, pixels)
    }
}

/// Why a [`MeanImage`] cannot be made.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MeanImageError {
    /// An error with this file.
    #[error("mean file {}", shown::path(path))]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        error: Box<MeanImageError>,
    },

    /// The file cannot be opened or read.
    #[error("cannot be read")]
    Read(#[source] IoCause),

    /// The file is larger than Caffe reads.
    #[error("may have at most {FILE_BYTES_MAX} bytes, found more")]
    TooLarge,

    /// The file is something else, and its kind is known.
    #[error("not a mean image (a BlobProto, which `percolator mean` writes): it is {thing}")]
    Instead {
        /// What it is, and what to do about it.
        thing: String,
    },

    /// The bytes are not a `BlobProto`.
    #[error("not a BlobProto")]
    Parse(#[source] prost::DecodeError),

    /// The blob is not one image.
    #[error("must have 3 dimensions, or 4 of which the first is 1, each at least 1, found {found:?}")]
    Dimensions {
        /// The blob's dimensions.
        found: Vec<i64>,
    },

    /// The number of elements does not match the shape.
    #[error("the number of elements must match the shape {shape}, found {found}")]
    ElementCount {
        /// The shape.
        shape: ImageShape,
        /// The number of elements found.
        found: usize,
    },
}

impl MeanImage {
    /// Creates a mean image of `pixels` in the order channel, row, column.
    ///
    /// # Errors
    ///
    /// Fails if the shape is empty, or if the length of `pixels` does not match it.
    pub fn new(shape: ImageShape, pixels: impl Into<Vec<f32>>) -> Result<Self, MeanImageError> {
        let pixels = pixels.into();
        if pixels.is_empty() || shape.checked_elements() != Some(pixels.len()) {
            return Err(MeanImageError::ElementCount { shape, found: pixels.len() });
        }
        Ok(Self { shape, pixels: pixels.into() })
    }

    /// Reads a `.binaryproto` file, as written by Caffe's `compute_image_mean`.
    ///
    /// # Errors
    ///
    /// Fails as [`from_blob`](Self::from_blob) does, and if the file cannot be read or, as in Caffe, has more
    /// than 2^31 - 1 bytes. The error names the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MeanImageError> {
        let path = path.as_ref();
        read(path)
            .and_then(|bytes| Self::from_blob(&bytes))
            .map_err(|error| {
                match (&error, what::instead_of(&[what::Kind::Mean, what::Kind::Damaged], path)) {
                    (MeanImageError::TooLarge, _) | (_, None) => error,
                    (_, Some(thing)) => MeanImageError::Instead { thing: thing.to_string() },
                }
            })
            .map_err(|error| MeanImageError::File { path: path.to_owned(), error: Box::new(error) })
    }

    /// Reads a serialised `BlobProto`, by the rules of Caffe's `Blob::FromProto`.
    ///
    /// If any of the legacy fields num, channels, height and width is present, they are the shape and `shape`
    /// is ignored. If there is any `double_data`, it is the data, cast to f32, and `data` is ignored.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a `BlobProto`, if the shape is not that of one image (three dimensions, or
    /// four of which the first is 1), or if the number of elements does not match the shape.
    pub fn from_blob(bytes: &[u8]) -> Result<Self, MeanImageError> {
        let blob = BlobProto::decode(bytes).map_err(MeanImageError::Parse)?;
        let shape = image_shape(dimensions(&blob))?;
        if blob.double_data.is_empty() {
            return Self::new(shape, blob.data);
        }
        #[expect(clippy::cast_possible_truncation, reason = "Caffe casts double_data to its own float")]
        let pixels: Vec<f32> = blob.double_data.iter().map(|&value| value as f32).collect();
        Self::new(shape, pixels)
    }

    /// The shape: channels, height and width.
    #[must_use]
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// The elements in the order channel, row, column.
    #[must_use]
    pub fn pixels(&self) -> &[f32] {
        &self.pixels
    }
}

/// Shows only the shape: a quarter of a million pixels would be unreadable.
impl fmt::Debug for MeanImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeanImage({})", self.shape)
    }
}

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes.
fn read(path: &Path) -> Result<Vec<u8>, MeanImageError> {
    input_file::read(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => MeanImageError::TooLarge,
        _ => MeanImageError::Read(error.into()),
    })
}

/// The dimensions of a blob as Caffe reads them.
fn dimensions(blob: &BlobProto) -> Vec<i64> {
    let legacy = [blob.num, blob.channels, blob.height, blob.width];
    if legacy.iter().any(Option::is_some) {
        // An absent field reads as its default, 0.
        return legacy.iter().map(|dimension| i64::from(dimension.unwrap_or(0))).collect();
    }
    blob.shape.as_ref().map_or_else(Vec::new, |shape| shape.dim.clone())
}

/// The image shape of a blob's dimensions.
fn image_shape(found: Vec<i64>) -> Result<ImageShape, MeanImageError> {
    let (&[channels, height, width] | &[1, channels, height, width]) = found.as_slice() else {
        return Err(MeanImageError::Dimensions { found });
    };
    match [channels, height, width].map(|dimension| usize::try_from(dimension).unwrap_or(0)) {
        [0, _, _] | [_, 0, _] | [_, _, 0] => Err(MeanImageError::Dimensions { found }),
        [channels, height, width] => Ok(ImageShape { channels, height, width }),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::proto::BlobShape;

    const SHAPE: ImageShape = ImageShape { channels: 3, height: 1, width: 2 };
    const DATA: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    fn legacy() -> BlobProto {
        let [num, channels, height, width] = [1, 3, 1, 2].map(Some);
        BlobProto { num, channels, height, width, data: DATA.to_vec(), ..BlobProto::default() }
    }

    fn shaped(dim: &[i64]) -> BlobProto {
        let shape = Some(BlobShape { dim: dim.to_vec() });
        BlobProto { shape, data: DATA.to_vec(), ..BlobProto::default() }
    }

    fn read(blob: &BlobProto) -> Result<MeanImage, String> {
        MeanImage::from_blob(&blob.encode_to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn either_form_of_shape_is_read() {
        let image = MeanImage::new(SHAPE, DATA).unwrap();
        assert_eq!(read(&legacy()), Ok(image.clone()));
        assert_eq!(read(&shaped(&[3, 1, 2])), Ok(image.clone()));
        assert_eq!(read(&shaped(&[1, 3, 1, 2])), Ok(image.clone()));
        // The legacy fields win if any is present.
        assert_eq!(read(&BlobProto { shape: shaped(&[6]).shape, ..legacy() }), Ok(image));
    }

    #[test]
    fn double_data_wins_and_is_rounded() {
        let double_data = vec![0.1, 1e300, -0.0, 4.0, 5.0, 6.0];
        let image = read(&BlobProto { double_data, ..legacy() }).unwrap();
        assert_eq!(image.pixels(), [0.1, f32::INFINITY, -0.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_blob_that_is_no_image_is_refused() {
        let dimensions = "must have 3 dimensions, or 4 of which the first is 1, each at least 1, found ";
        let refused = |blob: &BlobProto, found: &str| {
            assert_eq!(read(blob), Err(format!("{dimensions}{found}")));
        };
        refused(&BlobProto { num: Some(2), ..legacy() }, "[2, 3, 1, 2]");
        refused(&BlobProto { num: None, ..legacy() }, "[0, 3, 1, 2]");
        refused(&BlobProto { height: Some(-1), ..legacy() }, "[1, 3, -1, 2]");
        refused(&shaped(&[3, 0, 2]), "[3, 0, 2]");
        refused(&shaped(&[6]), "[6]");
        refused(&BlobProto::default(), "[]");
        assert_eq!(
            read(&shaped(&[3, 2, 2])),
            Err("the number of elements must match the shape 3x2x2, found 6".to_owned())
        );
        let huge = read(&shaped(&[i64::MAX, i64::MAX, 2])).unwrap_err();
        assert!(huge.ends_with("found 6"), "{huge}");
    }

    #[test]
    fn an_error_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mean.binaryproto");
        let missing = MeanImage::open(&path).unwrap_err();
        let said = shown::with_sources(&missing);
        assert!(said.contains("mean.binaryproto: cannot be read: "), "{said}");
        // The file, that it cannot be read, and why.
        let cause: &io::Error = missing.source().unwrap().source().unwrap().downcast_ref().unwrap();
        assert_eq!(cause.kind(), io::ErrorKind::NotFound);

        std::fs::write(&path, [0xff; 4]).unwrap();
        let garbage = shown::with_sources(&MeanImage::open(&path).unwrap_err());
        assert!(garbage.contains("mean.binaryproto: not a BlobProto: "), "{garbage}");

        std::fs::write(&path, legacy().encode_to_vec()).unwrap();
        let image = MeanImage::open(&path).unwrap();
        assert_eq!((image.shape(), image.pixels()), (SHAPE, &DATA[..]));
        assert_eq!(format!("{image:?}"), "MeanImage(3x1x2)");
    }
}
