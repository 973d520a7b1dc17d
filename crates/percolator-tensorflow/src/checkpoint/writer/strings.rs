//! How strings and variants are stored.
//!
//! ```text
//! strings:   each one's length, a varint | masked checksum of the lengths: 4 bytes | the strings
//! variants:  each one's length, a varint | the bytes | masked checksum of all before it: 4 bytes
//! ```
//!
//! The entry's checksum does not cover the varints, but the lengths as numbers of fixed length: of strings in
//! 32 bits, in 64 if it needs them; of variants in 64. It covers the stored checksums.

use std::io;

use percolator_files::checksum::Crc32c;
use percolator_leveldb::coding::put_varint;

use super::data_file::Sink;

/// Writes strings; returns their masked checksum. They are gone through twice.
pub(super) fn put_strings<S: AsRef<[u8]>>(
    file: &mut impl Sink,
    strings: impl Iterator<Item = S> + Clone,
) -> io::Result<u32> {
    let mut checksum = Crc32c::new();
    let mut varint = Vec::new();
    for string in strings.clone() {
        let length = string.as_ref().len();
        match u32::try_from(length) {
            Ok(length) => checksum.update(&length.to_le_bytes()),
            Err(_) => checksum.update(&(length as u64).to_le_bytes()),
        }
        varint.clear();
        put_varint(&mut varint, length as u64);
        file.put_unsummed(&varint)?;
    }
    let lengths = checksum.masked();
    file.put(&lengths.to_le_bytes(), &mut checksum)?;
    for string in strings {
        file.put(string.as_ref(), &mut checksum)?;
    }
    Ok(checksum.masked())
}

/// Writes serialized variants; returns their masked checksum.
pub(super) fn put_variants<S: AsRef<[u8]>>(
    file: &mut impl Sink,
    variants: impl Iterator<Item = S>,
) -> io::Result<u32> {
    let mut checksum = Crc32c::new();
    let mut varint = Vec::new();
    for variant in variants {
        let length = variant.as_ref().len() as u64;
        varint.clear();
        put_varint(&mut varint, length);
        file.put_unsummed(&varint)?;
        checksum.update(&length.to_le_bytes());
        file.put(variant.as_ref(), &mut checksum)?;
        let so_far = checksum.masked();
        file.put(&so_far.to_le_bytes(), &mut checksum)?;
    }
    Ok(checksum.masked())
}
