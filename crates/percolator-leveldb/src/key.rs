//! The keys of LevelDB's tables: the user's key, then a tag: the number of the write that stored the key, and
//! the kind of that write.
//!
//! Entries with the same user key are stored newest first, so their tags, as numbers, decrease.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The tag at the end of a key in a table.
pub(crate) const TAG_BYTES: usize = 8;

/// The longest key allowed, without its tag.
///
/// Tables store a key as its difference from the key before it, so the keys of a database can have thousands
/// of times its length in total. They are compared, and copied by runs, key by key. Only a limit bounds that
/// work. Caffe's keys, a number and a path, have some 300 bytes at most.
pub(crate) const KEY_BYTES_MAX: usize = 8 << 10;

/// Sequence numbers have 56 bits; the rest of a tag is the kind.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 56) - 1;

pub(crate) const DELETION: u8 = 0;
pub(crate) const VALUE: u8 = 1;

/// A write's sequence number and its kind. Later writes have larger tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) fn new(sequence: u64, kind: u8) -> Self {
        Tag(sequence << 8 | u64::from(kind))
    }

    /// Returns the tag as a key ends with it.
    pub(crate) fn to_bytes(self) -> [u8; TAG_BYTES] {
        self.0.to_le_bytes()
    }

    #[inline]
    pub(crate) fn sequence(self) -> u64 {
        self.0 >> 8
    }

    #[inline]
    pub(crate) fn kind(self) -> u64 {
        self.0 & 0xff
    }

    #[inline]
    pub(crate) fn is_deletion(self) -> bool {
        self.kind() == u64::from(DELETION)
    }
}

/// Splits a table's key into user key and tag; `None` if it is too short to have both.
#[inline]
pub(crate) fn split(key: &[u8]) -> Option<(&[u8], Tag)> {
    let (user, tag) = key.split_last_chunk::<TAG_BYTES>()?;
    Some((user, Tag(u64::from_le_bytes(*tag))))
}

/// Returns the user's part of a key.
#[inline]
pub(crate) fn user(key: &[u8]) -> &[u8] {
    split(key).map_or(key, |(user, _)| user)
}

/// Formats a key for messages: its first bytes, escaped.
pub(crate) fn shown(key: &[u8]) -> String {
    const SHOWN_BYTES: usize = 64;
    match key.get(..SHOWN_BYTES) {
        Some(start) if key.len() > SHOWN_BYTES => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}
