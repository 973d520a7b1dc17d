//! The protobuf wire format: keys, varints, chunks and groups, accepted and refused as by prost.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::RangeInclusive;

/// The most groups and messages that a field may be nested in: prost goes no deeper, so that no message
/// exhausts the stack.
const GROUP_DEPTH_MAX: usize = 99;

// Wire types: the size of a value.
pub(crate) const VARINT: u32 = 0;
const FIXED64: u32 = 1;
pub(crate) const CHUNK: u32 = 2;
const GROUP_START: u32 = 3;
const GROUP_END: u32 = 4;
pub(crate) const FIXED32: u32 = 5;

/// Why bytes are not a protobuf message. Offsets count from the start of the record.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("the value at byte {offset} takes {wanted} bytes, but {found} are left")]
    Truncated {
        /// Where the value starts.
        offset: usize,
        /// The bytes the value takes.
        wanted: u64,
        /// The bytes from there to the end of its message.
        found: usize,
    },
    /// A varint does not end, or has more than 64 bits.
    #[error("the varint at byte {offset} does not end within its message and within 64 bits")]
    Varint {
        /// Where the varint starts.
        offset: usize,
    },
    /// A key has a field number or a wire type that protobuf does not have.
    #[error("the key at byte {offset} is {found:#x}: fields must be 1 to 536870911, and wire types 0 to 5")]
    Key {
        /// Where the key starts.
        offset: usize,
        /// The key: the field number, with the wire type in the low three bits.
        found: u64,
    },
    /// A field has a different type than in the schema.
    #[error("field {field} at byte {offset} has wire type {found}, but must have {allowed}")]
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
    /// A packed field ends inside an element.
    #[error("the packed field at byte {offset} has {found} bytes, but must have a multiple of {allowed}")]
    PackedLength {
        /// Where the field's length starts.
        offset: usize,
        /// The bytes of its elements.
        found: usize,
        /// The bytes of an element.
        allowed: usize,
    },
    /// A group ends that is not the innermost open one.
    #[error("a group of field {found} ends at byte {offset}, but the open group is of field {allowed}")]
    GroupEnd {
        /// Where the key of the end starts.
        offset: usize,
        /// The field that ends.
        found: u32,
        /// The field whose group is open.
        allowed: u32,
    },
    /// A group ends although none is open.
    #[error("a group of field {found} ends at byte {offset}, but none is open")]
    StrayGroupEnd {
        /// Where the key of the end starts.
        offset: usize,
        /// The field that ends.
        found: u32,
    },
    /// Groups and messages are nested too deeply.
    #[error(
        "the field at byte {offset} is in {found} groups and messages, but at most {allowed} are allowed"
    )]
    GroupDepth {
        /// Where the field's key starts.
        offset: usize,
        /// The number of groups and messages around the field.
        found: usize,
        /// The most that are allowed.
        allowed: usize,
    },
}

/// The number of a field, with its wire type in the low three bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u32);

impl Key {
    pub(crate) const fn new(number: u32, wire_type: u32) -> Key {
        Key(number << 3 | wire_type)
    }

    pub(crate) fn number(self) -> u32 {
        self.0 >> 3
    }

    pub(crate) fn wire_type(self) -> u32 {
        self.0 & 7
    }

    /// The error for a field, whose key is at `offset`, that has another wire type than these.
    #[cold]
    pub(crate) fn wrong_type(self, offset: usize, allowed: &'static str) -> WireError {
        WireError::WireType { offset, field: self.number(), found: self.wire_type(), allowed }
    }
}

/// Reads a message from its front.
///
/// Invariant: `rest` is the end of `message`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire<'a> {
    message: &'a [u8],
    rest: &'a [u8],
    /// Where the message starts in its record.
    start: usize,
    /// The number of messages around this one.
    depth: usize,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Wire<'a> {
        Wire { message, rest: message, start: 0, depth: 0 }
    }

    /// All bytes of the message, read or not.
    pub(crate) fn message(&self) -> &'a [u8] {
        self.message
    }

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Skips bytes, of which [`rest`](Self::rest) has as many.
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// The message in a chunk.
    #[inline]
    pub(crate) fn nested(&mut self) -> Result<Wire<'a>, WireError> {
        let message = self.chunk()?;
        let start = self.offset().saturating_sub(message.len());
        Ok(Wire { message, rest: message, start, depth: self.depth.saturating_add(1) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn offset(&self) -> usize {
        self.start.saturating_add(self.read())
    }

    /// The last bytes of the message, `len` of them, as a message of their own.
    #[inline]
    pub(crate) fn end(self, len: usize) -> Wire<'a> {
        let at = self.message.len().saturating_sub(len);
        let message = self.message.get(at..).unwrap_or_default();
        Wire {
            message,
            rest: message,
            start: self.start.saturating_add(at),
            depth: self.depth.saturating_add(1),
        }
    }

    /// The message's place in its record: start and end.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.start, self.start.saturating_add(self.message.len()))
    }

    /// The message at this place of a record, with `depth` messages around it.
    pub(crate) fn at(record: &'a [u8], (start, end): (usize, usize), depth: usize) -> Wire<'a> {
        let message = record.get(start..end).unwrap_or_default();
        Wire { message, rest: message, start, depth }
    }

    /// The number of bytes that were read.
    fn read(&self) -> usize {
        self.message.len().saturating_sub(self.rest.len())
    }

    #[inline]
    pub(crate) fn key(&mut self) -> Result<Key, WireError> {
        let offset = self.offset();
        let found = self.varint()?;
        match u32::try_from(found).map(Key) {
            Ok(key) if key.number() > 0 && key.wire_type() <= FIXED32 => Ok(key),
            _ => Err(WireError::Key { offset, found }),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline]
    fn long_varint(&mut self) -> Result<u64, WireError> {
        let Some((value, taken)) = varint(self.rest) else {
            return Err(WireError::Varint { offset: self.offset() });
        };
        self.advance(taken);
        Ok(value)
    }

    /// An integer that a writer may have widened to 64 bits, as all writers do with a negative one.
    #[expect(clippy::cast_possible_truncation, reason = "protobuf keeps the low 32 bits")]
    #[inline]
    pub(crate) fn int32(&mut self) -> Result<i32, WireError> {
        Ok(self.varint()? as i32)
    }

    #[inline]
    fn take(&mut self, len: u64) -> Result<&'a [u8], WireError> {
        let taken = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let Some((taken, rest)) = taken else { return Err(self.truncated(len)) };
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn chunk(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.varint()?;
        self.take(len)
    }

    /// The next field of these numbers, all of which are chunks, with its number; skips other fields. `None`
    /// at the end of the message.
    #[inline]
    pub(crate) fn next_of(
        &mut self,
        known: RangeInclusive<u32>,
    ) -> Result<Option<(u32, Wire<'a>)>, WireError> {
        while !self.is_empty() {
            let offset = self.offset();
            let key = self.key()?;
            match known.contains(&key.number()) {
                true if key.wire_type() == CHUNK => return Ok(Some((key.number(), self.nested()?))),
                true => return Err(key.wrong_type(offset, "2")),
                false => self.skip(key, offset)?,
            }
        }
        Ok(None)
    }

    /// The elements of a packed field, of `N` bytes each.
    pub(crate) fn packed<const N: usize>(&mut self) -> Result<&'a [[u8; N]], WireError> {
        let offset = self.offset();
        let chunk = self.chunk()?;
        match chunk.as_chunks() {
            (elements, []) => Ok(elements),
            _ => Err(WireError::PackedLength { offset, found: chunk.len(), allowed: N }),
        }
    }

    /// Returns the four-byte field whose key was read last, and all fields that follow it with the same key
    /// in one byte. Each item is the last byte of its key, then its value.
    pub(crate) fn run(&mut self, key: Key) -> Result<&'a [[u8; 5]], WireError> {
        // The first key may be written in more bytes than it needs; with its last byte alone, the field is as
        // long as the others.
        let from_key = self.message.get(self.read().saturating_sub(1)..).unwrap_or_default();
        let (fields, _) = from_key.as_chunks();
        let alike = |[first, ..]: &&[u8; 5]| u32::from(*first) == key.0;
        let followers = fields.iter().skip(1).take_while(alike).count();
        let Some((run, _)) = fields.split_at_checked(followers.saturating_add(1)) else {
            return Err(self.truncated(4));
        };
        self.rest = from_key.get(run.as_flattened().len()..).unwrap_or_default();
        Ok(run)
    }

    /// Skips a field, whose key is at `offset`, by its wire type alone.
    #[inline(never)]
    pub(crate) fn skip(&mut self, key: Key, offset: usize) -> Result<(), WireError> {
        self.skip_in_groups(key, offset, self.depth)
    }

    /// Skips a field in `depth` groups and messages, whose key is at `offset`. The recursion is bounded.
    fn skip_in_groups(&mut self, key: Key, offset: usize, depth: usize) -> Result<(), WireError> {
        if depth > GROUP_DEPTH_MAX {
            return Err(WireError::GroupDepth { offset, found: depth, allowed: GROUP_DEPTH_MAX });
        }
        match key.wire_type() {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            CHUNK => self.chunk().map(drop),
            GROUP_START => self.skip_group(key.number(), depth),
            GROUP_END => Err(WireError::StrayGroupEnd { offset, found: key.number() }),
            // `key` lets no other wire type through.
            _fixed32 => self.take(4).map(drop),
        }
    }

    fn skip_group(&mut self, number: u32, depth: usize) -> Result<(), WireError> {
        loop {
            let offset = self.offset();
            let key = self.key()?;
            if key.wire_type() != GROUP_END {
                self.skip_in_groups(key, offset, depth.saturating_add(1))?;
            } else if key.number() == number {
                return Ok(());
            } else {
                return Err(WireError::GroupEnd { offset, found: key.number(), allowed: number });
            }
        }
    }

    #[cold]
    fn truncated(&self, wanted: u64) -> WireError {
        WireError::Truncated { offset: self.offset(), wanted, found: self.rest.len() }
    }
}

/// The chunk at the front of `bytes` and what follows it, if its key is this one byte.
#[inline]
pub(crate) fn chunk_after(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, after_first) = rest.split_first()?;
    if found != key {
        return None;
    }
    if first < 0x80 {
        return after_first.split_at_checked(usize::from(first));
    }
    let (len, taken) = varint(rest)?;
    rest.get(taken..)?.split_at_checked(usize::try_from(len).ok()?)
}

/// The varint at the front of `bytes`, and how many of them it takes; `None` if it does not end there and
/// within 64 bits.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (&byte, (shift, taken)) in bytes.iter().zip((0..u64::BITS).step_by(7).zip(1..)) {
        let bits = u64::from(byte & 0x7f);
        value |= bits.wrapping_shl(shift);
        if byte < 0x80 {
            // Only the tenth byte can have bits beyond the 64th.
            return (value.wrapping_shr(shift) == bits).then_some((value, taken));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<u64, WireError> {
        Wire::new(bytes).varint()
    }

    /// Skips the one field at the start of `bytes`.
    fn skip(bytes: &[u8]) -> Result<usize, WireError> {
        let mut wire = Wire::new(bytes);
        let key = wire.key()?;
        wire.skip(key, 0)?;
        Ok(wire.offset())
    }

    #[test]
    fn a_varint_has_64_bits_at_most() {
        assert_eq!(varint(&[0x7f]), Ok(127));
        assert_eq!(varint(&[0xac, 0x02, 9]), Ok(300));
        assert_eq!(varint(&[0x80, 0x00]), Ok(0), "padding is allowed");
        let mut bytes = [0xff; 11];
        bytes[9] = 1;
        assert_eq!(varint(&bytes), Ok(u64::MAX));
        for tenth in [0x02, 0x7f, 0x80, 0x81] {
            bytes[9] = tenth;
            assert_eq!(varint(&bytes), Err(WireError::Varint { offset: 0 }));
        }
    }

    #[test]
    fn a_varint_ends_within_the_message() {
        assert_eq!(varint(&[]), Err(WireError::Varint { offset: 0 }));
        assert_eq!(varint(&[0x80; 9]), Err(WireError::Varint { offset: 0 }));
        assert_eq!(skip(&[0x40, 0x80]), Err(WireError::Varint { offset: 1 }));
    }

    #[test]
    fn a_key_is_within_protobufs_bounds() {
        let key = |bytes| Wire::new(bytes).key().map(|key| (key.number(), key.wire_type()));
        assert_eq!(
            key(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            Err(WireError::Key { offset: 0, found: 0xffff_ffff })
        );
        assert_eq!(key(&[0xf8, 0xff, 0xff, 0xff, 0x0f]), Ok((536_870_911, VARINT)));
        for (bytes, found) in
            [(&[0x05][..], 5), (&[0x46], 0x46), (&[0xc0, 0x80, 0x80, 0x80, 0x10], (1 << 32) + 0x40)]
        {
            assert_eq!(key(bytes), Err(WireError::Key { offset: 0, found }));
        }
    }

    #[test]
    fn a_chunk_is_within_the_message() {
        let error = WireError::Truncated { offset: 2, wanted: 3, found: 2 };
        assert_eq!(skip(&[0x42, 3, 0, 0]), Err(error));
        let longest = [0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0];
        let error = WireError::Truncated { offset: 11, wanted: u64::MAX, found: 1 };
        assert_eq!(skip(&longest), Err(error));
    }

    #[test]
    fn groups_end_in_order() {
        assert_eq!(skip(&[0x43, 0x4b, 0x08, 1, 0x4c, 0x44, 0xff]), Ok(6));
        let error = WireError::GroupEnd { offset: 2, found: 8, allowed: 9 };
        assert_eq!(skip(&[0x43, 0x4b, 0x44, 0x4c]), Err(error));
        assert_eq!(skip(&[0x44]), Err(WireError::StrayGroupEnd { offset: 0, found: 8 }));
        assert_eq!(skip(&[0x43]), Err(WireError::Varint { offset: 1 }));
    }

    #[test]
    fn groups_nest_a_hundred_deep() {
        let nested =
            |groups: usize, inner: &[u8]| [&[0x43].repeat(groups), inner, &[0x44].repeat(groups)].concat();
        assert_eq!(skip(&nested(100, &[])), Ok(200));
        assert_eq!(skip(&nested(99, &[0x40, 1])), Ok(200));
        let error = WireError::GroupDepth { offset: 100, found: 100, allowed: 99 };
        assert_eq!(skip(&nested(100, &[0x40, 1])), Err(error.clone()));
        assert_eq!(skip(&nested(101, &[])), Err(error));
    }
}
