//! The encodings in LevelDB's files: little-endian numbers of fixed length, varints, and length-prefixed byte
//! strings.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// Reads values from the front of some bytes. A value that cannot be read is `None`, and consumes nothing.
#[derive(Clone, Debug)]
pub struct Coded<'a> {
    all: usize,
    rest: &'a [u8],
}

impl<'a> Coded<'a> {
    /// Returns a reader at the first of `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Coded { all: bytes.len(), rest: bytes }
    }

    /// Returns how many bytes have been read.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.all.saturating_sub(self.rest.len())
    }

    /// Returns whether all bytes have been read.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a varint whose value has at most 32 bits.
    #[inline]
    pub fn varint32(&mut self) -> Option<u32> {
        let (value, rest) = varint(self.rest)?;
        let value = u32::try_from(value).ok()?;
        self.rest = rest;
        Some(value)
    }

    /// Reads a varint of at most 64 bits, in at most ten bytes.
    #[inline]
    pub fn varint64(&mut self) -> Option<u64> {
        let (value, rest) = varint(self.rest)?;
        self.rest = rest;
        Some(value)
    }

    /// Reads a byte string preceded by its length, a varint.
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let mut ahead = self.clone();
        let length = usize::try_from(ahead.varint32()?).ok()?;
        let (string, rest) = ahead.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(string)
    }
}

/// Returns the varint at the front, and the bytes after it. Bits past the 64th are refused.
#[inline]
#[must_use]
pub fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = bytes;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        let bits = u64::from(byte & 0x7f);
        value |= bits << shift;
        if byte < 0x80 {
            return (value >> shift == bits).then_some((value, rest));
        }
    }
    None
}

/// Appends a varint.
#[inline]
pub fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The low seven bits, and the bit that says that more follow.
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Returns the little-endian 32-bit number at `offset`.
#[inline]
#[must_use]
pub fn fixed32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the little-endian 64-bit number at `offset`.
#[inline]
#[must_use]
pub fn fixed64(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_are_read() {
        for (bytes, value) in [
            (&[0][..], 0),
            (&[0x7f], 127),
            (&[0x80, 0x01], 128),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f], u64::from(u32::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], u64::MAX),
        ] {
            let mut coded = Coded::new(bytes);
            assert_eq!(coded.varint64(), Some(value));
            assert!(coded.is_empty());
            assert_eq!(coded.offset(), bytes.len());
            assert_eq!(Coded::new(bytes).varint32().map(u64::from), u32::try_from(value).ok().map(u64::from));
            let mut written = Vec::new();
            put_varint(&mut written, value);
            assert_eq!(written, bytes);
        }
    }

    #[test]
    fn what_is_no_number_consumes_nothing() {
        let too_long = [0xff; 11];
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        for bytes in [&[][..], &[0x80], &too_long, &too_large] {
            let mut coded = Coded::new(bytes);
            assert_eq!(
                (coded.varint64(), coded.varint32(), coded.string()),
                (None, None, None),
                "{bytes:x?}"
            );
            assert_eq!(coded.offset(), 0);
        }
        // A length greater than the number of bytes after it.
        let mut coded = Coded::new(&[2, b'a']);
        assert_eq!(coded.string(), None);
        assert_eq!(coded.offset(), 0);
        assert_eq!(Coded::new(&[1, b'a', b'b']).string(), Some(&b"a"[..]));
        assert_eq!((fixed32(&[1, 0, 0], 0), fixed32(&[0, 1, 0, 0, 0], 1)), (None, Some(1)));
        assert_eq!((fixed64(&[1; 8], 1), fixed64(&[2, 0, 0, 0, 0, 0, 0, 0], 0)), (None, Some(2)));
        assert_eq!(fixed64(&[1; 8], 100), None);
    }
}
