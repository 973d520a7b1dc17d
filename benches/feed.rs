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
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::reader::DataReader;
use percolator::source::{Lmdb, Record};
use percolator::{Dtype, Feed, Field, RecordDecoder, Row};

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

/// Bytes as they are, of which each batch's first record may be looked at beforehand, as if it could bring
/// another shape.
struct Bytes {
    may_reshape: bool,
}

impl RecordDecoder for Bytes {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("bytes", Dtype::U8, [first.value.len()])])
    }

    fn scratch(&self, _setup: WorkerSetup) {}

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(row.write("bytes", record.value)?)
    }

    fn may_reshape(&self) -> bool {
        self.may_reshape
    }

    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        let own = self.fields(first)?;
        Ok((own != fields).then_some(own))
    }
}

/// Records of 3 KB as bytes, one or 64 in a batch, with and without a look at each batch's first record.
fn first_records(criterion: &mut Criterion) {
    let (path, records) = small();
    let mut group = criterion.benchmark_group("first records");
    group.sample_size(20).throughput(Throughput::Elements(records as u64));
    for batch_size in [1, 64] {
        for may_reshape in [false, true] {
            let name = format!("batch {batch_size}, {}", if may_reshape { "looked at" } else { "not" });
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|rounds| {
                    let feed = Feed::builder().lmdb(&path).decoder(Bytes { may_reshape }).threads(1);
                    let mut feed = feed.batch_size(batch_size).build().unwrap();
                    let mut lane = feed.take_lanes().unwrap().pop().unwrap();
                    let batches = |passes: u64| passes as usize * records / batch_size;
                    (0..batches(1)).for_each(|_| drop(lane.next().unwrap().unwrap()));
                    let start = Instant::now();
                    for _ in 0..batches(rounds) {
                        drop(black_box(lane.next().unwrap().unwrap()));
                    }
                    start.elapsed()
                });
            });
        }
    }
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

criterion_group!(benches, feeds, first_batch, first_records, reader);
criterion_main!(benches);
