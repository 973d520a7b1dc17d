//! A reader that confuses which of two writes is newer gives wrong images without a word. Random writes,
//! overwrites, deletions, flushes, compactions and reopenings go to a database (of rusty-leveldb, which
//! writes as C++ LevelDB does) and to a map; buffers and tables are so small that every level fills. Reading
//! everything, and ranges, must give what the map gives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;

use percolator::source::{LevelDb, Source};
use proptest::prelude::*;
use rusty_leveldb::{DB, LdbIterator, Options};
use tempfile::tempdir;

use crate::common::indexed::{Records, rest, walked};
use crate::common::sample::times;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize),
    Delete(u16),
    /// Deletes everything between two keys.
    DeleteRange(u16, u16),
    Flush,
    Compact(u16, u16),
    Reopen,
}

/// How many keys there are.
const KEYS: u16 = 300;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..KEYS;
    let op = prop_oneof![
        60 => (key(), prop_oneof![5 => 0..60_usize, 1 => 300..2000_usize])
            .prop_map(|(key, bytes)| Op::Put(key, bytes)),
        20 => key().prop_map(Op::Delete),
        1 => (key(), key()).prop_map(|(from, to)| Op::DeleteRange(from, to)),
        2 => Just(Op::Flush),
        1 => (key(), key()).prop_map(|(from, to)| Op::Compact(from.min(to), from.max(to))),
        2 => Just(Op::Reopen),
    ];
    prop::collection::vec(op, 1..600)
}

/// Keys of several lengths, some a prefix of others. None is empty: the writer panics on that.
fn key(number: u16) -> Vec<u8> {
    match number {
        number if number % 5 == 0 => format!("{:03}", number / 5).into_bytes(),
        number => format!("{:03}/{}", number / 5, "x".repeat(usize::from(number % 5))).into_bytes(),
    }
}

fn options(snappy: bool, log: bool) -> Options {
    Options {
        write_buffer_size: if log { 4 << 20 } else { 2 << 10 },
        max_file_size: 1 << 10,
        block_size: 256,
        block_restart_interval: 4,
        compressor: u8::from(snappy),
        reuse_logs: !snappy,
        reuse_manifest: log,
        ..Options::default()
    }
}

fn write(folder: &Path, ops: &[Op], options: &Options) -> Map {
    let mut db = DB::open(folder, options.clone()).unwrap();
    let mut map = Map::new();
    for (number, op) in ops.iter().enumerate() {
        match *op {
            Op::Put(at, bytes) => {
                let value: Vec<u8> = (0..bytes).map(|at| (at * number % 251) as u8).collect();
                db.put(&key(at), &value).unwrap();
                map.insert(key(at), value);
            }
            Op::Delete(at) => {
                db.delete(&key(at)).unwrap();
                map.remove(&key(at));
            }
            Op::DeleteRange(from, to) => {
                for at in from..to {
                    db.delete(&key(at)).unwrap();
                    map.remove(&key(at));
                }
            }
            Op::Flush => db.flush().unwrap(),
            Op::Compact(from, to) => db.compact_range(&key(from), &key(to)).unwrap(),
            Op::Reopen => {
                db.close().unwrap();
                drop(db);
                db = DB::open(folder, options.clone()).unwrap();
            }
        }
    }
    // A compaction of rusty-leveldb's sometimes loses a deletion: what its own walk then finds is in the
    // file. Its `get` is no measure: it stops at the first level that has the key, and a compaction may have
    // left the deletion below what it deletes.
    let mut walk = db.new_iter().unwrap();
    while let Some((key, value)) = walk.next() {
        map.entry(key.to_vec()).or_insert_with(|| value.to_vec());
    }
    drop(walk);
    db.close().unwrap();
    map
}

fn tables(folder: &Path) -> usize {
    let names =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".ldb")).count()
}

/// The most tables that a database had: shows that levels filled.
static TABLES_MAX: Mutex<usize> = Mutex::new(0);

proptest! {
    #![proptest_config(ProptestConfig {
        cases: times(32, 8), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn walks_give_what_a_map_gives(
        ops in ops(), snappy: bool, log in prop::bool::weighted(0.2),
        ranges in prop::collection::vec((0..320_u16, 0..320_u16), 6),
    ) {
        let folder = tempdir().unwrap();
        let map = write(folder.path(), &ops, &options(snappy, log));
        let source = LevelDb::open(folder.path()).unwrap();
        prop_assert_eq!(source.cuts(), &[]);
        let whole = walked(&source);
        prop_assert_eq!(&whole, &map.clone().into_iter().collect::<Records>());
        if let Some(records) = source.records() {
            prop_assert_eq!(records, map.len() as u64);
        }
        for (from, to) in ranges {
            let (from, to) = (key(from), key(to));
            let after: Records =
                map.range(from.clone()..).map(|(key, value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(&rest(&mut *source.range(Some(&from), None).unwrap()), &after);
            let before = (Bound::Unbounded, Bound::Excluded(&to[..]));
            let before: Records =
                map.range::<[u8], _>(before).map(|(key, value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(&rest(&mut *source.range(None, Some(&to)).unwrap()), &before);
            let between: Records = after.into_iter().filter(|(key, _)| *key < to).collect();
            prop_assert_eq!(&rest(&mut *source.range(Some(&from), Some(&to)).unwrap()), &between);
        }
        let mut most = TABLES_MAX.lock().unwrap();
        *most = tables(folder.path()).max(*most);
    }
}

/// One fixed, long run, with enough writes for every kind of merge.
#[test]
fn a_long_run_fills_levels() {
    let ops: Vec<Op> = (0..6000_u32)
        .map(|at| match at.wrapping_mul(0x9e37_79b9) >> 16 {
            mixed if mixed % 9 == 0 => Op::Delete((mixed % 300) as u16),
            mixed if mixed % 997 == 0 => Op::Reopen,
            mixed => Op::Put((mixed % 300) as u16, (mixed % 90) as usize),
        })
        .collect();
    for snappy in [false, true] {
        let folder = tempdir().unwrap();
        let map = write(folder.path(), &ops, &options(snappy, false));
        let source = LevelDb::open(folder.path()).unwrap();
        println!("{} tables, {} records", tables(folder.path()), map.len());
        assert!(tables(folder.path()) > 4, "several tables");
        assert_eq!(walked(&source), map.into_iter().collect::<Records>());
    }
}
