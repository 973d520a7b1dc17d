//! The values of an index: its header, and an entry for each tensor. They are protobuf messages, and are read
//! without an allocation per entry, because an index may have a hundred thousand of them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use percolator_leveldb::coding;
use prost::Message as _;

use self::BadEntry::Malformed;
use super::index::AXES_MAX;
use crate::proto::BundleHeaderProto;
use crate::proto::bundle_header_proto::Endianness;

/// The version of the format that this reader is for.
const VERSION: i32 = 1;

/// The first value of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shards: u32,
    pub(super) is_big_endian: bool,
    /// The writer's version of the format; 0 is that of writers before versions.
    pub(super) producer: i32,
}

/// Why a header is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Malformed(String),
    Version { producer: i32, message: String },
}

impl Header {
    pub(super) fn read(value: &[u8]) -> Result<Self, BadHeader> {
        let malformed = |message: String| BadHeader::Malformed(message);
        let header = BundleHeaderProto::decode(value)
            .map_err(|error| malformed(format!("its header is malformed: {error}")))?;
        let version = header.version.unwrap_or_default();
        let producer = version.producer;
        let refused = |message: String| Err(BadHeader::Version { producer, message });
        if version.min_consumer > VERSION {
            let least = version.min_consumer;
            return refused(format!("it asks for a reader of version {least}: this one is of {VERSION}"));
        }
        if version.bad_consumers.contains(&VERSION) {
            return refused(format!("it excludes readers of version {VERSION}, which this is"));
        }
        let shards = u32::try_from(header.num_shards).map_err(|_| {
            malformed(format!("its header states {} data files: that is no number", header.num_shards))
        })?;
        let order = Endianness::try_from(header.endianness).map_err(|_| {
            let found = header.endianness;
            malformed(format!("its header states the byte order {found}: 0 (little) and 1 (big) are known"))
        })?;
        Ok(Header { shards, is_big_endian: order == Endianness::Big, producer })
    }
}

/// The value of an index for one tensor, as it is stored: nothing is checked yet but its form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawEntry {
    pub(super) data_type: i64,
    pub(super) dims: Vec<i64>,
    pub(super) has_unknown_rank: bool,
    pub(super) shard: i64,
    pub(super) offset: i64,
    pub(super) bytes: i64,
    /// The masked crc32c of those bytes.
    pub(super) stored: u32,
    /// The slices in which the tensor is stored, each with an extent for each axis; none if it is whole.
    pub(super) slices: Vec<Vec<RawExtent>>,
}

/// An extent of a slice on one axis; no length is the whole axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawExtent {
    pub(super) start: i64,
    pub(super) length: Option<i64>,
}

/// Why an entry is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadEntry {
    /// It is no message of its kind.
    Malformed,
    /// Its slices take more memory than is left for them.
    Slices,
}

/// One field of a message.
enum Field<'a> {
    Varint(i64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    /// Of a kind that no field here has.
    Fixed64,
}

impl<'a> Field<'a> {
    fn varint(&self) -> Result<i64, BadEntry> {
        if let Field::Varint(value) = self { Ok(*value) } else { Err(Malformed) }
    }

    fn bytes(&self) -> Result<&'a [u8], BadEntry> {
        if let Field::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }
}

/// Returns the varint at the front, and the bytes after it. Most have one byte.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => Some((byte.into(), rest)),
        _ => coding::varint(bytes),
    }
}

/// Calls `with` for each field of a message, by its number.
#[inline]
fn each_field<'a>(
    message: &'a [u8],
    mut with: impl FnMut(u32, Field<'a>) -> Result<(), BadEntry>,
) -> Result<(), BadEntry> {
    /// The low bits of a field's key, which tell its kind.
    const KIND_BITS: u32 = 3;
    let mut rest = message;
    while !rest.is_empty() {
        let (key, after) = varint(rest).ok_or(Malformed)?;
        let key = u32::try_from(key).map_err(|_| Malformed)?;
        let (field, after) = match key & 0b111 {
            0 => {
                let (value, after) = varint(after).ok_or(Malformed)?;
                (Field::Varint(value.cast_signed()), after)
            }
            1 => (Field::Fixed64, after.get(size_of::<u64>()..).ok_or(Malformed)?),
            2 => {
                let (length, after) = varint(after).ok_or(Malformed)?;
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                let (bytes, after) = after.split_at_checked(length).ok_or(Malformed)?;
                (Field::Bytes(bytes), after)
            }
            5 => {
                let (bytes, after) = after.split_first_chunk().ok_or(Malformed)?;
                (Field::Fixed32(u32::from_le_bytes(*bytes)), after)
            }
            // Groups, which TensorFlow never had.
            _ => return Err(Malformed),
        };
        match key >> KIND_BITS {
            0 => return Err(Malformed),
            number => with(number, field)?,
        }
        rest = after;
    }
    Ok(())
}

impl RawEntry {
    /// Reads another entry into this one, whose buffers it keeps. Its slices may take `left` bytes of memory,
    /// from which theirs are taken: two bytes of an entry can state one.
    pub(super) fn read(&mut self, value: &[u8], left: &mut usize) -> Result<(), BadEntry> {
        let (mut dims, mut slices) = (std::mem::take(&mut self.dims), std::mem::take(&mut self.slices));
        dims.clear();
        slices.clear();
        *self = RawEntry { dims, slices, ..RawEntry::default() };
        each_field(value, |number, field| {
            match number {
                1 => self.data_type = field.varint()?,
                2 => self.read_shape(field.bytes()?)?,
                3 => self.shard = field.varint()?,
                4 => self.offset = field.varint()?,
                5 => self.bytes = field.varint()?,
                6 => match field {
                    Field::Fixed32(stored) => self.stored = stored,
                    _ => return Err(Malformed),
                },
                7 => {
                    let slice = read_slice(field.bytes()?)?;
                    let extents = slice.capacity().saturating_mul(size_of::<RawExtent>());
                    let bytes = extents.saturating_add(size_of::<Vec<RawExtent>>());
                    *left = left.checked_sub(bytes).ok_or(BadEntry::Slices)?;
                    self.slices.push(slice);
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn read_shape(&mut self, shape: &[u8]) -> Result<(), BadEntry> {
        each_field(shape, |number, field| {
            match number {
                2 => {
                    let mut size = 0;
                    each_field(field.bytes()?, |number, field| {
                        if number == 1 {
                            size = field.varint()?;
                        }
                        Ok(())
                    })?;
                    self.dims.push(size);
                }
                3 => self.has_unknown_rank = field.varint()? != 0,
                _ => {}
            }
            Ok(())
        })
    }
}

/// Reads a slice, of no more axes than a tensor has.
fn read_slice(slice: &[u8]) -> Result<Vec<RawExtent>, BadEntry> {
    let mut extents = Vec::new();
    each_field(slice, |number, field| {
        if number == 1 {
            if extents.len() >= AXES_MAX {
                return Err(Malformed);
            }
            let mut extent = RawExtent::default();
            each_field(field.bytes()?, |number, field| {
                match number {
                    1 => extent.start = field.varint()?,
                    2 => extent.length = Some(field.varint()?),
                    _ => {}
                }
                Ok(())
            })?;
            extents.push(extent);
        }
        Ok(())
    })?;
    Ok(extents)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::tensor_slice_proto::Extent;
    use crate::proto::tensor_slice_proto::extent::HasLengthHack;
    use crate::proto::{
        BundleEntryProto, TensorShapeProto, TensorSliceProto, VersionDef, tensor_shape_proto,
    };

    #[test]
    fn a_header_that_may_not_be_read_says_why() {
        let header = |shards: i32, endianness: i32, min_consumer: i32, bad_consumers: Vec<i32>| {
            let version = Some(VersionDef { producer: 1, min_consumer, bad_consumers });
            Header::read(&BundleHeaderProto { num_shards: shards, endianness, version }.encode_to_vec())
        };
        assert_eq!(header(2, 0, 0, vec![]), Ok(Header { shards: 2, is_big_endian: false, producer: 1 }));
        assert!(header(2, 1, 1, vec![0, 2]).unwrap().is_big_endian);
        let message = |found: Result<Header, BadHeader>| match found.unwrap_err() {
            BadHeader::Malformed(message) | BadHeader::Version { message, .. } => message,
        };
        assert!(message(header(2, 0, 2, vec![])).contains("asks for a reader of version 2"));
        assert!(message(header(2, 0, 0, vec![3, 1])).contains("readers of version 1"));
        assert!(message(header(-1, 0, 0, vec![])).contains("-1 data files"));
        assert!(message(header(1, 2, 0, vec![])).contains("the byte order 2"));
        assert!(message(Header::read(&[8])).contains("malformed"));
        let empty = Header { shards: 0, is_big_endian: false, producer: 0 };
        assert_eq!(Header::read(&[]), Ok(empty), "a header of before versions");
    }

    fn entries() -> impl Strategy<Value = BundleEntryProto> {
        let number = prop_oneof![any::<i64>(), 0..300_i64];
        let extent = (number.clone(), prop::option::of(number.clone()))
            .prop_map(|(start, length)| Extent { start, has_length_hack: length.map(HasLengthHack::Length) });
        let slice = prop::collection::vec(extent, 0..3).prop_map(|extent| TensorSliceProto { extent });
        let dim = (number.clone(), "a?").prop_map(|(size, name)| tensor_shape_proto::Dim { size, name });
        let shape = (prop::collection::vec(dim, 0..4), any::<bool>())
            .prop_map(|(dim, unknown_rank)| TensorShapeProto { dim, unknown_rank });
        let places = (0..40_i32, any::<i32>(), number.clone(), number, any::<u32>());
        (places, prop::option::of(shape), prop::collection::vec(slice, 0..3)).prop_map(
            |((dtype, shard_id, offset, size, crc32c), shape, slices)| BundleEntryProto {
                dtype,
                shape,
                shard_id,
                offset,
                size,
                crc32c,
                slices,
            },
        )
    }

    /// What prost reads of an entry.
    fn naive(value: &[u8]) -> Option<RawEntry> {
        let entry = BundleEntryProto::decode(value).ok()?;
        let shape = entry.shape.unwrap_or_default();
        let slice = |slice: TensorSliceProto| {
            let extent = |extent: Extent| {
                let length = extent.has_length_hack.map(|HasLengthHack::Length(length)| length);
                RawExtent { start: extent.start, length }
            };
            slice.extent.into_iter().map(extent).collect()
        };
        Some(RawEntry {
            data_type: entry.dtype.into(),
            dims: shape.dim.into_iter().map(|dim| dim.size).collect(),
            has_unknown_rank: shape.unknown_rank,
            shard: entry.shard_id.into(),
            offset: entry.offset,
            bytes: entry.size,
            stored: entry.crc32c,
            slices: entry.slices.into_iter().map(slice).collect(),
        })
    }

    proptest! {
        #[test]
        fn entries_are_what_prost_reads(entry in entries(), other in entries()) {
            let mut found = RawEntry::default();
            let mut value = entry.encode_to_vec();
            prop_assert_eq!(found.read(&value, &mut { usize::MAX }), Ok(()));
            prop_assert_eq!(Some(found.clone()), naive(&value));
            // A field that the schema does not have, and fields that come twice.
            value.extend([0x45, 1, 2, 3, 4, 0x49, 1, 2, 3, 4, 5, 6, 7, 8, 0x52, 1, b'a', 0x58, 0]);
            value.extend(other.encode_to_vec());
            prop_assert_eq!(found.read(&value, &mut { usize::MAX }), Ok(()));
            prop_assert_eq!(Some(found.clone()), naive(&value));
        }

        /// What this reader takes, prost takes, and as the same, but for numbers that fit no field.
        #[test]
        fn damage_is_read_alike_or_refused(
            entry in entries(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut value = entry.encode_to_vec();
            prop_assume!(!value.is_empty());
            for (at, byte) in changes {
                let at = at.index(value.len());
                value[at] = byte;
            }
            let mut found = RawEntry::default();
            if found.read(&value, &mut { usize::MAX }) == Ok(()) && let Some(mut due) = naive(&value) {
                if i32::try_from(found.data_type).is_err() || i32::try_from(found.shard).is_err() {
                    (due.data_type, due.shard) = (found.data_type, found.shard);
                }
                prop_assert_eq!(found, due);
            }
        }
    }
}
