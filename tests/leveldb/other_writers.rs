//! Databases as writers other than C++ LevelDB leave them, or as old releases of it did: LevelDB reads them,
//! and so they are read here. Each is forged byte by byte; where plyvel is installed, LevelDB itself is
//! asked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "a test's numbers are small")]

use std::fs;
use std::path::Path;
use std::process::Command;

use percolator::leveldb::{LogGaps, LogTail};
use percolator::source::{LevelDb, Source};

use crate::common::log::Log;
use crate::files::{Records, copy, data, drain, has_plyvel};
use crate::forged::{
    BLOCK, Forged, add_block, batch, entry, internal, log, manifest, masked, read, string, table, varint,
};

/// The number of records that C++ LevelDB reads from a copy of the database.
fn of_leveldb(folder: &Path) -> Option<Result<usize, String>> {
    const COUNT: &str = "import plyvel, sys
database = plyvel.DB(sys.argv[1], create_if_missing=False, paranoid_checks=False)
print(sum(1 for _ in database))";
    if !has_plyvel() {
        return None;
    }
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let output = Command::new("python3").args(["-c", COUNT]).arg(copy.path()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Some(match output.status.success() {
        true => Ok(text(&output.stdout).parse().unwrap()),
        false => Err(text(&output.stderr)),
    })
}

/// LevelDB and the reader here both find so many records, and nothing is cut.
fn reads(folder: &Path, records: usize, what: &str) {
    if let Some(found) = of_leveldb(folder) {
        assert_eq!(found, Ok(records), "LevelDB, {what}");
    }
    assert_eq!(read(folder), Ok((records, 0)), "{what}");
}

/// A varint in as many bytes as 32 bits may take.
fn long_varint(value: usize) -> Vec<u8> {
    let mut bytes = varint(value);
    *bytes.last_mut().unwrap() |= 0x80;
    bytes.resize(4, 0x80);
    bytes.push(0);
    bytes
}

/// A table of two blocks of a key each, whose handles are written by `handle`.
fn table_with(handle: impl Fn(Vec<u8>) -> Vec<u8>, entry: impl Fn(&[u8], &[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut table = Vec::new();
    let mut index = Vec::new();
    for user in [b"a", b"b"] {
        let key = internal(user, 1, 1);
        let block = add_block(&mut table, entry(&key, b"value"), 0);
        index.extend(entry(&key, &handle(block)));
    }
    let mut footer = add_block(&mut table, Vec::new(), 0);
    // A restart point for each entry, as an index has.
    let second = index.len() as u32 / 2;
    index.extend([0_u32, second, 2].iter().flat_map(|number| number.to_le_bytes()));
    footer.extend([varint(table.len()), varint(index.len())].concat());
    index.push(0);
    table.extend(&index);
    table.extend(masked(&index));
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    [table, footer].concat()
}

fn of_table(bytes: Vec<u8>) -> tempfile::TempDir {
    let tables = [(bytes, internal(b"a", 1, 1), internal(b"b", 1, 1))];
    Forged { last_sequence: 1, tables: &tables, ..Forged::default() }.write()
}

#[test]
fn handles_that_others_pad_and_numbers_longer_than_need_be_are_read() {
    let plain = |key: &[u8], value: &[u8]| entry(0, key, value);
    let long = |key: &[u8], value: &[u8]| {
        let lengths = [0, key.len(), value.len()].map(long_varint).concat();
        [&lengths[..], key, value].concat()
    };
    // The Java port pads every handle of an index to twenty bytes.
    let padded = |mut handle: Vec<u8>| {
        handle.resize(20, 0);
        handle
    };
    let followed = |handle: Vec<u8>| [&handle[..], b"more"].concat();
    let same = |handle: Vec<u8>| handle;
    reads(of_table(table_with(same, plain)).path(), 2, "as LevelDB writes it");
    reads(of_table(table_with(padded, plain)).path(), 2, "padded handles");
    reads(of_table(table_with(followed, plain)).path(), 2, "handles that something follows");
    reads(of_table(table_with(same, long)).path(), 2, "lengths of five bytes each");
    reads(of_table(table_with(padded, long)).path(), 2, "both");
}

/// A feed, and an index made for it, goes by the same handles.
#[test]
fn padded_handles_are_read_by_position() {
    let padded = |mut handle: Vec<u8>| {
        handle.resize(20, 0);
        handle
    };
    let folder = of_table(table_with(padded, |key, value| entry(0, key, value)));
    let source = LevelDb::open(folder.path()).unwrap();
    source.index(&percolator::source::IndexPlace::Memory).unwrap();
    let mut cursor = source.cursor().unwrap();
    cursor.seek(1).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), b"b");
}

/// LevelDB up to 1.15 and the Java port write logs and MANIFESTs to mapped files, in steps of 64 KiB to 1
/// MiB. If they are killed, the rest of the last step stays.
#[test]
fn space_that_was_reserved_at_the_end_of_a_log_or_manifest_is_no_cut() {
    let writes = log(&[batch(1, &[b"a", b"b"]), batch(3, &[b"c"])]);
    for zeros in [1, 6, 7, 100, 4096, BLOCK, 65_536 - writes.len(), (1 << 20) - writes.len()] {
        let reserved = [&writes[..], &vec![0; zeros]].concat();
        let folder = Forged { logs: &[(3, reserved)], last_sequence: 0, ..Forged::default() }.write();
        reads(folder.path(), 3, &format!("{zeros} zeros behind a log"));
        let edits = fs::read(manifest(&folder)).unwrap();
        fs::write(manifest(&folder), [&edits[..], &vec![0; zeros]].concat()).unwrap();
        reads(folder.path(), 3, &format!("{zeros} zeros behind both"));
        // It is told, and is no warning.
        let said = Log::default();
        let source = said.listen(|| LevelDb::open(folder.path()).unwrap());
        let [of_manifest, of_log] = source.cuts() else { panic!("{:?}", source.cuts()) };
        for cut in [of_manifest, of_log] {
            assert_eq!((cut.tail, cut.dropped_bytes), (LogTail::Zeros, zeros as u64));
            assert!(cut.to_string().contains("space that its writer reserved"), "{cut}");
        }
        assert!(!said.text().contains("WARN"), "{}", said.text());
    }
    // A writer that reuses the files goes on in the next block.
    let mut log_bytes = writes;
    log_bytes.resize(2 * BLOCK, 0);
    log_bytes.extend(log(&[batch(4, &[b"d"])]));
    let folder = Forged { logs: &[(3, log_bytes)], last_sequence: 0, ..Forged::default() }.write();
    let mut edits = fs::read(manifest(&folder)).unwrap();
    edits.resize(BLOCK, 0);
    edits.extend(log(&[vec![4, 3]]));
    fs::write(manifest(&folder), edits).unwrap();
    reads(folder.path(), 4, "writes behind the zeros");
}

/// Zeros that took the place of writes are told from reserved space by the numbers of the writes.
#[test]
fn zeros_in_place_of_writes_are_writes_that_are_lost() {
    let block = |writes: Vec<u8>| {
        let mut block = writes;
        block.resize(BLOCK, 0);
        block
    };
    let lost = |before: Vec<u8>, first: u64| {
        let bytes = [block(before), vec![0; BLOCK], log(&[batch(first, &[b"z"])])].concat();
        let folder = Forged { logs: &[(3, bytes)], last_sequence: 9, ..Forged::default() }.write();
        let error = LevelDb::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("000003.log: writes are lost"), "{error}");
        let source = LevelDb::open_with(folder.path(), LogGaps::Allow).unwrap();
        assert_eq!(source.gaps().len(), 1);
    };
    lost(log(&[batch(1, &[b"a"])]), 9);
    lost(Vec::new(), 9);
}

/// The start of a write that was cut short in reserved space.
#[test]
fn a_write_that_was_cut_short_in_reserved_space_is_dropped_with_a_word() {
    let first = log(&[batch(1, &[b"a", b"b"])]);
    let both = log(&[batch(1, &[b"a", b"b"]), batch(3, &[b"c"])]);
    for length in first.len() + 1..both.len() {
        let mut bytes = both[..length].to_vec();
        bytes.resize(65_536, 0);
        let folder = Forged { logs: &[(3, bytes)], last_sequence: 0, ..Forged::default() }.write();
        assert_eq!(read(folder.path()), Ok((2, 1)), "{length}");
        if length % 7 == 0
            && let Some(found) = of_leveldb(folder.path())
        {
            assert_eq!(found, Ok(2), "LevelDB, {length}");
        }
    }
}

/// A block without entries may have no restart point.
#[test]
fn a_table_without_entries_is_read() {
    let mut bytes = Vec::new();
    let mut footer = Vec::new();
    for _ in 0..2 {
        footer.extend([varint(bytes.len()), varint(4)].concat());
        bytes.extend([0; 5]);
        bytes.extend(masked(&[0; 5]));
    }
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    bytes.extend(footer);
    reads(of_table(bytes).path(), 0, "an empty index");
}

/// Published databases lack their logs where `*.log` is in a `.gitignore`.
#[test]
fn a_database_without_its_logs_is_read_if_that_is_allowed() {
    for name in ["leveldb/reopened", "leveldb/killed", "leveldb/levels", "golden/raw_leveldb_ldb"] {
        let (folder, whole) = (copy(name), LevelDb::open(data(name)).unwrap());
        let whole: Records = drain(whole.cursor().unwrap()).unwrap();
        let mut logs = 0;
        for file in fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "log") {
                fs::remove_file(file).unwrap();
                logs += 1;
            }
        }
        let error = LevelDb::open(folder.path()).unwrap_err().to_string();
        for part in [".log: the log of the newest writes is missing", "MANIFEST-", "set LogGaps::Allow"] {
            assert!(logs > 0 && error.contains(part), "{name}: {error}");
        }
        let source = LevelDb::open_with(folder.path(), LogGaps::Allow).unwrap();
        assert_eq!(source.gaps()[0].to_string(), error);
        let left = drain(source.cursor().unwrap()).unwrap();
        assert!(left.len() <= whole.len(), "{name}");
        if let Some(found) = of_leveldb(folder.path()) {
            assert_eq!(found, Ok(left.len()), "LevelDB, {name}");
        }
    }
}

/// Old releases named tables `.sst`, and had edits of a previous log.
#[test]
fn the_names_and_edits_of_old_releases_are_read() {
    let bytes = table(entry(0, &internal(b"a", 1, 1), b"v"), &internal(b"a", 1, 1), 0);
    let tables = [(bytes, internal(b"a", 1, 1), internal(b"a", 1, 1))];
    let folder = Forged { last_sequence: 1, tables: &tables, ..Forged::default() }.write();
    fs::rename(folder.path().join("000005.ldb"), folder.path().join("000005.sst")).unwrap();
    let edits = fs::read(manifest(&folder)).unwrap();
    let pointer = [&[5, 1][..], &string(&internal(b"a", 1, 1))].concat();
    fs::write(manifest(&folder), [&edits[..], &log(&[pointer])].concat()).unwrap();
    reads(folder.path(), 1, ".sst, and a compaction pointer");
}
