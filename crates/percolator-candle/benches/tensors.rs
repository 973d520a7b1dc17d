//! A batch into tensors, beside the bare copy of the same bytes, and a feed with tensors beside one without.
//!
//! `copy` is what candle cannot avoid: the same bytes from the batch's memory into vectors that are allocated
//! for it. `reused` is a copy into memory that is already there, which candle has no way to take.

use std::hint::black_box;
use std::time::Duration;

use candle_core::Device;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use percolator::decoder::Decoded;
use percolator::source::{FnSource, Record};
use percolator::{Batch, Dtype, Feed, FeedBuilder, Field, Row};
use percolator_candle::{CandleBatch as _, CandleFeed as _};

/// Records of an image of 3xNxN floats and a label.
fn feed(side: usize, records: usize) -> FeedBuilder {
    let source = FnSource::new("made", 1 << 20, |position, to| {
        to.extend(position.to_le_bytes());
        Ok(())
    });
    let fields = [Field::new("data", Dtype::F32, [3, side, side]), Field::scalar("label", Dtype::I64)];
    let decode = move |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
        let first = record.value[0];
        row.write("data", &vec![f32::from(first); 3 * side * side])?;
        row.set("label", i64::from(first))?;
        Ok(())
    };
    Feed::builder().source(source).decode(fields, decode).batch_size(records)
}

/// The shapes of batches: the side of an image, and the number of records.
const SHAPES: [(usize, usize); 4] = [(8, 32), (32, 128), (224, 32), (224, 256)];

fn batch(side: usize, records: usize) -> Batch {
    let mut feed = feed(side, records).prefetch(1).build().expect("the feed is valid");
    feed.take_lanes().expect("once").remove(0).next().expect("it does not end").expect("records are valid")
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    group.sample_size(30).measurement_time(Duration::from_secs(3));
    for (side, records) in SHAPES {
        let batch = batch(side, records);
        let shape = format!("{records}x3x{side}x{side}");
        let bytes: usize = batch.arrays().map(|array| array.bytes.len()).sum();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("tensors", &shape), |bencher| {
            bencher.iter(|| batch.to_tensors(&Device::Cpu).expect("candle has these types"));
        });
        group.bench_function(BenchmarkId::new("copy", &shape), |bencher| {
            bencher.iter(|| batch.arrays().map(|array| black_box(array.bytes.to_vec()).len()).sum::<usize>());
        });
        let mut memory = vec![1; bytes];
        group.bench_function(BenchmarkId::new("reused", &shape), |bencher| {
            bencher.iter(|| {
                let mut rest = &mut memory[..];
                for array in batch.arrays() {
                    let (to, after) = rest.split_at_mut(array.bytes.len());
                    to.copy_from_slice(black_box(array.bytes));
                    rest = after;
                }
            });
        });
    }
    group.finish();
}

fn feeds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("feed");
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    for (side, records) in [(32, 128), (224, 32)] {
        let shape = format!("{records}x3x{side}x{side}");
        group.throughput(Throughput::Elements(records as u64));
        let mut bare = feed(side, records).build().expect("the feed is valid");
        let mut steps = bare.steps();
        group.bench_function(BenchmarkId::new("batches", &shape), |bencher| {
            bencher.iter(|| steps.next().expect("it does not end").expect("records are valid").len());
        });
        drop(steps);
        drop(bare);
        let mut feed = feed(side, records).build().expect("the feed is valid");
        let mut steps = feed.tensors(&Device::Cpu).expect("it has one lane");
        group.bench_function(BenchmarkId::new("tensors", &shape), |bencher| {
            bencher.iter(|| steps.next().expect("it does not end").expect("records are valid").len());
        });
    }
    group.finish();
}

criterion_group!(benches, batches, feeds);
criterion_main!(benches);
