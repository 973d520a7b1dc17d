//! Strings and variants in a data file.
//!
//! ```text
//! strings    their lengths, as varints | masked crc32c of the lengths | their bytes, one after the other
//! variants   for each: its length, as a varint | its bytes | masked crc32c of all before it
//! ```
//!
//! The checksums are over lengths as numbers of 4 bytes (8 for a string of 4 GiB or more, and for variants)
//! in the byte order of the writer, over the inner checksums as they are stored, and over the bytes.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crc_fast::{CrcAlgorithm, Digest};
use percolator_files::checksum::mask;
use percolator_leveldb::coding::varint;

use super::read::crc32c_of;

/// The bytes of a stored checksum.
pub(super) const CHECKSUM_BYTES: usize = size_of::<u32>();

/// What was made of byte strings, and the crc32c of the whole, not masked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Strings<T> {
    pub(super) strings: Vec<T>,
    pub(super) crc32c: u32,
}

/// Reads all strings of a tensor: `make` is called with each. `bytes` are at least as many as there are
/// strings.
pub(super) fn read_strings<'a, T>(
    bytes: &'a [u8],
    count: usize,
    is_big_endian: bool,
    make: impl Fn(&'a [u8]) -> T,
) -> Result<Strings<T>, String> {
    if bytes.is_empty() && count == 0 {
        // So it is read by TensorFlow, whatever wrote it.
        return Ok(Strings { strings: Vec::new(), crc32c: 0 });
    }
    let mut checksum = Checksum::new(is_big_endian);
    let mut rest = bytes;
    for number in 0..count {
        let (length, after) =
            varint(rest).ok_or_else(|| format!("the length of string {number} is no number"))?;
        checksum.length(length);
        rest = after;
    }
    let (stored, mut rest) = rest.split_first_chunk().ok_or("its lengths take more bytes than it has")?;
    checksum.inner(*stored, "the lengths of its strings have")?;
    checksum.bytes(rest);
    let mut strings = reserve(count)?;
    // The lengths are read once more: kept, they would take more memory than many a string.
    let mut lengths = bytes;
    for number in 0..count {
        let (length, after) = varint(lengths).unwrap_or_default();
        lengths = after;
        let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (string, after) = split.ok_or_else(|| {
            format!("string {number} has {length} bytes, and {} bytes are left of the tensor", rest.len())
        })?;
        strings.push(make(string));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes are left after its last string", rest.len()));
    }
    Ok(Strings { strings, crc32c: checksum.end() })
}

/// Reads all variants of a tensor: `make` is called with each as it is serialized.
pub(super) fn read_variants<'a, T>(
    bytes: &'a [u8],
    count: usize,
    is_big_endian: bool,
    make: impl Fn(&'a [u8]) -> T,
) -> Result<Strings<T>, String> {
    let mut checksum = Checksum::new(is_big_endian);
    let mut rest = bytes;
    let mut strings = reserve(count)?;
    for number in 0..count {
        let (length, after) =
            varint(rest).ok_or_else(|| format!("the length of variant {number} is no number"))?;
        checksum.long_length(length);
        let split = usize::try_from(length).ok().and_then(|length| after.split_at_checked(length));
        let (variant, after) = split.ok_or_else(|| {
            format!("variant {number} has {length} bytes, and {} bytes are left of the tensor", after.len())
        })?;
        checksum.bytes(variant);
        let (stored, after) = after.split_first_chunk().ok_or("its last variant has no checksum")?;
        checksum.inner(*stored, &format!("the tensor up to variant {number} has"))?;
        strings.push(make(variant));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes are left after its last variant", rest.len()));
    }
    Ok(Strings { strings, crc32c: checksum.end() })
}

/// Returns a vector with room for a count that a file states.
fn reserve<T>(count: usize) -> Result<Vec<T>, String> {
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|_| format!("there is no memory for its {count} strings"))?;
    Ok(items)
}

/// The checksum over strings, as it grows.
struct Checksum {
    digest: Digest,
    is_big_endian: bool,
    /// Lengths that are not in the digest yet: they are too short to be added one by one.
    lengths: Vec<u8>,
}

impl Checksum {
    /// How many bytes of lengths are added at a time.
    const LENGTHS_BYTES: usize = 4096;

    fn new(is_big_endian: bool) -> Self {
        Checksum { digest: Digest::new(CrcAlgorithm::Crc32Iscsi), is_big_endian, lengths: Vec::new() }
    }

    fn length(&mut self, length: u64) {
        match u32::try_from(length) {
            Ok(short) if self.is_big_endian => self.lengths.extend(short.to_be_bytes()),
            Ok(short) => self.lengths.extend(short.to_le_bytes()),
            Err(_) => self.long_length(length),
        }
        if self.lengths.len() >= Self::LENGTHS_BYTES {
            self.flush();
        }
    }

    fn long_length(&mut self, length: u64) {
        let bytes = if self.is_big_endian { length.to_be_bytes() } else { length.to_le_bytes() };
        self.lengths.extend(bytes);
    }

    fn flush(&mut self) {
        self.digest.update(&self.lengths);
        self.lengths.clear();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.flush();
        self.digest.update(bytes);
    }

    /// Compares with the checksum that is stored of all up to here, and adds that to the whole.
    fn inner(&mut self, stored: [u8; CHECKSUM_BYTES], what: &str) -> Result<(), String> {
        self.flush();
        let found = mask(crc32c_of(&self.digest));
        let number = if self.is_big_endian { u32::from_be_bytes(stored) } else { u32::from_le_bytes(stored) };
        if number != found {
            return Err(format!("{what} the masked crc32c {found:#010x} instead of {number:#010x}"));
        }
        self.digest.update(&stored);
        Ok(())
    }

    fn end(mut self) -> u32 {
        self.flush();
        crc32c_of(&self.digest)
    }
}
