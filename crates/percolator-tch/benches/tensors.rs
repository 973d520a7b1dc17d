//! What it costs to make a batch torch's tensors, beside copying the same bytes: with `memcpy`, and with
//! tch's `Tensor::from_slice`.
//!
//! ```text
//! LIBTORCH_USE_PYTORCH=1 cargo bench -p percolator-tch
//! ```
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use percolator::source::FnSource;
use percolator::{Dtype, Feed, Field, Lane};
use percolator_tch::TchBatch as _;
use tch::{Device, Tensor};

/// A lane of batches of f32 images with an i64 label each, which does not end.
fn lane(records: usize, shape: [usize; 3]) -> Lane {
    let mut feed = Feed::builder()
        .source(FnSource::new("made", 1024, |position, value| {
            value.extend(position.to_le_bytes());
            Ok(())
        }))
        .decode([Field::new("data", Dtype::F32, shape), Field::scalar("label", Dtype::I64)], |record, row| {
            row.values_mut::<f32>("data")?.fill(f32::from(record.value[0]));
            row.set("label", i64::from(record.value[0]))?;
            Ok(())
        })
        .batch_size(records)
        .prefetch(4)
        .build()
        .unwrap();
    feed.take_lanes().unwrap().remove(0)
}

fn tensors(criterion: &mut Criterion) {
    for (name, records, shape) in
        [("32x1x8x8", 32, [1, 8, 8]), ("64x3x64x64", 64, [3, 64, 64]), ("64x3x224x224", 64, [3, 224, 224])]
    {
        let mut lane = lane(records, shape);
        let elements = records * shape.into_iter().product::<usize>();
        let mut to = vec![0.0_f32; elements];
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes((elements * size_of::<f32>()) as u64));
        // Each measurement includes the release of the batch.
        group.bench_function("into_tensors", |bencher| {
            let next = || lane.next().unwrap().unwrap();
            bencher.iter_batched(
                next,
                |batch| drop(black_box(batch.into_tensors(Device::Cpu).unwrap())),
                BatchSize::PerIteration,
            );
        });
        group.bench_function("memcpy", |bencher| {
            let next = || lane.next().unwrap().unwrap();
            bencher.iter_batched(
                next,
                |batch| to.copy_from_slice(black_box(&batch.get::<f32>("data").unwrap())),
                BatchSize::PerIteration,
            );
        });
        group.bench_function("from_slice", |bencher| {
            let next = || lane.next().unwrap().unwrap();
            bencher.iter_batched(
                next,
                |batch| {
                    let data = Tensor::from_slice(&batch.get::<f32>("data").unwrap());
                    let label = Tensor::from_slice(&batch.get::<i64>("label").unwrap());
                    drop(black_box((data, label)));
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, tensors);
criterion_main!(benches);
