//! Unpacks a shard that is compressed as a whole.

use std::io::{self, Read};
use std::sync::Arc;

use super::hashes;
use super::index::Packed;
use crate::unpack::{Packing, check_length, check_stated, whole};
use crate::{DataFile, FormatError};

/// The bytes of a shard, which are as many as the index says. No more memory is taken, whatever the file
/// unpacks to.
pub(super) fn unpacked(file: &Arc<DataFile>, packed: &Packed, bytes: u64) -> Result<Vec<u8>, FormatError> {
    let mut buffer = Vec::new();
    let stored = file.read(0..file.bytes(), &mut buffer)?;
    hashes::verify(file, "the compressed shard", stored, &packed.hashes)?;
    check_stated(file, bytes)?;
    let most = usize::try_from(bytes).unwrap_or(usize::MAX);
    // One more than there may be shows that there are more.
    let room = most.saturating_add(1);
    let mut unpacked = Vec::new();
    let failed = |error: io::Error| {
        let what = format!("it cannot be unpacked as {}: {error}", packed.algorithm);
        FormatError::damaged(file.path(), what)
    };
    match packed.algorithm.as_str() {
        "zstd" => unpacked = whole(file, Packing::Zstd, bytes)?,
        "gz" => unpacked = whole(file, Packing::Gzip, bytes)?,
        "bz2" => {
            let decoder = bzip2::read::MultiBzDecoder::new(stored);
            decoder.take(room as u64).read_to_end(&mut unpacked).map_err(failed)?;
        }
        "br" => {
            let decoder = brotli_decompressor::Decompressor::new(stored, 1 << 16);
            decoder.take(room as u64).read_to_end(&mut unpacked).map_err(failed)?;
        }
        "snappy" => {
            let length =
                snap::raw::decompress_len(stored).map_err(|error| failed(io::Error::other(error)))?;
            check_length(file, length, bytes)?;
            let whole = snap::raw::Decoder::new().decompress_vec(stored);
            unpacked = whole.map_err(|error| failed(io::Error::other(error)))?;
        }
        other => {
            let known = "zstd, gz, bz2, snappy and br are read";
            return Err(FormatError::refused(file.path(), format!("it is compressed by {other:?}; {known}")));
        }
    }
    check_length(file, unpacked.len(), bytes)?;
    hashes::verify(file, "the unpacked shard", &unpacked, &packed.raw_hashes)?;
    Ok(unpacked)
}
