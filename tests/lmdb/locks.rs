//! Another part of the program, or another process, has the database open, and neither side disturbs the
//! other.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::source::{Access, IndexPlace, Lmdb, LmdbError, LmdbOptions, Source, SourceError};
use percolator::{Dtype, Epochs, Feed};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::log::Log;
use crate::common::process::{check, child_command, role, this_test};
use crate::{Records, files_in, read, value, written};

/// The test that, as another process, overwrites the records in many transactions.
const WRITER: &str = "locks::child_overwrites_records";

#[test]
fn child_overwrites_records() {
    let Some(path) = role() else { return };
    let env = Environment::new().set_map_size(1 << 30).open(Path::new(&path)).unwrap();
    let database = env.open_db(None).unwrap();
    for round in 1..20 {
        let mut transaction = env.begin_rw_txn().unwrap();
        for index in 0..100 {
            let anew = value(index * 100 + round, 2500);
            transaction.put(database, &common::key(index), &anew, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

fn written_by_another_process(path: &Path) {
    let mut writer = child_command(WRITER, path.to_str().unwrap());
    check(WRITER, &writer.env_remove("LD_PRELOAD").output().unwrap());
}

fn large(records: usize) -> Records {
    (0..records).map(|index| (common::key(index), value(index * 100, 2500))).collect()
}

#[test]
fn an_environment_of_another_part_of_the_program_keeps_its_readers() {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), large(100));
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    let transaction = env.begin_ro_txn().unwrap();
    let kept = |of: &str| {
        let kept =
            large(100).into_iter().filter(|(key, value)| transaction.get(database, key) == Ok(&value[..]));
        assert_eq!(kept.count(), 100, "{of}");
    };
    let source = Lmdb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(0));
    written_by_another_process(folder.path());
    kept("while our environment is open");
    // This one has no lock, and reports it when another process commits.
    let error = loop {
        match cursor.advance() {
            Ok(entry) => assert!(entry.is_some(), "nothing was said of the commits"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SourceError::Lmdb(LmdbError::WrittenTo { .. })), "{error}");
    drop((cursor, source));
    written_by_another_process(folder.path());
    kept("after it was closed");
}

#[test]
fn each_who_wants_a_lock_and_gets_none_is_told() {
    let (folder, records) = written(20);
    // Another part of the program holds the lock file.
    let env = Environment::new().open(folder.path()).unwrap();
    let opened = |options: LmdbOptions| {
        let log = Log::default();
        let source = log.listen(|| options.open(folder.path()).unwrap());
        assert_eq!(read(&source), records);
        (source, log.text().matches("reading it without a lock").count())
    };
    let all: Vec<_> = (0..3).map(|_| opened(Lmdb::options())).collect();
    assert!(all.iter().all(|(_, times)| *times == 1), "{all:?}");
    assert_eq!(opened(Lmdb::options().without_lock()).1, 0, "who wants none");
    drop((env, all));
    assert_eq!(opened(Lmdb::options()).1, 0, "who gets one");
}

#[test]
fn slots_of_processes_that_were_killed_are_nobodys() {
    let name = this_test!();
    const READERS: u32 = 8;
    if let Some(path) = role() {
        // Takes all reader slots, and is killed.
        let env = Environment::new().set_flags(EnvironmentFlags::NO_TLS).open(Path::new(&path)).unwrap();
        let transactions: Vec<_> = (0..READERS).map(|_| env.begin_ro_txn().unwrap()).collect();
        assert_eq!(env.begin_ro_txn().err(), Some(lmdb::Error::ReadersFull));
        std::mem::forget(transactions);
        std::process::abort();
    }
    let (folder, records) = written(20);
    // The reader table exists as long as a process has it open.
    let keeper = Keeper::of(folder.path(), READERS);
    let killed = child_command(name, folder.path().to_str().unwrap()).output().unwrap();
    assert!(!killed.status.success() && killed.status.code().is_none(), "{killed:?}");
    let read = Lmdb::open(folder.path()).map(|source| read(&source));
    keeper.end();
    assert!(read.unwrap() == records);
}

/// Another process that has a lock file open.
struct Keeper(Child);

impl Keeper {
    const ROLE: &str = "locks::child_keeps_a_lock_file";

    fn of(path: &Path, readers: u32) -> Self {
        let mut keeper = child_command(Self::ROLE, path.to_str().unwrap())
            .env("READERS", readers.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(keeper.stdout.as_mut().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("it is open")), "the lock file is kept");
        Keeper(keeper)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Keeps the lock file open, with this many slots, until its input ends.
#[test]
fn child_keeps_a_lock_file() {
    let Some(path) = role() else { return };
    let readers = std::env::var("READERS").unwrap().parse().unwrap();
    let env = Environment::new().set_max_readers(readers).open(Path::new(&path)).unwrap();
    println!("it is open");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(env);
}

/// The data file after this many commits of another 20 records each.
fn after_commits(commits: usize) -> (Vec<u8>, Records) {
    let folder = tempdir().unwrap();
    let records: Records = (0..commits * 20).map(|index| common::image(index, 3, 8, 8)).collect();
    let env = Environment::new().set_map_size(1 << 30).open(folder.path()).unwrap();
    let database = env.open_db(None).unwrap();
    for commit in records.chunks(20) {
        let mut transaction = env.begin_rw_txn().unwrap();
        for (key, value) in commit {
            transaction.put(database, key, value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
    (fs::read(folder.path().join("data.mdb")).unwrap(), records)
}

#[test]
fn a_commit_that_the_lock_file_knows_nothing_of_is_not_waited_for() {
    // A writer that is killed before it publishes its commit leaves this.
    let (before, records) = after_commits(4);
    let (after, _) = after_commits(5);
    let folder = tempdir().unwrap();
    let data = folder.path().join("data.mdb");
    fs::write(&data, before).unwrap();
    let keeper = Keeper::of(folder.path(), 8);
    fs::write(&data, after).unwrap();
    let source = Lmdb::open(folder.path()).unwrap();
    let found = read(&source);
    keeper.end();
    assert!(found == records, "{} records, of {}", found.len(), records.len());
    drop(source);
    assert_eq!(read(&Lmdb::open(folder.path()).unwrap()).len(), 100, "once nobody has it");
}

#[test]
fn a_file_that_was_written_over_under_its_lock_file_is_an_error_that_says_so() {
    let folder = tempdir().unwrap();
    let data = folder.path().join("data.mdb");
    fs::write(&data, after_commits(5).0).unwrap();
    let keeper = Keeper::of(folder.path(), 8);
    let (other, records) = after_commits(2);
    fs::write(&data, other).unwrap();
    let error = Lmdb::open(folder.path()).unwrap_err();
    keeper.end();
    println!("{error}");
    assert!(matches!(error, SourceError::Lmdb(LmdbError::Busy { .. })), "{error}");
    assert!(
        error.to_string().contains("transaction 5 is the newest by its lock file, and 2 by the data file"),
        "{error}"
    );
    assert_eq!(read(&Lmdb::open(folder.path()).unwrap()), records);
}

#[test]
fn a_file_in_the_place_of_another_one_does_not_end_its_readers_slot() {
    in_the_place_of_another_one();
}

/// Behind `IS_MEANT` and `REASON`: replaces system calls so that these paths cannot be opened.
const OPEN: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#define SHIM(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        va_list arguments;                                                     \
        va_start(arguments, flags);                                            \
        int mode = va_arg(arguments, int);                                     \
        va_end(arguments);                                                     \
        if (IS_MEANT) {                                                        \
            errno = REASON;                                                    \
            return -1;                                                         \
        }                                                                      \
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);         \
        return next(path, flags, mode);                                        \
    }
SHIM(open)
SHIM(open64)
";

/// As on a system that hides what processes have mapped.
const NO_MAPS: &str = r#"
#define IS_MEANT (strcmp(path, "/proc/self/maps") == 0)
#define REASON ENOENT
"#;

#[test]
fn an_environment_of_ours_is_seen_where_no_process_sees_its_maps() {
    let name = this_test!();
    if role().is_some() {
        assert!(fs::read("/proc/self/maps").is_err());
        return in_the_place_of_another_one();
    }
    let folder = tempdir().unwrap();
    let shim = shim(folder.path(), &format!("{NO_MAPS}{OPEN}"));
    let mut child = child_command(name, "without maps");
    check(name, &child.env("LD_PRELOAD", &shim).output().unwrap());
}

fn in_the_place_of_another_one() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    common::write_lmdb(folder.path(), large(100));
    common::write_lmdb(other.path(), large(100));
    let old = Lmdb::open(folder.path()).unwrap();
    let mut walk = old.cursor().unwrap();
    walk.advance().unwrap().unwrap();
    // `lock.mdb` stays, and both use it.
    fs::rename(other.path().join("data.mdb"), folder.path().join("data.mdb")).unwrap();
    let new = Lmdb::open(folder.path()).unwrap();
    let mut new_walk = new.cursor().unwrap();
    new_walk.advance().unwrap().unwrap();
    let mut position = 1;
    while let Some(entry) = walk.advance().unwrap() {
        assert_eq!((entry.key(), entry.value()), (&*common::key(position), &*value(position * 100, 2500)));
        position += 1;
    }
    assert_eq!(position, 100);
    drop((walk, old));
    written_by_another_process(folder.path());
    let mut given = 1;
    let ended = loop {
        match new_walk.advance() {
            Ok(Some(entry)) => {
                assert_eq!((entry.key(), entry.value()), (&*common::key(given), &*value(given * 100, 2500)));
                given += 1;
            }
            ended => break ended.map(|_| ()),
        }
    };
    assert!(
        matches!(ended, Err(SourceError::Lmdb(LmdbError::WrittenTo { .. }))),
        "{ended:?} after {given} records"
    );
}

#[test]
fn a_folder_whose_data_file_is_a_link_is_locked_where_its_writers_lock_it() {
    let (folder, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    common::write_lmdb(elsewhere.path(), large(100));
    fs::remove_file(elsewhere.path().join("lock.mdb")).unwrap();
    fs::rename(elsewhere.path().join("data.mdb"), elsewhere.path().join("f00d")).unwrap();
    symlink(elsewhere.path().join("f00d"), folder.path().join("data.mdb")).unwrap();
    let source = Lmdb::open(folder.path()).unwrap();
    let mut walk = source.cursor().unwrap();
    walk.advance().unwrap().unwrap();
    assert_eq!(files_in(folder.path()), ["data.mdb", "lock.mdb"]);
    assert_eq!(files_in(elsewhere.path()), ["f00d"]);
    written_by_another_process(folder.path());
    // If the path is a file, its lock file is the one beside it, as for its writers.
    let beside = Lmdb::open(elsewhere.path().join("f00d")).unwrap();
    assert_eq!(beside.records(), Some(100));
    assert_eq!(files_in(elsewhere.path()), ["f00d", "f00d-lock"]);
    for (key, value) in &large(100)[1..] {
        let entry = walk.advance().unwrap().unwrap();
        assert_eq!((entry.key(), entry.value()), (&key[..], &value[..]));
    }
    assert!(walk.advance().unwrap().is_none());
}

#[test]
fn whoever_wants_a_lock_gets_one_beside_those_who_want_none() {
    let (folder, records) = written(20);
    let without = Lmdb::open_without_lock(folder.path()).unwrap();
    assert_eq!(files_in(folder.path()), ["data.mdb"]);
    let with = Lmdb::open(folder.path()).unwrap();
    assert_eq!(files_in(folder.path()), ["data.mdb", "lock.mdb"]);
    assert_eq!(read(&without), records);
    assert_eq!(read(&with), records);
}

#[test]
fn a_commit_ends_a_walk_without_a_lock_and_not_one_that_has_a_slot() {
    for access in [Access::Mapped, Access::Read] {
        let folder = tempdir().unwrap();
        common::write_lmdb(folder.path(), (0..2000).map(|index| common::image(index, 3, 4, 4)));
        let source = Lmdb::options().access(access).without_lock().open(folder.path()).unwrap();
        let mut cursor = source.cursor().unwrap();
        cursor.advance().unwrap().unwrap();
        written_by_another_process(folder.path());
        let error = loop {
            match cursor.advance() {
                Ok(entry) => assert!(entry.is_some(), "{access:?}: nothing was said of the commits"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SourceError::Lmdb(LmdbError::WrittenTo { .. })), "{access:?}: {error}");
        let said = error.to_string();
        for remedy in ["read it when nobody writes to it", "mdb_copy", "access mapped"] {
            assert!(said.contains(remedy), "{said}");
        }
        assert!(read(&source).len() >= 2000, "a new walk sees the newest commit");
    }
    let (folder, records) = written(2000);
    let source = Lmdb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    let first = cursor.advance().unwrap().unwrap().key().to_vec();
    written_by_another_process(folder.path());
    let rest = std::iter::from_fn(|| cursor.advance().unwrap().map(|entry| entry.key().to_vec()));
    assert!(std::iter::once(first).chain(rest).eq(records.into_iter().map(|(key, _)| key)));
}

/// As `cp` does it: the file stays, and its bytes are another database's, with as many commits or fewer.
#[test]
fn another_database_written_over_the_file_ends_a_walk_without_a_lock() {
    let folders = [tempdir().unwrap(), tempdir().unwrap()];
    let [folder, other] = folders.each_ref().map(TempDir::path);
    // A commit for each thousand.
    common::write_lmdb(folder, (0..2000).map(|index| common::image(index, 3, 4, 4)));
    for (count, is_by_index) in [(2000, false), (2000, true), (900, false), (900, true)] {
        let _ = fs::remove_file(other.join("data.mdb"));
        common::write_lmdb(other, (0..count).map(|index| (common::key(index), value(index, 480))));
        let data = fs::read(folder.join("data.mdb")).unwrap();
        let source = Lmdb::options().access(Access::Read).without_lock().open(folder).unwrap();
        source.index(&IndexPlace::Memory).unwrap();
        let mut cursor = source.cursor().unwrap();
        cursor.advance().unwrap().unwrap();
        if is_by_index {
            cursor.seek(1000).unwrap();
        }
        fs::write(folder.join("data.mdb"), fs::read(other.join("data.mdb")).unwrap()).unwrap();
        let error = loop {
            match cursor.advance() {
                Ok(entry) => assert!(entry.is_some(), "nothing was said of the other database"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SourceError::Lmdb(LmdbError::WrittenTo { .. })), "{error}");
        assert!(error.to_string().contains("was written over it while transaction"), "{error}");
        fs::write(folder.join("data.mdb"), data).unwrap();
    }
}

#[test]
fn a_feed_without_a_lock_delivers_nothing_that_was_written_meanwhile() {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), (0..3000).map(|index| common::image(index, 3, 30, 30)));
    let source = Lmdb::open_without_lock(folder.path()).unwrap();
    let builder = Feed::builder()
        .source(source)
        .batch_size(10)
        .prefetch(1)
        .threads(1)
        .dtype(Dtype::U8)
        .epochs(Epochs::OnePass);
    let mut feed = builder.build().unwrap();
    let mut given = 0;
    let mut error = None;
    for step in feed.steps() {
        let batches = match step {
            Ok(batches) => batches,
            Err(found) => {
                error = Some(found);
                break;
            }
        };
        for (pixels, label) in
            batches[0].pixels::<u8>().unwrap().chunks(2700).zip(batches[0].labels().unwrap())
        {
            assert_eq!(usize::try_from(*label).unwrap(), given);
            assert!(
                pixels.iter().copied().eq((0..2700).map(|at| common::pixel(given, at))),
                "record {given}"
            );
            given += 1;
        }
        if given == 10 {
            written_by_another_process(folder.path());
        }
    }
    let error =
        error.unwrap_or_else(|| panic!("nothing was said of the commits, after {given} records")).to_string();
    assert!(error.contains("was committed to it while transaction"), "{error}");
}

/// Replaces system calls as on a network file system without locks.
const NO_LOCKS: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#define SHIM(name)                                                             \
    int name(int file, int command, ...) {                                     \
        va_list arguments;                                                     \
        va_start(arguments, command);                                          \
        void *argument = va_arg(arguments, void *);                            \
        va_end(arguments);                                                     \
        if (command == F_SETLK || command == F_SETLKW) {                       \
            errno = ENOLCK;                                                    \
            return -1;                                                         \
        }                                                                      \
        int (*next)(int, int, ...) = dlsym(RTLD_NEXT, #name);                  \
        return next(file, command, argument);                                  \
    }
SHIM(fcntl)
SHIM(fcntl64)
";

/// As on a read-only file system: lock files cannot be written. liblmdb then works without one.
const READ_ONLY: &str = r#"
#define IS_MEANT strstr(path, "lock.mdb")
#define REASON EROFS
"#;

#[test]
fn on_a_read_only_file_system_a_database_is_read_without_a_lock_and_looked_after() {
    let name = this_test!();
    if let Some(path) = role() {
        let log = Log::default();
        let source = log.listen(|| Lmdb::open(&path).unwrap());
        let text = log.text();
        assert!(text.contains("on a read-only file system, where it cannot be locked"), "{text}");
        let mut cursor = source.cursor().unwrap();
        cursor.advance().unwrap().unwrap();
        written_by_another_process(Path::new(&path));
        let error = cursor.advance().unwrap_err();
        return assert!(matches!(error, SourceError::Lmdb(LmdbError::WrittenTo { .. })), "{error}");
    }
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), large(100));
    let shim = shim(folder.path(), &format!("{READ_ONLY}{OPEN}"));
    let mut child = child_command(name, folder.path().to_str().unwrap());
    check(name, &child.env("LD_PRELOAD", &shim).output().unwrap());
}

/// Builds a library to preload.
fn shim(folder: &Path, text: &str) -> PathBuf {
    let (code, shim) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&code, text).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&code).arg("-ldl").status();
    assert!(compiled.unwrap().success());
    shim
}

#[test]
fn where_there_are_no_locks_a_database_is_read_without_one() {
    let name = this_test!();
    if let Some(path) = role() {
        let log = Log::default();
        log.listen(|| assert_eq!(read(&Lmdb::open(&path).unwrap()).len(), 20));
        let text = log.text();
        return assert!(text.contains("cannot lock the database"), "{text}");
    }
    let (folder, _) = written(20);
    let shim = shim(folder.path(), NO_LOCKS);
    let mut child = child_command(name, folder.path().to_str().unwrap());
    check(name, &child.env("LD_PRELOAD", &shim).output().unwrap());
}

/// A database that somebody else made has whatever lock file they like.
#[test]
fn a_lock_file_that_leads_elsewhere_is_not_written_to() {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), large(3));
    let (lock, other) = (folder.path().join("lock.mdb"), folder.path().join("letter"));
    for target in [&b"dear all"[..], b""] {
        fs::write(&other, target).unwrap();
        let _ = fs::remove_file(&lock);
        symlink(&other, &lock).unwrap();
        let log = Log::default();
        let source = log.listen(|| Lmdb::open(folder.path()).unwrap());
        assert_eq!(source.records(), Some(3));
        let mut cursor = source.cursor().unwrap();
        assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(0));
        assert_eq!(fs::read(&other).unwrap(), target);
        assert!(log.text().contains("lock.mdb) is no file, or a link to one"), "{}", log.text());
    }
    // Nor is a file made at the end of one that leads nowhere.
    fs::remove_file(&other).unwrap();
    Lmdb::open(folder.path()).unwrap();
    assert!(!other.exists());
}
