//! Bagz: `.bag`, and `.bagz` whose records are zstd frames.
//!
//! Records lie one after the other, and then the end of each, or these are in a file of their own,
//! `limits.NAME` in the same folder. `NAME@4.bag` names four files, `NAME-00000-of-00004.bag` and so on: a
//! shard each, or one if they are interleaved.
//!
//! Settings: `compression` is `none` or `zstd`, for names that mislead; `interleaved` is `true` if record i
//! is in file i % n; `limits` is `tail` or `separate`, else it is `separate` if that file is there.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::input_file;

use crate::known_settings::KnownSettings;
use crate::raw_grammar::RawGrammar;
use crate::zstd_frames::ZstdFrames;
use crate::{Cursor, DataFile, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard};

/// The bytes of a limit.
const LIMIT: u64 = 8;

/// The limits that are compared at once.
const STEP: u64 = 1 << 16;

/// The most files that a name stands for.
const SHARDS_MAX: u32 = 100_000;

/// The most bytes that a record unpacks to. A few bytes can unpack to any number.
const RECORD_MAX: usize = 1 << 30;

/// Tells a bag by its name: nothing else does.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    let is_limits = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"limits."));
    !is_limits && matches!(path.extension().and_then(OsStr::to_str), Some("bag" | "bagz"))
}

/// Opens one bag, or those that `NAME@4.bag` stands for.
///
/// # Errors
///
/// [`FormatError::Damaged`] if limits fall or leave the file; [`FormatError::Io`] with the name of a file
/// that is missing; [`FormatError::Refused`] for unknown settings.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "bagz", options, &["compression", "interleaved", "limits"])?;
    let packed = match settings.get("compression") {
        None => path.extension() == Some(OsStr::new("bagz")),
        Some("none") => false,
        Some("zstd") => true,
        Some(other) => return Err(settings.refuse("compression", other, "none or zstd")),
    };
    let separate = match settings.get("limits") {
        None => None,
        Some("tail") => Some(false),
        Some("separate") => Some(true),
        Some(other) => return Err(settings.refuse("limits", other, "tail or separate")),
    };
    let paths = expanded(path)?;
    let bags = paths.iter().map(|path| Bag::open(path, separate, options)).collect::<Result<Vec<_>, _>>()?;
    let shard = |path: &Path, bags| BagShard::new(path, bags, packed).map(|shard| Arc::new(shard) as _);
    if settings.truth("interleaved")?.unwrap_or_default() {
        return Ok(vec![shard(path, bags)?]);
    }
    paths.iter().zip(bags).map(|(path, bag)| shard(path, vec![bag])).collect()
}

/// The files that a name stands for: itself, unless it is `NAME@N.EXT` and no file has this name.
fn expanded(path: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let itself = || vec![path.to_owned()];
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((stem, rest)) = name.rsplit_once('@') else { return Ok(itself()) };
    let (count, extension) = rest.split_once('.').map_or((rest, ""), |(count, rest)| (count, rest));
    let Ok(count) = count.parse::<u32>() else { return Ok(itself()) };
    if input_file::is_there(path).map_err(|error| FormatError::io(path, "look for the file", error))? {
        return Ok(itself());
    }
    if !(1..=SHARDS_MAX).contains(&count) {
        let what = format!("its name stands for {count} files; from 1 to {SHARDS_MAX} are read");
        return Err(FormatError::refused(path, what));
    }
    let dot = if extension.is_empty() { "" } else { "." };
    let file = |shard| format!("{stem}-{shard:05}-of-{count:05}{dot}{extension}");
    Ok((0..count).map(|shard| path.with_file_name(file(shard))).collect())
}

/// One file of records, with its limits.
#[derive(Debug)]
struct Bag {
    file: DataFile,
    /// The file that has the limits, if it is another one.
    limits: Option<DataFile>,
    limits_at: u64,
    records: u64,
}

impl Bag {
    fn open(path: &Path, separate: Option<bool>, options: &Options) -> Result<Self, FormatError> {
        let file = DataFile::open(path, options.access)?;
        let mut name = OsString::from("limits.");
        name.push(path.file_name().unwrap_or_default());
        let beside = path.with_file_name(name);
        let there = input_file::is_there(&beside);
        let there = there.map_err(|error| FormatError::io(&beside, "look for the limits", error))?;
        let separate = separate.unwrap_or(there);
        let bag = if separate {
            let limits = DataFile::open(&beside, options.access)?;
            if !limits.bytes().is_multiple_of(LIMIT) {
                let what =
                    format!("it has {} bytes, no multiple of 8: limits have 8 bytes each", limits.bytes());
                return Err(FormatError::damaged(&beside, what));
            }
            let records = limits.bytes() / LIMIT;
            Bag { file, limits: Some(limits), limits_at: 0, records }
        } else {
            let limits_at = split_point(&file)?;
            let records = file.bytes().saturating_sub(limits_at) / LIMIT;
            Bag { file, limits: None, limits_at, records }
        };
        bag.check()?;
        Ok(bag)
    }

    fn limits_file(&self) -> &DataFile {
        self.limits.as_ref().unwrap_or(&self.file)
    }

    /// The bytes of the file that are records.
    fn record_bytes(&self) -> u64 {
        if self.limits.is_some() { self.file.bytes() } else { self.limits_at }
    }

    /// The limits of some records.
    fn limits<'a>(
        &'a self,
        records: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [[u8; 8]], FormatError> {
        let byte = |record: u64| self.limits_at.saturating_add(record.saturating_mul(LIMIT));
        let bytes = self.limits_file().read(byte(records.start)..byte(records.end), buffer)?;
        Ok(bytes.as_chunks().0)
    }

    /// Limits rise, and end where the records do.
    fn check(&self) -> Result<(), FormatError> {
        let damaged =
            |record, what: String| Err(FormatError::damaged(self.limits_file().path(), what).record(record));
        let (mut buffer, mut begin, mut last) = (Vec::new(), 0_u64, 0_u64);
        let records_end = self.record_bytes();
        while begin < self.records {
            let until = self.records.min(begin.saturating_add(STEP));
            let limits = self.limits(begin..until, &mut buffer)?;
            for (record, limit) in (begin..until).zip(limits) {
                let limit = u64::from_le_bytes(*limit);
                if limit < last {
                    let what = format!(
                        "the limits fall: record {record} ends at byte {limit}, before it begins at {last}; \
                         the file is damaged, or cut by a multiple of 8 bytes"
                    );
                    return damaged(record, what);
                }
                if limit > records_end {
                    let what =
                        format!("record {record} ends at byte {limit}, and all records at {records_end}");
                    return damaged(record, what);
                }
                last = limit;
            }
            begin = until;
        }
        if last != records_end {
            let what =
                format!("the last limit is {last}, and the records have {records_end} bytes: one is cut");
            return Err(FormatError::damaged(self.file.path(), what));
        }
        Ok(())
    }

    /// Where a record is in the file.
    fn range(&self, record: u64, buffer: &mut Vec<u8>) -> Result<Range<u64>, FormatError> {
        let first = record.saturating_sub(1);
        let limits = self.limits(first..record.saturating_add(1), buffer)?;
        let number = |limit: &[u8; 8]| u64::from_le_bytes(*limit);
        let (begin, end) = match limits {
            [end] => (0, number(end)),
            [begin, end] => (number(begin), number(end)),
            _ => (0, 0),
        };
        if begin > end || end > self.record_bytes() {
            let what = format!("the limits {begin} and {end} are no range: the file has changed");
            return Err(FormatError::damaged(self.file.path(), what).record(record));
        }
        Ok(begin..end)
    }
}

/// Where the limits begin: the last limit says so.
fn split_point(file: &DataFile) -> Result<u64, FormatError> {
    let damaged = |what: String| FormatError::damaged(file.path(), what);
    if file.bytes() == 0 {
        return Ok(0);
    }
    let Some(last_at) = file.bytes().checked_sub(LIMIT) else {
        let what = format!("it has {} bytes: more than none, but fewer than one limit has, 8", file.bytes());
        return Err(damaged(what));
    };
    let mut buffer = Vec::new();
    let last = file.read(last_at..file.bytes(), &mut buffer)?.first_chunk();
    let split = last.map_or(u64::MAX, |last| u64::from_le_bytes(*last));
    let what = match last_at.checked_sub(split) {
        Some(limits) if limits.is_multiple_of(LIMIT) => return Ok(split),
        Some(limits) => format!(
            "its last 8 bytes state the split point {split}, and {limits} bytes of limits behind it are no \
             multiple of 8"
        ),
        None => format!(
            "its last 8 bytes state the split point {split}, which is beyond the last limit at {last_at}"
        ),
    };
    Err(damaged(format!("{what}: it is cut or damaged, or its limits are in a file of their own")))
}

/// Bags whose records take turns, or one bag.
#[derive(Debug)]
struct BagShard {
    path: PathBuf,
    bags: Vec<Bag>,
    records: u64,
    packed: bool,
}

impl BagShard {
    fn new(path: &Path, bags: Vec<Bag>, packed: bool) -> Result<Self, FormatError> {
        let records =
            bags.iter().try_fold(0_u64, |sum, bag| sum.checked_add(bag.records)).unwrap_or(u64::MAX);
        // Record i is in bag i % n, so the first ones have one more.
        let n = bags.len() as u64;
        for (number, bag) in (0..n).zip(&bags) {
            let missing = n.saturating_sub(1).saturating_sub(number);
            let due = records.saturating_add(missing).checked_div(n).unwrap_or_default();
            if bag.records != due {
                let what = format!(
                    "it has {} records, and {due} are due if {records} are interleaved over {n} files",
                    bag.records
                );
                return Err(FormatError::damaged(bag.file.path(), what));
            }
        }
        Ok(BagShard { path: path.to_owned(), bags, records, packed })
    }

    /// The bag that a record is in, and its number there.
    fn locate(&self, record: u64) -> Option<(&Bag, u64)> {
        let n = self.bags.len() as u64;
        let bag = usize::try_from(record.checked_rem(n)?).ok()?;
        Some((self.bags.get(bag)?, record.checked_div(n)?))
    }
}

impl Shard for BagShard {
    fn path(&self) -> &Path {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        let own =
            |bag: &Bag| [Some(bag.file.path().to_owned()), bag.limits.as_ref().map(|f| f.path().to_owned())];
        self.bags.iter().flat_map(own).flatten().collect()
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
        let frames = if self.packed { Some(ZstdFrames::new(&self.path)?) } else { None };
        Ok(Box::new(BagCursor { shard: self, at: 0, frames, buffer: Vec::new() }))
    }
}

#[derive(Debug)]
struct BagCursor {
    shard: Arc<BagShard>,
    at: u64,
    frames: Option<ZstdFrames>,
    buffer: Vec<u8>,
}

impl Cursor for BagCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let (at, place) = (self.at, [self.at, 0]);
        if at >= self.shard.records {
            return Ok(None);
        }
        let Some((bag, record)) = self.shard.locate(at) else { return Ok(None) };
        let range = bag.range(record, &mut self.buffer)?;
        let stored = bag.file.lend(range, &mut self.buffer)?;
        let value = match &mut self.frames {
            None => stored,
            // An empty record has no frame.
            Some(_) if stored.bytes().is_empty() => stored,
            Some(frames) => Lent::Buffer(frames.unpack(stored.bytes(), RECORD_MAX).map_err(|what| {
                let what = format!(
                    "record {record} is no zstd frame, as in a .bagz: {what}; if the records are not \
                     compressed, set compression=none"
                );
                FormatError::damaged(bag.file.path(), what).record(record)
            })?),
        };
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
            return Err(FormatError::damaged(&self.shard.path, what));
        }
        self.at = at;
        Ok(())
    }
}
