//! LevelDBs on the damage harness: tables, logs, MANIFEST and CURRENT of databases that C++ LevelDB wrote.
//!
//! Every block of a table and every fragment of a log has a checksum. Two things nothing can tell apart: a
//! log whose writer died within a write, and one that was cut there. Both are served up to the cut, as
//! LevelDB does it, and `LevelDb::cuts` says so; here that counts as an error.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test of small numbers")]

use std::fs;
use std::path::{Path, PathBuf};

use percolator::source::{Access, LevelDb, Source, SourceError};
use percolator::{Epochs, Feed, FeedError, RawBytes};
use rusty_leveldb::{DB, LdbIterator as _, Options};

use crate::common::indexed::shuffled;
use crate::common::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const MAPPED: &str = "mapped";
const READ: &str = "read";
const BY_POSITION: &str = "by position";
const BY_POSITION_READ: &str = "by position, read";
const FED: &str = "fed";

const FOOTER_BYTES: usize = 48;
/// The kind and the checksum behind a block.
const TRAILER_BYTES: usize = 5;
const LOG_BLOCK: usize = 32_768;
const CUT: &str = "cut: ";

/// A table that a writer was killed before it listed: nobody reads it.
const NOT_LISTED: [&str; 2] = ["killed", "000007.ldb"];

/// Other databases whose files come under a database's names.
const OTHERS: [&str; 3] = ["snappy", "overwritten", "reopened"];

/// A database of `tests/data/leveldb`.
struct Database(&'static str);

type Record = (Vec<u8>, Vec<u8>);

impl Database {
    /// Whether a log, or the MANIFEST, ends where it may have ended once, and every other file is as it was.
    /// A log that the MANIFEST does not name yet, the newer one of two, may not have been there.
    fn is_cut_between_records(&self, case: &Case) -> bool {
        let stated = self.stated();
        let logs: Vec<&str> = stated.iter().map(|file| &file.name[..]).filter(|name| is_log(name)).collect();
        stated.iter().all(|file| {
            let Some(bytes) = case.bytes(&file.name) else {
                return logs.len() > 1 && logs.last().is_some_and(|newest| *newest == file.name);
            };
            let is_cut = || file.bytes.starts_with(bytes) && ends(&file.bytes).contains(&bytes.len());
            bytes == file.bytes || (is_log(&file.name) || file.name.contains("MANIFEST")) && is_cut()
        })
    }

    fn stated(&self) -> Vec<Stated> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/leveldb").join(self.0);
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        paths.sort();
        let stated = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let mut file = Stated::of(format!("leveldb/{name}"), fs::read(&path).unwrap(), Guard::Structure);
            match name.split_once('.') {
                _ if [self.0, name] == NOT_LISTED => file.is_kept = true,
                Some((_, "ldb")) => table(&mut file),
                Some((_, "log")) => log(&mut file),
                _ if name.starts_with("MANIFEST") => log(&mut file),
                _ => file.mark("name of the MANIFEST", Guard::Structure, 0..fs::read(&path).unwrap().len()),
            }
            file
        };
        paths.into_iter().map(stated).collect()
    }
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

/// What rusty-leveldb reads of these files, in the order of the keys. It writes to a database that it opens.
fn by_another_reader<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Option<Vec<Record>> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("leveldb")).unwrap();
    files.into_iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    let mut database = DB::open(folder.path().join("leveldb"), Options::default()).ok()?;
    let mut entries = database.new_iter().ok()?;
    let mut records = Vec::new();
    while let Some((key, value)) = entries.next() {
        records.push((key.to_vec(), value.to_vec()));
    }
    Some(records)
}

/// Where a log or a MANIFEST may end: before its first record, behind each, and in the zeros behind it.
fn ends(log: &[u8]) -> Vec<usize> {
    const WHOLE: u8 = 1;
    const LAST: u8 = 4;

    let (mut at, mut ends) = (0, vec![0]);
    while at + 7 <= log.len() {
        if LOG_BLOCK - at % LOG_BLOCK < 7 {
            let next = at.next_multiple_of(LOG_BLOCK);
            if ends.last() == Some(&at) {
                ends.extend(at + 1..=next);
            }
            at = next;
            continue;
        }
        let kind = log[at + 6];
        at += 7 + usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
        if [WHOLE, LAST].contains(&kind) {
            ends.push(at);
        }
    }
    ends
}

/// The order in which records come this way.
fn ordered(records: Vec<Record>, way: &'static str) -> Vec<Record> {
    match way {
        FED => records.into_iter().map(|(_, value)| (Vec::new(), value)).collect(),
        BY_POSITION | BY_POSITION_READ => {
            (0..records.len()).map(|number| records[number * 7919 % records.len()].clone()).collect()
        }
        _ => records,
    }
}

/// The parts of a table: the blocks of entries, those about filters, the index, the footer.
fn table(file: &mut Stated) {
    let footer = file.bytes.len() - FOOTER_BYTES;
    let mut at = footer;
    let [filters, filter_bytes] = [(); 2].map(|()| Number::varint(&file.bytes, &mut at));
    let [index, index_bytes] = [(); 2].map(|()| Number::varint(&file.bytes, &mut at));
    // A block of filters, if there is one, is the last before the block that says where it is. Nobody reads
    // either.
    let bloom = file.bytes[filters..filters + filter_bytes].windows(6).position(|name| name == b"filter");
    let entries = bloom.map_or(filters, |at| {
        let mut place = filters + at + b"filter.leveldb.BuiltinBloomFilter2".len();
        Number::varint(&file.bytes, &mut place)
    });
    let mut start = 0;
    for block in blocks(&file.bytes, index..index + index_bytes) {
        file.mark("entries", Guard::Checked, start..block);
        file.mark("kind and checksum of entries", Guard::Checked, block..block + TRAILER_BYTES);
        start = block + TRAILER_BYTES;
    }
    assert_eq!(start, entries);
    file.mark("filters", Guard::Unread, entries..index);
    file.mark("index", Guard::Checked, index..index + index_bytes);
    file.mark("kind and checksum of the index", Guard::Checked, index + index_bytes..footer);
    file.mark_footer(footer);
}

/// Where the blocks end that an index names.
fn blocks(table: &[u8], index: std::ops::Range<usize>) -> Vec<usize> {
    let bytes = match table[index.end] {
        0 => table[index].to_vec(),
        _ => snap::raw::Decoder::new().decompress_vec(&table[index]).unwrap(),
    };
    let restarts = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap()) as usize;
    let (mut at, mut ends) = (0, Vec::new());
    while at < bytes.len() - 4 - 4 * restarts {
        let [_shared, unshared, value] = [(); 3].map(|()| Number::varint(&bytes, &mut at));
        let mut place = at + unshared;
        at = place + value;
        let start = Number::varint(&bytes, &mut place);
        ends.push(start + Number::varint(&bytes, &mut place));
    }
    ends
}

/// The fragments of a log, or of a MANIFEST.
fn log(file: &mut Stated) {
    let tail = Guard::Bare("a writer that died leaves a cut like this; `cuts` says so");
    let mut at = 0;
    while at + 7 <= file.bytes.len() {
        if LOG_BLOCK - at % LOG_BLOCK < 7 {
            at = at.next_multiple_of(LOG_BLOCK);
            continue;
        }
        let length = usize::from(u16::from_le_bytes([file.bytes[at + 4], file.bytes[at + 5]]));
        let end = at + 7 + length;
        // Where the last fragment claims to go past the end, it may be what a writer left.
        let is_last = end == file.bytes.len();
        file.mark("checksum of a fragment", if is_last { tail } else { Guard::Structure }, at..at + 4);
        let guard = if is_last { tail } else { Guard::Structure };
        file.mark_number("length of a fragment", guard, Number::Little, at + 4..at + 6);
        file.mark("kind of a fragment", guard, at + 6..at + 7);
        file.mark("content of a fragment", guard, at + 7..end);
        at = end;
    }
}

impl Format for Database {
    type Item = Record;

    const BYTES_MAX: usize = 1500;

    fn name(&self) -> String {
        format!("LevelDB, {}", self.0)
    }

    fn files(&self) -> Vec<Stated> {
        self.stated()
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        let others = OTHERS.iter().filter(|other| **other != self.0);
        others.map(|other| Database(other).stated()).collect()
    }

    /// What another reader of LevelDBs reads of it.
    fn whole_of(&self, other: &[Stated], way: &'static str) -> Vec<Record> {
        let files = other.iter().map(|file| (&file.name[..], &file.bytes[..]));
        ordered(by_another_reader(files).unwrap(), way)
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::of(MAPPED),
            Way::of(READ),
            Way::seldom(BY_POSITION, 3),
            Way::seldom(BY_POSITION_READ, 3),
            Way::seldom(FED, 8),
        ]
    }

    fn names(&self, error: &str, folder: &Path) -> bool {
        error.contains(folder.to_str().unwrap())
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Record> {
        let path = folder.join("leveldb");
        let is_read = [READ, BY_POSITION_READ].contains(&way);
        let options = LevelDb::options().access(if is_read { Access::Read } else { Access::Mapped });
        let source = match options.open(&path) {
            Ok(source) => source,
            Err(error) => return Reading::whole(Err(error)),
        };
        let cut = source.cuts().first().map(|cut| format!("{CUT}{cut}"));
        let mut reading = match way {
            FED => Reading::of(|items| fed(source, items)),
            BY_POSITION | BY_POSITION_READ => Reading::of(|items| shuffled(&source, items)),
            _ => Reading::of(|items| {
                let mut cursor = source.cursor()?;
                while let Some(entry) = cursor.advance()? {
                    items.push((entry.key().to_vec(), entry.value().to_vec()));
                }
                Ok::<(), SourceError>(())
            }),
        };
        reading.error = reading.error.or(cut);
        reading
    }

    /// A cut that is told. What was lost may have been newer values, or deletions; so other records may come.
    /// Where a file of another database fits, or a log ends between two of its records, or has not begun,
    /// nothing can show it: then another reader reads the same.
    fn allows(&self, case: &Case, way: &'static str, found: &Reading<Record>) -> bool {
        match &found.error {
            Some(error) => error.starts_with(CUT),
            None => {
                (case.is_of_whole_files || self.is_cut_between_records(case))
                    && by_another_reader(case.files()).map(|records| ordered(records, way)).as_ref()
                        == Some(&found.items)
            }
        }
    }
}

fn fed(source: LevelDb, items: &mut Vec<Record>) -> Result<(), FeedError> {
    let feed = Feed::builder()
        .source(source)
        .decoder(RawBytes::up_to(200_000))
        .batch_size(8)
        .threads(2)
        .epochs(Epochs::OnePass);
    for batch in feed.build()? {
        items.extend(batch?.ragged::<u8>(0)?.rows().map(|value| (Vec::new(), value.to_vec())));
    }
    Ok(())
}

macro_rules! databases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                harness::check(this_test!(), 120, || Database(stringify!($name)));
            }
        )*
    };
}

databases! { uncompressed snappy bloom levels overwritten reopened killed big_values }
