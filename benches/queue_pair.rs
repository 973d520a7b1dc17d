//! The cost of handing a run of records to a consumer and getting its slot back.
//!
//! `cargo bench --bench queue_pair`. The records have no bytes: only the queue pair, and filling in the
//! records' identifiers, is timed. On one thread nobody waits; across two, a run comes with a wake-up if the
//! other end is slower. "together" is how many slots return at once. Rates are of records.

#![allow(missing_docs, reason = "a bench")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::bench_support::QueuePairBench;

const SLOTS: usize = 64;
const RUNS: [usize; 3] = [1, 16, 64];

fn one_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue pair, one thread");
    for records in RUNS {
        let pair = QueuePairBench::new(SLOTS, records, 1);
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(format!("run of {records}"), |bencher| {
            bencher.iter(|| {
                pair.fill();
                black_box(pair.drain())
            });
        });
    }
    group.finish();
}

/// The time that this many runs take from a reader's thread to this one, and back.
fn across(pair: &QueuePairBench, runs: u64) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..runs).for_each(|_| pair.fill()));
        (0..runs).for_each(|_| {
            black_box(pair.drain());
        });
    });
    start.elapsed()
}

fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue pair, two threads");
    for (records, together) in RUNS.into_iter().flat_map(|records| [(records, 1), (records, SLOTS / 4)]) {
        let pair = QueuePairBench::new(SLOTS, records, together);
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(format!("run of {records}, {together} together"), |bencher| {
            bencher.iter_custom(|runs| across(&pair, runs));
        });
    }
    group.finish();
}

criterion_group!(benches, one_thread, two_threads);
criterion_main!(benches);
