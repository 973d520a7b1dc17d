//! Another process makes a database grow while it is open here. A cursor that is opened afterwards sees all
//! of it; a cursor that was opened before sees what was there then.

use std::fs;
use std::path::Path;

use lmdb::{Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use percolator::source::{Cursor, IndexPlace, Joined, Lmdb, LmdbError, Source, SourceError};
use percolator::{Epochs, Feed, FeedBuilder, RawBytes, Shuffle};
use percolator_chaos::{Chaos, Faults};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::indexed::rest;
use crate::common::process::{check, child_command, role, this_test, under_a_limit_of_address_space};
use crate::{Records, read, value};

/// The test that, as another process, replaces the records and adds many more.
const GROWER: &str = "growth::child_makes_the_database_grow";
/// The test that, as another process, adds one value larger than the limit of address space.
const GIANT: &str = "growth::child_adds_a_giant_value";

const BEFORE: usize = 100;
const AFTER: usize = 3000;
const LIMIT_KIB: usize = 2 << 20;
const GIANT_BYTES: usize = 2 << 30;

fn old() -> Records {
    (0..BEFORE).map(|index| (common::key(index), value(index, 2500))).collect()
}

fn new() -> Records {
    (0..AFTER).map(|index| (common::key(index), value(index + 7, 2500))).collect()
}

#[test]
fn child_makes_the_database_grow() {
    let Some(path) = role() else { return };
    let env = Environment::new().set_map_size(1 << 30).open(Path::new(&path)).unwrap();
    let database = env.open_db(None).unwrap();
    for records in new().chunks(AFTER / 20) {
        let mut transaction = env.begin_rw_txn().unwrap();
        for (key, value) in records {
            transaction.put(database, key, value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

#[test]
fn child_adds_a_giant_value() {
    let Some(path) = role() else { return };
    let mut builder = Environment::new();
    // The file is sparse: as long as the map, with little written.
    builder.set_map_size(2 * GIANT_BYTES).set_flags(EnvironmentFlags::WRITE_MAP | EnvironmentFlags::NO_SYNC);
    let env = builder.open(Path::new(&path)).unwrap();
    let database = env.open_db(None).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    transaction.reserve(database, b"giant", GIANT_BYTES, WriteFlags::empty()).unwrap();
    transaction.commit().unwrap();
}

fn another_process(test: &str, path: &Path) {
    // The other process has no limit, even if this one does.
    let child = child_command(test, path.to_str().unwrap());
    check(test, &under_a_limit_of_address_space(&child, None).output().unwrap());
}

fn written() -> TempDir {
    let folder = tempdir().unwrap();
    common::write_lmdb(folder.path(), old());
    folder
}

/// A cursor that has read the first record.
fn begun(source: &Lmdb) -> Box<dyn Cursor> {
    let mut walk = source.cursor().unwrap();
    let first = walk.advance().unwrap().unwrap();
    assert_eq!((first.key(), first.value()), (&*common::key(0), &*value(0, 2500)));
    walk
}

#[test]
fn a_walk_that_begins_after_growth_sees_it_beside_one_that_began_before() {
    let folder = written();
    let bytes = || fs::metadata(folder.path().join("data.mdb")).unwrap().len();
    let source = Lmdb::open(folder.path()).unwrap();
    let mut before = begun(&source);
    let before_bytes = bytes();
    another_process(GROWER, folder.path());
    assert!(bytes() > 10 * before_bytes, "{before_bytes} bytes became {}", bytes());
    assert!(read(&source) == new(), "a walk that began afterwards");
    assert_eq!(source.records(), Some(AFTER as u64));
    source.index(&IndexPlace::Memory).unwrap();
    let mut by_position = source.cursor().unwrap();
    by_position.seek(AFTER as u64 - 1).unwrap();
    assert_eq!(by_position.advance().unwrap().unwrap().value(), value(AFTER - 1 + 7, 2500));
    assert!(rest(&mut *before) == old()[1..], "the walk that began before");
}

#[test]
fn where_address_space_is_limited_a_walk_begins_after_growth_once_the_others_have_ended() {
    let name = this_test!();
    let Some(path) = role() else {
        let folder = written();
        let child = child_command(name, folder.path().to_str().unwrap());
        return check(name, &under_a_limit_of_address_space(&child, Some(LIMIT_KIB)).output().unwrap());
    };
    let path = Path::new(&path);
    let source = Lmdb::open(path).unwrap();
    let mut before = begun(&source);
    another_process(GROWER, path);
    let error = source.cursor().err().unwrap();
    println!("{error}");
    let text = error.to_string();
    assert!(matches!(error, SourceError::Lmdb(LmdbError::Library { call: "mdb_txn_begin", .. })), "{text}");
    assert!(text.contains("close the open cursors, or lift the limit (ulimit -v)"), "{text}");
    assert!(rest(&mut *before) == old()[1..], "the walk that began before");
    drop(before);
    for _ in 0..2 {
        assert!(read(&source) == new(), "walks that began when no other was open");
    }
    assert_eq!(Lmdb::open(path).unwrap().records(), Some(AFTER as u64));
}

#[test]
fn growth_beyond_the_address_space_is_an_error_and_no_signal() {
    let name = this_test!();
    let Some(path) = role() else {
        let folder = written();
        let child = child_command(name, folder.path().to_str().unwrap());
        return check(name, &under_a_limit_of_address_space(&child, Some(LIMIT_KIB)).output().unwrap());
    };
    let path = Path::new(&path);
    let source = Lmdb::open(path).unwrap();
    drop(begun(&source));
    another_process(GIANT, path);
    for _ in 0..3 {
        let error = source.cursor().err().unwrap();
        println!("{error}");
        assert!(
            matches!(error, SourceError::Lmdb(LmdbError::Library { call: "mdb_env_set_mapsize", .. })),
            "{error}"
        );
        assert!(error.to_string().contains("lift the limit (ulimit -v), and open it again"), "{error}");
    }
    // The error is not permanent.
    drop(source);
    let source = Lmdb::options().access(percolator::source::Access::Read).open(path).unwrap();
    assert_eq!(source.records(), Some(BEFORE as u64 + 1));
}

/// Joined databases are counted when they are joined.
#[test]
fn a_commit_after_databases_were_joined_is_an_error() {
    let (folder, other) = (written(), written());
    let open = |folder: &TempDir| Lmdb::open(folder.path()).unwrap();
    let feed = |joined: Joined| Feed::builder().source(joined).decoder(RawBytes::up_to(2500)).epochs(1);
    let joined = Joined::new(open(&folder)).and(open(&other));
    another_process(GROWER, folder.path());
    for _ in 0..2 {
        let first = feed(joined.clone()).batch_size(10).build().unwrap().into_iter().next().unwrap();
        let error = first.expect_err("the plan is of fewer records");
        assert!(error.to_string().contains("it was written to while the feed was built"), "{error}");
    }
    let anew = feed(Joined::new(open(&folder)).and(open(&other))).batch_size(10).build().unwrap();
    assert_eq!(anew.into_iter().map(|batch| batch.unwrap().len()).sum::<usize>(), AFTER + BEFORE);
}

/// Without a plan, nobody compares commits: the end of the database that was counted does not come where it
/// is due.
#[test]
fn a_commit_after_databases_were_joined_ends_round_robin_order_with_both_counts() {
    for is_first in [true, false] {
        let (folder, other) = (written(), written());
        let open = |folder: &TempDir| Lmdb::open(folder.path()).unwrap();
        let joined = match is_first {
            true => Joined::new(open(&folder)).and(open(&other)),
            false => Joined::new(open(&other)).and(open(&folder)),
        };
        another_process(GROWER, folder.path());
        let feed = Feed::builder()
            .source(joined)
            .decoder(RawBytes::up_to(2500))
            .batch_size(10)
            .epochs(Epochs::OnePass);
        let error = match feed.build() {
            Ok(feed) => feed.into_iter().find_map(Result::err).unwrap(),
            Err(error) => error,
        };
        let error = error.to_string();
        println!("{error}");
        assert!(error.contains(&format!("{}: record {BEFORE}: ", folder.path().display())), "{error}");
        let counts = format!("had {BEFORE} records when it was joined, and has {AFTER} now");
        assert!(error.contains(&counts) && error.contains("join it again"), "{error}");
    }
}

/// The plan is of the records that were there when the feed was resolved.
#[test]
fn a_commit_between_a_feeds_plan_and_its_first_record_is_an_error() {
    let ways: [fn(FeedBuilder) -> FeedBuilder; 2] = [|feed| feed, |feed| feed.shuffle(Shuffle::Global)];
    for (number, way) in ways.into_iter().enumerate() {
        for (is_joined, is_wrapped) in [(false, false), (true, false), (false, true)] {
            let folder = written();
            let other = written();
            let feed = || {
                let (one, two) = (Lmdb::open(folder.path()).unwrap(), Lmdb::open(other.path()).unwrap());
                let feed = match (is_joined, is_wrapped) {
                    (true, _) => Feed::builder().source(Joined::new(two).and(one)),
                    (_, true) => Feed::builder().source(Chaos::new(Faults::default()).source(one)),
                    _ => Feed::builder().source(one),
                };
                way(feed.decoder(RawBytes::up_to(2500)).batch_size(10).epochs(1))
            };
            let resolved = feed().resolve().unwrap();
            another_process(GROWER, folder.path());
            let first = resolved.launch().unwrap().into_iter().next().unwrap();
            let error = first.err().unwrap_or_else(|| panic!("way {number}: a batch came")).to_string();
            assert!(error.contains("it was written to while the feed was built"), "{error}");
            let rows = feed().build().unwrap().into_iter().map(|batch| batch.unwrap().len());
            assert_eq!(rows.sum::<usize>(), AFTER + if is_joined { BEFORE } else { 0 });
        }
    }
}
