//! The orientation of an image, by its EXIF.
//!
//! This follows OpenCV's reader even where it departs from the standard, because what OpenCV takes for the
//! orientation decides what Caffe trains on:
//!
//! - Only the directory that the header points to is read, entry after entry. An entry of a tag that OpenCV
//!   knows, with a value outside the block, ends the reading. What was found before it counts.
//! - Of two orientations the first counts. A value that is not 1 to 8 turns nothing.
//! - A block is little-endian if it starts with `II`, and otherwise big-endian, whatever it starts with.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::ImageShape;

/// The number after the byte order in a TIFF header.
const TIFF_MARK: u16 = 42;
const ENTRY_BYTES: u32 = 12;
/// Values of at most this length are stored in the entry itself.
const INLINE_BYTES_MAX: usize = 4;

/// The tag of the orientation.
const ORIENTATION: u16 = 0x0112;

/// How to turn an image: transposed first, then flipped. The default is not to turn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Orientation {
    pub(super) transposed: bool,
    /// The first column becomes the last.
    pub(super) mirrored: bool,
    /// The first row becomes the last.
    pub(super) upside_down: bool,
}

impl Orientation {
    /// The orientation with this EXIF number.
    pub(super) fn from_exif(number: u16) -> Self {
        let (transposed, mirrored, upside_down) = match number {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self { transposed, mirrored, upside_down }
    }

    /// The shape of an image after this turn.
    pub(super) fn apply(self, shape: ImageShape) -> ImageShape {
        let ImageShape { channels, height, width } = shape;
        if self.transposed { ImageShape { channels, height: width, width: height } } else { shape }
    }
}

/// The orientation in an EXIF block, which starts with its TIFF header. A malformed block turns nothing.
pub(super) fn orientation(block: &[u8]) -> Orientation {
    let little_endian = match block {
        [first] => *first == b'I',
        [first, second, ..] => (*first, *second) == (b'I', b'I'),
        [] => return Orientation::default(),
    };
    let mut found = None;
    // `None` means that OpenCV stops there; what was found before counts.
    let _ = Tiff { block, little_endian }.read_directory(&mut found);
    found.map_or_else(Orientation::default, Orientation::from_exif)
}

struct Tiff<'a> {
    block: &'a [u8],
    little_endian: bool,
}

impl Tiff<'_> {
    fn read_directory(&self, orientation: &mut Option<u16>) -> Option<()> {
        if self.u16(2)? != TIFF_MARK {
            return None;
        }
        let start = self.u32(4)?;
        let entries = self.u16(start)?;
        let mut offset = start.wrapping_add(2);
        for _ in 0..entries {
            let tag = self.u16(offset)?;
            let value = offset.wrapping_add(8);
            match tag {
                ORIENTATION => {
                    let number = self.u16(value)?;
                    orientation.get_or_insert(number);
                }
                // Description, make, model, software, date, copyright.
                0x010e | 0x010f | 0x0110 | 0x0131 | 0x0132 | 0x8298 => self.check_text(offset)?,
                // Resolution unit, position of the chroma samples.
                0x0128 | 0x0213 => drop(self.u16(value)?),
                // Resolutions, white point, primaries, coefficients, reference levels.
                0x011a | 0x011b => self.check_rationals(value, 1)?,
                0x013e => self.check_rationals(value, 2)?,
                0x013f | 0x0214 => self.check_rationals(value, 6)?,
                0x0211 => self.check_rationals(value, 3)?,
                _ => {}
            }
            offset = offset.wrapping_add(ENTRY_BYTES);
        }
        Some(())
    }

    fn check_text(&self, entry: u32) -> Option<()> {
        let len = self.u32(entry.wrapping_add(4))? as usize;
        // OpenCV looks for a short text at the start of the block, not in its entry, and so does this.
        let at = if len > INLINE_BYTES_MAX { self.u32(entry.wrapping_add(8))? as usize } else { 8 };
        self.block.get(at..at.checked_add(len)?).map(drop)
    }

    fn check_rationals(&self, value: u32, count: u32) -> Option<()> {
        let mut at = self.u32(value)?;
        for _ in 0..count {
            self.u32(at)?;
            self.u32(at.wrapping_add(4))?;
            at = at.wrapping_add(8);
        }
        Some(())
    }

    fn u16(&self, offset: u32) -> Option<u16> {
        let bytes = *self.block.get(offset as usize..)?.first_chunk()?;
        Some(if self.little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn u32(&self, offset: u32) -> Option<u32> {
        let bytes = *self.block.get(offset as usize..)?.first_chunk()?;
        Some(if self.little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A block in big-endian order with these entries: tag, type, count, value.
    fn block(entries: &[(u16, u16, u32, u32)]) -> Vec<u8> {
        let mut block = b"MM\0*\0\0\0\x08".to_vec();
        block.extend(u16::try_from(entries.len()).unwrap().to_be_bytes());
        for &(tag, kind, count, value) in entries {
            block.extend(tag.to_be_bytes());
            block.extend(kind.to_be_bytes());
            block.extend(count.to_be_bytes());
            block.extend(value.to_be_bytes());
        }
        block
    }

    const SIXTH: (u16, u16, u32, u32) = (ORIENTATION, 3, 1, 6 << 16);
    const NONE: Orientation = Orientation { transposed: false, mirrored: false, upside_down: false };

    #[test]
    fn both_byte_orders_are_read() {
        let sixth = Orientation::from_exif(6);
        assert_ne!(sixth, NONE);
        assert_eq!(orientation(&block(&[SIXTH])), sixth);
        let little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
        assert_eq!(orientation(little), sixth);
    }

    #[test]
    fn what_is_not_a_block_turns_nothing() {
        let whole = block(&[SIXTH]);
        for len in 0..20 {
            assert_eq!(orientation(&whole[..len]), NONE, "cut to {len}");
        }
        assert_ne!(orientation(&whole[..20]), NONE, "the value itself is there");
        let mut other = whole;
        other[3] = 43;
        assert_eq!(orientation(&other), NONE, "not TIFF");
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), NONE, "a directory outside");
    }

    #[test]
    fn an_entry_whose_value_lies_outside_ends_the_reading() {
        let make = (0x010f, 2, 100, 1000);
        assert_eq!(orientation(&block(&[make, SIXTH])), NONE);
        assert_ne!(orientation(&block(&[SIXTH, make])), NONE, "what was found before it counts");
        let resolution = (0x011a, 5, 1, u32::MAX);
        assert_eq!(orientation(&block(&[resolution, SIXTH])), NONE);
        let unknown = (0x9999, 2, 100, 1000);
        assert_ne!(orientation(&block(&[unknown, SIXTH])), NONE, "an unknown tag is skipped");
    }

    #[test]
    fn the_first_of_two_holds_and_only_1_to_8_turn() {
        let of = |number: u32| (ORIENTATION, 3, 1, number << 16);
        assert_eq!(orientation(&block(&[of(1), of(6)])), NONE);
        assert_eq!(orientation(&block(&[of(9)])), NONE);
        assert_eq!(orientation(&block(&[of(0), of(6)])), NONE);
    }
}
