//! Whole feeds over warm databases, against consumers that only count.
//!
//! `cargo bench --bench feed`. The goals are shares of one thread's memcpy rate, which is therefore
//! measured in the same run.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::{DataReader, Dtype, Feed, ImageShape, Lmdb, MeanImage, Transform};

/// A database, made once and kept in the target folder.
fn database(name: &str, count: usize, channels: usize, extent: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.join("complete").exists() {
        let _ = std::fs::remove_dir_all(&folder);
        common::write_images(&folder, count, channels, extent, extent);
        std::fs::write(folder.join("complete"), "").unwrap();
    }
    // Warm the page cache.
    black_box(std::fs::read(folder.join("data.mdb")).unwrap().len());
    folder
}

/// 1 GB of 3x256x256 records.
fn raw256() -> PathBuf {
    database("raw256", 5300, 3, 256)
}

/// 3 KB records.
fn small() -> PathBuf {
    database("small", 100_000, 3, 32)
}

fn mean(extent: usize) -> MeanImage {
    let shape = ImageShape { channels: 3, height: extent, width: extent };
    MeanImage::new(shape, vec![117.5_f32; 3 * extent * extent]).unwrap()
}

fn transform(extent: usize, crop: u32) -> Transform {
    Transform::new().crop(crop).mirror(true).mean_image(mean(extent)).scale(0.017)
}

/// The time that `batches` batches take, once the feed has been round once.
fn time_batches(feed: &mut Feed, batches: u64) -> Duration {
    let mut lane = feed.lanes().pop().unwrap();
    for _ in 0..200 {
        drop(lane.next().unwrap().unwrap());
    }
    let start = Instant::now();
    for _ in 0..batches {
        drop(black_box(lane.next().unwrap().unwrap()));
    }
    start.elapsed()
}

fn feeds(criterion: &mut Criterion) {
    let cases = [
        ("raw256/f32", raw256(), 64, transform(256, 227), Dtype::F32, 3 * 227 * 227 * 4),
        ("raw256/u8", raw256(), 64, Transform::new().crop(227).mirror(true), Dtype::U8, 3 * 227 * 227),
        ("small/f32", small(), 256, transform(32, 28), Dtype::F32, 3 * 28 * 28 * 4),
    ];
    let mut group = criterion.benchmark_group("feed");
    group.sample_size(10).measurement_time(Duration::from_secs(6));
    for (name, path, batch_size, transform, dtype, bytes) in cases {
        group.throughput(Throughput::ElementsAndBytes {
            elements: batch_size as u64,
            bytes: (batch_size * bytes) as u64,
        });
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|batches| {
                let mut feed = Feed::builder()
                    .lmdb(&path)
                    .batch_size(batch_size)
                    .transform(transform.clone())
                    .dtype(dtype)
                    .threads(2)
                    .build()
                    .unwrap();
                time_batches(&mut feed, batches)
            });
        });
    }
    group.finish();
}

fn memcpy(criterion: &mut Criterion) {
    const BYTES: usize = 64 * 3 * 227 * 227 * 4;
    let source = vec![1_u8; BYTES];
    let mut targets: Vec<Vec<u8>> = (0..4).map(|_| vec![0_u8; BYTES]).collect();
    let mut group = criterion.benchmark_group("limit");
    group.throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function("memcpy, 1 thread, one raw256 batch", |bencher| {
        let mut turn = 0;
        bencher.iter(|| {
            turn = (turn + 1) % targets.len();
            targets[turn].copy_from_slice(black_box(&source));
            black_box(&targets[turn]);
        });
    });
    group.finish();
}

/// From `build()` to the first batch, on a warm database of 1 GB.
fn first_batch(criterion: &mut Criterion) {
    let path = raw256();
    let mut group = criterion.benchmark_group("first batch");
    group.sample_size(20);
    group.bench_function("raw256/f32, batch 64", |bencher| {
        bencher.iter_custom(|rounds| {
            let time_one = |_| {
                let builder = Feed::builder().lmdb(&path).batch_size(64).transform(transform(256, 227));
                let start = Instant::now();
                let mut feed = builder.threads(2).build().unwrap();
                let mut lane = feed.lanes().pop().unwrap();
                let batch = lane.next().unwrap().unwrap();
                let elapsed = start.elapsed();
                drop(batch);
                elapsed
            };
            (0..rounds).map(time_one).sum()
        });
    });
    group.finish();
}

/// The reader thread alone: records dealt to a consumer that gives them straight back.
fn reader(criterion: &mut Criterion) {
    let path = small();
    let mut group = criterion.benchmark_group("reader");
    group.sample_size(20);
    group.throughput(Throughput::Elements(100_000));
    group.bench_function("walk 3 KB records", |bencher| {
        bencher.iter_custom(|rounds| {
            let reader =
                DataReader::builder("bench", Lmdb::open(&path).unwrap()).batch_size(256).open().unwrap();
            let mut records = 0;
            let start = Instant::now();
            while records < rounds * 100_000 {
                records += reader.full().pop().unwrap().unwrap().len() as u64;
            }
            start.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, memcpy, feeds, first_batch, reader);
criterion_main!(benches);
