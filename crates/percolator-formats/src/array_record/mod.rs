//! `ArrayRecord`: Riegeli's chunks of records, and a footer that says where they are.
//!
//! A chunk is read, verified and unpacked once, and kept while its records are read. Records of chunks that
//! are not packed, and lie in one block, are lent. All hashes are verified. Transposed chunks are refused.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod chunk;
mod varint;

use std::path::Path;
use std::sync::Arc;

use self::chunk::{BLOCK, ChunkName, ChunkReader};
use crate::known_settings::KnownSettings;
use crate::raw_grammar::RawGrammar;
use crate::{Cursor, DataFile, FormatError, Grammar, Key, Options, Place, Record, Seeks, Shard};

/// What a file of Riegeli begins with: the hash of its first block's header.
const SIGNATURE: [u8; 8] = [0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f];

/// The number by which a postscript is known.
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;

/// Tells a file by its first bytes.
#[must_use]
pub fn is(_path: &Path, head: &[u8]) -> bool {
    head.starts_with(&SIGNATURE)
}

/// Opens a file. It has no settings.
///
/// # Errors
///
/// [`FormatError::Damaged`] if signature, postscript or footer are damaged, or the file is cut.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "array-record", options, &[])?;
    let file = DataFile::open(path, options.access)?;
    let (bytes, least) = (file.bytes(), BLOCK.saturating_mul(2));
    if bytes < least || !bytes.is_multiple_of(BLOCK) {
        let what = format!(
            "it has {bytes} bytes, and an ArrayRecord file has a multiple of 64 KiB, {least} at least: no \
             postscript ends it, so it is incomplete"
        );
        return Err(FormatError::damaged(path, what));
    }
    let mut reader = ChunkReader::new();
    let signature = reader.header(&file, 0, ChunkName::Signature)?;
    if signature.kind != b's' {
        return Err(FormatError::damaged(
            path,
            "no signature of Riegeli begins it: it is no ArrayRecord file",
        ));
    }
    let footer_at = footer_offset(&file, &mut reader)?;
    let chunks = chunks(&file, footer_at, &mut reader)?;
    let records = chunks.last().map_or(0, ChunkEntry::end);
    Ok(vec![Arc::new(ArrayRecordShard { file, chunks, records })])
}

/// What the postscript says: where the footer is.
fn footer_offset(file: &DataFile, reader: &mut ChunkReader) -> Result<u64, FormatError> {
    let at = file.bytes().saturating_sub(BLOCK);
    let damaged = |what: &str| FormatError::damaged(file.path(), what).byte(at);
    reader.load(file, at, ChunkName::Postscript)?;
    // Its record is written several times.
    if reader.records() == 0 {
        return Err(damaged("the postscript in the last 64 KiB has no record: the file is incomplete"));
    }
    let message = reader.record(file, 0)?.bytes();
    if varint::number(message, 2) != Some(MAGIC) {
        return Err(damaged("no postscript with ArrayRecord's magic number is in the last 64 KiB"));
    }
    let offset = varint::number(message, 1).filter(|offset| *offset < at);
    offset.ok_or_else(|| damaged("the postscript states a footer behind itself"))
}

/// What the footer says: where the chunks are, and how many records they have.
fn chunks(file: &DataFile, at: u64, reader: &mut ChunkReader) -> Result<Vec<ChunkEntry>, FormatError> {
    let damaged = |what: String| FormatError::damaged(file.path(), format!("the footer: {what}")).byte(at);
    let header = reader.load(file, at, ChunkName::Footer)?;
    if header.records == 0 {
        return Err(damaged("it has no record".to_owned()));
    }
    let first = reader.record(file, 0)?.bytes();
    let stated = varint::inner(first, 1).and_then(|metadata| {
        let number = |field| varint::number(metadata, field);
        Some((number(1)?, number(2)?, number(3)?))
    });
    let Some((version, chunk_count, record_count)) = stated else {
        return Err(damaged("its first record states no numbers of chunks and records".to_owned()));
    };
    if version != 1 {
        let what = format!("the footer has version {version}, and version 1 is read");
        return Err(FormatError::refused(file.path(), what).byte(at));
    }
    let there = reader.records().saturating_sub(1);
    if chunk_count != there as u64 {
        return Err(damaged(format!("it states {chunk_count} chunks, and lists {there}")));
    }
    let (mut chunks, mut sum) = (Vec::with_capacity(there), 0_u64);
    for index in 1..=there {
        let message = reader.record(file, index)?.bytes();
        let entry = ChunkEntry::parse(message, sum);
        let before = chunks.last().map_or(0, |before: &ChunkEntry| before.at);
        let entry = entry.filter(|entry| entry.at > before && entry.at < at).ok_or_else(|| {
            damaged(format!(
                "its entry {index} is damaged: chunks lie one after the other, before the footer"
            ))
        })?;
        sum = entry.end();
        chunks.push(entry);
    }
    if sum != record_count {
        return Err(damaged(format!("it states {record_count} records, and its chunks have {sum}")));
    }
    Ok(chunks)
}

/// A chunk, as the footer has it.
#[derive(Clone, Copy, Debug)]
struct ChunkEntry {
    at: u64,
    decoded: u64,
    first: u64,
    records: u64,
}

impl ChunkEntry {
    /// `None` if it is damaged, or its records exceed 64 bits.
    fn parse(message: &[u8], first: u64) -> Option<Self> {
        let number = |field| varint::number(message, field);
        let (at, decoded, records) = (number(1)?, number(2)?, number(3)?);
        first.checked_add(records)?;
        Some(ChunkEntry { at, decoded, first, records })
    }

    fn end(&self) -> u64 {
        self.first.saturating_add(self.records)
    }
}

/// One file.
#[derive(Debug)]
struct ArrayRecordShard {
    file: DataFile,
    chunks: Vec<ChunkEntry>,
    records: u64,
}

impl Shard for ArrayRecordShard {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn records(&self) -> Option<u64> {
        Some(self.records)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::new(RawGrammar { tells_text: false })
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(ArrayRecordCursor { shard: self, at: 0, loaded: None, reader: ChunkReader::new() }))
    }
}

#[derive(Debug)]
struct ArrayRecordCursor {
    shard: Arc<ArrayRecordShard>,
    at: u64,
    /// The chunk that the reader has.
    loaded: Option<ChunkEntry>,
    reader: ChunkReader,
}

impl ArrayRecordCursor {
    /// Reads the chunk of a record, unless the reader has it; returns the record's number in it.
    fn load(&mut self, record: u64) -> Result<usize, FormatError> {
        let has = |chunk: &ChunkEntry| (chunk.first..chunk.end()).contains(&record);
        let entry = match self.loaded {
            Some(chunk) if has(&chunk) => chunk,
            _ => {
                let ArrayRecordShard { file, chunks, .. } = &*self.shard;
                let index = chunks.partition_point(|chunk| chunk.end() <= record);
                let Some(&entry) = chunks.get(index) else {
                    return Err(FormatError::damaged(file.path(), "no chunk has the record").record(record));
                };
                self.loaded = None;
                let name = ChunkName::Records(entry.first, entry.records);
                let header = self.reader.load(file, entry.at, name)?;
                if header.records != entry.records || header.decoded != entry.decoded {
                    let what = format!(
                        "{name}: the footer states {} records of {} bytes, and the chunk {} of {}",
                        entry.records, entry.decoded, header.records, header.decoded
                    );
                    return Err(FormatError::damaged(file.path(), what).record(entry.first).byte(entry.at));
                }
                self.loaded = Some(entry);
                entry
            }
        };
        Ok(usize::try_from(record.saturating_sub(entry.first)).unwrap_or(usize::MAX))
    }
}

impl Cursor for ArrayRecordCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let (at, place) = (self.at, [self.at, 0]);
        if at >= self.shard.records {
            return Ok(None);
        }
        let index = self.load(at)?;
        let value = self.reader.record(&self.shard.file, index)?;
        self.at = at.saturating_add(1);
        Ok(Some(Record { key: Key::None, value, place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        let place = [self.at, 0];
        if self.at >= self.shard.records {
            return Ok(None);
        }
        self.at = self.at.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        let ([at, _], records) = (place, self.shard.records);
        if at >= records {
            let what = format!("record {at} is wanted, and there are {records}: the file has changed");
            return Err(FormatError::damaged(self.shard.path(), what));
        }
        self.at = at;
        Ok(())
    }
}
