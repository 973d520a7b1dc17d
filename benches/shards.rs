//! What the number of shards costs: opening them, the first record, and a record of the first ten shards with
//! more and more others beside them. Also how many file descriptors they take.
//!
//! `cargo bench --bench shards`. Times are the least of several rounds, page cache warm.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_precision_loss, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percolator::source::{IndexPlace, Joined, LevelDb, Lmdb, Source, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Feed, FeedBuilder, RawBytes};

const SHARDS: [usize; 3] = [10, 1000, 10_000];
const RECORDS: usize = 20;
/// Records that are read: those of ten shards.
const READ: u64 = 10 * RECORDS as u64;
const ROUNDS: usize = 5;

/// The folder of this many TFRecord files, made once and kept in the target folder.
fn tfrecords(shards: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shards {shards}"));
    let complete = folder.with_extension("complete");
    if !complete.exists() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for shard in 0..shards {
            let path = folder.join(format!("part-{shard:05}"));
            let mut writer = TfRecordWriter::create(path, Compression::Plain).unwrap();
            (0..RECORDS).for_each(|record| writer.write(&[u8::try_from(record).unwrap(); 100]).unwrap());
            writer.finish().unwrap();
        }
        std::fs::write(complete, "").unwrap();
    }
    folder
}

/// The file descriptors of this process.
fn handles() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn least(mut round: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| round()).min().unwrap()
}

fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = run();
    (start.elapsed(), result)
}

fn nanos_a_record(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap() / READ
}

fn over(folder: &Path) -> FeedBuilder {
    Feed::builder().tfrecord(folder).decoder(RawBytes::fixed()).threads(1).batch_size(1)
}

/// The time of the batches of one record after the first one.
fn records(builder: FeedBuilder) -> Duration {
    let mut lane = builder.build().unwrap().take_lanes().unwrap().remove(0);
    lane.next().unwrap().unwrap();
    timed(|| (1..READ).for_each(|_| drop(black_box(lane.next().unwrap().unwrap())))).0
}

fn main() {
    println!("| shards | open | .and() | build | in order | cursor | by position | handles |");
    println!("|---|---|---|---|---|---|---|---|");
    for shards in SHARDS {
        let folder = tfrecords(shards);
        let open_all = || TfRecord::options().open_all([&folder]).unwrap();
        let before = handles();
        let open = least(|| timed(open_all).0);
        let and = least(|| {
            let files = percolator::tfrecord::files(&folder).unwrap();
            let mut sources: Vec<_> = files.iter().map(|file| TfRecord::open(file).unwrap()).collect();
            let first = sources.remove(0);
            timed(|| sources.into_iter().fold(Joined::new(first), Joined::and)).0
        });
        let build = least(|| timed(|| over(&folder).build().unwrap()).0);
        let in_order = least(|| records(over(&folder)));
        let joined = open_all();
        joined.index(&IndexPlace::Memory).unwrap();
        let mut cursor = joined.cursor().unwrap();
        let walk = least(|| {
            cursor.seek(0).unwrap();
            let mut step = || black_box(cursor.advance().unwrap().unwrap().value().len());
            timed(|| (0..READ).map(|_| step()).sum::<usize>()).0
        });
        let seek = least(|| {
            let walk = |at: u64| {
                cursor.seek(at * 77 % READ).unwrap();
                black_box(cursor.advance().unwrap().unwrap());
            };
            timed(|| (0..READ).for_each(walk)).0
        });
        let [in_order, walk, seek] = [in_order, walk, seek].map(nanos_a_record);
        let open_now = handles() - before;
        println!(
            "| {shards} | {open:.1?} | {and:.1?} | {build:.1?} | {in_order} ns | {walk} ns | \
             {seek} ns | {open_now} |"
        );
    }
    // Databases, whose files stay open.
    let folder = tempfile::tempdir().unwrap();
    let images = |number: usize| (0..3).map(move |image| common::image(number + image, 1, 2, 2));
    for number in 0..20 {
        common::write_lmdb(&folder.path().join(format!("lmdb {number}")), images(number));
        let path = folder.path().join(format!("leveldb {number}"));
        common::leveldb::write(&path, rusty_leveldb::Options::default(), images(number));
    }
    let before = handles();
    let lmdb = |number| Lmdb::open(folder.path().join(format!("lmdb {number}"))).unwrap();
    let lmdbs = (1..20).fold(Joined::new(lmdb(0)), |joined, number| joined.and(lmdb(number)));
    let cursor = lmdbs.cursor().unwrap();
    println!("{} handles of 20 LMDBs and a cursor", handles() - before);
    drop((cursor, lmdbs));
    let before = handles();
    let leveldb = |number| LevelDb::open(folder.path().join(format!("leveldb {number}"))).unwrap();
    let leveldbs = (1..20).fold(Joined::new(leveldb(0)), |joined, number| joined.and(leveldb(number)));
    let mut cursor = leveldbs.cursor().unwrap();
    while cursor.skip().unwrap() {}
    println!("{} handles of 20 LevelDBs and a cursor that read them", handles() - before);
}
