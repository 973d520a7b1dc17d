//! Databases that no writer left: keys that prefix compression makes large from few bytes, logs missing
//! between others, tails that look like records. Each is assembled byte by byte, with valid checksums, and
//! must give an error that names the place, or be read with a warning, in little time and memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "a test's numbers are small")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percolator::leveldb::{LevelDbError, LogGaps, LogTail};
use percolator::source::{LevelDb, Source, SourceError};
use tempfile::{TempDir, tempdir};

pub(crate) const BLOCK: usize = 32_768;
const KEY_BYTES_MAX: usize = 8 << 10;
const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

pub(crate) fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

pub(crate) fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [varint(bytes.len()), bytes.to_vec()].concat()
}

/// A log of these records.
pub(crate) fn log(records: &[Vec<u8>]) -> Vec<u8> {
    let mut log = Vec::new();
    for record in records {
        let (mut rest, mut is_first) = (&record[..], true);
        loop {
            let capacity = BLOCK - log.len() % BLOCK;
            if capacity < 7 {
                log.resize(log.len() + capacity, 0);
                continue;
            }
            let (payload, after) = rest.split_at(rest.len().min(capacity - 7));
            let kind = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            let covered = [&[kind], payload].concat();
            log.extend(masked(&covered));
            log.extend((payload.len() as u16).to_le_bytes());
            log.extend(covered);
            (rest, is_first) = (after, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    log
}

/// A write batch of short values.
pub(crate) fn batch(first: u64, keys: &[&[u8]]) -> Vec<u8> {
    let mut batch = [&first.to_le_bytes()[..], &(keys.len() as u32).to_le_bytes()].concat();
    for key in keys {
        batch.push(1);
        batch.extend(string(key));
        batch.extend(string(b"value"));
    }
    batch
}

/// A key as tables store it.
pub(crate) fn internal(user: &[u8], sequence: u64, kind: u8) -> Vec<u8> {
    [user, &(sequence << 8 | u64::from(kind)).to_le_bytes()].concat()
}

pub(crate) fn entry(shared: usize, unshared: &[u8], value: &[u8]) -> Vec<u8> {
    [varint(shared), varint(unshared.len()), varint(value.len()), unshared.to_vec(), value.to_vec()].concat()
}

pub(crate) fn add_block(table: &mut Vec<u8>, mut entries: Vec<u8>, kind: u8) -> Vec<u8> {
    entries.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    let handle = [varint(table.len()), varint(entries.len())].concat();
    entries.push(kind);
    table.extend(&entries);
    table.extend(masked(&entries));
    handle
}

/// A table of one block, whose index entry has this key.
pub(crate) fn table(entries: Vec<u8>, index_key: &[u8], kind: u8) -> Vec<u8> {
    let mut table = Vec::new();
    let handle = add_block(&mut table, entries, kind);
    let mut footer = add_block(&mut table, Vec::new(), 0);
    footer.extend(add_block(&mut table, entry(0, index_key, &handle), 0));
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table.extend(footer);
    table
}

/// What a database is made of.
pub(crate) struct Forged<'a> {
    pub(crate) comparator: &'a [u8],
    pub(crate) last_sequence: usize,
    pub(crate) log_number: usize,
    /// An edit after the first one.
    pub(crate) flush: Option<Flush>,
    pub(crate) logs: &'a [(usize, Vec<u8>)],
    /// The bytes, the first key and the last key of tables 5, 6 ... of level 1.
    pub(crate) tables: &'a [(Vec<u8>, Vec<u8>, Vec<u8>)],
}

/// A memtable was written to a table, and its log is no longer needed.
#[derive(Clone, Copy)]
pub(crate) struct Flush {
    /// The first log that is still needed.
    log_number: usize,
    /// The sequence number of the last write by then.
    last_sequence: usize,
    /// Whether the table is still there, or was merged with others.
    is_there: bool,
}

/// The sequence numbers in the table of a flush: its key order is not the order of writing.
const FLUSHED: [u64; 3] = [1, 3, 2];

impl Default for Forged<'_> {
    fn default() -> Self {
        let (comparator, last_sequence) = (COMPARATOR, 1 << 40);
        Forged { comparator, last_sequence, log_number: 0, flush: None, logs: &[], tables: &[] }
    }
}

impl Forged<'_> {
    pub(crate) fn write(&self) -> TempDir {
        let folder = tempdir().unwrap();
        let file = |name: String| folder.path().join(name);
        let mut edit =
            [&[1][..], &string(self.comparator), &[2], &varint(self.log_number), &[9, 0, 3]].concat();
        edit.extend([varint(1000), vec![4], varint(self.last_sequence)].concat());
        for (number, (bytes, smallest, largest)) in (5..).zip(self.tables) {
            edit.extend([&[7, 1][..], &varint(number), &varint(bytes.len())].concat());
            edit.extend([string(smallest), string(largest)].concat());
            fs::write(file(format!("{number:06}.ldb")), bytes).unwrap();
        }
        for (number, bytes) in self.logs {
            fs::write(file(format!("{number:06}.log")), bytes).unwrap();
        }
        let mut edits = vec![edit];
        if let Some(Flush { log_number, last_sequence, is_there }) = self.flush {
            let keys = (b'a'..).zip(FLUSHED).map(|(user, number)| internal(&[user], number, 1));
            let keys: Vec<Vec<u8>> = keys.collect();
            let bytes = table(keys.iter().flat_map(|key| entry(0, key, b"v")).collect(), &keys[2], 0);
            let added = |level: u8, number: usize| {
                let head = [&[7, level][..], &varint(number), &varint(bytes.len())].concat();
                [head, string(&keys[0]), string(&keys[2])].concat()
            };
            let head = [&[2][..], &varint(log_number), &[4], &varint(last_sequence)].concat();
            edits.push([head, added(0, 90)].concat());
            if !is_there {
                edits.push([&[6, 0][..], &varint(90), &added(1, 91)].concat());
            }
            fs::write(file(format!("{:06}.ldb", if is_there { 90 } else { 91 })), &bytes).unwrap();
        }
        fs::write(file("MANIFEST-000002".to_owned()), log(&edits)).unwrap();
        fs::write(file("CURRENT".to_owned()), "MANIFEST-000002\n").unwrap();
        folder
    }
}

/// The number of records, and of cuts inside a record.
pub(crate) fn read(folder: &Path) -> Result<(usize, usize), SourceError> {
    let source = LevelDb::open(folder)?;
    let mut cursor = source.cursor()?;
    let mut records = 0;
    while cursor.advance()?.is_some() {
        records += 1;
    }
    Ok((records, source.cuts().iter().filter(|cut| cut.tail != LogTail::Zeros).count()))
}

fn refusal(folder: &Path) -> String {
    let error = read(folder).unwrap_err();
    println!("{error}");
    assert!(matches!(error, SourceError::LevelDb(_)), "{error:?}");
    error.to_string()
}

pub(crate) fn manifest(folder: &TempDir) -> PathBuf {
    folder.path().join("MANIFEST-000002")
}

/// A table whose first key has `bytes` bytes, and `entries` more that share all but their last four.
fn prefix_table(bytes: usize, entries: u32, kind: u8) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let prefix = vec![b'a'; bytes - 4];
    let key = |number: u32| [&prefix[..], &number.to_be_bytes()].concat();
    let mut contents = entry(0, &internal(&key(0), 1, kind), b"");
    for number in 1..=entries {
        let unshared = internal(&number.to_be_bytes(), u64::from(number) + 1, kind);
        contents.extend(entry(prefix.len(), &unshared, b""));
    }
    let last = internal(&key(entries), u64::from(entries) + 1, kind);
    // Writers give the index the shortest key that separates blocks.
    (table(contents, &internal(b"b", 1, 1), 0), internal(&key(0), 1, kind), last)
}

#[test]
fn a_key_may_have_8_kib_and_no_more() {
    let folder = Forged { tables: &[prefix_table(KEY_BYTES_MAX, 100, 1)], ..Forged::default() }.write();
    assert_eq!(read(folder.path()), Ok((101, 0)));

    // 300 KB of prefix: each entry of some twenty bytes stands for a key of that length.
    let folder = Forged { tables: &[prefix_table(300_000, 20_000, 1)], ..Forged::default() }.write();
    let error = refusal(folder.path());
    let file = folder.path().join("000005.ldb");
    for part in [file.to_str().unwrap(), "block at byte 0", "300000 bytes", "8192"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // A range that starts inside the table gives the same error, before it compares keys.
    let source = LevelDb::open(folder.path()).unwrap();
    assert_eq!(source.range(Some(b"b"), None).unwrap().advance().map(|_| ()), Ok(()), "behind the table");
    let mut cursor = source.range(Some(b"aa"), None).unwrap();
    assert_eq!(cursor.advance().unwrap_err().to_string(), error);

    // The error names the offset of the block's second entry.
    let folder = Forged { tables: &[prefix_table(KEY_BYTES_MAX, 0, 1)], ..Forged::default() }.write();
    assert_eq!(read(folder.path()), Ok((1, 0)));
    let (_, smallest, _) = prefix_table(KEY_BYTES_MAX, 0, 1);
    let first = entry(0, &smallest, b"");
    let largest = internal(&vec![b'a'; KEY_BYTES_MAX + 1], 2, 1);
    let second = entry(KEY_BYTES_MAX - 4, &largest[KEY_BYTES_MAX - 4..], b"");
    let bytes = table([&first[..], &second].concat(), &internal(b"b", 2, 1), 0);
    let folder = Forged { tables: &[(bytes, smallest, internal(b"b", 2, 1))], ..Forged::default() }.write();
    let error = refusal(folder.path());
    for part in [&format!("byte {}", first.len())[..], "8193 bytes"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_key_of_a_log_may_have_8_kib_and_no_more() {
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let due = batch(1, &[b"a", &long[1..]]);
    let folder = Forged { logs: &[(3, log(&[due]))], last_sequence: 0, ..Forged::default() }.write();
    assert_eq!(read(folder.path()), Ok((2, 0)));
    let fits = vec![b'a'; 8000];
    let due = batch(1, &[&fits, &fits, &fits, &fits, &fits, &long]);
    let folder = Forged { logs: &[(3, log(&[due]))], last_sequence: 0, ..Forged::default() }.write();
    let error = refusal(folder.path());
    // The write starts in the second block, after the rest of those before it, so it has 7 more bytes of
    // header.
    let at = 7 + 12 + 5 * (1 + 2 + 8000 + 6) + 7 - BLOCK;
    let file = folder.path().join("000003.log");
    for part in [file.to_str().unwrap(), "block at byte 32768", &format!("byte {at} "), "8193 bytes", "8192"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// The cost of the longest allowed key when every entry has it: time grows with the number of entries times 8
/// KiB.
#[test]
fn deletions_of_long_keys_are_passed_in_time() {
    let folder = Forged { tables: &[prefix_table(KEY_BYTES_MAX, 60_000, 0)], ..Forged::default() }.write();
    let start = Instant::now();
    assert_eq!(read(folder.path()), Ok((0, 0)));
    println!("{:?} for 60,000 entries", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// A log of zeros, or of part of a record, whose writes the MANIFEST may have counted.
#[test]
fn a_log_that_lost_all_its_writes_is_not_passed_over() {
    let later = |first| (4, log(&[batch(first, &[b"c", b"d"])]));
    let whole = log(&[batch(1, &[b"a", b"b"])]);
    for lost in [vec![0; 4096], whole[..whole.len() - 1].to_vec(), whole[..5].to_vec()] {
        for first in [9, 10, 11, 12] {
            let logs = [(3, lost.clone()), later(first)];
            let folder =
                Forged { last_sequence: 10, log_number: 3, logs: &logs, ..Forged::default() }.write();
            let error = refusal(folder.path());
            assert!(error.contains("000003.log") && error.contains("000004.log"), "{error}");
            assert!(error.contains(&format!("write {first}")), "{error}");
        }
        // An empty log between them hides nothing.
        let logs = [(3, lost.clone()), (4, Vec::new()), (5, later(11).1)];
        let folder = Forged { last_sequence: 10, log_number: 3, logs: &logs, ..Forged::default() }.write();
        assert!(refusal(folder.path()).contains("000003.log"));
        // With no write after it, it is a cut like any other, or space that was reserved.
        let cuts = usize::from(lost.len() < 4096);
        let logs = [(3, lost.clone()), (4, Vec::new())];
        let folder = Forged { last_sequence: 10, log_number: 3, logs: &logs, ..Forged::default() }.write();
        assert_eq!(read(folder.path()), Ok((0, cuts)));
        // Sequence numbers that continue from log to log prove that nothing was lost between them.
        let logs = [(3, whole.clone()), (4, lost), (5, later(3).1)];
        let folder = Forged { last_sequence: 4, log_number: 3, logs: &logs, ..Forged::default() }.write();
        assert_eq!(read(folder.path()), Ok((4, cuts)));
    }
}

#[test]
fn an_empty_log_is_passed_over_if_no_write_is_missing() {
    let read = |last_sequence, first| {
        let logs = [(3, Vec::new()), (4, log(&[batch(first, &[b"c", b"d"])]))];
        read(Forged { last_sequence, log_number: 3, logs: &logs, ..Forged::default() }.write().path())
    };
    assert_eq!(read(5, 6), Ok((2, 0)));
    for (last_sequence, first) in [(5, 7), (5, 11), (5, 5), (10, 6)] {
        let error = read(last_sequence, first).unwrap_err();
        let SourceError::LevelDb(LevelDbError::Gap { found, wanted, .. }) = &error else { panic!("{error}") };
        assert_eq!((*found, *wanted), (first, Some(last_sequence as u64 + 1)), "{error}");
    }
}

/// The error that names what is lost, and the number of records read when losses are allowed.
fn lost(folder: &Path) -> (String, usize) {
    let error = refusal(folder);
    let source = LevelDb::open_with(folder, LogGaps::Allow).unwrap();
    let [gap] = source.gaps() else { panic!("{:?}", source.gaps()) };
    assert_eq!(gap.to_string(), error);
    let mut cursor = source.cursor().unwrap();
    let mut records = 0;
    while cursor.advance().unwrap().is_some() {
        records += 1;
    }
    (error, records)
}

#[test]
fn numbers_that_jump_are_writes_that_are_lost() {
    let (one, later) = (batch(1, &[b"a", b"b"]), batch(5, &[b"c"]));
    let forged = |logs: &[(usize, Vec<u8>)]| Forged { last_sequence: 0, logs, ..Forged::default() }.write();
    // Inside a log, at its start, and from one log to the next, none of them cut.
    let folder = forged(&[(3, log(&[one.clone(), later.clone()]))]);
    let (error, records) = lost(folder.path());
    assert!(error.contains("the batch at byte 37 starts with write 5, but write 3 is due"), "{error}");
    assert!(error.contains("set LogGaps::Allow") && !error.contains("--"), "{error}");
    assert_eq!(records, 3);
    let folder = forged(&[(3, log(std::slice::from_ref(&later)))]);
    let (error, records) = lost(folder.path());
    assert!(error.contains("the batch at byte 0 starts with write 5, but write 1 is due"), "{error}");
    assert_eq!(records, 1);
    let folder = forged(&[(3, log(&[one])), (4, log(&[later]))]);
    let (error, records) = lost(folder.path());
    assert!(error.contains("000003.log: writes are lost") && error.contains("000004.log starts"), "{error}");
    assert!(error.contains("write 5, but write 3 is due"), "{error}");
    assert_eq!(records, 3);
}

/// A writer that waits for a memtable to become a table, as bulk loads do, ends one log at the number at
/// which the next one starts.
#[test]
fn an_older_log_that_was_emptied_lost_its_writes() {
    let older = log(&[batch(4, &[b"d", b"e"])]);
    let younger = log(&[batch(6, &[b"f"])]);
    for is_there in [true, false] {
        let flush = Some(Flush { log_number: 5, last_sequence: 5, is_there });
        let forged = |older: &[u8]| {
            let logs = [(5, older.to_vec()), (6, younger.clone())];
            Forged { last_sequence: 0, log_number: 3, flush, logs: &logs, ..Forged::default() }.write()
        };
        assert_eq!(read(forged(&older).path()), Ok((6, 0)));
        let (error, records) = lost(forged(&[]).path());
        assert!(error.contains("000005.log: writes are lost: "), "{error}");
        assert!(error.contains("000006.log starts with write 6, but write 4 is due"), "{error}");
        assert_eq!(records, 4);
    }
    // A compaction starts a new log, whatever the last one holds.
    for is_there in [true, false] {
        let flush = Some(Flush { log_number: 5, last_sequence: 3, is_there });
        let logs = [(5, Vec::new()), (6, log(&[batch(4, &[b"f"])]))];
        let forged = Forged { last_sequence: 0, log_number: 3, flush, logs: &logs, ..Forged::default() };
        assert_eq!(read(forged.write().path()), Ok((4, 0)));
    }
}

#[test]
fn logs_that_end_before_what_was_counted_are_refused() {
    let start = |last_sequence, logs: &[(usize, Vec<u8>)]| {
        let flush = Some(Flush { log_number: 5, last_sequence, is_there: true });
        Forged { last_sequence: 0, log_number: 3, flush, logs, ..Forged::default() }.write()
    };
    let four = log(&[batch(4, &[b"d"])]);
    assert_eq!(read(start(4, &[(5, four.clone())]).path()), Ok((4, 0)));
    let (error, records) = lost(start(6, &[(5, four.clone())]).path());
    assert!(error.contains("000005.log: writes are lost: the logs end before write 5"), "{error}");
    assert!(error.contains("MANIFEST-000002 counts up to 6"), "{error}");
    assert_eq!(records, 4);
    // Nothing is left of the log, or nothing was ever in it.
    let (error, records) = lost(start(4, &[(5, Vec::new())]).path());
    assert!(error.contains("the logs end before write 4"), "{error}");
    assert_eq!(records, 3);
    assert_eq!(read(start(3, &[(5, Vec::new())]).path()), Ok((3, 0)));
    // A cut also counts as the end of a log.
    let (error, _) = lost(start(5, &[(5, [&four[..], &four[..9]].concat())]).path());
    assert!(error.contains("the logs end before write 5"), "{error}");
    // Once the table before the log is merged, nobody knows whether the log had a write that the MANIFEST
    // counted.
    let flush = Some(Flush { log_number: 5, last_sequence: 4, is_there: false });
    let logs = [(5, Vec::new())];
    let forged = Forged { last_sequence: 0, log_number: 3, flush, logs: &logs, ..Forged::default() };
    assert_eq!(read(forged.write().path()), Ok((3, 0)));
}

#[test]
fn every_log_that_the_manifest_names_must_be_there() {
    let logs = [(4, log(&[batch(1, &[b"a"])]))];
    let folder = Forged { last_sequence: 0, log_number: 4, logs: &logs, ..Forged::default() }.write();
    let bytes = fs::read(manifest(&folder)).unwrap();
    fs::write(manifest(&folder), [bytes, log(&[vec![9, 3]])].concat()).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("000003.log: the log of the newest writes is missing"), "{error}");
    assert!(error.contains("set LogGaps::Allow") && !error.contains("--"), "{error}");
    assert_eq!(lost(folder.path()), (error, 1));
}

/// A fragment that extends past the end of the file counts as the last one of a writer that died, whatever
/// length it claims, as in LevelDB.
#[test]
fn a_length_that_no_block_has_room_for_is_a_cut_at_the_end_of_a_file() {
    let whole = log(&[batch(1, &[b"a", b"b"])]);
    let head = |length: u16| [&[1, 2, 3, 4][..], &length.to_le_bytes(), &[1]].concat();
    for length in [32_000, 65_000] {
        let bytes = [&whole[..], &head(length), &[b'x'; 20]].concat();
        let folder = Forged { logs: &[(3, bytes)], last_sequence: 0, ..Forged::default() }.write();
        assert_eq!(read(folder.path()), Ok((2, 1)));
        let source = LevelDb::open(folder.path()).unwrap();
        assert_eq!(
            (source.cuts()[0].offset, source.cuts()[0].tail),
            (whole.len() as u64, LogTail::PartOfARecord)
        );
        // A record after it would be hidden by it.
        let bytes = [&whole[..], &head(length), &log(&[batch(3, &[b"c"])])].concat();
        let folder = Forged { logs: &[(3, bytes)], last_sequence: 0, ..Forged::default() }.write();
        assert!(refusal(folder.path()).contains("would extend past the end of the file"));
        // In a complete block it is damage, as in LevelDB.
        let mut bytes = [&whole[..], &head(65_000)].concat();
        bytes.resize(BLOCK, b'x');
        let folder = Forged { logs: &[(3, bytes)], last_sequence: 0, ..Forged::default() }.write();
        assert!(refusal(folder.path()).contains("where the block has room for"));
    }
}

#[test]
fn a_cut_manifest_is_not_called_a_log() {
    let folder = Forged { last_sequence: 9, ..Forged::default() }.write();
    let bytes = fs::read(manifest(&folder)).unwrap();
    fs::write(manifest(&folder), [&bytes[..], &log(&[vec![4, 10]])[..8]].concat()).unwrap();
    let source = LevelDb::open(folder.path()).unwrap();
    let [cut] = source.cuts() else { panic!("{:?}", source.cuts()) };
    assert!(cut.to_string().contains("an older list of tables may be in use"), "{cut}");
}

#[test]
fn what_is_not_read_says_what_to_do() {
    let comparator = |comparator: &[u8]| refusal(Forged { comparator, ..Forged::default() }.write().path());
    let idb = comparator(b"idb_cmp1");
    assert!(idb.contains("Chrome's IndexedDB, not Caffe's"), "{idb}");
    let other = comparator(b"somebody's");
    assert!(other.contains("copy its records"), "{other}");
    let key = internal(b"a", 1, 1);
    let bytes = table(entry(0, &key, b"v"), &key, 2);
    let folder = Forged { tables: &[(bytes, key.clone(), key)], ..Forged::default() }.write();
    let error = refusal(folder.path());
    assert!(error.contains("zstd") && error.contains("copy its records to a new database"), "{error}");
    assert!(!error.contains("copy the database again"), "it is whole: {error}");
}

/// A table listed in two levels would be read, and held, more than once.
#[test]
fn a_table_has_one_level() {
    let key = internal(b"a", 1, 1);
    let tables = [(table(entry(0, &key, b"v"), &key, 0), key.clone(), key.clone())];
    let folder = Forged { tables: &tables, ..Forged::default() }.write();
    assert_eq!(read(folder.path()), Ok((1, 0)));
    let twice = [&[7, 2, 5][..], &varint(tables[0].0.len()), &string(&key), &string(&key)].concat();
    let bytes = fs::read(manifest(&folder)).unwrap();
    fs::write(manifest(&folder), [bytes, log(&[twice])].concat()).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("table 5 is in level 1 and in level 2"), "{error}");
}

/// A compaction of rusty-leveldb's may leave a newer write below an older one. LevelDB's walks go by the
/// numbers of the writes; only its `get` stops at the first level that has the key.
#[test]
fn the_newest_write_of_a_key_counts_whatever_its_level() {
    for (older, newer, records) in [(1, 0, 0), (0, 1, 1)] {
        let one = |sequence, kind| {
            let key = internal(b"a", sequence, kind);
            (table(entry(0, &key, b"v"), &key, 0), key.clone(), key)
        };
        let (upper, below) = (one(1, older), one(2, newer));
        let folder = Forged { tables: &[upper], ..Forged::default() }.write();
        fs::write(folder.path().join("000006.ldb"), &below.0).unwrap();
        let added = [&[7, 2, 6][..], &varint(below.0.len()), &string(&below.1), &string(&below.2)].concat();
        let bytes = fs::read(manifest(&folder)).unwrap();
        fs::write(manifest(&folder), [bytes, log(&[added])].concat()).unwrap();
        assert_eq!(read(folder.path()), Ok((records, 0)));
    }
}

/// A tail in which every byte starts what could be a fragment, in many logs.
#[test]
fn forged_tails_are_searched_in_little_time() {
    let mut tail = log(&[batch(1, &[b"a"])]);
    let start = tail.len();
    // Headers of kind 1 to 4, at every byte, of the length 0x0404, which fits nearly everywhere.
    tail.resize(BLOCK - 1, 4);
    tail[start + 4..start + 7].copy_from_slice(&[0xff, 0x7f, 1]);
    let logs = [(3, tail)];
    let start = Instant::now();
    let folder = Forged { logs: &logs, last_sequence: 0, ..Forged::default() }.write();
    assert_eq!(read(folder.path()), Ok((1, 1)));
    println!("{:?} for a tail", start.elapsed());
}
