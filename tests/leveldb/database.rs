//! C++ LevelDB cannot open a database without rewriting it, and most of what Caffe wrote is in a log, which a
//! reader of tables alone does not see. These tests read databases as real writers left them (Caffe, C++
//! LevelDB through plyvel, a writer that was killed), compare every record, and compare the folder before and
//! after. What is damaged, missing or something else must be an error that names the file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator::leveldb::{LevelDbError, LogFault, LogGaps, LogTail, TableError};
use percolator::reader::{DataReader, ReaderError, Registry};
use percolator::source::{Access, Cursor, IndexPlace, LevelDb, Lmdb, Source, SourceError};
use percolator::{Feed, FeedError};
use sha2::{Digest as _, Sha256};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::log::Log;
use crate::common::process::{check_without_root, child_command, open_files, role, this_test};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn drain(mut cursor: Box<dyn Cursor>) -> Result<Records, SourceError> {
    let mut records = Records::new();
    while let Some(entry) = cursor.advance()? {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    Ok(records)
}

fn read(path: &Path) -> Result<Records, SourceError> {
    drain(LevelDb::open(path)?.cursor()?)
}

/// The error of opening or reading a LevelDB; a feed must give the same.
fn refusal(path: &Path) -> LevelDbError {
    let error = read(path).unwrap_err();
    match Feed::builder().leveldb(path).build() {
        Err(FeedError::Reader(ReaderError::Source(from_feed))) => assert_eq!(from_feed, error),
        // A feed reads only the first record before it starts.
        other => assert!(matches!(other, Err(FeedError::Record(_)) | Ok(_)), "{other:?}"),
    }
    assert!(error.to_string().contains(path.to_str().unwrap()), "the file is named: {error}");
    println!("{error}");
    match error {
        SourceError::LevelDb(error) => error,
        other => panic!("{other:?}"),
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A copy of a database of the tree, to be damaged.
fn copy(name: &str) -> TempDir {
    let folder = tempdir().unwrap();
    for file in fs::read_dir(data(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

/// Everything about a folder that a reader could change.
fn state(folder: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64, u32)> {
    let entry = |entry: fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (bytes, metadata.mtime(), metadata.mtime_nsec(), metadata.mode()))
    };
    fs::read_dir(folder).unwrap().map(|file| entry(file.unwrap())).collect()
}

/// The digest that `make.py` computes.
fn digest(records: &Records) -> String {
    let mut digest = Sha256::new();
    for part in records.iter().flat_map(|(key, value)| [key, value]) {
        digest.update(u32::try_from(part.len()).unwrap().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares every database that `make.py` wrote to a folder with what it says it wrote.
fn check_made(folder: &Path) -> usize {
    let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: BTreeMap<String, serde_json::Value> = serde_json::from_str(&expected).unwrap();
    let both = [Access::Mapped, Access::Read];
    for ((name, expected), access) in expected.iter().flat_map(|one| both.map(|access| (one, access))) {
        let path = folder.join(name);
        let before = state(&path);
        let source = LevelDb::options().access(access).open(&path).unwrap();
        let mut cursor = source.cursor().unwrap();
        let records = drain(source.cursor().unwrap()).unwrap();
        assert_eq!(expected["records"], records.len(), "{name}");
        assert_eq!(expected["sha256"], digest(&records), "{name}");
        assert_eq!(source.cuts(), [], "{name}");
        if let Some(count) = source.records() {
            assert_eq!(count, records.len() as u64, "{name}");
        }
        // Two passes, and ranges from and to every 7th key.
        for (key, value) in &records {
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]), "{name}");
        }
        assert!(cursor.advance().unwrap().is_none() && cursor.advance().unwrap().is_none());
        cursor.rewind().unwrap();
        assert_eq!(
            cursor.advance().unwrap().map(|entry| entry.key().to_vec()),
            records.first().map(|first| first.0.clone())
        );
        let step = (records.len() / 20).max(1);
        for (at, (key, _)) in records.iter().enumerate().step_by(step) {
            assert_eq!(drain(source.range(Some(key), None).unwrap()).unwrap(), records[at..], "{name}");
            assert_eq!(drain(source.range(None, Some(key)).unwrap()).unwrap(), records[..at], "{name}");
        }
        assert!(state(&path) == before, "{name} is as it was");
    }
    assert_eq!(
        refusal(&folder.join("comparator")),
        LevelDbError::Comparator {
            file: folder.join("comparator/MANIFEST-000002"),
            found: "percolator.reversed".to_owned()
        }
    );
    expected.len()
}

#[test]
fn what_caffe_wrote_is_the_same_in_its_log_its_table_and_its_lmdb() {
    let due = drain(Lmdb::open_without_lock(data("golden/raw_lmdb")).unwrap().cursor().unwrap()).unwrap();
    let logged = Some(due.len() as u64);
    for (name, records, access) in [
        ("raw_leveldb_log", logged, Access::Mapped),
        ("raw_leveldb_log", logged, Access::Read),
        ("raw_leveldb_ldb", None, Access::Mapped),
        ("raw_leveldb_ldb", None, Access::Read),
    ] {
        let folder = copy(&format!("golden/{name}"));
        let before = state(folder.path());
        let source = LevelDb::options().access(access).open(folder.path()).unwrap();
        assert_eq!(source.records(), records, "{name}");
        assert!(drain(source.cursor().unwrap()).unwrap() == due, "{name}");
        assert_eq!(source.cuts(), []);
        assert!(state(folder.path()) == before, "{name} is as it was");
    }
}

#[test]
fn databases_of_cpp_leveldb_are_read_as_it_reads_them() {
    assert_eq!(check_made(&data("leveldb")), 14);
}

/// Ten times as large: levels with several tables, tables with many blocks, compactions under way.
#[test]
fn larger_databases_of_cpp_leveldb_are_read_as_it_reads_them() {
    if !has_plyvel() {
        return;
    }
    for scale in ["3", "8"] {
        let folder = tempdir().unwrap();
        let made = Command::new("python3")
            .arg(data("leveldb/make.py"))
            .arg(folder.path())
            .args(["--scale", scale])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(check_made(folder.path()), 14);
    }
}

/// Where the records of a log end: those that are not split into fragments, and the last fragments of those
/// that are.
fn record_ends(log: &[u8]) -> Vec<usize> {
    const BLOCK: usize = 32_768;
    let (mut ends, mut at) = (vec![0], 0);
    while at + 7 <= log.len() {
        if BLOCK - at % BLOCK < 7 {
            at = at.next_multiple_of(BLOCK);
            continue;
        }
        let end = at + 7 + usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
        ends.extend(Some(end).filter(|&end| matches!(log[at + 6], 1 | 4) && end <= log.len()));
        at = end;
    }
    ends
}

/// Whether C++ LevelDB is available.
fn has_plyvel() -> bool {
    let has_plyvel = Command::new("python3").args(["-c", "import plyvel"]).output();
    if has_plyvel.as_ref().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(std::env::var_os("PERCOLATOR_NEED_PLYVEL").is_none(), "python3 has no plyvel: {has_plyvel:?}");
    println!("did not run: python3 has no plyvel");
    false
}

/// A writer compacts and deletes files while its database is read again and again. Each read gives what was
/// written up to some write, or an error that says that somebody is writing to the database.
#[test]
fn a_database_that_is_written_to_is_read_as_it_was_or_says_so() {
    if !has_plyvel() {
        return;
    }
    let folder = tempdir().unwrap();
    let mut writer = Command::new("python3")
        .arg(data("leveldb/bulk.py"))
        .arg(folder.path())
        .arg("--endless")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(writer.stdout.take().unwrap());
    // One read for each line the writer prints, so that it is at work all the while.
    let (mut read_whole, mut written_to) = (0, 0);
    for line in said.lines().take(30) {
        let before: usize = line.unwrap().parse().unwrap();
        match read(folder.path()) {
            Ok(records) => {
                assert!(records.len() > before, "{} records of {before}", records.len());
                for (number, (key, value)) in records.iter().enumerate() {
                    assert_eq!(key, format!("{number:08}").as_bytes());
                    assert!(value.starts_with(format!("{number}.").as_bytes()));
                }
                read_whole += 1;
            }
            Err(SourceError::LevelDb(LevelDbError::BeingWritten { .. })) => written_to += 1,
            Err(error) => panic!("{error}"),
        }
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    println!("{read_whole} read, {written_to} written to");
    assert!(read_whole > 0);
}

/// Bulk loads of C++ LevelDB, closed, reopened, compacted and killed: each is read, whatever its sequence
/// numbers. Then the older of two logs is cut where a record ends, which no checksum shows: each such
/// database is refused.
#[test]
fn what_a_bulk_load_left_is_read_and_what_lost_writes_is_not() {
    if !has_plyvel() {
        return;
    }
    let number = |name: &str, or: &str| std::env::var(name).unwrap_or(or.to_owned());
    let folder = tempdir().unwrap();
    let made = Command::new("python3")
        .arg(data("leveldb/bulk.py"))
        .arg(folder.path())
        .args(["--count", &number("PERCOLATOR_BULK_LOADS", "40")])
        .args(["--seed", &number("PERCOLATOR_BULK_SEED", "0")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let expected = fs::read_to_string(folder.path().join("expected.json")).unwrap();
    let expected: BTreeMap<String, serde_json::Value> = serde_json::from_str(&expected).unwrap();
    let (mut cuts, mut with_two) = (0, 0);
    for (name, expected) in &expected {
        let path = folder.path().join(name);
        let records = read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(expected["records"], records.len(), "{name}");
        assert_eq!(expected["sha256"], digest(&records), "{name}");
        let logs: Vec<(PathBuf, Vec<u8>)> = state(&path)
            .into_iter()
            .filter(|(name, (bytes, ..))| name.ends_with(".log") && !bytes.is_empty())
            .map(|(name, (bytes, ..))| (path.join(name), bytes))
            .collect();
        let [(older, bytes), _younger] = &logs[..] else { continue };
        fs::remove_file(older).unwrap();
        if read(&path).is_ok_and(|found| found == records) {
            // Killed after the older log went to a table, before the log was deleted.
            continue;
        }
        with_two += 1;
        let ends = record_ends(bytes);
        let (_, before) = ends.split_last().unwrap();
        for &end in before.iter().step_by(before.len().div_ceil(20)) {
            fs::write(older, &bytes[..end]).unwrap();
            let Err(error) = read(&path) else { panic!("{name}: cut at byte {end}, and read") };
            assert!(matches!(error, SourceError::LevelDb(LevelDbError::Gap { .. })), "{name} {end}: {error}");
            LevelDb::open_with(&path, LogGaps::Allow).unwrap();
            cuts += 1;
        }
    }
    println!("{} databases, {with_two} with two logs, {cuts} cuts", expected.len());
}

/// A user who may write and create nothing reads everything.
#[test]
fn a_folder_that_cannot_be_written_is_read() {
    let name = this_test!();
    if let Some(path) = role() {
        assert_eq!(read(Path::new(&path)).unwrap().len(), 140);
        return;
    }
    let folder = copy("leveldb/reopened");
    let before = state(folder.path());
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let command = child_command(name, folder.path().to_str().unwrap());
    check_without_root(name, command, folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let after = state(folder.path());
    assert!(before.keys().eq(after.keys()));
    assert!(
        before.values().zip(after.values()).all(|(before, after)| before.0 == after.0 && before.1 == after.1)
    );
}

#[test]
fn what_is_no_leveldb_is_refused_with_a_hint() {
    let refusal = |path: &Path, hint: &str| {
        let error = LevelDb::open(path).unwrap_err();
        assert!(matches!(error, SourceError::NotADatabase { missing: "CURRENT", .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
        println!("{error}");
    };
    let folder = tempdir().unwrap();
    refusal(folder.path(), "give the folder that convert_imageset -backend=leveldb or a similar tool wrote");
    refusal(&data("golden/raw_lmdb"), "it is an LMDB: use .lmdb(path), --lmdb, or in a net backend: LMDB");
    refusal(&data("golden/raw_lmdb/data.mdb"), "it is not a folder");
    refusal(
        &data("leveldb/nothing/CURRENT"),
        "it is not a folder: a LevelDB is the folder that contains CURRENT",
    );
    let nowhere = LevelDb::open(folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(nowhere, SourceError::Io { kind: std::io::ErrorKind::NotFound, .. }));

    let error = Lmdb::open(data("leveldb/nothing")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is a LevelDB: use .leveldb(path), --leveldb, or in a net backend: LEVELDB")
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
    assert!(matches!(without("000012.log"), LevelDbError::Missing { named_by, .. } if named_by == manifest));

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

/// Every byte of a table with sixteen blocks, one after the other.
#[test]
fn no_byte_of_a_table_can_change_unseen() {
    for name in ["leveldb/uncompressed", "leveldb/snappy"] {
        let folder = copy(name);
        let file = folder.path().join("000005.ldb");
        let good = fs::read(&file).unwrap();
        let due = read(folder.path()).unwrap();
        let mut unseen = 0;
        for at in (0..good.len()).step_by(if good.len() > 5000 { 3 } else { 1 }) {
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

#[test]
fn values_are_lent_and_stay_when_everything_else_is_gone() {
    for name in ["leveldb/big_values", "leveldb/uncompressed", "leveldb/noise_and_text", "leveldb/levels"] {
        let folder = copy(name);
        let due = read(folder.path()).unwrap();
        let registry = Registry::new();
        let source = LevelDb::open(folder.path()).unwrap();
        let reader =
            DataReader::builder("data", source).batch_size(due.len()).passes(1).open_in(&registry).unwrap();
        let mut leases = Vec::new();
        while let Some(lease) = reader.full().pop().unwrap() {
            leases.push(lease);
        }
        drop(reader);
        assert!(registry.is_empty());
        fs::remove_dir_all(folder.path()).unwrap();
        let read: Records = leases
            .iter()
            .flat_map(|lease| lease.iter().map(|record| (record.key.to_vec(), record.value.to_vec())))
            .collect();
        assert_eq!(read, due, "{name}");
        std::thread::spawn(move || drop(leases)).join().unwrap();
    }
}

#[test]
fn ranges_are_walked_on_threads_of_their_own() {
    let source = LevelDb::open(data("leveldb/levels")).unwrap();
    let due = drain(source.cursor().unwrap()).unwrap();
    let borders: Vec<Vec<u8>> = due.iter().step_by(due.len() / 4).map(|(key, _)| key.clone()).collect();
    let starts = [None].into_iter().chain(borders.iter().map(Some));
    let ends = borders.iter().map(Some).chain([None]);
    let read: Records = std::thread::scope(|scope| {
        let walks: Vec<_> = starts
            .zip(ends)
            .map(|(start, end)| {
                let source = &source;
                scope.spawn(move || {
                    drain(source.range(start.map(Vec::as_slice), end.map(Vec::as_slice)).unwrap()).unwrap()
                })
            })
            .collect();
        walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
    });
    assert_eq!(read, due);
    assert_eq!(drain(source.range(Some(b"z"), None).unwrap()).unwrap(), []);
    assert_eq!(drain(source.range(Some(b"5"), Some(b"1")).unwrap()).unwrap(), []);
}

#[test]
fn no_file_stays_open() {
    if !common::process::is_alone(this_test!()) {
        return;
    }
    let before = open_files();
    let source = LevelDb::open(data("leveldb/levels")).unwrap();
    let mut cursor = source.cursor().unwrap();
    while cursor.advance().unwrap().is_some() {
        assert_eq!(open_files(), before);
    }
}

#[test]
fn every_database_is_the_same_read_and_mapped() {
    let mut databases: Vec<PathBuf> =
        ["raw_leveldb_log", "raw_leveldb_ldb"].map(|name| data("golden").join(name)).into();
    let entries = fs::read_dir(data("leveldb")).unwrap().map(|entry| entry.unwrap().path());
    databases.extend(entries.filter(|path| path.join("CURRENT").exists()));
    assert!(databases.len() > 14);
    for path in &databases {
        let opened = |access| LevelDb::options().access(access).open(path);
        match (opened(Access::Mapped), opened(Access::Read)) {
            (Ok(mapped), Ok(read)) => {
                let due = drain(mapped.cursor().unwrap()).unwrap();
                assert_eq!(drain(read.cursor().unwrap()).unwrap(), due, "{}", path.display());
                assert_eq!((mapped.cuts(), mapped.identity()), (read.cuts(), read.identity()));
                read.index(&IndexPlace::Memory).unwrap();
                let mut cursor = read.cursor().unwrap();
                for (position, (key, value)) in due.iter().enumerate().rev().step_by(3) {
                    cursor.seek(position as u64).unwrap();
                    let entry = cursor.advance().unwrap().unwrap();
                    assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]), "{}", path.display());
                }
            }
            (mapped, read) => assert_eq!(mapped.unwrap_err(), read.unwrap_err()),
        }
    }
}

/// A file that is read, not mapped, may be cut. A mapped one would kill the process, so this runs in a child.
#[test]
fn a_file_that_is_cut_while_it_is_read_is_an_error() {
    let name = this_test!();
    /// The signal for an access to a map past the end of its file.
    const SIGBUS: i32 = 7;
    let cut = |folder: &Path| {
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            fs::File::options().write(true).open(file).unwrap().set_len(0).unwrap();
        }
    };
    match role().as_deref() {
        None => {
            common::process::check(name, &child_command(name, "read").output().unwrap());
            // On Linux, a mapped database ends the child with SIGBUS.
            #[cfg(target_os = "linux")]
            {
                use std::os::unix::process::ExitStatusExt as _;

                let ended = child_command(name, "mapped").output().unwrap().status;
                assert_eq!(ended.signal(), Some(SIGBUS), "{ended}");
            }
        }
        Some("mapped") => {
            let folder = copy("golden/raw_leveldb_ldb");
            let source = LevelDb::options().access(Access::Mapped).open(folder.path()).unwrap();
            let mut cursor = source.cursor().unwrap();
            cursor.advance().unwrap().unwrap();
            cut(folder.path());
            drain(cursor).unwrap();
        }
        Some(_) => {
            for name in ["golden/raw_leveldb_log", "golden/raw_leveldb_ldb", "leveldb/levels"] {
                for by_index in [false, true] {
                    let folder = copy(name);
                    let due = read(folder.path()).unwrap();
                    let source = LevelDb::options().access(Access::Read).open(folder.path()).unwrap();
                    source.index(&IndexPlace::Memory).unwrap();
                    let mut cursor = source.cursor().unwrap();
                    if by_index {
                        cursor.seek(1).unwrap();
                        cursor.seek(0).unwrap();
                    }
                    let entry = cursor.advance().unwrap().unwrap();
                    assert_eq!((entry.key(), entry.value()), (&due[0].0[..], &due[0].1[..]));
                    cut(folder.path());
                    let mut position = 1;
                    let error = loop {
                        match cursor.advance() {
                            Ok(Some(entry)) => {
                                let (key, value) = &due[position];
                                assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]));
                                position += 1;
                            }
                            Ok(None) => break None,
                            Err(error) => break Some(error),
                        }
                    };
                    match error {
                        None => assert_eq!(position, due.len(), "{name}"),
                        Some(SourceError::LevelDb(LevelDbError::Length { found, .. })) => {
                            assert!(position < due.len() && found == 0, "{name}");
                        }
                        Some(error) => panic!("{name}: {error}"),
                    }
                    // A plain cursor holds each table it is in, and `levels` has one table in each level.
                    let is_log = name.ends_with("log");
                    assert_eq!(error.is_none(), !by_index || is_log, "{name}: {by_index}");
                    let again = drain(source.cursor().unwrap());
                    assert_eq!(again.is_ok(), is_log, "{name}: a walk that begins then");
                }
            }
        }
    }
}

#[test]
fn tables_that_are_deleted_under_a_walk_that_reads_are_read_all_the_same() {
    for name in ["golden/raw_leveldb_ldb", "leveldb/levels", "leveldb/reopened"] {
        let folder = copy(name);
        let due = read(folder.path()).unwrap();
        let source = LevelDb::options().access(Access::Read).open(folder.path()).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(drain(source.cursor().unwrap()).unwrap(), due, "{name}");
        let mut cursor = source.cursor().unwrap();
        cursor.seek(due.len() as u64 - 1).unwrap();
        assert_eq!(cursor.advance().unwrap().unwrap().key(), due.last().unwrap().0, "{name}");
    }
}

#[test]
fn a_feed_of_a_leveldb_is_a_feed_of_the_lmdb() {
    let batches = |builder: percolator::FeedBuilder| {
        let mut feed = builder.batch_size(8).once().registry(&Registry::new()).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let mut batches = Vec::new();
        for batch in lane.by_ref() {
            let batch = batch.unwrap();
            batches.push((batch.bytes().to_vec(), batch.labels().to_vec()));
        }
        batches
    };
    let folder = copy("golden/raw_lmdb");
    let due = batches(Feed::builder().lmdb(folder.path()));
    assert!(due.len() > 5);
    for name in ["raw_leveldb_log", "raw_leveldb_ldb"] {
        for access in [Access::Mapped, Access::Read] {
            let feed = Feed::builder().leveldb(data("golden").join(name)).access(access);
            assert!(batches(feed) == due, "{name}, {access:?}");
        }
    }
}
