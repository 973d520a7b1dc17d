//! The first value of an index: its header.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;

use prost::Message as _;

use super::error::CheckpointError;
use crate::proto::{BundleHeaderProto, VersionDef};

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

impl Header {
    /// Reads the header of the index at this path, which is for messages.
    pub(super) fn read(path: &Path, value: &[u8]) -> Result<Self, CheckpointError> {
        let refused = |message: String| CheckpointError::Index { index: path.to_owned(), message };
        let header = BundleHeaderProto::decode(value)
            .map_err(|error| refused(format!("its header is malformed: {error}")))?;
        let VersionDef { producer, min_consumer, bad_consumers } = header.version.unwrap_or_default();
        if min_consumer > VERSION || bad_consumers.contains(&VERSION) {
            let asks = match min_consumer > VERSION {
                true => format!("is for readers of version {min_consumer} and later"),
                false => format!("excludes readers of version {VERSION}"),
            };
            return Err(refused(format!(
                "its writer's version of the format is {producer}: it {asks}, and this one is of version \
                 {VERSION}; save it with another version of TensorFlow"
            )));
        }
        let shards = u32::try_from(header.num_shards).map_err(|_| {
            refused(format!("its header states {} data files: that is no number", header.num_shards))
        })?;
        let is_big_endian = match header.endianness {
            0 => false,
            1 => true,
            found => {
                let known = "0 (little) and 1 (big) are known";
                return Err(refused(format!("its header states the byte order {found}: {known}")));
            }
        };
        Ok(Header { shards, is_big_endian, producer })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_may_not_be_read_says_why() {
        let read = |value: &[u8]| Header::read(Path::new("x.index"), value);
        let header = |shards: i32, endianness: i32, min_consumer: i32, bad_consumers: Vec<i32>| {
            let version = Some(VersionDef { producer: 1, min_consumer, bad_consumers });
            read(&BundleHeaderProto { num_shards: shards, endianness, version }.encode_to_vec())
        };
        assert_eq!(header(2, 0, 0, vec![]), Ok(Header { shards: 2, is_big_endian: false, producer: 1 }));
        assert!(header(2, 1, 1, vec![0, 2]).unwrap().is_big_endian);
        let message = |found: Result<Header, CheckpointError>| found.unwrap_err().to_string();
        assert!(message(header(2, 0, 2, vec![])).contains("is for readers of version 2 and later"));
        assert!(
            message(header(2, 0, 0, vec![3, 1])).contains("excludes readers of version 1, and this one is")
        );
        assert!(message(header(-1, 0, 0, vec![])).contains("-1 data files"));
        assert!(message(header(1, 2, 0, vec![])).contains("the byte order 2"));
        assert!(message(read(&[8])).contains("malformed"));
        let empty = Header { shards: 0, is_big_endian: false, producer: 0 };
        assert_eq!(read(&[]), Ok(empty), "a header of before versions");
    }
}
