//! The errors in a record's bytes.

use crate::wire::WireError;
use percolator_image::ImageShape;

/// Why a record is not a `Datum`, or not a readable image. Offsets count from its first byte.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatumError {
    /// The record ends inside a field.
    #[error("not a Caffe Datum: the value at byte {offset} takes {wanted} bytes, but {found} are left")]
    Truncated {
        /// Where the value starts.
        offset: usize,
        /// The bytes the value takes.
        wanted: u64,
        /// The bytes from there to the end of the record.
        found: usize,
    },
    /// A varint does not end, or has more than 64 bits.
    #[error(
        "not a Caffe Datum: the varint at byte {offset} does not end within the record and within 64 bits"
    )]
    Varint {
        /// Where the varint starts.
        offset: usize,
    },
    /// A key has a field number or a wire type that protobuf does not have.
    #[error(
        "not a Caffe Datum: the key at byte {offset} is {found:#x}: fields must be 1 to 536870911, and wire \
         types 0 to 5"
    )]
    Key {
        /// Where the key starts.
        offset: usize,
        /// The key: the field number, with the wire type in the low three bits.
        found: u64,
    },
    /// A field of `Datum` has a different type than in the schema.
    #[error(
        "not a Caffe Datum: field {field} at byte {offset} has wire type {found}, but must have {allowed}"
    )]
    WireType {
        /// Where the field's key starts.
        offset: usize,
        /// The field's number.
        field: u32,
        /// The wire type in its key.
        found: u32,
        /// The wire types it may have.
        allowed: &'static str,
    },
    /// A packed `float_data` ends inside an element.
    #[error(
        "not a Caffe Datum: the packed float_data at byte {offset} has {found} bytes, but must have a \
         multiple of {allowed}"
    )]
    PackedLength {
        /// Where the field's length starts.
        offset: usize,
        /// The bytes of its elements.
        found: usize,
        /// The bytes of an element.
        allowed: usize,
    },
    /// A group ends that is not the innermost open one.
    #[error(
        "not a Caffe Datum: a group of field {found} ends at byte {offset}, but the open group is of field \
         {allowed}"
    )]
    GroupEnd {
        /// Where the key of the end starts.
        offset: usize,
        /// The field that ends.
        found: u32,
        /// The field whose group is open.
        allowed: u32,
    },
    /// A group ends although none is open.
    #[error("not a Caffe Datum: a group of field {found} ends at byte {offset}, but none is open")]
    StrayGroupEnd {
        /// Where the key of the end starts.
        offset: usize,
        /// The field that ends.
        found: u32,
    },
    /// Groups are nested too deeply.
    #[error(
        "not a Caffe Datum: the field at byte {offset} is in {found} groups, but at most {allowed} are \
         allowed"
    )]
    GroupDepth {
        /// Where the field's key starts.
        offset: usize,
        /// The number of groups around the field.
        found: usize,
        /// The most groups that are allowed.
        allowed: usize,
    },
    /// The record holds an encoded file.
    #[error("the record holds an encoded file: decode it to get at its pixels")]
    Encoded,
    /// The pixels are an image file, which only records with `encoded` hold.
    #[error(
        "the data is {found}, but the record's `encoded` is not set, so it counts as pixels: write the \
         record with encoded: true"
    )]
    FileAsPixels {
        /// The file, with its article.
        found: &'static str,
    },
    /// A dimension is not positive.
    #[error("the image is {channels}x{height}x{width}: dimensions must be at least 1")]
    Dimensions {
        /// As in the record.
        channels: i32,
        /// As in the record.
        height: i32,
        /// As in the record.
        width: i32,
    },
    /// The image has more elements than Caffe can count.
    #[error("the image is {found}: at most {allowed} elements are allowed")]
    TooManyElements {
        /// The record's dimensions.
        found: ImageShape,
        /// The most elements that are allowed.
        allowed: usize,
    },
    /// Both `data` and `float_data` are empty.
    #[error("the record has no pixels: data and float_data are empty, and the image is {wanted}")]
    NoPixels {
        /// The record's dimensions.
        wanted: ImageShape,
    },
    /// `data` is longer or shorter than the dimensions require.
    #[error("data has {found} bytes, but an image of {wanted} has {}", elements(*wanted))]
    DataLength {
        /// The elements of `data`, of one byte each.
        found: usize,
        /// The record's dimensions.
        wanted: ImageShape,
    },
    /// `float_data` is longer or shorter than the dimensions require.
    #[error("float_data has {found} elements, but an image of {wanted} has {}", elements(*wanted))]
    FloatDataLength {
        /// The elements of `float_data`.
        found: usize,
        /// The record's dimensions.
        wanted: ImageShape,
    },
}

/// The number of elements that the dimensions require; they were checked before a length is compared with
/// them.
fn elements(shape: ImageShape) -> usize {
    shape.checked_elements().unwrap_or(usize::MAX)
}

impl From<WireError> for DatumError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Truncated { offset, wanted, found } => DatumError::Truncated { offset, wanted, found },
            WireError::Varint { offset } => DatumError::Varint { offset },
            WireError::Key { offset, found } => DatumError::Key { offset, found },
            WireError::WireType { offset, field, found, allowed } => {
                DatumError::WireType { offset, field, found, allowed }
            }
            WireError::PackedLength { offset, found, allowed } => {
                DatumError::PackedLength { offset, found, allowed }
            }
            WireError::GroupEnd { offset, found, allowed } => DatumError::GroupEnd { offset, found, allowed },
            WireError::StrayGroupEnd { offset, found } => DatumError::StrayGroupEnd { offset, found },
            WireError::GroupDepth { offset, found, allowed } => {
                DatumError::GroupDepth { offset, found, allowed }
            }
        }
    }
}
