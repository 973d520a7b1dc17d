//! Unpacks a shard that is compressed as a whole.

use std::io::{self, Read};
use std::sync::Arc;

use super::hashes;
use super::index::Packed;
use crate::unpack::{Packing, Unpacked};
use crate::{DataFile, FormatError};

/// The bytes of a shard, which are as many as the index says. No more memory is taken, whatever the file
/// unpacks to.
pub(super) fn unpacked(file: &Arc<DataFile>, packed: &Packed, bytes: u64) -> Result<Vec<u8>, FormatError> {
    let mut buffer = Vec::new();
    let stored = file.read(0..file.bytes(), &mut buffer)?;
    hashes::verify(file, "the compressed shard", stored, &packed.hashes)?;
    let most = usize::try_from(bytes).unwrap_or(usize::MAX);
    // One more than there may be shows that there are more.
    let room = most.saturating_add(1);
    let mut unpacked = Vec::new();
    let failed = |error: io::Error| {
        let what = format!("it cannot be unpacked as {}: {error}", packed.algorithm);
        FormatError::damaged(file.path(), what)
    };
    match packed.algorithm.as_str() {
        "zstd" => drop(Unpacked::new(file, Packing::Zstd)?.append(&mut unpacked, room)?),
        "gz" => drop(Unpacked::new(file, Packing::Gzip)?.append(&mut unpacked, room)?),
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
            if length != most {
                return Err(wrong_length(file, length, bytes));
            }
            let whole = snap::raw::Decoder::new().decompress_vec(stored);
            unpacked = whole.map_err(|error| failed(io::Error::other(error)))?;
        }
        other => {
            let known = "zstd, gz, bz2, snappy and br are read";
            return Err(FormatError::refused(file.path(), format!("it is compressed by {other:?}; {known}")));
        }
    }
    if unpacked.len() != most {
        return Err(wrong_length(file, unpacked.len(), bytes));
    }
    hashes::verify(file, "the unpacked shard", &unpacked, &packed.raw_hashes)?;
    Ok(unpacked)
}

fn wrong_length(file: &DataFile, found: usize, due: u64) -> FormatError {
    let more = if found as u64 > due { "more than " } else { "" };
    let found = due.min(found as u64);
    let what = format!("it unpacks to {more}{found} bytes, and the index says {due}");
    FormatError::damaged(file.path(), what)
}
