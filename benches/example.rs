//! How fast Examples are parsed straight into their rows, on one thread.
//!
//! `cargo bench --bench example`. A record has five lists of 128 numbers, as those of XLNet's data have: two
//! of token ids below 32,000, most of which take two or three bytes, and three of numbers of one byte. The
//! records stay in the caches. Rates are of lists.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::bench_support::ExampleBench;
use percolator::example::{Example, ExampleWriter};

const BATCH: usize = 64;
const LISTS: usize = 5;
const LENGTH: usize = 128;

/// The multiplier and the increment of Knuth's generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

fn records() -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        ((state >> 33) % limit).cast_signed()
    };
    (0..BATCH)
        .map(|_| {
            let mut writer = ExampleWriter::new();
            for (name, limit) in
                [("input", 32_000), ("is_masked", 2), ("seg_id", 3), ("target", 32_000), ("type", 100)]
            {
                writer.ints(name, (0..LENGTH).map(|_| below(limit)));
            }
            writer.to_bytes()
        })
        .collect()
}

fn examples(criterion: &mut Criterion) {
    let records = records();
    let mut group = criterion.benchmark_group("example");
    group.throughput(Throughput::Elements((BATCH * LISTS) as u64));
    for (name, dtype) in [("five lists to i64", "i64"), ("five lists to i32", "i32")] {
        let names = ["input", "target", "is_masked", "seg_id", "type"];
        let fields = names.map(|name| format!("{name}:{dtype}[{LENGTH}]")).join(",");
        let mut bench = ExampleBench::new(&fields.parse().unwrap(), BATCH).unwrap();
        group.bench_function(name, |bencher| bencher.iter(|| bench.decode(black_box(&records)).unwrap()));
    }
    let mut bench = ExampleBench::new(&"input:i32[128]".parse().unwrap(), BATCH).unwrap();
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("one of five lists to i32", |bencher| {
        bencher.iter(|| bench.decode(black_box(&records)).unwrap());
    });
    group.throughput(Throughput::Elements((BATCH * LISTS) as u64));
    group.bench_function("checked, and not read", |bencher| {
        bencher.iter(|| records.iter().all(|record| black_box(Example::parse(black_box(record))).is_ok()));
    });
    group.finish();
}

criterion_group!(benches, examples);
criterion_main!(benches);
