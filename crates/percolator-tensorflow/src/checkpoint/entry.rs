//! The values of an index: its header, and an entry for each tensor.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use prost::Message as _;

use super::index::AXES_MAX;
use crate::proto::bundle_header_proto::Endianness;
use crate::proto::tensor_slice_proto::Extent;
use crate::proto::tensor_slice_proto::extent::HasLengthHack;
use crate::proto::{BundleEntryProto, BundleHeaderProto, TensorShapeProto, TensorSliceProto};

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
    pub(super) data_type: i32,
    pub(super) dims: Vec<i64>,
    pub(super) has_unknown_rank: bool,
    pub(super) shard: i32,
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

impl RawEntry {
    /// Reads an entry. Its slices may take `left` bytes of memory, from which theirs are taken: two bytes of
    /// an entry can state one.
    pub(super) fn read(value: &[u8], left: &mut usize) -> Result<Self, BadEntry> {
        let entry = BundleEntryProto::decode(value).map_err(|_| BadEntry::Malformed)?;
        let mut slices = Vec::with_capacity(entry.slices.len());
        for TensorSliceProto { extent } in entry.slices {
            // No more axes than a tensor has.
            if extent.len() > AXES_MAX {
                return Err(BadEntry::Malformed);
            }
            let bytes = extent.len().saturating_mul(size_of::<RawExtent>());
            let bytes = bytes.saturating_add(size_of::<Vec<RawExtent>>());
            *left = left.checked_sub(bytes).ok_or(BadEntry::Slices)?;
            let extents = extent.into_iter().map(|Extent { start, has_length_hack }| RawExtent {
                start,
                length: has_length_hack.map(|HasLengthHack::Length(length)| length),
            });
            slices.push(extents.collect());
        }
        let TensorShapeProto { dim, unknown_rank } = entry.shape.unwrap_or_default();
        Ok(RawEntry {
            data_type: entry.dtype,
            dims: dim.into_iter().map(|dim| dim.size).collect(),
            has_unknown_rank: unknown_rank,
            shard: entry.shard_id,
            offset: entry.offset,
            bytes: entry.size,
            stored: entry.crc32c,
            slices,
        })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::proto::VersionDef;

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

    #[test]
    fn slices_take_as_much_memory_as_is_left() {
        let slice = |axes| TensorSliceProto { extent: vec![Extent::default(); axes] };
        let read = |slices, mut left| {
            let entry = BundleEntryProto { dtype: 1, slices, ..Default::default() };
            RawEntry::read(&entry.encode_to_vec(), &mut left).map(|entry| (entry.slices.len(), left))
        };
        assert_eq!(read(vec![slice(1), slice(0)], 72), Ok((2, 0)));
        assert_eq!(read(vec![slice(1), slice(0)], 71), Err(BadEntry::Slices));
        assert_eq!(read(vec![slice(AXES_MAX)], usize::MAX).map(|(slices, _)| slices), Ok(1));
        assert_eq!(read(vec![slice(AXES_MAX + 1)], usize::MAX), Err(BadEntry::Malformed));
        assert_eq!(RawEntry::read(&[8], &mut 0), Err(BadEntry::Malformed));
    }
}
