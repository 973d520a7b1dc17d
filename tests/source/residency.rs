//! Without readahead a feed stops at every page fault. A rank of eight that reads everything ahead reads
//! eight times what it needs. These tests look, page by page, at which parts of a file are in memory.
//!
//! The kernel may drop pages at any time, so the tests require only a good part of what must be there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percolator::order::{AutoShardPolicy, JobWorker, World};
use percolator::source::{IndexPlace, LevelDb, Lmdb, Source};
use percolator::{Dtype, Feed, FeedBuilder};
use rusty_leveldb::Options;
use tempfile::TempDir;

use crate::common;
use crate::common::resident::{PAGE_BYTES, evict, pages, picture, share};

/// Each record has pages of its own.
const RECORD_BYTES: usize = 150_000;
/// At least this share of what must be in memory is there, although the kernel drops pages of its own accord.
const PRESENT: f64 = 0.3;
/// How long to wait for a condition to come true, on a disk that others use.
const LOOK_AT_MOST: Duration = Duration::from_secs(30);

/// A folder on the disk of the target folder: a temporary one may be in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A record whose bytes no other record has: its number, repeated.
fn record(index: usize, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let data = (index as u32).to_le_bytes().repeat(bytes / 4);
    (common::key(index), common::datum(1, 1, data.len() as i32, index as i32, data))
}

/// Writes an LMDB; returns the path of its data file.
fn lmdb(folder: &Path, records: usize) -> PathBuf {
    lmdb_from(folder, 0, records)
}

/// Like [`lmdb`], with record numbers that start at `first`.
fn lmdb_from(folder: &Path, first: usize, records: usize) -> PathBuf {
    common::write_lmdb(folder, (first..first + records).map(|index| record(index, RECORD_BYTES)));
    folder.join("data.mdb")
}

/// The range of pages of each record.
fn places(file: &Path, records: usize) -> Vec<Range<usize>> {
    let bytes = std::fs::read(file).unwrap();
    let place = |index: usize| {
        let number = (index as u32).to_le_bytes().repeat(8);
        let is_its_own = |page: &&[u8]| page[page.len() - number.len()..] == number;
        let is_like = |page: &[u8]| is_its_own(&page);
        let own: Vec<usize> = bytes
            .chunks(PAGE_BYTES)
            .enumerate()
            .filter(|(_, page)| is_like(page))
            .map(|(at, _)| at)
            .collect();
        own[0]..own[own.len() - 1] + 1
    };
    (0..records).map(place).collect()
}

/// Polls until the condition is true, or the time is up.
fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() > LOOK_AT_MOST {
            return false;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_cold_file_is_read_ahead_of_the_walk() {
    let folder = folder();
    let file = lmdb(folder.path(), 300);
    if !evict(&file) {
        return;
    }
    let source = Lmdb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    for _ in 0..40 {
        cursor.advance().unwrap().unwrap();
    }
    // The cursor itself has touched 6 MB, and the kernel reads around what is touched.
    let ahead = || share(&pages(&file)[(16 << 20) / PAGE_BYTES..]);
    assert!(comes_true(|| ahead() > PRESENT), "in memory is {}", picture(&pages(&file)));
}

#[test]
fn of_large_records_only_those_are_read_that_the_ranks_here_take() {
    const RECORDS: usize = 640;
    const RANKS: usize = 8;

    let folder = folder();
    let file = lmdb(folder.path(), RECORDS);
    let places = places(&file, RECORDS);
    if !evict(&file) {
        return;
    }
    let source = Lmdb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    for index in 0..RECORDS {
        if index % RANKS == 3 {
            cursor.advance().unwrap().unwrap();
        } else {
            assert!(cursor.skip().unwrap());
        }
    }
    // The first records, and what the kernel reads around them, are read before the cursor knows what is
    // skipped.
    let of = |rank: usize| places.iter().skip(12 * RANKS + rank).step_by(RANKS).cloned();
    let mean = |ranks: Vec<usize>| {
        let pages = pages(&file);
        let shares: Vec<f64> = ranks.into_iter().flat_map(of).map(|place| share(&pages[place])).collect();
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    assert!(comes_true(|| mean(vec![3]) > PRESENT), "what the rank takes is not in memory");
    let others = mean((0..RANKS).filter(|&rank| rank != 3).collect());
    println!("in memory are {} of the rank's own, {others} of the others'", mean(vec![3]));
    assert!(
        others < PRESENT / 2.0,
        "{others} of what the rank passes over is in memory: {}",
        picture(&pages(&file))
    );
}

/// A feed of one pass with little in flight.
fn feed(path: &Path, is_leveldb: bool) -> FeedBuilder {
    let feed = if is_leveldb { Feed::builder().leveldb(path) } else { Feed::builder().lmdb(path) };
    feed.dtype(Dtype::U8).batch_size(4).prefetch(2).threads(2)
}

/// Writes a LevelDB; returns its tables, in the order of their keys if the writer has merged none.
fn leveldb(folder: &Path, records: usize, bytes: usize) -> Vec<PathBuf> {
    leveldb_from(folder, 0, records, bytes)
}

/// Like [`leveldb`], with record numbers that start at `first`.
fn leveldb_from(folder: &Path, first: usize, records: usize, bytes: usize) -> Vec<PathBuf> {
    let options = Options { max_file_size: 2 << 20, compressor: 0, ..Options::default() };
    write_tables(folder, options, (first..first + records).map(|index| record(index, bytes)))
}

fn write_tables(
    folder: &Path,
    options: Options,
    records: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Vec<PathBuf> {
    common::leveldb::write(folder, options, records);
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut tables: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|ending| ending == "ldb")).collect();
    tables.sort();
    assert!(tables.len() >= 5, "{tables:?}");
    tables
}

#[test]
fn the_tables_of_a_cold_leveldb_are_read_ahead_of_the_walk() {
    let folder = folder();
    let tables = leveldb(folder.path(), 400, 60_000);
    if !tables.iter().all(|table| evict(table)) {
        return;
    }
    let source = LevelDb::open(folder.path()).unwrap();
    let mut cursor = source.cursor().unwrap();
    let present = || tables.iter().filter(|table| share(&pages(table)) > PRESENT).count();
    // The cursor touches no more of a value than the checksum does: in the second table it asks for
    // everything after it.
    for _ in 0..2 * 400 / tables.len() {
        cursor.advance().unwrap().unwrap();
    }
    let wanted = tables.len() - 1;
    assert!(comes_true(|| present() >= wanted), "{} of {} tables are in memory", present(), tables.len());
}

/// The first of two workers, with an index: it takes the first `batch` of each 2 * `batch` records.
fn half(path: &Path, is_leveldb: bool, batch: usize) -> FeedBuilder {
    let place = IndexPlace::Folder(path.with_extension("indexes"));
    let source: Box<dyn Source> = match is_leveldb {
        true => Box::new(LevelDb::open(path).unwrap()),
        false => Box::new(Lmdb::open(path).unwrap()),
    };
    source.index(&place).unwrap();
    let feed = feed(path, is_leveldb).index(place).policy(AutoShardPolicy::Data).epochs(1);
    feed.batch_size(batch).prefetch(1).share(JobWorker { world: World::new(2, 2).unwrap(), number: 0 })
}

/// Runs a feed to its end; returns the number of records.
fn run(feed: FeedBuilder) -> usize {
    let mut feed = feed.build().unwrap();
    feed.take_lanes().unwrap().remove(0).map(|batch| batch.unwrap().labels().unwrap().len()).sum()
}

/// The records of a batch: the first worker takes every second batch.
const BATCH: usize = 64;

#[test]
fn what_is_read_ahead_of_a_share_ends_where_the_share_does() {
    const RECORDS: usize = 8 * BATCH;

    let folder = folder();
    let path = folder.path().join("lmdb");
    let file = lmdb(&path, RECORDS);
    let places = places(&file, RECORDS);
    drop(half(&path, false, BATCH));
    if !evict(&file) {
        return;
    }
    assert_eq!(run(half(&path, false, BATCH)), RECORDS / 2);
    let pages = pages(&file);
    let mean = |worker: usize| {
        let of_worker = places.iter().enumerate().filter(|(record, _)| record / BATCH % 2 == worker);
        let shares: Vec<f64> = of_worker.map(|(_, place)| share(&pages[place.clone()])).collect();
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    println!("in memory are {} of the worker's own, {} of the other's", mean(0), mean(1));
    assert!(mean(0) > PRESENT, "{}", picture(&pages));
    assert!(mean(1) < 0.02, "{} of the other worker's: {}", mean(1), picture(&pages));
}

#[test]
fn of_a_leveldb_only_the_tables_of_a_share_are_read_ahead() {
    const BYTES: usize = 60_000;
    const RECORDS: usize = 8 * BATCH;

    let folder = folder();
    let path = folder.path().join("leveldb");
    let options =
        Options { max_file_size: 1 << 20, write_buffer_size: 1 << 20, compressor: 0, ..Options::default() };
    let tables = write_tables(&path, options, (0..RECORDS).map(|index| record(index, BYTES)));
    drop(half(&path, true, BATCH));
    // The record numbers in a table.
    let numbers = |table: &PathBuf| -> Vec<usize> {
        let bytes = std::fs::read(table).unwrap();
        // Values have no digits.
        let keys = bytes.windows(8).filter(|window| window.iter().all(u8::is_ascii_digit));
        let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<usize>().unwrap();
        keys.map(|key| number(key) / BATCH % 2).collect()
    };
    let of_worker = |worker: usize| -> Vec<&PathBuf> {
        let is_its_own = |table: &&PathBuf| numbers(table).iter().all(|&of| of == worker);
        tables.iter().filter(is_its_own).collect()
    };
    let (own, others) = (of_worker(0), of_worker(1));
    assert!(own.len() >= 6 && others.len() >= 6, "{} and {} of {}", own.len(), others.len(), tables.len());
    if !tables.iter().all(|table| evict(table)) {
        return;
    }
    assert_eq!(run(half(&path, true, BATCH)), RECORDS / 2);
    let resident = |tables: &[&PathBuf]| tables.iter().filter(|table| share(&pages(table)) > 0.05).count();
    println!("{} of {}, {} of {} others", resident(&own), own.len(), resident(&others), others.len());
    assert!(resident(&own) >= own.len() / 2);
    // A few tables had one record read to identify the data set: a twentieth of the table, and what the
    // kernel reads around it.
    let read_ahead = others.iter().filter(|table| share(&pages(table)) > 0.5).count();
    assert_eq!(read_ahead, 0);
}
