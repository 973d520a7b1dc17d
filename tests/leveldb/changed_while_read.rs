//! A database whose files are written, cut or deleted while it is read gives its records, or an error that
//! says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::BufRead as _;
use std::path::Path;
use std::process::Command;

use percolator::leveldb::LevelDbError;
use percolator::source::{Access, IndexPlace, LevelDb, Source, SourceError};
use tempfile::tempdir;

use crate::common;
use crate::common::process::{child_command, role, this_test};
use crate::common::sample::times;
use crate::files::{copy, data, drain, has_plyvel, read};

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
    for line in said.lines().take(times(30, 10)) {
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
