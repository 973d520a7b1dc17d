//! Whole feeds, and the reader alone, over warm databases, with consumers that only count.
//!
//! `cargo bench --bench feed`. For shares of the machine's own limits see `percolator bench`.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod databases;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use databases::{Case, cases, raw256, small, transform};
use percolator::Feed;
use percolator::reader::DataReader;
use percolator::source::Lmdb;

/// The time that `batches` batches take, once the feed has read its whole source.
fn time_batches(case: &Case, batches: u64) -> Duration {
    let mut feed = case.builder().build().unwrap();
    let mut lane = feed.take_lanes().unwrap().pop().unwrap();
    for _ in 0..case.records.div_ceil(case.batch_size) {
        drop(lane.next().unwrap().unwrap());
    }
    let start = Instant::now();
    for _ in 0..batches {
        drop(black_box(lane.next().unwrap().unwrap()));
    }
    start.elapsed()
}

fn feeds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("feed");
    group.sample_size(10).measurement_time(Duration::from_secs(6));
    for case in cases() {
        group.throughput(Throughput::ElementsAndBytes {
            elements: case.batch_size as u64,
            bytes: (case.batch_size * case.record_bytes) as u64,
        });
        group.bench_function(case.name, |bencher| {
            bencher.iter_custom(|batches| time_batches(&case, batches));
        });
    }
    group.finish();
}

/// From `build()` to the first batch, on a warm database of 1 GB.
fn first_batch(criterion: &mut Criterion) {
    let (path, _) = raw256();
    let transform = transform(256, 227);
    let mut group = criterion.benchmark_group("first batch");
    group.sample_size(20);
    group.bench_function("raw256 to f32, batch 64", |bencher| {
        bencher.iter_custom(|rounds| {
            let time_one = |_| {
                let builder = Feed::builder().lmdb(&path).batch_size(64).transform(transform.clone());
                let start = Instant::now();
                let mut feed = builder.threads(2).build().unwrap();
                let mut lane = feed.take_lanes().unwrap().pop().unwrap();
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

/// The reader thread alone: records dealt to a consumer that returns them at once.
fn reader(criterion: &mut Criterion) {
    let (path, records) = small();
    let mut group = criterion.benchmark_group("reader");
    group.sample_size(20);
    group.throughput(Throughput::Elements(records as u64));
    group.bench_function("walk 3 KB records", |bencher| {
        bencher.iter_custom(|rounds| {
            let database = Lmdb::open(&path).unwrap();
            let reader = DataReader::builder("bench", database).batch_size(256).open().unwrap();
            let mut seen = 0;
            let start = Instant::now();
            while seen < rounds * records as u64 {
                seen += reader.full().pop().unwrap().unwrap().len() as u64;
            }
            start.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, feeds, first_batch, reader);
criterion_main!(benches);
