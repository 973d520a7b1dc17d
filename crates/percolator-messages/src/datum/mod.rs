//! Reads a record's bytes in place as a Caffe `Datum`.
//!
//! The view copies no pixels and does not allocate, so parsing costs the same for a record of any size. In
//! pseudocode it is just this:
//!
//! ```text
//! while bytes are left:
//!     key = varint
//!     a field of Datum: keep its value, or the place of its bytes; a later one wins
//!     any other field:  skip it
//! ```
//!
//! It accepts and refuses exactly the messages that prost does, and reads the same values from them: a
//! record's meaning must not depend on which of the two reads it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod error;
mod floats;

pub use error::DatumError;
pub use floats::{Floats, Strided};

use crate::wire::{Key, Wire};
use percolator_files::what::ImageFormat;
use percolator_image::{ImageShape, Planes};

/// The most elements that an image may have: Caffe counts a blob's elements in an `int`.
pub const IMAGE_ELEMENTS_MAX: usize = i32::MAX as usize;

/// The fields of a `Datum`.
mod key {
    use std::ops::RangeInclusive;

    use crate::wire::{CHUNK, FIXED32, Key, VARINT};

    pub(super) const FIELDS: RangeInclusive<u32> = 1..=7;

    pub(super) const CHANNELS: Key = Key::new(1, VARINT);
    pub(super) const HEIGHT: Key = Key::new(2, VARINT);
    pub(super) const WIDTH: Key = Key::new(3, VARINT);
    pub(super) const DATA: Key = Key::new(4, CHUNK);
    pub(super) const LABEL: Key = Key::new(5, VARINT);
    pub(super) const FLOAT_DATA: Key = Key::new(6, FIXED32);
    pub(super) const FLOAT_DATA_PACKED: Key = Key::new(6, CHUNK);
    pub(super) const ENCODED: Key = Key::new(7, VARINT);
}

/// A record as in its bytes: absent fields are zero or empty.
///
/// ```
/// use percolator_messages::{Datum, Pixels};
///
/// // channels 1, height 1, width 2, data [7, 9], label 3
/// let record = [0x08, 1, 0x10, 1, 0x18, 2, 0x22, 2, 7, 9, 0x28, 3];
/// let datum = Datum::parse(&record)?;
/// assert_eq!(datum.label, 3);
/// assert!(matches!(datum.image()?.pixels, Pixels::U8([7, 9])));
/// # Ok::<(), percolator_messages::DatumError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Datum<'a> {
    /// Number of channels.
    pub channels: i32,
    /// Rows.
    pub height: i32,
    /// Columns.
    pub width: i32,
    /// The class of the image, or another number that the dataset's author put there.
    pub label: i32,
    /// Whether `data` is an encoded file rather than pixels.
    pub encoded: bool,
    /// Pixels of one byte each, or else a whole encoded file.
    pub data: &'a [u8],
    /// Pixels as floats.
    pub floats: Floats<'a>,
}

impl<'a> Datum<'a> {
    /// Reads a record. The result borrows the pixels.
    ///
    /// Like prost, it keeps the last value of a field that occurs twice, accepts `float_data` both packed and
    /// unpacked, keeps the low 32 bits of a longer integer, and skips fields that a `Datum` does not have.
    ///
    /// # Errors
    ///
    /// If the bytes are not a `Datum`; these are the cases in which prost refuses them.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Datum<'a>, DatumError> {
        let mut datum = Datum::default();
        let mut wire = Wire::new(bytes);
        while !wire.is_empty() {
            let offset = wire.offset();
            match wire.key()? {
                key::CHANNELS => datum.channels = wire.int32()?,
                key::HEIGHT => datum.height = wire.int32()?,
                key::WIDTH => datum.width = wire.int32()?,
                key::DATA => datum.data = wire.chunk()?,
                key::LABEL => datum.label = wire.int32()?,
                key::FLOAT_DATA => datum.floats.add(Strided::Unpacked(wire.run(key::FLOAT_DATA)?), bytes),
                key::FLOAT_DATA_PACKED => datum.floats.add(Strided::Packed(wire.packed()?), bytes),
                key::ENCODED => datum.encoded = wire.varint()? != 0,
                other if key::FIELDS.contains(&other.number()) => return Err(wrong_type(other, offset)),
                other => wire.skip(other, offset)?,
            }
        }
        Ok(datum)
    }

    /// The pixels and their shape, which agree.
    ///
    /// As in Caffe's `DataTransformer`, `data` holds the pixels unless it is empty. Caffe does not compare
    /// the number of pixels with the dimensions, and reads past the end of a record that has too few.
    ///
    /// # Errors
    ///
    /// If the record holds an encoded file, if its dimensions are not positive or require more elements than
    /// Caffe can count, or if it has no pixels or not as many as the dimensions require.
    #[inline]
    pub fn image(&self) -> Result<Image<'a>, DatumError> {
        self.pixels().map_err(|error| self.or_file(error))
    }

    /// The error for a record whose data are a whole file, if they are.
    #[cold]
    fn or_file(&self, error: DatumError) -> DatumError {
        let found = match ImageFormat::of(self.data) {
            Some(ImageFormat::Jpeg) => "a JPEG file",
            Some(ImageFormat::Png) => "a PNG file",
            None => return error,
        };
        if self.encoded { error } else { DatumError::FileAsPixels { found } }
    }

    #[inline]
    fn pixels(&self) -> Result<Image<'a>, DatumError> {
        if self.encoded {
            return Err(DatumError::Encoded);
        }
        let shape = self.shape()?;
        let elements = shape.checked_elements().filter(|&elements| elements <= IMAGE_ELEMENTS_MAX);
        let Some(elements) = elements else {
            return Err(DatumError::TooManyElements { found: shape, allowed: IMAGE_ELEMENTS_MAX });
        };
        if !self.data.is_empty() {
            if self.data.len() != elements {
                return Err(DatumError::DataLength { found: self.data.len(), wanted: shape });
            }
            return Ok(Image { shape, pixels: Pixels::U8(self.data) });
        }
        if self.floats.is_empty() {
            return Err(DatumError::NoPixels { wanted: shape });
        }
        if self.floats.len() != elements {
            return Err(DatumError::FloatDataLength { found: self.floats.len(), wanted: shape });
        }
        Ok(Image { shape, pixels: Pixels::F32(self.floats) })
    }

    fn shape(&self) -> Result<ImageShape, DatumError> {
        let Datum { channels, height, width, .. } = *self;
        let positive = |len: i32| usize::try_from(len).ok().filter(|&len| len > 0);
        match (positive(channels), positive(height), positive(width)) {
            (Some(channels), Some(height), Some(width)) => Ok(ImageShape { channels, height, width }),
            _ => Err(DatumError::Dimensions { channels, height, width }),
        }
    }
}

/// An image with as many pixels as its shape has elements.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Channels, rows and columns, none of them zero.
    pub shape: ImageShape,
    /// Channel by channel and row by row.
    pub pixels: Pixels<'a>,
}

impl<'a> From<Planes<'a>> for Image<'a> {
    fn from(Planes { shape, bytes }: Planes<'a>) -> Self {
        Image { shape, pixels: Pixels::U8(bytes) }
    }
}

/// The pixels of an image.
#[derive(Clone, Copy, Debug)]
pub enum Pixels<'a> {
    /// From the record's `data`.
    U8(&'a [u8]),
    /// From the record's `float_data`.
    F32(Floats<'a>),
}

#[cold]
fn wrong_type(key: Key, offset: usize) -> DatumError {
    let allowed = match key.number() {
        4 => "2",
        6 => "2 or 5",
        _ => "0",
    };
    key.wrong_type(offset, allowed).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: Datum<'static> = Datum {
        channels: 3,
        height: 1,
        width: 2,
        label: 0,
        encoded: false,
        data: &[1, 2, 3, 4, 5, 6],
        floats: Floats::EMPTY,
    };

    fn floats_record(len: usize) -> Vec<u8> {
        [0x35, 0, 0, 0x80, 0x3f].repeat(len)
    }

    #[test]
    fn absent_fields_are_zero() {
        let datum = Datum::parse(&[]).unwrap();
        assert_eq!((datum.channels, datum.height, datum.width, datum.label), (0, 0, 0, 0));
        assert!(!datum.encoded && datum.data.is_empty() && datum.floats.is_empty());
    }

    #[test]
    fn the_last_of_a_field_wins() {
        let record = [0x08, 9, 0x22, 1, 5, 0x38, 1, 0x08, 1, 0x22, 2, 6, 7, 0x38, 0];
        let datum = Datum::parse(&record).unwrap();
        assert_eq!((datum.channels, datum.data, datum.encoded), (1, &[6, 7][..], false));
    }

    #[test]
    fn data_is_borrowed() {
        let record = [0x22, 2, 6, 7];
        assert!(std::ptr::eq(Datum::parse(&record).unwrap().data, &record[2..]));
    }

    #[test]
    fn integers_keep_their_low_32_bits() {
        let minus_one = [0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Datum::parse(&minus_one).unwrap().label, -1);
        let two_to_32_and_5 = [0x28, 0x85, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(Datum::parse(&two_to_32_and_5).unwrap().label, 5);
        let two_to_32 = [0x38, 0x80, 0x80, 0x80, 0x80, 0x10];
        assert!(Datum::parse(&two_to_32).unwrap().encoded, "a bool is any bit of 64");
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        let record =
            [0x40, 7, 0x41, 0, 1, 2, 3, 4, 5, 6, 7, 0x42, 1, 9, 0x43, 0x44, 0x45, 0, 0, 0, 0, 0x28, 3];
        assert_eq!(Datum::parse(&record).unwrap().label, 3);
    }

    #[test]
    fn known_fields_have_their_own_wire_types() {
        for (record, field, found, allowed) in [
            (&[0x28, 1, 0x0d, 0, 0, 0, 0][..], 1, 5, "0"),
            (&[0x28, 1, 0x20, 1], 4, 0, "2"),
            (&[0x28, 1, 0x31, 0, 0, 0, 0, 0, 0, 0, 0], 6, 1, "2 or 5"),
            (&[0x28, 1, 0x3c], 7, 4, "0"),
        ] {
            let error = DatumError::WireType { offset: 2, field, found, allowed };
            assert_eq!(Datum::parse(record).unwrap_err(), error);
        }
    }

    #[test]
    fn an_image_takes_data_before_floats() {
        let record = floats_record(6);
        let floats = Datum::parse(&record).unwrap().floats;
        let image = Datum { floats, ..IMAGE }.image().unwrap();
        assert_eq!(image.shape, ImageShape { channels: 3, height: 1, width: 2 });
        assert!(matches!(image.pixels, Pixels::U8([1, 2, 3, 4, 5, 6])));
        let image = Datum { floats, data: &[], ..IMAGE }.image().unwrap();
        assert!(matches!(image.pixels, Pixels::F32(floats) if floats.len() == 6));
    }

    #[test]
    fn an_encoded_record_is_no_image_yet() {
        let error = Datum { encoded: true, ..IMAGE }.image().unwrap_err();
        assert_eq!(error, DatumError::Encoded);
        assert_eq!(error.to_string(), "the record holds an encoded file: decode it to get at its pixels");
    }

    #[test]
    fn dimensions_are_positive() {
        for (channels, height, width) in [(0, 1, 1), (1, -1, 1), (1, 1, i32::MIN)] {
            let error = Datum { channels, height, width, ..IMAGE }.image().unwrap_err();
            assert_eq!(error, DatumError::Dimensions { channels, height, width });
        }
    }

    #[test]
    fn elements_are_bounded() {
        let max = i32::MAX;
        for (channels, height, width) in [(max, max, max), (2, 1 << 15, 1 << 15)] {
            let error = Datum { channels, height, width, ..IMAGE }.image().unwrap_err();
            assert!(matches!(error, DatumError::TooManyElements { allowed: IMAGE_ELEMENTS_MAX, .. }));
        }
        let error = Datum { channels: 1, height: 1, width: max, ..IMAGE }.image().unwrap_err();
        assert!(matches!(error, DatumError::DataLength { found: 6, .. }), "the bound itself is allowed");
    }

    #[test]
    fn pixels_are_as_many_as_the_dimensions_say() {
        let wanted = ImageShape { channels: 3, height: 1, width: 2 };
        for data in [&[0; 5][..], &[0; 7]] {
            let error = Datum { data, ..IMAGE }.image().unwrap_err();
            assert_eq!(error, DatumError::DataLength { found: data.len(), wanted });
        }
        for found in [5, 7] {
            let record = floats_record(found);
            let floats = Datum::parse(&record).unwrap().floats;
            let error = Datum { data: &[], floats, ..IMAGE }.image().unwrap_err();
            assert_eq!(error, DatumError::FloatDataLength { found, wanted });
        }
        let error = Datum { data: &[], ..IMAGE }.image().unwrap_err();
        assert_eq!(error, DatumError::NoPixels { wanted });
    }
}
