//! How fast batches are assembled from records that are already in memory: no database is read.
//!
//! `cargo bench --bench batch`. The feed's source lends its records from a vector. The reader deals them, the
//! prefetcher gives them places, one worker or as many as there are processors write them, and complete
//! batches are counted and dropped. "u8" is cropped and mirrored; "f32" adds the mean image and the scale.
//! Rates are of records, and of the bytes written.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unsafe_code,
    reason = "a bench, whose records are lent as a database's are"
)]

#[path = "../tests/common/mod.rs"]
mod common;
mod databases;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator::source::{Cursor, Entry, Lender, Source, SourceError};
use percolator::{Dtype, Feed, FeedBuilder, Transform};

/// The bytes of one source: more than the caches hold.
const SOURCE_BYTES: usize = 64 << 20;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone)]
struct InMemory(Arc<Records>);

impl std::fmt::Debug for InMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InMemory({} records)", self.0.len())
    }
}

impl Source for InMemory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn records(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(Walk { records: self.0.clone(), lender: Lender::new(self.0.clone()), next: 0 }))
    }
}

struct Walk {
    records: Arc<Records>,
    lender: Lender,
    next: usize,
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let Some((key, value)) = self.records.get(self.next) else { return Ok(None) };
        self.next += 1;
        // SAFETY: the lender keeps the records alive too, and nobody writes to them.
        Ok(Some(unsafe { Entry::lent(key, value, &self.lender) }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }
}

/// The time that `batches` batches take once the ring is warm.
fn time_batches(builder: FeedBuilder, batches: u64) -> Duration {
    let mut feed = builder.build().unwrap();
    let mut lane = feed.take_lanes().unwrap().pop().unwrap();
    for _ in 0..12 {
        drop(lane.next().unwrap().unwrap());
    }
    let start = Instant::now();
    for _ in 0..batches {
        drop(black_box(lane.next().unwrap().unwrap()));
    }
    start.elapsed()
}

fn batches(criterion: &mut Criterion) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for (name, side, crop, batch_size) in [("small", 32, 28, 256), ("large", 256, 227, 64)] {
        let count = SOURCE_BYTES / (3 * side * side);
        let records = (0..count).map(|index| common::image(index, 3, side, side)).collect();
        let source = InMemory(Arc::new(records));
        let bytes = Transform::new().crop(crop).mirror(true);
        let mut group = criterion.benchmark_group(format!("batch, {name} records"));
        group.sample_size(10).measurement_time(Duration::from_secs(3));
        for (dtype, transform) in [(Dtype::U8, bytes), (Dtype::F32, databases::transform(side, crop))] {
            let record_bytes = 3 * crop as usize * crop as usize * dtype.size();
            let (elements, bytes) = (batch_size as u64, (batch_size * record_bytes) as u64);
            group.throughput(Throughput::ElementsAndBytes { elements, bytes });
            let mut threads = vec![1, processors];
            threads.dedup();
            for threads in threads {
                let builder = Feed::builder().source(source.clone()).transform(transform.clone());
                let builder = builder.batch_size(batch_size).dtype(dtype).threads(threads);
                group.bench_function(format!("{dtype:?}, {threads} workers").to_lowercase(), |bencher| {
                    bencher.iter_custom(|batches| time_batches(builder.clone(), batches));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, batches);
criterion_main!(benches);
