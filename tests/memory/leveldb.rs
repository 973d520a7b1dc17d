//! A damaged database must not kill the process, exhaust its memory, or give wrong records. Every database of
//! the tree is changed at random (flipped bits, cuts, moved bytes) and read. The records are those that were
//! written, or there is an error, or a reported cut. The allocator counts: reading holds at most a small
//! multiple of the files, and the second pass of a cursor allocates nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use percolator::leveldb::LevelDbError;
use percolator::source::{LevelDb, Source, SourceError};
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::tempdir;

use crate::allocator::{calls_here, one_at_a_time, peak};
use crate::common::sample::times;

/// The most memory that opening and reading may hold: bytes for each byte of the files, and a constant.
const MULTIPLE: usize = 100;
const BESIDE: usize = 64 << 10;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The records of a database, and whether a cut was reported.
fn read(path: &Path) -> Result<(Records, bool), SourceError> {
    let source = LevelDb::open(path)?;
    let mut cursor = source.cursor()?;
    let mut records = Records::new();
    while let Some(entry) = cursor.advance()? {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    Ok((records, !source.cuts().is_empty()))
}

/// Opens and reads without keeping anything; returns the record count, and the most memory held.
fn walk(path: &Path) -> (Result<usize, SourceError>, usize) {
    peak(|| {
        let source = LevelDb::open(path)?;
        let mut cursor = source.cursor()?;
        let mut records = 0;
        while cursor.advance()?.is_some() {
            records += 1;
        }
        Ok(records)
    })
}

const DATABASES: [&str; 16] = [
    "golden/raw_leveldb_ldb",
    "golden/raw_leveldb_log",
    "leveldb/all_deleted",
    "leveldb/big_values",
    "leveldb/bloom",
    "leveldb/compacted",
    "leveldb/deleted",
    "leveldb/empty_strings",
    "leveldb/killed",
    "leveldb/levels",
    "leveldb/noise_and_text",
    "leveldb/nothing",
    "leveldb/overwritten",
    "leveldb/reopened",
    "leveldb/snappy",
    "leveldb/uncompressed",
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    /// The file ends earlier.
    Cut(Index),
    /// Some bytes overwrite others.
    Move(Index, Index, usize),
    /// Some bytes are missing, or there twice, so what follows them moves.
    Remove(Index, usize),
    Insert(Index, Index, usize),
    Zero(Index, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<Index>;
    let change = prop_oneof![
        4 => (at(), 1..=255_u8).prop_map(|(at, bits)| Change::Flip(at, bits)),
        1 => at().prop_map(Change::Cut),
        1 => (at(), at(), 1..5000_usize).prop_map(|(from, to, bytes)| Change::Move(from, to, bytes)),
        1 => (at(), 1..5000_usize).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        1 => (at(), at(), 1..5000_usize).prop_map(|(from, to, bytes)| Change::Insert(from, to, bytes)),
        1 => (at(), 1..5000_usize).prop_map(|(at, bytes)| Change::Zero(at, bytes)),
    ];
    prop::collection::vec(change, 1..3)
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let (length, found) = (bytes.len(), bytes.clone());
    let part = |at: &Index, count: usize| at.index(length)..(at.index(length) + count).min(length);
    match change {
        _ if length == 0 => bytes.extend(b"something"),
        Change::Flip(at, bits) => bytes[at.index(length)] ^= bits,
        Change::Cut(at) => bytes.truncate(at.index(length)),
        Change::Move(from, to, count) => {
            let to = part(to, *count);
            let from = part(from, to.len());
            bytes[to.start..to.start + from.len()].copy_from_slice(&found[from]);
        }
        Change::Remove(at, count) => drop(bytes.drain(part(at, *count))),
        Change::Insert(from, to, count) => {
            let to = to.index(length);
            bytes.splice(to..to, found[part(from, *count)].iter().copied());
        }
        Change::Zero(at, count) => bytes[part(at, *count)].fill(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: times(500, 150), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn a_damaged_database_gives_its_records_or_an_error(
        database in 0..DATABASES.len(), file in any::<Index>(), changes in changes(),
    ) {
        let _one = one_at_a_time();
        let original = data(DATABASES[database]);
        let mut files: Vec<PathBuf> =
            fs::read_dir(&original).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let folder = tempdir().unwrap();
        for file in &files {
            fs::copy(file, folder.path().join(file.file_name().unwrap())).unwrap();
        }
        let changed = folder.path().join(file.get(&files).file_name().unwrap());
        let mut bytes = fs::read(&changed).unwrap();
        changes.iter().for_each(|change| apply(&mut bytes, change));
        fs::write(&changed, &bytes).unwrap();
        let total: usize = fs::read_dir(folder.path()).unwrap()
            .map(|file| usize::try_from(file.unwrap().metadata().unwrap().len()).unwrap())
            .sum();

        let (walked, peak) = walk(folder.path());
        prop_assert!(peak <= MULTIPLE * total + BESIDE, "{} bytes for {}", peak, total);
        // A file cut where a record ends looks complete: the database is an older one.
        let may_be_older = changes.iter().any(|change| matches!(change, Change::Cut(_) | Change::Remove(..)));
        match read(folder.path()) {
            Err(error) => prop_assert_eq!(walked.unwrap_err(), error),
            Ok((records, is_cut)) => {
                prop_assert_eq!(walked.unwrap(), records.len());
                let (due, _) = read(&original).unwrap();
                prop_assert!(records == due || is_cut || may_be_older, "wrong records, and nobody was told");
            }
        }
    }
}

/// A log of two-byte writes, with valid checksums.
#[test]
fn a_forged_log_takes_no_more_than_is_said() {
    let _one = one_at_a_time();
    let folder = tempdir().unwrap();
    for name in ["CURRENT", "MANIFEST-000002"] {
        fs::copy(data("leveldb/nothing").join(name), folder.path().join(name)).unwrap();
    }
    let mut log = Vec::new();
    for block in 0..32_u64 {
        let count = (32_768 - 7 - 12) / 2_u32;
        let mut record = vec![1];
        record.extend((1 + block * u64::from(count)).to_le_bytes());
        record.extend(count.to_le_bytes());
        record.resize(1 + 12 + 2 * count as usize, 0);
        let crc = crc32c::crc32c(&record);
        log.extend(crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
        log.extend(u16::try_from(record.len() - 1).unwrap().to_le_bytes());
        log.extend(record);
        log.resize((log.len()).next_multiple_of(32_768), 0);
    }
    fs::write(folder.path().join("000003.log"), &log).unwrap();
    let (walked, peak) = walk(folder.path());
    assert_eq!(walked, Ok(0));
    assert!(peak <= MULTIPLE * log.len() + BESIDE, "{peak} bytes for {}", log.len());
    println!("{} bytes a byte", peak / log.len());
}

/// What a cursor may hold for each byte of the table, and for keys: its own, an index's and a block's, in
/// buffers that double.
const TABLE_MULTIPLE: usize = 22;
const KEYS: usize = 3 * (16 << 10) + (8 << 10);

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(0x80 | u8::try_from(value & 0x7f).unwrap());
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// Adds a block of entries, compressed; returns its handle.
fn add_block(table: &mut Vec<u8>, entries: &[u8]) -> Vec<u8> {
    let contents = [entries, &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    let mut block = snap::raw::Encoder::new().compress_vec(&contents).unwrap();
    let handle = [varint(table.len()), varint(block.len())].concat();
    block.push(1);
    table.extend(&block);
    table.extend(masked(&block));
    handle
}

/// Tables whose blocks are small until they are decompressed, with keys that are small until they are
/// assembled: one of 8 KiB, then entries of some ten bytes that share it, then a value of zeros.
#[test]
fn a_forged_table_takes_no_more_than_is_said() {
    let _one = one_at_a_time();
    let folder = tempdir().unwrap();
    let internal = |number: u32| [&number.to_be_bytes()[..], &[1, 1, 0, 0, 0, 0, 0, 0]].concat();
    let entry = |shared: usize, unshared: &[u8], value: &[u8]| {
        [&varint(shared)[..], &varint(unshared.len()), &varint(value.len()), unshared, value].concat()
    };
    let (mut table, mut index) = (Vec::new(), Vec::new());
    let prefix_bytes = (8 << 10) - 4;
    for block in 0..8 {
        let mut prefix = vec![b'k'; prefix_bytes];
        prefix[0] = block;
        // Keys that grow, so that buffers do.
        let mut entries = Vec::new();
        for part in 1..=64 {
            entries.extend(entry(0, &[&prefix[..120 * part], &internal(0)].concat(), &[]));
        }
        entries.extend(entry(0, &[&prefix[..], &internal(0)].concat(), &[]));
        for number in 1..0x4000 {
            entries.extend(entry(prefix_bytes, &internal(number), &[]));
        }
        let zeros = vec![0; (1 << 20) << (block % 3)];
        entries.extend(entry(prefix_bytes, &internal(0x4000), &zeros));
        let last = [&prefix[..], &internal(0x4000)].concat();
        index.extend(entry(0, &last, &add_block(&mut table, &entries)));
    }
    let mut footer = add_block(&mut table, &[]);
    footer.extend(add_block(&mut table, &index));
    footer.resize(40, 0);
    table.extend(footer);
    table.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    fs::write(folder.path().join("000005.ldb"), &table).unwrap();

    let name = b"leveldb.BytewiseComparator";
    let key = |bytes: &[u8]| [varint(bytes.len()), bytes.to_vec()].concat();
    let bounds = [key(&internal(0)), key(&[&[b'z'][..], &internal(0)].concat())].concat();
    let head = [&[1][..], &key(name), &[2, 0, 3, 9, 4, 9, 7, 1, 5], &varint(table.len()), &bounds].concat();
    let record = [&[1][..], &head].concat();
    let length = u16::try_from(head.len()).unwrap().to_le_bytes();
    let manifest = [&masked(&record)[..], &length, &record].concat();
    fs::write(folder.path().join("MANIFEST-000002"), manifest).unwrap();
    fs::write(folder.path().join("CURRENT"), "MANIFEST-000002\n").unwrap();

    let (walked, peak) = walk(folder.path());
    println!("{walked:?}: {peak} bytes for {}", table.len());
    assert!(peak <= TABLE_MULTIPLE * table.len() + KEYS + BESIDE, "{peak} bytes for {}", table.len());
    assert_eq!(walked, Ok(8 * (64 + 1 + 0x4000)));
}

#[test]
fn a_walk_that_has_been_round_allocates_nothing() {
    let _one = one_at_a_time();
    for name in DATABASES {
        let source = LevelDb::open(data(name)).unwrap();
        let mut cursor = source.cursor().unwrap();
        let mut round = || {
            let before = calls_here();
            let mut records = 0;
            while cursor.advance().unwrap().is_some() {
                records += 1;
            }
            cursor.rewind().unwrap();
            (records, calls_here() - before)
        };
        let (records, first) = round();
        assert_eq!(round(), (records, 0), "{name}: {first} calls in the first round");
    }
}

/// A table that is cut while the database is open is an error of the step that needs it; one that its writer
/// deletes is still read.
#[test]
fn a_table_that_is_cut_is_an_error_of_the_walk_and_one_that_is_deleted_is_read() {
    let _one = one_at_a_time();
    let folder = tempdir().unwrap();
    for file in fs::read_dir(data("leveldb/uncompressed")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let (due, _) = read(folder.path()).unwrap();
    let source = LevelDb::open(folder.path()).unwrap();
    let table = folder.path().join("000005.ldb");
    let bytes = fs::read(&table).unwrap();
    // It is deleted; then another table has its name; then that is the one that is cut.
    fs::remove_file(&table).unwrap();
    for other in [&bytes[..0], &bytes[..9], &bytes] {
        let mut cursor = source.cursor().unwrap();
        for (key, value) in &due {
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]));
        }
        assert!(cursor.advance().unwrap().is_none());
        fs::write(&table, other).unwrap();
    }
    let cut = LevelDb::open(folder.path()).unwrap();
    fs::File::options().write(true).open(&table).unwrap().set_len(9).unwrap();
    let error = cut.cursor().unwrap().advance().map(|_| ()).unwrap_err();
    assert!(matches!(error, SourceError::LevelDb(LevelDbError::Length { found: 9, .. })), "{error}");
}
