//! How fast a record is found by its position, beside reading the same database in order; how long it takes
//! to make the index of a million records, and to open it. One thread, page cache warm.
//!
//! `cargo bench --bench record_index`.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod databases;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use databases::{million, raw224, small};
use percolator::source::{Cursor, IndexPlace, LevelDb, Lmdb, Source};

/// Records looked up in one round.
const RECORDS: u64 = 1000;

fn open(path: &Path) -> Box<dyn Source> {
    let source: Box<dyn Source> = match path.join("CURRENT").exists() {
        true => Box::new(LevelDb::open(path).unwrap()),
        false => Box::new(Lmdb::open(path).unwrap()),
    };
    source.index(&IndexPlace::Beside).unwrap();
    source
}

/// A LevelDB, made once and kept in the target folder; its blocks are not compressed.
fn leveldb(name: &str, records: usize, bytes: usize) -> (PathBuf, usize) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.join("complete").exists() {
        let _ = std::fs::remove_dir_all(&folder);
        let value = |index| (0..bytes).map(|at| common::pixel(index, at)).collect();
        let records = (0..records).map(|index| (common::key(index), value(index)));
        common::leveldb::write(&folder, rusty_leveldb::Options::default(), records);
        std::fs::write(folder.join("complete"), "").unwrap();
    }
    (folder, records)
}

/// One step, and one byte of each page of the value, as a consumer would touch it.
fn step(cursor: &mut dyn Cursor, reads: bool) -> bool {
    let Some(entry) = cursor.advance().unwrap() else { return false };
    let value = entry.value();
    black_box(value.len());
    if reads {
        black_box(value.iter().step_by(4096).fold(0_u8, |sum, &byte| sum.wrapping_add(byte)));
    }
    true
}

fn positions(records: usize) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % records as u64
    }
}

/// The time of this many rounds of steps, of a cursor that has been everywhere.
fn time_walk(path: &Path, rounds: u64, reads: bool, is_sought: bool, at_random: Option<usize>) -> Duration {
    let source = open(path);
    let mut cursor = source.cursor().unwrap();
    while step(&mut *cursor, reads) {}
    if is_sought {
        cursor.seek(0).unwrap();
        while step(&mut *cursor, reads) {}
        cursor.seek(0).unwrap();
    } else {
        cursor.rewind().unwrap();
    }
    let mut position = at_random.map(positions);
    let start = Instant::now();
    for _ in 0..rounds * RECORDS {
        if let Some(position) = &mut position {
            cursor.seek(position()).unwrap();
        }
        if !step(&mut *cursor, reads) {
            if is_sought { cursor.seek(0).unwrap() } else { cursor.rewind().unwrap() }
        }
    }
    start.elapsed()
}

fn records(criterion: &mut Criterion) {
    for (name, (path, records)) in [
        ("3 KB", small()),
        ("150 KB", raw224()),
        ("3 KB in a LevelDB", leveldb("leveldb small", 30_000, 3083)),
        ("150 KB in a LevelDB", leveldb("leveldb large", 1000, 150_542)),
    ] {
        let mut group = criterion.benchmark_group(format!("records of {name}"));
        group.sample_size(10).throughput(Throughput::Elements(RECORDS));
        for (how, reads) in [("", false), (", and pages touched", true)] {
            group.bench_function(BenchmarkId::new("walked", how), |bencher| {
                bencher.iter_custom(|rounds| time_walk(&path, rounds, reads, false, None));
            });
            group.bench_function(BenchmarkId::new("walked by the index", how), |bencher| {
                bencher.iter_custom(|rounds| time_walk(&path, rounds, reads, true, None));
            });
            group.bench_function(BenchmarkId::new("at random", how), |bencher| {
                bencher.iter_custom(|rounds| time_walk(&path, rounds, reads, true, Some(records)));
            });
        }
        group.finish();
    }
}

fn sidecar_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".percolator-index");
    name.into()
}

fn indexes(criterion: &mut Criterion) {
    let (path, records) = million();
    let mut group = criterion.benchmark_group("index of a million records");
    group.sample_size(10).throughput(Throughput::Elements(records as u64));
    let source = Lmdb::open(&path).unwrap();
    group.bench_function("made in memory", |bencher| {
        // A clone would share the existing index.
        bencher.iter(|| Lmdb::open(&path).unwrap().index(&IndexPlace::Memory).unwrap());
    });
    group.bench_function("made and written", |bencher| {
        bencher.iter(|| {
            let _ = std::fs::remove_file(sidecar_of(&path));
            Lmdb::open(&path).unwrap().index(&IndexPlace::Beside).unwrap();
        });
    });
    group.bench_function("opened, and one record looked up", |bencher| {
        bencher.iter(|| {
            let source = open(&path);
            let mut cursor = source.cursor().unwrap();
            cursor.seek(records as u64 / 2).unwrap();
            black_box(cursor.advance().unwrap().is_some());
        });
    });
    group.bench_function("opened, and one of each thousand looked up", |bencher| {
        bencher.iter(|| {
            let source = open(&path);
            let mut cursor = source.cursor().unwrap();
            for position in (0..records as u64).step_by(1000) {
                cursor.seek(position).unwrap();
                black_box(cursor.advance().unwrap().is_some());
            }
        });
    });
    drop(source);
    group.finish();
}

criterion_group!(benches, records, indexes);
criterion_main!(benches);
