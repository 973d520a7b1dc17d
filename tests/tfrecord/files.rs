//! Files for tests: the naive twin of the format, and cursors of every kind over them.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use percolator::source::{Access, Source, TfRecord};
use percolator::tfrecord::Compression;

use crate::common;
use crate::common::indexed::Records;

pub(crate) const COMPRESSIONS: [Compression; 3] = [Compression::Plain, Compression::Gzip, Compression::Zlib];

/// The folder of what TensorFlow wrote.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/tensorflow").join(name)
}

/// TensorFlow's masked checksum, by another library.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The naive twin of the writer: a plain file of these records.
pub(crate) fn framed<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    for record in records {
        let length = (record.len() as u64).to_le_bytes();
        file.extend_from_slice(&length);
        file.extend_from_slice(&masked(&length));
        file.extend_from_slice(record);
        file.extend_from_slice(&masked(record));
    }
    file
}

/// The naive twin of the reader: the records of a plain file up to the first that is not whole.
pub(crate) fn parsed(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file;
    let mut records = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<8>()
        && let Some((checksum, behind)) = behind.split_first_chunk::<4>()
        && *checksum == masked(length)
        && let Ok(bytes) = usize::try_from(u64::from_le_bytes(*length))
        && let Some((data, behind)) = behind.split_at_checked(bytes)
        && let Some((checksum, behind)) = behind.split_first_chunk::<4>()
        && *checksum == masked(data)
    {
        records.push(data.to_vec());
        rest = behind;
    }
    records
}

/// Compresses bytes as this many members.
pub(crate) fn packed(bytes: &[u8], compression: Compression, members: usize) -> Vec<u8> {
    packed_at(bytes, compression, members, flate2::Compression::fast())
}

/// The same, at this level.
pub(crate) fn packed_at(
    bytes: &[u8],
    compression: Compression,
    members: usize,
    level: flate2::Compression,
) -> Vec<u8> {
    let piece = bytes.len().div_ceil(members).max(1);
    let mut file = Vec::new();
    for piece in bytes.chunks(piece) {
        match compression {
            Compression::Plain => file.extend_from_slice(piece),
            Compression::Gzip => {
                let mut member = GzEncoder::new(&mut file, level);
                member.write_all(piece).unwrap();
                member.finish().unwrap();
            }
            Compression::Zlib => {
                let mut member = ZlibEncoder::new(&mut file, level);
                member.write_all(piece).unwrap();
                member.finish().unwrap();
            }
        }
    }
    file
}

/// The naive twin of unpacking, one byte at a time: what a file unpacks to up to the first damage, and
/// whether there is none.
pub(crate) fn unpacked(file: &[u8], compression: Compression) -> (Vec<u8>, bool) {
    let is_gzip = compression == Compression::Gzip;
    let (mut rest, mut out, mut members) = (file, Vec::new(), 0);
    // One byte completes at most eight symbols.
    let mut piece = [0; 8 * 258];
    // Zeros may follow the last member.
    while !rest.is_empty() && (members == 0 || rest.iter().any(|byte| *byte != 0)) {
        members += 1;
        if is_gzip {
            let member = GzDecoder::new(rest);
            if member.header().is_none() {
                return (out, false);
            }
            rest = member.into_inner();
        }
        let mut crc = Crc::new();
        let mut member = Decompress::new(!is_gzip);
        loop {
            let (byte, behind) = rest.split_at(rest.len().min(1));
            let flush = if byte.is_empty() { FlushDecompress::Finish } else { FlushDecompress::None };
            let before = (member.total_in(), member.total_out());
            let status = member.decompress(byte, &mut piece, flush);
            let made = &piece[..(member.total_out() - before.1) as usize];
            crc.update(made);
            out.extend_from_slice(made);
            if member.total_in() > before.0 {
                rest = behind;
            }
            match status {
                Ok(Status::StreamEnd) => break,
                Ok(_) if before != (member.total_in(), member.total_out()) => {}
                _ => return (out, false),
            }
        }
        if is_gzip {
            let due = [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat();
            match rest.strip_prefix(&due[..]) {
                Some(behind) => rest = behind,
                None => return (out, false),
            }
        }
    }
    (out, true)
}

/// Records of all sizes: empty, small, on several pages, larger than any window.
pub(crate) fn mixed(records: usize) -> Records {
    let value = |index: usize| {
        let bytes = [0, 1, 100, 1900, 17_000, 4080, 66_000, 300_000][index * 7 % 8];
        (0..bytes).map(|at| common::pixel(index, at)).collect()
    };
    (0..records).map(|index| (common::key(index), value(index))).collect()
}

/// Writes a file of these records, whose keys are their positions.
pub(crate) fn write(path: &Path, records: &Records, compression: Compression, members: usize) {
    let bytes = framed(records.iter().map(|(_, value)| &value[..]));
    fs::write(path, packed(&bytes, compression, members)).unwrap();
}

pub(crate) fn open(path: &Path, access: Access) -> TfRecord {
    TfRecord::options().access(access).open(path).unwrap()
}

/// The values of a cursor until it ends or fails, and the error.
pub(crate) fn values(source: &dyn Source) -> (Vec<Vec<u8>>, Option<String>) {
    let mut values = Vec::new();
    let mut cursor = match source.cursor() {
        Ok(cursor) => cursor,
        Err(error) => return (values, Some(error.to_string())),
    };
    loop {
        match cursor.advance() {
            Ok(Some(entry)) => values.push(entry.value().to_vec()),
            Ok(None) => return (values, None),
            Err(error) => return (values, Some(error.to_string())),
        }
    }
}
