//! A file that is damaged, missing or something else is an error that names it. A log that is cut, as by the
//! death of its writer, is served up to the cut, and the cut is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use percolator::leveldb::{LevelDbError, LogFault, LogTail, TableError};
use percolator::reader::ReaderError;
use percolator::source::{LevelDb, Lmdb, Source, SourceError};
use percolator::{Feed, FeedError};
use tempfile::tempdir;

use crate::common::log::Log;
use crate::common::sample::some_with;
use crate::files::{copy, data, drain, read, refusal};

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn what_is_no_leveldb_is_refused_with_a_hint() {
    let refusal = |path: &Path, hint: &str| {
        let error = LevelDb::open(path).unwrap_err();
        assert!(matches!(error, SourceError::Instead { .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
        println!("{error}");
    };
    let folder = tempdir().unwrap();
    refusal(folder.path(), "not a LevelDB: it is an empty folder");
    let as_lmdb = "it is an LMDB: read it with `.lmdb(path)`, or in a net with `backend: LMDB`";
    refusal(&data("golden/raw_lmdb"), as_lmdb);
    refusal(&data("golden/raw_lmdb/data.mdb"), "it is an LMDB's data file: read it with `.lmdb(path)`");
    refusal(&data("leveldb/nothing/CURRENT"), "it is a file of a LevelDB: give its folder");
    // What nobody knows.
    let (some, file) = (folder.path().join("some"), folder.path().join("some/notes"));
    fs::create_dir(&some).unwrap();
    fs::write(&file, [1, 2, 3]).unwrap();
    for (path, hint) in [
        (&some, "give the folder that convert_imageset -backend=leveldb or a similar tool wrote"),
        (&file, "it is not a folder: a LevelDB is the folder that contains CURRENT"),
    ] {
        let error = LevelDb::open(path).unwrap_err();
        assert!(matches!(error, SourceError::NotADatabase { missing: "CURRENT", .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    let nowhere = LevelDb::open(folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(nowhere, SourceError::Io { kind: std::io::ErrorKind::NotFound, .. }));

    let error = Lmdb::open(data("leveldb/nothing")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is a LevelDB: read it with `.leveldb(path)`, or in a net with `backend: LEVELDB`")
    );
    assert!(matches!(
        Feed::builder().leveldb(data("leveldb/nothing")).build(),
        Err(FeedError::Reader(ReaderError::Source(SourceError::Empty { .. })))
    ));
}

#[test]
fn a_missing_or_strange_file_is_named() {
    let folder = copy("leveldb/reopened");
    let file = |name: &str| folder.path().join(name);
    let current = |text: &[u8]| {
        fs::write(file("CURRENT"), text).unwrap();
        refusal(folder.path())
    };
    for text in ["", "MANIFEST-000010", "MANIFEST-\n", "MANIFEST-00001x\n", "../MANIFEST-000010\n", "a\nb\n"]
    {
        let found = format!("{text:?}");
        assert_eq!(current(text.as_bytes()), LevelDbError::Current { file: file("CURRENT"), found });
    }
    assert!(matches!(current(&[0xff; 1 << 20]), LevelDbError::Current { found, .. } if found.len() < 1000));
    assert!(matches!(
        current(b"MANIFEST-000009\n"),
        LevelDbError::Missing { file: missing, named_by, .. }
            if missing == file("MANIFEST-000009") && named_by == file("CURRENT")
    ));
    fs::write(file("CURRENT"), "MANIFEST-000010\n").unwrap();
    assert_eq!(read(folder.path()).unwrap().len(), 140);

    let without = |name: &str| {
        fs::rename(file(name), file("elsewhere")).unwrap();
        let error = refusal(folder.path());
        fs::rename(file("elsewhere"), file(name)).unwrap();
        error
    };
    let manifest = file("MANIFEST-000010");
    assert_eq!(
        without("000008.ldb"),
        LevelDbError::MissingTables {
            file: file("000008.ldb"),
            missing: 1,
            tables: 3,
            manifest: manifest.clone()
        }
    );
    assert_eq!(
        without("000012.log"),
        LevelDbError::MissingLog { file: file("000012.log"), manifest: manifest.clone() }
    );

    // The older suffix of tables.
    fs::rename(file("000008.ldb"), file("000008.sst")).unwrap();
    assert_eq!(read(folder.path()).unwrap().len(), 140);
    let table = fs::read(file("000008.sst")).unwrap();
    let wanted = table.len() as u64;
    for length in [0, 47, table.len() - 1] {
        fs::write(file("000008.sst"), &table[..length]).unwrap();
        let found = length as u64;
        LevelDb::open(folder.path()).expect_err("before anything is walked");
        assert_eq!(refusal(folder.path()), LevelDbError::Length { file: file("000008.sst"), found, wanted });
    }
    fs::remove_file(file("000008.sst")).unwrap();
    fs::create_dir(file("000008.ldb")).unwrap();
    assert_eq!(refusal(folder.path()), LevelDbError::NoFile { file: file("000008.ldb") });
    fs::remove_dir(file("000008.ldb")).unwrap();
    fs::write(file("000008.ldb"), &table).unwrap();

    change(&manifest, |bytes| bytes[20] ^= 1);
    let error = refusal(folder.path());
    let LevelDbError::Log { file, block: 0, offset: 0, fault: LogFault::Checksum { .. } } = error else {
        panic!("{error}")
    };
    assert_eq!(file, manifest);
    fs::write(&manifest, "").unwrap();
    assert!(matches!(refusal(folder.path()), LevelDbError::Manifest { offset: 0, .. }));
}

/// Every byte of a table with sixteen blocks, one after the other; or a sample, with all behind the blocks.
#[test]
fn no_byte_of_a_table_can_change_unseen() {
    for name in ["leveldb/uncompressed", "leveldb/snappy"] {
        let folder = copy(name);
        let file = folder.path().join("000005.ldb");
        let good = fs::read(&file).unwrap();
        let due = read(folder.path()).unwrap();
        let mut unseen = 0;
        let places = (0..good.len()).step_by(if good.len() > 5000 { 3 } else { 1 });
        for at in some_with(places, 7, |at| at + 48 + 13 >= good.len()) {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&file, &bytes).unwrap();
            match read(folder.path()) {
                Ok(records) => {
                    assert_eq!(records, due, "byte {at}");
                    unseen += 1;
                }
                Err(SourceError::LevelDb(LevelDbError::Table { file: named, .. })) => assert_eq!(named, file),
                Err(error) => panic!("{error}"),
            }
        }
        // The block that names filters (13 bytes), of which there are none, and the unused bytes of the
        // footer.
        assert!(unseen < 13 + 40, "{name}: {unseen} of {} bytes", good.len());
    }
}

#[test]
fn a_damaged_block_ends_the_walk_there() {
    let folder = copy("leveldb/uncompressed");
    let due = read(folder.path()).unwrap();
    let file = folder.path().join("000005.ldb");
    change(&file, |bytes| bytes[7000] ^= 0x10);
    let source = LevelDb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    let mut count = 0;
    let error = loop {
        match cursor.advance() {
            Ok(entry) => assert_eq!(entry.unwrap().key(), due[count].0),
            Err(error) => break error,
        }
        count += 1;
    };
    assert!(count > 10 && count < due.len() - 10, "{count}");
    let SourceError::LevelDb(LevelDbError::Table {
        file: named,
        error: TableError::Checksum { offset, bytes, .. },
    }) = &error
    else {
        panic!("{error}")
    };
    assert!(*named == file && (*offset..offset + bytes).contains(&7000), "{error}");
    println!("{error}");
    assert_eq!(cursor.advance().unwrap_err(), error, "and stays there");
    cursor.rewind().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), due[0].0);
    // The blocks that are not damaged are read.
    let end = drain(source.range(Some(&due[due.len() - 5].0), None).unwrap()).unwrap();
    assert_eq!(end, due[due.len() - 5..]);
}

#[test]
fn a_cut_log_is_served_up_to_the_cut_and_says_so() {
    // One write batch, and three.
    assert_eq!(cut_everywhere("golden/raw_leveldb_log", 9001), [64, 0]);
    assert_eq!(cut_everywhere("leveldb/big_values", 1001), [32, 2, 1, 0]);
}

/// Cuts a log at every `step`th length; returns the numbers of records that were read.
fn cut_everywhere(name: &str, step: usize) -> Vec<usize> {
    let folder = copy(name);
    let file = folder.path().join("000003.log");
    let log = fs::read(&file).unwrap();
    let due = read(folder.path()).unwrap();
    let mut lengths = Vec::new();
    for length in (0..=log.len()).rev().step_by(step) {
        fs::write(&file, &log[..length]).unwrap();
        let said = Log::default();
        let source = said.listen(|| LevelDb::open(folder.path()).unwrap());
        let records = drain(source.cursor().unwrap()).unwrap();
        assert!(records == due[..records.len()]);
        assert_eq!(source.records(), Some(records.len() as u64));
        lengths.push(records.len());
        let text = said.text();
        if length == log.len() {
            assert_eq!(source.cuts(), []);
            assert!(!text.contains("WARN"), "{text}");
            continue;
        }
        let [cut] = source.cuts() else { panic!("{:?}", source.cuts()) };
        assert_eq!((&cut.file, cut.offset + cut.dropped_bytes), (&file, length as u64));
        assert_eq!(cut.tail, LogTail::PartOfARecord);
        assert!(cut.to_string().contains(&format!(
            "{}: cut inside the record at byte {}",
            file.display(),
            cut.offset
        )));
        for part in [
            " WARN ",
            "000003.log",
            &format!("offset={}", cut.offset),
            &format!("dropped_bytes={}", cut.dropped_bytes),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    lengths.dedup();
    lengths
}

#[test]
fn a_log_that_is_damaged_before_its_end_is_an_error() {
    let folder = copy("leveldb/big_values");
    let file = folder.path().join("000003.log");
    change(&file, |bytes| bytes[40_000] ^= 1);
    let LevelDbError::Log { file: named, block, offset, fault } = refusal(folder.path()) else { panic!() };
    assert_eq!((named, block, offset), (file.clone(), 1, 33_039));
    assert!(matches!(fault, LogFault::Checksum { .. }), "{fault}");
    // A lost block loses its write batch.
    change(&file, |bytes| drop(bytes.drain(..32_768)));
    assert!(matches!(refusal(folder.path()), LevelDbError::Log { offset: 0, .. }));
}

/// A writer was killed before its older log was in a table. Records lost at the end of that log precede those
/// in the younger one.
#[test]
fn a_cut_between_two_logs_is_an_error() {
    let folder = copy("leveldb/killed");
    let mut logs: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    let [older, younger] = &logs[..] else { panic!("{logs:?}") };
    change(older, |bytes| bytes.truncate(bytes.len() - 1));
    let LevelDbError::Gap { file, next, found, wanted } = refusal(folder.path()) else { panic!() };
    assert_eq!((&file, &next, Some(found)), (older, younger, wanted.map(|wanted| wanted + 1)));
    // With nothing after it, it is a cut like any other.
    fs::write(younger, "").unwrap();
    let source = LevelDb::open(folder.path()).unwrap();
    assert_eq!(source.cuts().len(), 1);
    drain(source.cursor().unwrap()).unwrap();
    // A copy of the same log is no younger one.
    let folder = copy("leveldb/killed");
    fs::copy(
        folder.path().join(older.file_name().unwrap()),
        folder.path().join(younger.file_name().unwrap()),
    )
    .unwrap();
    assert!(matches!(refusal(folder.path()), LevelDbError::Batch { .. }));
}

#[test]
fn two_tables_that_changed_places_are_found_out() {
    let folder = copy("leveldb/reopened");
    let tables = ["000005.ldb", "000008.ldb"].map(|name| folder.path().join(name));
    // Both lengths must match the MANIFEST, so the shorter table is padded with bytes that no reader uses.
    let [one, other] = tables.each_ref().map(|path| fs::read(path).unwrap());
    let (short, long) =
        if one.len() < other.len() { (&tables[0], &tables[1]) } else { (&tables[1], &tables[0]) };
    let (short, mut padded) = (fs::read(short).unwrap(), (fs::metadata(long).unwrap().len(), long));
    let footer = short.len() - 48;
    let gap = usize::try_from(padded.0).unwrap() - short.len();
    let bytes = [&short[..footer], &vec![0; gap], &short[footer..]].concat();
    padded.0 = bytes.len() as u64;
    fs::write(padded.1, bytes).unwrap();
    assert!(matches!(refusal(folder.path()), LevelDbError::Key { .. }));
}
