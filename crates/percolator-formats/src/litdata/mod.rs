//! Chunks of LitData.
//!
//! ```text
//! index.json: the chunks, in order; how leaves are encoded; how they make an item
//! chunk: items: u32 | offsets: u32 each, and the end | the items
//! item: the size of each leaf: u32 | the leaves
//! ```
//!
//! Numbers are little-endian, but for those before a tensor of PyTorch. A chunk may be compressed as a whole,
//! each of its items, or groups of them. One whose rows have plain values only ends in a file of Arrow, which
//! has them. The items of a chunk of tokens are one run of numbers, of which the setting `block` makes
//! records of one length, as LitData's `TokensLoader` does; without it each item is a record.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod frames;
mod grammar;
mod index;
mod leaf;
mod nested;
mod tokens;
mod tree;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::shown;

use self::frames::{Frame, FrameTable};
use self::grammar::LitGrammar;
use self::index::{Level, ListedChunk, LitIndex};
use self::tokens::TokensGrammar;
use crate::known_settings::KnownSettings;
use crate::unpack::{IN_ORDER, Packing, RECORD_MAX, Stored, whole};
use crate::zstd_frames::ZstdFrames;
use crate::{
    Cursor, DataFile, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard, index_file,
};

/// The bytes of a number in a chunk's head.
const NUMBER: u64 = 4;

/// What a chunk ends in whose rows are Arrow's, behind their length.
const ARROW_MAGIC: &[u8; 8] = b"LDARW01\0";

/// Whether a path is a folder of chunks, or their index.
pub fn is(path: &Path, _head: &[u8]) -> bool {
    // An index that is damaged is known by what is beside it.
    index_file::tells(
        path,
        |text| {
            let has = |word: &[u8]| memchr::memmem::find(text, word).is_some();
            has(b"\"chunks\"") && has(b"\"data_format\"")
        },
        |name| name.starts_with("chunk-") && name.ends_with(".bin"),
    )
}

/// Opens the chunks that an index names.
///
/// # Errors
///
/// [`FormatError`] if the index is damaged, names what lies outside its folder, or does not agree with a
/// chunk, and if an item has what is not read.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "litdata", options, &["block"])?;
    let index = index_file::of(path);
    let listed = index::read(&index)?;
    let block = match settings.get("block") {
        None => None,
        Some(text) => match text.parse::<u64>() {
            Ok(block) if block > 0 && listed.has_tokens => Some(block),
            Ok(_) if !listed.has_tokens => {
                let what = "the setting block is for tokens, and its items have other leaves";
                return Err(FormatError::refused(&index, what));
            }
            _ => return Err(settings.refuse("block", text, "a number of tokens, 1 at least")),
        },
    };
    let data = Data::new(index, &listed, block, options)?;
    listed.chunks.iter().map(|chunk| data.open(chunk, listed.level, options)).collect()
}

/// What all chunks of a data set have in common.
struct Data {
    index: PathBuf,
    grammar: Arc<dyn Grammar>,
    /// The size of a token, if items are tokens.
    token: Option<u64>,
    /// The tokens of a record, if they are not an item's.
    block: Option<u64>,
}

impl Data {
    fn new(
        index: PathBuf,
        listed: &LitIndex,
        block: Option<u64>,
        options: &Options,
    ) -> Result<Self, FormatError> {
        if !listed.has_tokens {
            let grammar = LitGrammar::new(&index, &listed.leaves, &listed.parts, options)?;
            return Ok(Data { index, grammar: Arc::new(grammar), token: None, block: None });
        }
        let [leaf::Leaf::Numbers(dtype)] = *listed.leaves else {
            let what = "its items are tokens, and its data_format is not that of one list of numbers";
            return Err(FormatError::damaged(&index, what));
        };
        if matches!(listed.level, Level::Batch | Level::Item) {
            let what = "its tokens are compressed in pieces, which LitData does not do: write them again";
            return Err(FormatError::refused(&index, what));
        }
        Ok(Data {
            index,
            grammar: Arc::new(TokensGrammar { dtype }),
            token: Some(dtype.bytes() as u64),
            block,
        })
    }

    fn open(
        &self,
        listed: &ListedChunk,
        level: Level,
        options: &Options,
    ) -> Result<Arc<dyn Shard>, FormatError> {
        let file = DataFile::open(&listed.path, options.access)?;
        let damaged = |what: String| FormatError::damaged(&listed.path, what);
        let mut buffer = Vec::new();
        let head = file.read(0..file.bytes().min(8), &mut buffer)?;
        let is_packed = level == Level::Chunk && Packing::of(head) == Some(Packing::Zstd);
        let is_framed = head == frames::MAGIC;
        if !is_packed && file.bytes() < listed.bytes {
            return Err(damaged(format!(
                "it has {} bytes, and {} says that it has {}: it is cut; copy it again from where it came",
                file.bytes(),
                shown::path(&self.index),
                listed.bytes
            )));
        }
        if !is_packed && let Some(rows) = arrow_rows(&file)? {
            return self.open_rows(file, rows, listed, options);
        }
        let packed = match level {
            Level::Chunk if is_packed => Packed::Chunk,
            // What Arrow has compressed itself may stand beside chunks that are compressed as a whole.
            Level::Nothing | Level::Chunk => Packed::Nothing,
            Level::Item => Packed::Items,
            Level::Batch if is_framed => Packed::Groups(FrameTable::read(&file, listed.items)?),
            Level::Batch => {
                return Err(damaged(
                    "the layout of the chunk is unknown: it does not begin with LDFZ01".to_owned(),
                ));
            }
        };
        let records = match (self.token, self.block, listed.tokens) {
            (Some(_), Some(block), Some(tokens)) => tokens.checked_div(block).unwrap_or_default(),
            (Some(_), Some(_), None) => {
                let what =
                    format!("the index has no dim, the number of tokens, of {}", shown::path(&listed.path));
                return Err(FormatError::damaged(&self.index, what));
            }
            _ => listed.items,
        };
        let chunk = LitChunk {
            index: self.index.clone(),
            file: Arc::new(file),
            items: listed.items,
            records,
            bytes: listed.bytes,
            tokens: self.token.zip(listed.tokens).map(|(token, tokens)| token.saturating_mul(tokens)),
            block: self.token.zip(self.block).map(|(token, block)| token.saturating_mul(block)),
            packed,
            grammar: Arc::clone(&self.grammar),
        };
        if matches!(chunk.packed, Packed::Nothing | Packed::Items) {
            chunk.check_head(&Stored::File(&chunk.file), &mut buffer)?;
        }
        Ok(Arc::new(chunk))
    }

    /// Opens the rows of a chunk that Arrow has.
    fn open_rows(
        &self,
        file: DataFile,
        rows: Range<u64>,
        listed: &ListedChunk,
        options: &Options,
    ) -> Result<Arc<dyn Shard>, FormatError> {
        #[cfg(not(feature = "arrow"))]
        {
            let _ = (rows, listed, options);
            let what =
                "its rows are Arrow's, which this build does not read: build it with the feature `arrow`";
            Err(FormatError::refused(file.path(), what))
        }
        #[cfg(feature = "arrow")]
        {
            let mut options = options.clone();
            options.settings.clear();
            let shard = crate::arrow_ipc::open_within(file, rows, &options)?;
            match shard.records() {
                Some(found) if found != listed.items => {
                    let what = format!(
                        "it has {found} items, and {} says that it has {}",
                        shown::path(&self.index),
                        listed.items
                    );
                    Err(FormatError::damaged(&listed.path, what))
                }
                _ => Ok(shard),
            }
        }
    }
}

/// Where the rows are that Arrow has, if a chunk ends in them.
fn arrow_rows(file: &DataFile) -> Result<Option<Range<u64>>, FormatError> {
    let mut buffer = Vec::new();
    let Some(tail) = file.bytes().checked_sub(12) else { return Ok(None) };
    let Some((length, magic)) = file.read(tail..file.bytes(), &mut buffer)?.split_first_chunk::<4>() else {
        return Ok(None);
    };
    if magic != ARROW_MAGIC {
        return Ok(None);
    }
    let length = u64::from(u32::from_le_bytes(*length));
    match tail.checked_sub(length) {
        Some(start) => Ok(Some(start..tail)),
        None => {
            let what =
                format!("the length of its Arrow part, {length} bytes, does not fit the {tail} before it");
            Err(FormatError::damaged(file.path(), what).byte(tail))
        }
    }
}

/// A chunk.
#[derive(Debug)]
struct LitChunk {
    /// The index that names it.
    index: PathBuf,
    file: Arc<DataFile>,
    items: u64,
    records: u64,
    /// The bytes that the index states.
    bytes: u64,
    /// The bytes of its tokens, if it has any.
    tokens: Option<u64>,
    /// The bytes of a record, if it is a block of tokens.
    block: Option<u64>,
    packed: Packed,
    grammar: Arc<dyn Grammar>,
}

/// What of a chunk is compressed.
#[derive(Debug)]
enum Packed {
    Nothing,
    Items,
    Groups(FrameTable),
    Chunk,
}

impl LitChunk {
    /// Where its items begin.
    fn table_end(&self) -> u64 {
        NUMBER.saturating_mul(self.items.saturating_add(2))
    }

    /// Compares what the chunk states with what the index does.
    fn check_head(&self, bytes: &Stored<'_>, buffer: &mut Vec<u8>) -> Result<(), FormatError> {
        let damaged = |what: String| Err(FormatError::damaged(self.file.path(), what));
        let items = u64::from(numbers::<1>(bytes, &self.file, 0, buffer)?[0]);
        if items != self.items {
            let index = shown::path(&self.index);
            return damaged(format!("it has {items} items, and {index} says that it has {}", self.items));
        }
        let [end] = numbers::<1>(bytes, &self.file, NUMBER.saturating_mul(items.saturating_add(1)), buffer)?;
        if u64::from(end) != bytes.bytes() {
            let tail = bytes.bytes().saturating_sub(ARROW_MAGIC.len() as u64)..bytes.bytes();
            if bytes.read(&self.file, tail, buffer)? == ARROW_MAGIC {
                let what = "its rows are Arrow's, and it is compressed as a whole: such chunks are not read";
                return Err(FormatError::refused(self.file.path(), what));
            }
            return damaged(format!(
                "its last item ends at byte {end}, and the chunk has {} bytes",
                bytes.bytes()
            ));
        }
        let of_items = u64::from(end).saturating_sub(self.table_end());
        if let Some(due) = self.tokens.filter(|due| *due != of_items) {
            let index = shown::path(&self.index);
            return damaged(format!("its tokens have {of_items} bytes, and as {index} says {due}"));
        }
        Ok(())
    }

    /// Where a record lies: after the table, and within the chunk.
    fn range(
        &self,
        bytes: &Stored<'_>,
        record: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<u64>, FormatError> {
        let table = self.table_end();
        if let Some(block) = self.block {
            let start = table.saturating_add(block.saturating_mul(record));
            return Ok(start..start.saturating_add(block));
        }
        let at = NUMBER.saturating_mul(record.saturating_add(1));
        let [start, end] = numbers::<2>(bytes, &self.file, at, buffer)?.map(u64::from);
        if start < table || end < start || end > bytes.bytes() {
            let what = format!(
                "the item lies from byte {start} to {end}, and items lie from {table} to {}",
                bytes.bytes()
            );
            return Err(FormatError::damaged(self.file.path(), what).record(record).byte(at));
        }
        Ok(start..end)
    }
}

/// Numbers of a chunk's head.
fn numbers<const N: usize>(
    bytes: &Stored<'_>,
    file: &DataFile,
    at: u64,
    buffer: &mut Vec<u8>,
) -> Result<[u32; N], FormatError> {
    let mut found = [0; N];
    let end = at.saturating_add(NUMBER.saturating_mul(N as u64));
    let read = bytes.read(file, at..end, buffer)?.as_chunks::<4>().0;
    found.iter_mut().zip(read).for_each(|(found, read)| *found = u32::from_le_bytes(*read));
    Ok(found)
}

impl Shard for LitChunk {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.path().to_owned(), self.index.clone()]
    }

    fn records(&self) -> Option<u64> {
        Some(self.records)
    }

    fn seeks(&self) -> Seeks {
        if matches!(self.packed, Packed::Chunk) { Seeks::InOrder(IN_ORDER) } else { Seeks::ByPosition }
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.grammar)
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let frames = match self.packed {
            Packed::Items | Packed::Groups(_) => Some(ZstdFrames::new(self.file.path())?),
            Packed::Nothing | Packed::Chunk => None,
        };
        Ok(Box::new(LitCursor {
            shard: self,
            next: 0,
            frames,
            frame: None,
            unpacked: None,
            buffer: Vec::new(),
        }))
    }
}

struct LitCursor {
    shard: Arc<LitChunk>,
    /// The number of the next record.
    next: u64,
    frames: Option<ZstdFrames>,
    /// The number of the frame that is unpacked.
    frame: Option<usize>,
    /// The chunk, if it is compressed as a whole and the cursor is in it.
    unpacked: Option<Vec<u8>>,
    buffer: Vec<u8>,
}

impl LitCursor {
    /// Unpacks the chunk if it must be, and is not.
    fn enter(&mut self) -> Result<(), FormatError> {
        if matches!(self.shard.packed, Packed::Chunk) && self.unpacked.is_none() {
            let bytes = whole(&self.shard.file, Packing::Zstd, self.shard.bytes)?;
            self.shard.check_head(&Stored::Unpacked(&bytes), &mut self.buffer)?;
            self.unpacked = Some(bytes);
        }
        Ok(())
    }
}

/// Unpacks a frame, which has as many bytes as the chunk says.
fn unpack_frame(
    file: &DataFile,
    frame: &Frame,
    frames: &mut ZstdFrames,
    buffer: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let packed = file.read(frame.packed.clone(), buffer)?;
    let what = match frames.unpack(packed, frame.bytes) {
        Ok(unpacked) if unpacked.len() == frame.bytes => return Ok(()),
        Ok(unpacked) => format!("it has {} bytes, and the chunk says {}", unpacked.len(), frame.bytes),
        Err(what) => what,
    };
    let what = format!("a frame cannot be unpacked: {what}; copy the chunk again");
    Err(FormatError::damaged(file.path(), what).byte(frame.packed.start))
}

impl Cursor for LitCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        if self.next >= self.shard.records {
            self.unpacked = None;
            return Ok(None);
        }
        self.enter()?;
        let LitCursor { shard, next, frames, frame: current, unpacked, buffer } = self;
        let at = *next;
        let value = match (&shard.packed, frames) {
            (Packed::Groups(table), Some(frames)) => {
                let Some((number, frame)) = table.of(at) else { return Ok(None) };
                if *current != Some(number) {
                    *current = None;
                    unpack_frame(&shard.file, frame, frames, buffer).map_err(|error| error.record(at))?;
                    *current = Some(number);
                }
                let range = table.range(&shard.file, at, frame, buffer)?;
                Lent::Buffer(frames.last().get(range).unwrap_or_default())
            }
            (_, frames) => {
                let bytes = Stored::of(&shard.file, unpacked.as_deref());
                let range = shard.range(&bytes, at, buffer)?;
                let stored = bytes.lend(&shard.file, range, buffer)?;
                match frames {
                    None => stored,
                    Some(frames) => {
                        Lent::Buffer(frames.unpack(stored.bytes(), RECORD_MAX).map_err(|what| {
                            let what = format!("the item cannot be unpacked: {what}; copy the chunk again");
                            FormatError::damaged(shard.file.path(), what).record(at)
                        })?)
                    }
                }
            }
        };
        *next = at.saturating_add(1);
        Ok(Some(Record { key: Key::None, value, place: [at, 0] }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.next >= self.shard.records {
            return Ok(None);
        }
        self.enter()?;
        let LitCursor { shard, next, unpacked, buffer, .. } = self;
        match &shard.packed {
            Packed::Groups(table) => {
                table
                    .of(*next)
                    .map(|(_, frame)| table.range(&shard.file, *next, frame, buffer))
                    .transpose()?;
            }
            Packed::Nothing | Packed::Items | Packed::Chunk => {
                shard.range(&Stored::of(&shard.file, unpacked.as_deref()), *next, buffer)?;
            }
        }
        let place = [*next, 0];
        *next = next.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, [record, _]: Place, position: u64) -> Result<(), FormatError> {
        if record > self.shard.records {
            let what = format!("there is no record {position} among {}", self.shard.records);
            return Err(FormatError::damaged(self.shard.file.path(), what));
        }
        self.next = record;
        Ok(())
    }
}
