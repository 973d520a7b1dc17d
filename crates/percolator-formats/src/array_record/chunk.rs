//! Riegeli's chunks, which run through blocks of 64 KiB.

use std::fmt;
use std::io::Read as _;
use std::ops::Range;

use highway::{HighwayHash as _, HighwayHasher, Key as HighwayKey};

use super::varint::{take_bytes, take_varint};
use crate::zstd_frames::ZstdFrames;
use crate::{DataFile, FormatError, Lent};

/// Every so many bytes, a block begins, with a header.
pub(super) const BLOCK: u64 = 1 << 16;

/// A block's header: its hash, and how far the chunks around it are.
const BLOCK_HEADER: u64 = 24;

/// A chunk's header.
const CHUNK_HEADER: u64 = 40;

/// The most bytes that a chunk unpacks to. A few bytes can unpack to any number.
const CHUNK_MAX: u64 = 1 << 33;

/// A snappy byte unpacks to fewer than this.
const SNAPPY_MAX: usize = 64;

/// HighwayHash-64 with Riegeli's key.
fn hash(bytes: &[u8]) -> u64 {
    let (first, second) = (u64::from_le_bytes(*b"Riegeli/"), u64::from_le_bytes(*b"records\n"));
    HighwayHasher::new(HighwayKey([first, second, first, second])).hash64(bytes)
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// What a chunk is, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkName {
    Signature,
    Postscript,
    Footer,
    /// Of records from the first on, so many.
    Records(u64, u64),
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChunkName::Signature => write!(f, "the signature"),
            ChunkName::Postscript => write!(f, "the postscript, at the file's end"),
            ChunkName::Footer => write!(f, "the footer"),
            ChunkName::Records(first, 1) => write!(f, "the chunk of record {first}"),
            ChunkName::Records(first, count) => {
                write!(
                    f,
                    "the chunk of records {first} to {}",
                    first.saturating_add(*count).saturating_sub(1)
                )
            }
        }
    }
}

impl ChunkName {
    fn fault(self, file: &DataFile, at: u64, what: impl fmt::Display) -> FormatError {
        self.at(FormatError::damaged(file.path(), format!("{self}: {what}")), at)
    }

    fn refusal(self, file: &DataFile, at: u64, what: impl fmt::Display) -> FormatError {
        self.at(FormatError::refused(file.path(), format!("{self}: {what}")), at)
    }

    fn at(self, error: FormatError, at: u64) -> FormatError {
        match self {
            ChunkName::Records(first, _) => error.record(first).byte(at),
            _ => error.byte(at),
        }
    }
}

/// A chunk's header, whose hash was verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkHeader {
    pub(super) kind: u8,
    pub(super) records: u64,
    /// The bytes of its records, unpacked.
    pub(super) decoded: u64,
    data_bytes: u64,
    data_hash: u64,
    data_at: u64,
}

/// Where the records of the chunk that was read are.
#[derive(Clone, Copy, Debug)]
enum ChunkValues {
    /// At this byte of the map.
    File(u64),
    /// At this byte of the chunk's data, which the reader has.
    Raw(usize),
    /// In the reader's own bytes.
    Unpacked,
}

/// Reads one chunk at a time, and keeps it. Its buffers are reused.
#[derive(Debug)]
pub(super) struct ChunkReader {
    raw: Vec<u8>,
    piece: Vec<u8>,
    sizes: Vec<u8>,
    unpacked: Vec<u8>,
    values: ChunkValues,
    /// Where each record ends.
    ends: Vec<usize>,
    frames: Option<ZstdFrames>,
}

impl ChunkReader {
    pub(super) fn new() -> Self {
        ChunkReader {
            raw: Vec::new(),
            piece: Vec::new(),
            sizes: Vec::new(),
            unpacked: Vec::new(),
            values: ChunkValues::Unpacked,
            ends: Vec::new(),
            frames: None,
        }
    }

    /// The header of the chunk at an offset.
    pub(super) fn header(
        &mut self,
        file: &DataFile,
        at: u64,
        name: ChunkName,
    ) -> Result<ChunkHeader, FormatError> {
        let gathered = gather(file, at, CHUNK_HEADER, name, &mut self.raw, &mut self.piece)?;
        let header = gathered.bytes;
        let (stored, computed) = (number_at(header, 0), hash(header.get(8..).unwrap_or_default()));
        if stored != computed {
            let what = format!(
                "header hash mismatch: {computed:#018x} computed, {stored:#018x} stored (HighwayHash-64)"
            );
            return Err(name.fault(file, at, what));
        }
        let header = ChunkHeader {
            data_bytes: number_at(header, 8),
            data_hash: number_at(header, 16),
            kind: header.get(24).copied().unwrap_or_default(),
            records: number_at(header, 24) >> 8,
            decoded: number_at(header, 32),
            data_at: gathered.end,
        };
        // A chunk of records has a byte for each size at least.
        if header.data_bytes > file.bytes() {
            let what = format!("it has {} bytes of data, more than the file", header.data_bytes);
            return Err(name.fault(file, at, what));
        }
        Ok(header)
    }

    /// Reads the chunk at an offset, and finds its records.
    pub(super) fn load(
        &mut self,
        file: &DataFile,
        at: u64,
        name: ChunkName,
    ) -> Result<ChunkHeader, FormatError> {
        self.ends.clear();
        let header = self.header(file, at, name)?;
        match header.kind {
            b'r' => {}
            b't' => {
                let what = "it is transposed (type 't'), a layout that is not documented and not read; write \
                            the file again with transpose:false";
                return Err(name.refusal(file, at, what));
            }
            kind => {
                let what = format!("its type is {:?}, and records have 'r'", char::from(kind));
                return Err(name.fault(file, at, what));
            }
        }
        let ChunkReader { raw, piece, sizes, unpacked, ends, frames, .. } = self;
        let gathered = gather(file, header.data_at, header.data_bytes, name, raw, piece)?;
        let computed = hash(gathered.bytes);
        if computed != header.data_hash {
            let what = format!(
                "data hash mismatch: {computed:#018x} computed, {:#018x} stored (HighwayHash-64)",
                header.data_hash
            );
            return Err(name.fault(file, at, what));
        }

        let parts = ChunkParts::of(gathered.bytes).map_err(|what| name.fault(file, at, what))?;
        // Where each of them ends takes 8 bytes.
        if header.records > CHUNK_MAX / 8 {
            let what = format!("it has {} records, and up to {} are read", header.records, CHUNK_MAX / 8);
            return Err(name.refusal(file, at, what));
        }
        let sizes_most = header.records.saturating_mul(10).min(CHUNK_MAX);
        let fault = |what| name.fault(file, at, what);
        let mut unpacker = Unpacker { codec: parts.codec, file, frames };
        if header.decoded > CHUNK_MAX {
            let what = format!("it unpacks to {} bytes, and up to 8 GiB are read", header.decoded);
            return Err(name.refusal(file, at, what));
        }
        let sizes = unpacker.unpack(parts.sizes, sizes_most, sizes).map_err(fault)?.unwrap_or(parts.sizes);
        find_ends(sizes, &header, ends).map_err(fault)?;
        let there = match unpacker.unpack(parts.values, header.decoded, unpacked).map_err(fault)? {
            Some(values) => {
                self.values = ChunkValues::Unpacked;
                values.len()
            }
            None => {
                let begin = gathered.bytes.len().saturating_sub(parts.values.len());
                self.values = match gathered.in_map {
                    Some(at) => ChunkValues::File(at.saturating_add(begin as u64)),
                    None => ChunkValues::Raw(begin),
                };
                parts.values.len()
            }
        };
        if u64::try_from(there) != Ok(header.decoded) {
            self.ends.clear();
            let what = format!("it has {there} bytes of records, and {} are stated", header.decoded);
            return Err(name.fault(file, at, what));
        }
        Ok(header)
    }

    /// A record of the chunk that was read last.
    pub(super) fn record<'a>(
        &'a mut self,
        file: &'a DataFile,
        index: usize,
    ) -> Result<Lent<'a>, FormatError> {
        let end = self.ends.get(index).copied().unwrap_or_default();
        let begin =
            index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        Ok(match self.values {
            ChunkValues::File(at) => {
                let byte = |offset: usize| at.saturating_add(offset as u64);
                file.lend(byte(begin)..byte(end), &mut self.raw)?
            }
            ChunkValues::Raw(at) => {
                Lent::Buffer(slice(&self.raw, at.saturating_add(begin)..at.saturating_add(end)))
            }
            ChunkValues::Unpacked => Lent::Buffer(slice(&self.unpacked, begin..end)),
        })
    }

    /// The records of the chunk that was read last.
    pub(super) fn records(&self) -> usize {
        self.ends.len()
    }
}

fn slice(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}

/// Bytes without the headers of the blocks that they run through.
struct Gathered<'a> {
    bytes: &'a [u8],
    /// Where they are in the file, if they are mapped, and in one piece.
    in_map: Option<u64>,
    end: u64,
}

fn gather<'a>(
    file: &'a DataFile,
    begin: u64,
    length: u64,
    name: ChunkName,
    buffer: &'a mut Vec<u8>,
    piece: &mut Vec<u8>,
) -> Result<Gathered<'a>, FormatError> {
    // Block headers come on top; each piece is compared with the file before it is read.
    if begin.checked_add(length).is_none_or(|end| end > file.bytes()) {
        let what = format!("it leaves the file of {} bytes: it is damaged or cut", file.bytes());
        return Err(name.fault(file, begin, what));
    }
    let in_block = |at: u64| at.checked_rem(BLOCK).unwrap_or_default();
    let mut at = begin;
    if in_block(at) == 0 {
        at = block_header(file, at, name, piece)?;
    }
    let room = BLOCK.saturating_sub(in_block(at));
    if length <= room {
        let end = at.saturating_add(length);
        let in_map = file.map().map(|_| at);
        return Ok(Gathered { bytes: file.read(at..end, buffer)?, in_map, end });
    }
    buffer.clear();
    let mut rest = length;
    while rest > 0 {
        if in_block(at) == 0 {
            at = block_header(file, at, name, piece)?;
        }
        let step = rest.min(BLOCK.saturating_sub(in_block(at)));
        let end = at.saturating_add(step);
        buffer.extend_from_slice(file.read(at..end, piece)?);
        (at, rest) = (end, rest.saturating_sub(step));
    }
    Ok(Gathered { bytes: buffer, in_map: None, end: at })
}

/// Verifies a block's header, and returns where it ends.
fn block_header(file: &DataFile, at: u64, name: ChunkName, buffer: &mut Vec<u8>) -> Result<u64, FormatError> {
    let end = at.saturating_add(BLOCK_HEADER);
    let header = file.read(at..end, buffer)?;
    let (stored, computed) = (number_at(header, 0), hash(header.get(8..).unwrap_or_default()));
    if stored == computed {
        return Ok(end);
    }
    let what =
        format!("block header hash mismatch at byte {at}: {computed:#018x} computed, {stored:#018x} stored");
    Err(name.fault(file, at, what))
}

/// The data of a chunk of records: how they are packed, their sizes, and they.
struct ChunkParts<'a> {
    codec: u8,
    sizes: &'a [u8],
    values: &'a [u8],
}

impl<'a> ChunkParts<'a> {
    fn of(data: &'a [u8]) -> Result<Self, String> {
        let cut = || "its data are too short".to_owned();
        let (&codec, mut rest) = data.split_first().ok_or_else(cut)?;
        let length = take_varint(&mut rest).ok_or_else(cut)?;
        let sizes = take_bytes(&mut rest, length)
            .ok_or_else(|| format!("its sizes are stated to have {length} bytes, more than its data"))?;
        Ok(ChunkParts { codec, sizes, values: rest })
    }
}

struct Unpacker<'a> {
    codec: u8,
    file: &'a DataFile,
    frames: &'a mut Option<ZstdFrames>,
}

impl Unpacker<'_> {
    /// Unpacks a part of a chunk, which states its length, up to `most`; `None` if nothing is packed.
    fn unpack<'b>(
        &mut self,
        mut packed: &[u8],
        most: u64,
        into: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, String> {
        if self.codec == 0 {
            return Ok(None);
        }
        let stated = take_varint(&mut packed).ok_or("a length is missing in its data")?;
        if stated > most {
            return Err(format!(
                "a part of it is stated to unpack to {stated} bytes, and {most} are due at most"
            ));
        }
        let length = usize::try_from(stated).map_err(|_| "it exceeds the memory".to_owned())?;
        into.clear();
        if length > 0 || !packed.is_empty() {
            self.append(packed, length, into)?;
        }
        if into.len() == length {
            return Ok(Some(into));
        }
        Err(format!(
            "a part of it is stated to unpack to {length} bytes, and unpacks to {} or more",
            into.len()
        ))
    }

    fn append(&mut self, packed: &[u8], length: usize, into: &mut Vec<u8>) -> Result<(), String> {
        match self.codec {
            b'z' => {
                let frames = match self.frames {
                    Some(frames) => frames,
                    None => {
                        let new = ZstdFrames::new(self.file.path()).map_err(|error| error.to_string())?;
                        self.frames.insert(new)
                    }
                };
                into.extend_from_slice(frames.unpack(packed, length)?);
            }
            b'b' => {
                // One more shows whether there are more.
                let most = (length as u64).saturating_add(1);
                brotli_decompressor::Decompressor::new(packed, 0)
                    .take(most)
                    .read_to_end(into)
                    .map_err(|error| format!("brotli: {error}"))?;
            }
            b's' => {
                let own = snap::raw::decompress_len(packed).map_err(|error| error.to_string())?;
                if own != length || length > packed.len().saturating_mul(SNAPPY_MAX) {
                    let packed = packed.len();
                    return Err(format!(
                        "{packed} snappy bytes are stated to unpack to {length} and to {own}"
                    ));
                }
                into.resize(length, 0);
                snap::raw::Decoder::new().decompress(packed, into).map_err(|error| error.to_string())?;
            }
            other => {
                let other = char::from(other);
                return Err(format!("its compression {other:?} is none of brotli, zstd and snappy"));
            }
        }
        Ok(())
    }
}

/// Where each record ends, by the sizes: as many as the chunk has records, and in sum its bytes.
fn find_ends(mut sizes: &[u8], header: &ChunkHeader, ends: &mut Vec<usize>) -> Result<(), String> {
    if header.records > sizes.len() as u64 {
        return Err(format!("it states {} records, and has {} bytes of sizes", header.records, sizes.len()));
    }
    let mut end: u64 = 0;
    for record in 0..header.records {
        let size =
            take_varint(&mut sizes).ok_or_else(|| format!("the size of its record {record} is cut"))?;
        end = end.checked_add(size).filter(|end| *end <= header.decoded).ok_or_else(|| {
            format!("its record {record} of {size} bytes leaves the {} bytes of its records", header.decoded)
        })?;
        ends.push(usize::try_from(end).map_err(|_| "it exceeds the memory".to_owned())?);
    }
    if end != header.decoded || !sizes.is_empty() {
        let decoded = header.decoded;
        ends.clear();
        return Err(format!("the sizes of its records have the sum {end}, and {decoded} is stated"));
    }
    Ok(())
}
