//! Shards of MosaicML Streaming (MDS), version 2.
//!
//! ```text
//! index.json: the shards, in order, and each one's columns
//! shard: samples: u32 | offsets: u32 each, and the end | the columns as JSON | the samples
//! sample: the size of each column that varies: u32 | the columns
//! ```
//!
//! Numbers are little-endian. A shard may be compressed as a whole; it is then unpacked when a cursor enters
//! it, compared with its hashes, and read in order.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod grammar;
mod hashes;
mod index;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::grammar::MdsGrammar;
use self::index::{Listed, Packed};
use crate::known_settings::KnownSettings;
use crate::unpack::{IN_ORDER, Stored};
use crate::{Cursor, DataFile, FormatError, Grammar, Key, Options, Place, Record, Seeks, Shard, index_file};

/// The bytes of a number in a shard's head.
const NUMBER: u64 = 4;

/// Whether a path is a folder of shards, or their index.
pub fn is(path: &Path, _head: &[u8]) -> bool {
    // An index that is damaged is known by what is beside it.
    index_file::tells(
        path,
        |text| {
            memchr::memmem::find(text, b"\"mds\"").is_some()
                || memchr::memmem::find(text, b"\"shards\": []").is_some()
        },
        |name| name.contains(".mds"),
    )
}

/// Opens the shards that an index names.
///
/// # Errors
///
/// [`FormatError`] if the index is damaged, names what lies outside its folder, or does not agree with a
/// shard.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    KnownSettings::of(path, "mds", options, &[])?;
    let index = index_file::of(path);
    let listed = index::read(&index)?;
    listed.into_iter().map(|listed| MdsShard::open(&index, listed, options)).collect()
}

/// A shard.
#[derive(Debug)]
struct MdsShard {
    /// The index that names it.
    index: PathBuf,
    file: Arc<DataFile>,
    samples: u64,
    /// How it is compressed, if it is.
    packed: Option<Packed>,
    /// The length of the shard, unpacked.
    bytes: u64,
    grammar: Arc<MdsGrammar>,
}

impl MdsShard {
    fn open(index: &Path, listed: Listed, options: &Options) -> Result<Arc<dyn Shard>, FormatError> {
        let Listed { path, samples, bytes, packed, columns } = listed;
        let grammar = Arc::new(MdsGrammar::new(index, columns, options)?);
        let file = Arc::new(DataFile::open(&path, options.access)?);
        let due = packed.as_ref().map_or(bytes, |packed| packed.bytes);
        if file.bytes() != due {
            let what = format!(
                "it has {} bytes, and {} says that it has {due}: it is cut, or of another data set; copy \
                 both again",
                file.bytes(),
                percolator_files::shown::path(index)
            );
            return Err(FormatError::damaged(&path, what));
        }
        let shard = MdsShard { index: index.to_owned(), file, samples, packed, bytes, grammar };
        if shard.packed.is_none() {
            let mut buffer = Vec::new();
            shard.check_head(&Stored::File(&shard.file), &mut buffer)?;
        }
        Ok(Arc::new(shard))
    }

    /// Compares what the shard states with what the index does.
    fn check_head(&self, bytes: &Stored<'_>, buffer: &mut Vec<u8>) -> Result<(), FormatError> {
        let samples = u64::from(self.number(bytes, 0, buffer)?);
        if samples != self.samples {
            let what = format!(
                "it has {samples} samples, and {} says that it has {}",
                percolator_files::shown::path(&self.index),
                self.samples
            );
            return Err(FormatError::damaged(self.file.path(), what).byte(0));
        }
        let [_, end] = self.range(bytes, samples.saturating_sub(1), buffer)?;
        if samples > 0 && end != self.bytes {
            let what = format!("its last sample ends at byte {end}, and the shard has {} bytes", self.bytes);
            return Err(FormatError::damaged(self.file.path(), what));
        }
        Ok(())
    }

    /// A number of the shard's head.
    fn number(&self, bytes: &Stored<'_>, at: u64, buffer: &mut Vec<u8>) -> Result<u32, FormatError> {
        let number = bytes.read(&self.file, at..at.saturating_add(NUMBER), buffer)?;
        Ok(number.first_chunk().map_or(0, |number| u32::from_le_bytes(*number)))
    }

    /// Where a sample lies: after the table, and within the shard. Offsets that fall are those of shards of
    /// more than 4 GiB, which the library wrote until May 2024.
    fn range(&self, bytes: &Stored<'_>, sample: u64, buffer: &mut Vec<u8>) -> Result<[u64; 2], FormatError> {
        let table = NUMBER.saturating_mul(self.samples.saturating_add(2));
        if self.samples == 0 {
            return Ok([table, table]);
        }
        let at = NUMBER.saturating_mul(sample.saturating_add(1));
        let start = u64::from(self.number(bytes, at, buffer)?);
        let end = u64::from(self.number(bytes, at.saturating_add(NUMBER), buffer)?);
        let damaged =
            |what: String| Err(FormatError::damaged(self.file.path(), what).record(sample).byte(at));
        if end < start {
            return damaged(format!("the offsets of the sample fall from {start} to {end}"));
        }
        if start < table || end > self.bytes {
            return damaged(format!(
                "the sample lies from byte {start} to {end}, and samples lie from {table} to {}",
                self.bytes
            ));
        }
        Ok([start, end])
    }
}

impl Shard for MdsShard {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.path().to_owned(), self.index.clone()]
    }

    fn records(&self) -> Option<u64> {
        Some(self.samples)
    }

    fn seeks(&self) -> Seeks {
        if self.packed.is_some() { Seeks::InOrder(IN_ORDER) } else { Seeks::ByPosition }
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.grammar) as Arc<dyn Grammar>
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(MdsCursor { shard: self, next: 0, unpacked: None, buffer: Vec::new() }))
    }
}

struct MdsCursor {
    shard: Arc<MdsShard>,
    /// The number of the next sample.
    next: u64,
    /// The shard, if it is compressed and the cursor is in it.
    unpacked: Option<Vec<u8>>,
    buffer: Vec<u8>,
}

impl MdsCursor {
    /// Unpacks the shard if it must be, and is not.
    fn enter(&mut self) -> Result<(), FormatError> {
        let Some(packed) = &self.shard.packed else { return Ok(()) };
        if self.unpacked.is_none() {
            let bytes = unpack::unpacked(&self.shard.file, packed, self.shard.bytes)?;
            self.shard.check_head(&Stored::Unpacked(&bytes), &mut self.buffer)?;
            self.unpacked = Some(bytes);
        }
        Ok(())
    }

    /// Where the next sample lies.
    fn range(&mut self) -> Result<[u64; 2], FormatError> {
        self.enter()?;
        let bytes = Stored::of(&self.shard.file, self.unpacked.as_deref());
        self.shard.range(&bytes, self.next, &mut self.buffer)
    }
}

impl Cursor for MdsCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        if self.next >= self.shard.samples {
            self.unpacked = None;
            return Ok(None);
        }
        let [start, end] = self.range()?;
        let MdsCursor { shard, next, unpacked, buffer } = self;
        let place = [*next, 0];
        let bytes = Stored::of(&shard.file, unpacked.as_deref());
        let value = bytes.lend(&shard.file, start..end, buffer)?;
        *next = next.saturating_add(1);
        Ok(Some(Record { key: Key::None, value, place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.next >= self.shard.samples {
            return Ok(None);
        }
        self.range()?;
        let place = [self.next, 0];
        self.next = self.next.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, [sample, _]: Place, position: u64) -> Result<(), FormatError> {
        if sample > self.shard.samples {
            let what = format!("there is no sample {position} among {}", self.shard.samples);
            return Err(FormatError::damaged(self.shard.file.path(), what));
        }
        self.next = sample;
        Ok(())
    }
}
