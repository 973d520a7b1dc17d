//! How long resuming takes: from describing a feed to its first batch, on a million records, beside a run
//! that starts anew; and how long it takes to take a snapshot, and to compute the plan of a job in another
//! world. Page cache warm, index made.
//!
//! `cargo bench --bench snapshot`.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod databases;

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{Criterion, criterion_group, criterion_main};
use databases::million;
use once_cell::sync::Lazy;
use percolator::order::{BatchSize, Job, World};
use percolator::record::StepId;
use percolator::{Device, Feed, FeedBuilder, Shuffle, Snapshot};

/// Looked up once, because `million` reads the whole database.
static MILLION: Lazy<PathBuf> = Lazy::new(|| million().0);

/// A feed with batches of 64 on this many lanes.
fn describe(shuffle: Shuffle, lanes: usize) -> FeedBuilder {
    let feed = Feed::builder().lmdb(&*MILLION).batch_size(64).devices((0..lanes).map(Device::host));
    feed.threads(2).epochs(90).shuffle(shuffle)
}

/// The position of a run of two lanes, far from its beginning.
fn far(shuffle: Shuffle) -> Snapshot {
    let mut feed = describe(shuffle, 2).build().unwrap();
    feed.seek((41, 3000)).unwrap();
    feed.snapshot().unwrap()
}

fn first_batch(feed: FeedBuilder) {
    let mut feed = feed.build().unwrap();
    black_box(feed.steps().next().unwrap().unwrap().len());
}

fn resumed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("to the first step, of a million records");
    group.sample_size(30);
    for (name, shuffle) in [("in order", Shuffle::No), ("shuffled", Shuffle::Global)] {
        // Makes the index, if there is none yet.
        let snapshot = far(shuffle);
        group.bench_function(format!("{name}, begun"), |bencher| {
            bencher.iter(|| first_batch(describe(shuffle, 2)));
        });
        group.bench_function(format!("{name}, gone on"), |bencher| {
            bencher.iter(|| first_batch(describe(shuffle, 2).resume(&snapshot)));
        });
        group.bench_function(format!("{name}, gone on with three lanes"), |bencher| {
            bencher.iter(|| first_batch(describe(shuffle, 3).resume(&snapshot)));
        });
    }
    group.finish();
}

fn taken(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot");
    let feed = describe(Shuffle::Global, 2).build().unwrap();
    group.bench_function("taken", |bencher| bencher.iter(|| feed.snapshot().unwrap()));
    let snapshot = feed.snapshot().unwrap();
    group.bench_function("written as text", |bencher| bencher.iter(|| snapshot.to_string()));
    let text = snapshot.to_string();
    group.bench_function("read", |bencher| bencher.iter(|| text.parse::<Snapshot>().unwrap()));
    let job =
        |workers| Job::new([1_281_167], BatchSize::Global(256), World::new(workers, 8 * workers).unwrap());
    let plan = job(8).plan().unwrap();
    let next = [StepId { epoch: 41, step: 3000 }; 64];
    group.bench_function("plan of another world", |bencher| {
        bencher.iter(|| plan.resumed(&job(7), &next).unwrap());
    });
    group.finish();
}

criterion_group!(benches, resumed, taken);
criterion_main!(benches);
